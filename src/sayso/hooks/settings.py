"""Install the hook into a coding agent's own settings, remove it, and diagnose problems with it.

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
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sayso.errors import SaysoError
from sayso.hooks.program import GRACE, LIMIT, Config, HookError, Server, load_config

Scope = Literal["user", "project"]

#: Matches the commands of our entries.
_OURS = re.compile(r"sayso(/__main__\.py)?['\"]*\s+hook\s+run\b")
_PROGRAM = str(Path(__file__).parents[1] / "__main__.py")
#: The agent's time-out for the hook that reports results, in seconds.
_REPORT_TIMEOUT = 30


class SettingsError(SaysoError):
    """An agent's settings cannot be read or changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """What ``sayso hook install`` writes into the command."""

    limit: float = LIMIT
    #: Claude Code: answer its permission prompts, instead of asking about every tool use.
    prompts: bool = False
    #: Claude Code: end the session while a request waits, instead of asking the model to try again.
    defer: bool = False
    #: Leave what the policy allows to the agent's own rules and prompts.
    keep_prompts: bool = False
    #: The absolute path of the configuration.
    config: str
    #: The interpreter that runs the hook.
    python: str = sys.executable

    @property
    def timeout(self) -> int:
        """The time that the agent gives the hook, in seconds."""
        return round(self.limit + GRACE)

    def command(self) -> str:
        parts = [self.python, "-I", "-S", "-X", "utf8", _PROGRAM, "hook", "run"]
        parts += ["--config", self.config, "--limit", f"{self.limit:g}"]
        parts += ["--defer"] if self.defer else []
        parts += ["--keep-prompts"] if self.keep_prompts else []
        return f"/bin/sh -c {shlex.quote(f'{shlex.join(parts)} || exit 2')}"


def data_folder() -> Path:
    """Return the folder of the user's data, in which no project is."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "sayso"


def config_file(agent: str) -> Path:
    """Return the file with the address and the token of an agent's hook."""
    return data_folder() / f"{agent}.json"


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
    #: Copilot has flat entries; the others have groups with a matcher.
    flat: bool = False
    #: Gemini counts in milliseconds.
    unit: int = 1
    timeout_key: str = "timeout"
    command_key: str = "command"
    tested: bool = True

    def file(self, scope: Scope, project: Path) -> Path:
        if scope == "project":
            return project / self.project_file
        base = os.environ.get(self.home_variable)
        return (Path(base) if base else Path.home() / self.home) / self.user_file

    def entries(self, options: HookOptions) -> dict[str, Any]:
        before = "PermissionRequest" if options.prompts else self.before
        return {
            before: self._entry(options.command(), options.timeout),
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
        ),
        Agent(
            name="codex",
            title="Codex",
            project_file=".codex/hooks.json",
            user_file="hooks.json",
            home_variable="CODEX_HOME",
            home=".codex",
        ),
        Agent(
            name="copilot",
            title="Copilot CLI",
            project_file=".github/hooks/sayso.json",
            user_file="hooks/sayso.json",
            home_variable="COPILOT_HOME",
            home=".copilot",
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
            user_file="settings.json",
            home_variable="GEMINI_CLI_HOME",
            home=".gemini",
            before="BeforeTool",
            after="AfterTool",
            prompt="BeforeAgent",
            unit=1000,
            tested=False,
        ),
    )
}


# -- reading and writing settings


def read_settings(path: Path) -> dict[str, Any]:
    """Read a settings file; {} if there is none. Raise ``SettingsError`` if it is not valid."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise SettingsError(f"{path} is not JSON, so it was not changed: {error}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path} is not a JSON object, so it was not changed")
    return found


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    """Replace a file in one step, with its permissions. A link stays a link."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.sayso")
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    try:
        temporary.write_text(text, "utf-8")
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SettingsError(f"{path} cannot be written: {error}") from None


