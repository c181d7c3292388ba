"""Install the hook into a coding agent's own settings, and remove it. ``doctor`` checks it.

Each agent reads its hooks from a JSON file. ``install`` merges our entries into it: other entries
and settings stay as they are, and installing again changes nothing. ``uninstall`` removes our
entries and what only they needed. An entry is ours if its command runs ``sayso hook run``.

The command names everything by its absolute path, and starts the interpreter isolated, so that a
repository in which the agent works cannot replace a part of it (``sayso.hooks.program``). It is
wrapped in a shell that exits with 2, which denies, if the program cannot be started at all. The
agent's time-out is longer than the program's own limit, because an agent whose hook takes too long
runs the tool.

Each agent has its own configuration, with its own token, in the user's data folder. That folder
also has the store of a hook that was installed without naming a server or a store.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sayso.errors import SaysoError
from sayso.hooks.program import GRACE, LIMIT, Config

Scope = Literal["user", "project"]

#: Matches the commands of our entries.
_OURS = re.compile(r"sayso(/__main__\.py)?['\"]*\s+hook\s+run\b")
_PROGRAM = str(Path(__file__).parents[1] / "__main__.py")
#: Denies if the program fails. Gemini CLI runs the tool after an exit with 2 that printed nothing.
GUARD = "|| { [ $? = 2 ] || echo Sayso: not run: the hook failed >&2; exit 2; }"
#: OpenCode has plugins instead of settings. Ours has the same settings in one of its lines.
_PLUGIN = Path(__file__).with_name("opencode.js")
_EMBEDDED = re.compile(r"^const SETTINGS = (\{.*\})$", re.M)
#: The agent's time-out for the hook that reports results, in seconds.
_REPORT_TIMEOUT = 30


class SettingsError(SaysoError):
    """An agent's settings cannot be read or changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """What ``sayso hook install`` writes into the command."""

    limit: float = LIMIT
    #: Answer the agent's permission prompts, instead of asking about every tool use.
    prompts: bool = False
    #: Claude Code: end the session while a request waits, instead of asking the model to try again.
    defer: bool = False
    #: Answer for what a preset allows too, instead of the agent's own rules and prompts.
    replace_prompts: bool = False
    #: The absolute path of the configuration.
    config: str
    #: The interpreter that runs the hook, and the file that it runs.
    python: str = sys.executable
    program: str = _PROGRAM

    @property
    def timeout(self) -> int:
        """The time that the agent gives the hook, in seconds."""
        return round(self.limit + GRACE)

    def command(self) -> str:
        parts = [self.python, "-I", "-S", "-X", "utf8", self.program, "hook", "run"]
        parts += ["--config", self.config, "--limit", f"{self.limit:g}"]
        parts += ["--defer"] if self.defer else []
        parts += ["--replace-prompts"] if self.replace_prompts else []
        parts += ["--prompts"] if self.prompts else []
        return f"/bin/sh -c {shlex.quote(f'{shlex.join(parts)} {GUARD}')}"


def data_folder() -> Path:
    """Return the folder of the user's data, in which no project is."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "sayso"


def config_file(agent: str) -> Path:
    """Return the file with the address and the token of an agent's hook."""
    return data_folder() / f"{agent}.json"