def _hooks_of(path: Path, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or not all(
        isinstance(entries, list) for entries in hooks.values()
    ):
        raise SettingsError(f"{path}: unknown form of hooks, so it was not changed")
    return hooks


def _commands(entry: object) -> Iterator[dict[str, Any]]:
    """Yield the commands of one entry: itself, or those of its group."""
    if not isinstance(entry, dict):
        return
    group = entry.get("hooks")
    for hook in group if isinstance(group, list) else [entry]:
        if isinstance(hook, dict):
            yield hook


def _is_ours(hook: Mapping[str, Any]) -> bool:
    command = hook.get("command") or hook.get("bash")
    return isinstance(command, str) and _OURS.search(command) is not None


def _without_ours(entries: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        ours = [hook for hook in _commands(entry) if _is_ours(hook)]
        if not ours:
            kept.append(entry)
        elif isinstance(entry.get("hooks"), list):
            others = [hook for hook in entry["hooks"] if hook not in ours]
            kept += [{**entry, "hooks": others}] if others else []
    return kept


def _without_hook(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without our entries, and without events that only we used."""
    hooks = {}
    for event, entries in _hooks_of(path, settings).items():
        left = _without_ours(entries)
        if left or not entries:
            hooks[event] = left
    found = {**settings, "hooks": hooks}
    if not hooks and settings.get("hooks"):
        del found["hooks"]
    return found if "hooks" in settings else dict(settings)


def with_hook(agent: Agent, path: Path, options: HookOptions) -> dict[str, Any]:
    """Return the settings of a file with our hook added."""
    settings = _without_hook(path, read_settings(path))
    hooks = {event: list(entries) for event, entries in _hooks_of(path, settings).items()}
    for event, entry in agent.entries(options).items():
        hooks.setdefault(event, []).append(entry)
    first = {"version": 1} if agent.flat and "version" not in settings else {}
    return {**first, **settings, "hooks": hooks}


def install(agent: Agent, path: Path, options: HookOptions) -> bool:
    """Install the hook. Return whether the file changed."""
    wanted = with_hook(agent, path, options)
    if wanted == read_settings(path):
        return False
    _write(path, wanted)
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


# -- doctor


class CheckResult(NamedTuple):
    """The result of one check."""

    name: str
    #: "ok", "warning" or "problem".
    level: str
    message: str


def check(agent: Agent, project: Path) -> Iterator[CheckResult]:
    scopes: tuple[Scope, ...] = ("user", "project")
    found = 0
    for scope in scopes:
        path = agent.file(scope, project)
        try:
            settings = read_settings(path)
            hooks = _find_our_hooks(path, settings)
        except SettingsError as error:
            yield CheckResult(f"{agent.name} {scope}", "problem", str(error))
            continue
        found += len(hooks)
        for event, hook in hooks:
            yield from _check_hook(agent, f"{agent.name} {scope} {event}", hook)
        yield from _check_others(agent, scope, path, settings)
        if agent.name == "claude":
            yield from _check_claude(scope, path, settings)
        if hooks and agent.name == "codex":
            yield _check_codex_trust(agent, project)
        if hooks and agent.name == "copilot" and scope == "project":
            yield CheckResult(
                "copilot trust",
                "warning",
                f"{path}: Copilot skips hooks of a folder that it does not trust, and then runs "
                "the tool: install with --user instead",
            )
    if not found:
        why = f"not installed: run `sayso hook install {agent.name}`"
        yield CheckResult(agent.name, "problem", why)
    elif not agent.tested:
        yield CheckResult(agent.name, "warning", f"{agent.title} was never tested with this hook")


def check_config(agent: str, path: Path) -> Iterator[CheckResult]:
    """Check the configuration of an agent's hook, and whether its server answers."""
    try:
        config = load_config(str(path))
    except HookError as error:
        yield CheckResult(f"{agent} config", "problem", str(error))
        return
    if path.stat().st_mode & 0o077:
        yield CheckResult(
            f"{agent} config", "problem", f"{path} is open to other users, run: chmod 600 {path}"
        )
    if config.store:
        yield CheckResult(
            f"{agent} store",
            "warning",
            f"the hook writes {config.store} itself, and so can the agent: with a server it could "
            "only ask",
        )
        return
    yield _check_server(agent, config)


def _check_server(agent: str, config: Config) -> CheckResult:
    server = Server(config.server, config.token)
    try:
        server.call("GET", "/api/requests/req_none/wait?timeout=0", deadline=time.monotonic() + 10)
    except HookError as error:
        if " 404: " in str(error):  # the token is accepted, and there is no such request
            return CheckResult(f"{agent} server", "ok", f"{config.server} answers")
        return CheckResult(f"{agent} server", "problem", str(error))
    return CheckResult(f"{agent} server", "problem", f"{config.server} is not Sayso")


def _find_our_hooks(path: Path, settings: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (event, hook)
        for event, entries in _hooks_of(path, settings).items()
        for entry in entries
        for hook in _commands(entry)
        if _is_ours(hook)
    ]


def _check_hook(agent: Agent, name: str, hook: Mapping[str, Any]) -> Iterator[CheckResult]:
    command = str(hook.get(agent.command_key, ""))
    try:
        outer = shlex.split(command)
        inner = shlex.split(outer[2]) if outer[:2] == ["/bin/sh", "-c"] else outer
    except (ValueError, IndexError):
        yield CheckResult(name, "problem", "its command cannot be read: install it again")
        return
    if inner[-3:] != ["||", "exit", "2"]:
        yield CheckResult(
            name, "problem", "it does not deny if the program fails: install it again"
        )
    if shutil.which(inner[0]) is None:
        yield CheckResult(name, "problem", f"{inner[0]} is not a program: install it again")
    timeout = hook.get(agent.timeout_key)
    limit = float(inner[inner.index("--limit") + 1]) if "--limit" in inner else LIMIT
    if not isinstance(timeout, int | float):
        yield CheckResult(name, "problem", "it has no time-out: install it again")
    elif name.endswith((f" {agent.after}", f" {agent.prompt}")):
        yield CheckResult(name, "ok", "records results")
    elif timeout / agent.unit <= limit:
        given = f"{timeout / agent.unit:g} s"
        why = f"the agent gives it {given}, and then runs the tool; its own limit is {limit:g} s"
        yield CheckResult(name, "problem", f"{why}: install it again")
    else:
        yield CheckResult(name, "ok", f"denies after {limit:g} s; the agent waits longer")


def _check_others(
    agent: Agent, scope: str, path: Path, settings: Mapping[str, Any]
) -> Iterator[CheckResult]:
    """Warn about other hooks that may change a call: the agent does not ask again about it."""
    entries = _hooks_of(path, settings).get(agent.before, [])
    for hook in (hook for entry in entries for hook in _commands(entry) if not _is_ours(hook)):
        what = str(hook.get(agent.command_key) or hook.get("type", "it"))[:80]
        yield CheckResult(
            f"{agent.name} {scope} {agent.before}",
            "warning",
            f"another hook runs too ({what}): if it changes arguments, what runs may not be what "
            "was approved. The result of the request then says so",
        )


#: Tools that change something. An allow rule for one of them runs it if the hook fails.
_GATED = ("Bash", "Edit", "Write", "MultiEdit", "NotebookEdit", "WebFetch", "mcp__")


def _check_claude(scope: str, path: Path, settings: Mapping[str, Any]) -> Iterator[CheckResult]:
    if settings.get("disableAllHooks"):
        yield CheckResult(
            f"claude {scope}", "problem", f"{path}: disableAllHooks turns the hook off"
        )
    permissions = settings.get("permissions")
    if not isinstance(permissions, dict):
        return
    allowed = permissions.get("allow")
    rules = [rule for rule in allowed if isinstance(rule, str)] if isinstance(allowed, list) else []
    gated = [rule for rule in rules if rule.startswith(_GATED)]
    if gated:
        yield CheckResult(
            f"claude {scope}",
            "warning",
            f"{path} allows {', '.join(gated[:5])}: if the hook is killed, these run. Without the "
            "rule, Claude Code asks",
        )
    if permissions.get("defaultMode") in ("bypassPermissions", "acceptEdits"):
        mode = permissions["defaultMode"]
        yield CheckResult(
            f"claude {scope}",
            "warning",
            f"{path} sets defaultMode to {mode}: if the hook is killed, tools run without asking",
        )


def _check_codex_trust(agent: Agent, project: Path) -> CheckResult:
    """Check whether Codex trusts hooks: it silently skips a hook until a user trusts it."""
    path = agent.file("user", project).with_name("config.toml")
    try:
        config = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        config = {}
    hooks = config.get("hooks")
    state = hooks.get("state") if isinstance(hooks, dict) else None
    trusted = state.values() if isinstance(state, dict) else ()
    if any(isinstance(entry, dict) and entry.get("trusted_hash") for entry in trusted):
        return CheckResult("codex trust", "ok", "Codex has trusted hooks; review them with /hooks")
    return CheckResult(
        "codex trust",
        "problem",
        "Codex skips the hook until you trust it: start `codex`, and accept it in /hooks",
    )