def project_root(folder: Path) -> Path:
    """Return the root of the git repository that a folder is in, or the folder."""
    roots = (parent for parent in (folder, *folder.parents) if (parent / ".git").exists())
    return next(roots, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Where one coding agent keeps its hooks, and in which form."""

    name: str
    title: str
    #: The settings files, relative to the project's folder and to the user's (see ``home``).
    project_file: str
    user_file: str
    #: The variable that moves the user's folder, and the folder without it.
    home_variable: str
    home: str
    #: The event before a tool use, the one after it, and the one when the user has written.
    before: str = "PreToolUse"
    after: str = "PostToolUse"
    prompt: str = "UserPromptSubmit"
    #: The event when it would prompt its user about a tool use, if it has one.
    permission: str = ""
    #: Copilot has flat entries; the others have groups with a matcher.
    flat: bool = False
    #: Gemini counts in milliseconds.
    unit: int = 1
    timeout_key: str = "timeout"
    command_key: str = "command"
    #: Every file that it reads: a scope (managed, user, project, local), and a path or pattern.
    reads: tuple[tuple[str, str], ...]

    def file(self, scope: Scope, project: Path) -> Path:
        if scope == "project":
            return project / self.project_file
        return self.home_folder / self.user_file

    @property
    def home_folder(self) -> Path:
        base = os.environ.get(self.home_variable)
        return Path(base) if base else Path.home() / self.home

    def layers(self, project: Path, system: Path) -> Iterator[tuple[str, Path]]:
        """Yield the files that the agent reads and that exist, each with its scope.

        An agent may read the files of every folder up to the project's root.
        """
        root = project_root(project)
        folders = [project, *(above for above in project.parents if above.is_relative_to(root))]
        for scope, pattern in self.reads:
            bases = {"managed": [system], "user": [self.home_folder]}.get(scope, folders)
            for base in bases:
                for path in sorted(base.glob(pattern)):
                    yield scope, path

    def entries(self, options: HookOptions) -> dict[str, Any]:
        asking = [self.permission] if options.prompts else [self.before, self.permission]
        return {
            **{
                event: self._entry(options.command(), options.timeout)
                for event in filter(None, asking)
            },
            self.after: self._entry(options.command(), _REPORT_TIMEOUT),
            self.prompt: self._entry(options.command(), _REPORT_TIMEOUT),
        }

    def _entry(self, command: str, timeout: int) -> dict[str, Any]:
        hook = {
            "type": "command",
            self.command_key: command,
            self.timeout_key: timeout * self.unit,
        }
        if self.flat:
            return hook
        return {"matcher": "*", "hooks": [{"name": "sayso", **hook} if self.unit > 1 else hook]}


AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude",
            title="Claude Code",
            project_file=".claude/settings.json",
            user_file="settings.json",
            home_variable="CLAUDE_CONFIG_DIR",
            home=".claude",
            reads=(
                ("managed", "etc/claude-code/managed-settings.json"),
                ("managed", "etc/claude-code/managed-settings.d/*.json"),
                ("managed", "Library/Application Support/ClaudeCode/managed-settings.json"),
                ("managed", "Library/Application Support/ClaudeCode/managed-settings.d/*.json"),
                ("user", "settings.json"),
                ("project", ".claude/settings.json"),
                ("local", ".claude/settings.local.json"),
            ),
            permission="PermissionRequest",
        ),
        Agent(
            name="codex",
            title="Codex",
            project_file=".codex/hooks.json",
            user_file="hooks.json",
            home_variable="CODEX_HOME",
            home=".codex",
            reads=(
                ("managed", "etc/codex/*.toml"),
                ("managed", "etc/codex/hooks.json"),
                ("user", "*.toml"),
                ("user", "hooks.json"),
                ("project", ".codex/config.toml"),
                ("project", ".codex/hooks.json"),
            ),
            permission="PermissionRequest",
        ),
        Agent(
            name="copilot",
            title="Copilot CLI",
            project_file=".github/hooks/sayso.json",
            user_file="hooks/sayso.json",
            home_variable="COPILOT_HOME",
            home=".copilot",
            reads=(
                ("user", "hooks/*.json"),
                ("user", "config.json"),
                ("user", "settings.json"),
                ("project", ".github/hooks/*.json"),
                ("project", ".github/copilot/settings.json"),
                ("local", ".github/copilot/settings.local.json"),
            ),
            before="preToolUse",
            after="postToolUse",
            prompt="userPromptSubmitted",
            flat=True,
            timeout_key="timeoutSec",
            command_key="bash",
        ),
        Agent(
            name="gemini",
            title="Gemini CLI",
            project_file=".gemini/settings.json",
            user_file=".gemini/settings.json",
            home_variable="GEMINI_CLI_HOME",
            home="",
            reads=(
                ("managed", "etc/gemini-cli/*.json"),
                ("user", ".gemini/settings.json"),
                ("project", ".gemini/settings.json"),
            ),
            before="BeforeTool",
            after="AfterTool",
            prompt="BeforeAgent",
            unit=1000,
        ),
        Agent(
            name="opencode",
            title="OpenCode",
            project_file=".opencode/plugin/sayso.js",
            user_file="opencode/plugin/sayso.js",
            home_variable="XDG_CONFIG_HOME",
            home=".config",
            reads=(
                ("user", "opencode/plugin/sayso.js"),
                ("project", ".opencode/plugin/sayso.js"),
            ),
            before="tool.execute.before",
            after="tool.execute.after",
            prompt="chat.message",
            flat=True,
        ),
    )
}


# -- reading and writing settings


def read_settings(path: Path) -> dict[str, Any]:
    """Read a settings file; {} if there is none. Raise ``SettingsError`` if it is not valid.

    Copilot writes lines with comments into its own.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    if path.suffix == _PLUGIN.suffix:
        embedded = _EMBEDDED.search(text)
        if embedded is None:
            raise SettingsError(f"{path} is not the plugin of Sayso, so it was not changed")
        text = embedded[1]
    try:
        text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        content = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise SettingsError(f"{path} is not JSON, so it was not changed: {error}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{path} is not a JSON object, so it was not changed")
    return content


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    """Replace a file in one step, with its permissions. A link stays a link."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.sayso")
    if path.suffix == _PLUGIN.suffix:
        text = plugin_text(settings)
    else:
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    try:
        temporary.write_text(text, "utf-8")
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SettingsError(f"{path} cannot be written: {error}") from None


def plugin_text(settings: Mapping[str, Any]) -> str:
    """Return the plugin for OpenCode, with its settings in it."""
    line = f"const SETTINGS = {json.dumps(settings)}"
    return _EMBEDDED.sub(lambda _: line, _PLUGIN.read_text("utf-8"))


def hooks_of(path: Path, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the entries of each event. Raise ``SettingsError`` if their form is unknown."""
    hooks = settings.get("hooks", {})
    if isinstance(hooks, dict) and path.suffix == ".toml":  # Codex keeps its trust there, too
        hooks = {name: value for name, value in hooks.items() if name != "state"}
    if not isinstance(hooks, dict) or not all(
        isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
        for entries in hooks.values()
    ):
        raise SettingsError(f"{path}: unknown form of hooks, so it was not changed")
    return hooks


def commands_in(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the commands of one entry: itself, or those of its group."""
    group = entry.get("hooks")
    if not isinstance(group, list):
        group = [entry]
    for hook in group:
        if isinstance(hook, dict):
            yield hook


def is_ours(hook: Mapping[str, Any]) -> bool:
    command = hook.get("command") or hook.get("bash")
    return isinstance(command, str) and _OURS.search(command) is not None


def _without_ours(entries: Sequence[Any]) -> list[Any]:
    remaining: list[Any] = []
    for entry in entries:
        ours = [hook for hook in commands_in(entry) if is_ours(hook)]
        if not ours:
            remaining.append(entry)
        elif isinstance(entry.get("hooks"), list):
            others = [hook for hook in entry["hooks"] if hook not in ours]
            remaining += [{**entry, "hooks": others}] if others else []
    return remaining


def _without_hook(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without our entries, and without events that only we used."""
    hooks = {}
    for event, entries in hooks_of(path, settings).items():
        left = _without_ours(entries)
        if left or not entries:
            hooks[event] = left
    remaining = {**settings, "hooks": hooks}
    if not hooks and settings.get("hooks"):
        del remaining["hooks"]
    return remaining if "hooks" in settings else dict(settings)


def with_hook(agent: Agent, path: Path, options: HookOptions) -> dict[str, Any]:
    """Return the settings of a file with our hook added."""
    settings = _without_hook(path, read_settings(path))
    hooks = {event: list(entries) for event, entries in hooks_of(path, settings).items()}
    for event, entry in agent.entries(options).items():
        hooks.setdefault(event, []).append(entry)
    first = {"version": 1} if agent.flat and "version" not in settings else {}
    return {**first, **settings, "hooks": hooks}


def install(agent: Agent, path: Path, options: HookOptions) -> bool:
    """Install the hook. Return whether the file changed."""
    new_settings = with_hook(agent, path, options)
    if new_settings == read_settings(path):
        return False
    _write(path, new_settings)
    return True


def uninstall(agent: Agent, path: Path) -> bool:
    """Remove the hook. Return whether it was there."""
    settings = read_settings(path)
    left = _without_hook(path, settings)
    if left == settings:
        return False
    if not left or (agent.flat and left == {"version": 1}):
        path.unlink()
    else:
        _write(path, left)
    return True


def save_config(path: Path, config: Config) -> None:
    """Write a hook's configuration to a file that only the user can read."""
    values = {name: value for name, value in config._asdict().items() if value}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(json.dumps(values, indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error}") from None
