"""Find out whether a coding agent would ask before it uses a tool.

Coding agents merge settings from several files: of the machine's administrator, of the user, and of
the folder in which they work, which may be a repository that someone else wrote. Each can switch
hooks off, or narrow them to some tools. ``check`` reads them all, and reports as a problem what it
does not understand: the hook counts only if its entry is exactly what ``settings.install`` writes,
and a setting about hooks counts as harmless only if its name and value are known to be.

What it cannot see: options of the agent's command line, plug-ins, and settings that the agent
downloads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sayso.hooks.program import Config, HookError, Server, load_config, parse_options
from sayso.hooks.settings import (
    GUARD,
    Agent,
    HookOptions,
    SettingsError,
    commands_in,
    hooks_of,
    is_ours,
    plugin_text,
    project_root,
    read_settings,
)


class CheckResult(NamedTuple):
    """The result of one check."""

    name: str
    #: "ok", "warning" or "problem".
    level: str
    message: str


class _Layer(NamedTuple):
    """One file that an agent reads."""

    scope: str
    path: Path
    settings: dict[str, Any]


class _Hook(NamedTuple):
    """One entry of ours in a file, and its place there."""

    layer: _Layer
    event: str
    group: int
    place: int
    command: dict[str, Any]
    #: The command in its group, without the other commands there.
    entry: dict[str, Any]


def check(agent: Agent, project: Path, system: Path = Path("/")) -> Iterator[CheckResult]:
    """Check every file that an agent reads in a folder. Managed files are below ``system``."""
    layers: list[_Layer] = []
    for scope, path in agent.layers(project, system):
        try:
            layer = _Layer(scope, path, _read(path))
            hooks_of(path, layer.settings)
        except SettingsError as error:
            yield CheckResult(f"{agent.name} {scope}", "problem", str(error))
        else:
            layers.append(layer)
    hooks = [hook for layer in layers for hook in _our_hooks(agent, layer)]
    if not any(_is_gate(agent, hook) for hook in hooks):
        why = f"not installed: run `sayso hook install {agent.name}`"
        yield CheckResult(agent.name, "problem", why)
        if not hooks:
            return
    results = [_check_hook(agent, hook, project, layers) for hook in hooks]
    yield from results
    managed = any(
        result.level == "ok" and hook.layer.scope == "managed"
        for hook, result in zip(hooks, results, strict=True)
    )
    for layer in layers:
        yield from _check_switches(agent, layer, managed=managed)
        yield from _check_others(agent, layer)
        if agent.name == "claude":
            yield from _check_permissions(layer)
    if agent.name == "opencode":
        yield from _check_plugins(agent, project)
    yield from _check_surroundings(agent, project)
    commands = {str(hook.command.get(agent.command_key)) for hook in hooks}
    for config in {options.config for options in map(_read_command, commands) if options}:
        yield from _check_config(agent.name, Path(config))


def _read(path: Path) -> dict[str, Any]:
    if path.suffix != ".toml":
        return read_settings(path)
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


# -- our entries


def _our_hooks(agent: Agent, layer: _Layer) -> Iterator[_Hook]:
    for event, entries in hooks_of(layer.path, layer.settings).items():
        for group, entry in enumerate(entries):
            for place, command in enumerate(commands_in(entry)):
                if is_ours(command):
                    alone = command if agent.flat else {**entry, "hooks": [command]}
                    yield _Hook(layer, event, group, place, command, alone)


def _read_command(command: str) -> HookOptions | None:
    """Return the options of a command, if it is one that ``sayso hook install`` writes."""
    try:
        _, _, script = shlex.split(command)
        python, _, _, _, _, program, _, _, *words = shlex.split(script.removesuffix(GUARD))
        run_options = parse_options(words)
    except (ValueError, HookError):
        return None
    options = HookOptions(**run_options._asdict(), python=python, program=program)
    return options if options.command() == command else None


def _is_gate(agent: Agent, hook: _Hook) -> bool:
    """Return whether an entry is for the event that its command was installed for."""
    options = _read_command(str(hook.command.get(agent.command_key)))
    only_prompts = options is not None and options.prompts
    return hook.event == (agent.permission if only_prompts else agent.before)


def _check_hook(agent: Agent, hook: _Hook, project: Path, layers: list[_Layer]) -> CheckResult:
    name = f"{agent.name} {hook.layer.scope} {hook.event}"
    options = _read_command(str(hook.command.get(agent.command_key)))
    if options is None:
        why = "its command is not the one that `sayso hook install` writes: install it again"
        return CheckResult(name, "problem", why)
    expected = agent.entries(options).get(hook.event)
    if hook.entry != expected:
        differences = _differences(hook.entry, expected or {})
        why = f"it may not run for every tool, or not deny ({differences}): install it again"
        return CheckResult(name, "problem", why)
    for file in (options.python, options.program):
        if not os.access(file, os.R_OK):
            return CheckResult(name, "problem", f"{file} is not there: install it again")
    if hook.layer.path.suffix == ".js" and hook.layer.path.read_text() != plugin_text(
        hook.layer.settings
    ):
        return CheckResult(name, "problem", f"{hook.layer.path} was changed: install it again")
    why = _distrust(agent, hook, project, layers)
    if why:
        return CheckResult(name, "problem", why)
    if options.prompts and hook.event == agent.permission:
        why = "only prompts are asked about: what the agent's own rules and modes allow just runs"
        return CheckResult(name, "warning", why)
    if hook.event in (agent.before, agent.permission):
        return CheckResult(name, "ok", f"denies after {options.limit:g} s; the agent waits longer")
    return CheckResult(name, "ok", "reports to Sayso")


def _differences(entry: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Name the keys in which an entry is not what the installer writes."""
    differences = []
    for key in sorted(entry.keys() | expected.keys()):
        if key == "hooks" and expected:
            differences.append(_differences(entry[key][0], expected[key][0]))
        elif entry.get(key) != expected.get(key):
            differences.append(f"{key}: {json.dumps(entry.get(key))[:80]}")
    return ", ".join(filter(None, differences))


# -- whether the agent trusts it


def _distrust(agent: Agent, hook: _Hook, project: Path, layers: list[_Layer]) -> str:
    """Return why the agent skips a hook that it does not trust, or an empty text."""
    users = {layer.path.name: layer.settings for layer in layers if layer.scope == "user"}
    if agent.name == "codex" and hook.layer.scope != "managed":
        return _codex_distrust(hook, project, users.get("config.toml", {}))
    if agent.name == "copilot" and hook.layer.scope == "project":
        config = users.get("config.json", {}) | users.get("settings.json", {})
        trusted = config.get("trusted_folders", config.get("trustedFolders"))
        if not isinstance(trusted, list) or not _is_below(project, trusted):
            return (
                "Copilot skips hooks of a folder that it does not trust, and then runs the tool: "
                "install with --user instead"
            )
    if agent.name == "gemini":
        return _gemini_distrust(agent, project, users.get("settings.json", {}))
    return ""


def _gemini_distrust(agent: Agent, project: Path, settings: Mapping[str, Any]) -> str:
    """Gemini CLI runs no hooks in a folder that it does not trust, not even those of its user."""
    trust = _table(_table(settings, "security"), "folderTrust")
    if trust.get("enabled") is False:
        return ""
    path = agent.home_folder / ".gemini" / "trustedFolders.json"
    try:
        rules = read_settings(path)
    except SettingsError as error:
        return str(error)
    trusted = [name for name, rule in rules.items() if rule == "TRUST_FOLDER"]
    trusted += [str(Path(name).parent) for name, rule in rules.items() if rule == "TRUST_PARENT"]
    distrusted = [name for name, rule in rules.items() if rule == "DO_NOT_TRUST"]
    if _is_below(project, trusted) and not _is_below(project, distrusted):
        return ""
    return f"Gemini CLI runs no hooks in a folder that it does not trust: trust {project} in it"


def _is_below(project: Path, folders: list[Any]) -> bool:
    return any(isinstance(name, str) and project.is_relative_to(name) for name in folders)


def _codex_distrust(hook: _Hook, project: Path, config: Mapping[str, Any]) -> str:
    """Codex skips a hook unless its user's settings have the hash of exactly this hook."""
    if hook.layer.scope == "project":
        projects = _table(config, "projects")
        trusted = [
            name for name in projects if _table(projects, name).get("trust_level") == "trusted"
        ]
        if not _is_below(project, trusted):
            return "Codex skips hooks of a folder that it does not trust: install with --user"
    event = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", hook.event).lower()
    states = _table(_table(config, "hooks"), "state")
    state: dict[str, Any] = {}
    for path in (hook.layer.path, hook.layer.path.resolve()):
        state |= _table(states, f"{path}:{event}:{hook.group}:{hook.place}")
    if state.get("enabled", True) is not True:
        return "it is switched off in Codex: switch it on in /hooks"
    if state.get("trusted_hash") != codex_hash(event, hook.entry.get("matcher"), hook.command):
        return "Codex skips this hook until you trust it: start `codex`, and accept it in /hooks"
    return ""


def codex_hash(event: str, matcher: object, command: Mapping[str, Any]) -> str:
    """Return the hash by which Codex 0.166 trusts a hook with a time-out."""
    identity: dict[str, Any] = {"event_name": event, "hooks": [{**command, "async": False}]}
    if event in _CODEX_MATCHED:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = settings.get(name)
    return value if isinstance(value, dict) else {}


# -- what switches hooks off


def _check_switches(agent: Agent, layer: _Layer, *, managed: bool) -> Iterator[CheckResult]:
    """Report settings that switch hooks off, or may. ``managed``: a managed hook of ours is on."""
    for setting in _switches(layer.settings):
        if managed and (setting in _MANAGED_ONLY or layer.scope != "managed"):
            continue  # what is off is not ours
        why = f"{layer.path}: {setting} turns the hook off, or may do so"
        yield CheckResult(f"{agent.name} {layer.scope}", "problem", why)
    variables = _table(layer.settings, "env")
    ours = layer.scope in ("managed", "user")
    for name in sorted(variables):
        if name in _SWITCHES or not (ours or _HARMLESS_VARIABLES.fullmatch(name)):
            why = f"{layer.path} sets {name}, which may change what the hook or a command does"
            yield CheckResult(f"{agent.name} {layer.scope}", "problem", why)


def _switches(settings: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the names of settings about hooks, unless their values are known to be harmless."""
    for name, value in settings.items():
        about = "hook" in f"{path}{name}".lower() or name in _MANAGED_ONLY
        full_name = f"{path}{name}"
        if isinstance(value, dict):
            if full_name != "hooks" and (about or name in _NESTED or path.startswith("profiles.")):
                yield from _switches(value, f"{full_name}.")
        elif about and name not in _HARMLESS_SETTINGS:
            on = name.lower().startswith("enable") or name in ("hooks", "codex_hooks")
            if value is not True if on else value not in (False, None, []):
                yield full_name


#: Tables of settings in which some concern hooks.
_NESTED = ("features", "tools", "profiles")
#: Settings that leave only the hooks of the machine's administrator.
_MANAGED_ONLY = (
    "allowManagedHooksOnly",
    "allow_managed_hooks_only",
    "strictPluginOnlyCustomization",
)
#: Settings about hooks that do not run commands.
_HARMLESS_SETTINGS = ("allowedHttpHookUrls", "httpHookAllowedEnvVars")
#: Variables with which an agent skips its hooks, or starts them through another program.
_SWITCHES = frozenset(
    (
        *("CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE", "CLAUDE_CODE_RESTRICTED"),
        *("CLAUDE_CODE_PERSONAL_HOOKS_OFF", "CLAUDE_CODE_SHELL_PREFIX", "CLAUDE_CODE_SHELL"),
        *("OPENCODE_PURE", "GEMINI_RESTRICTED_MODE"),
        *("BASH_ENV", "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"),
    )
)
#: Variables that a repository may set: they change neither the hook nor what a command does. All
#: others are reported. The loader, the shell and git, for example, run what their variables name.
_HARMLESS_VARIABLES = re.compile(
    r"ANTHROPIC_(?:SMALL_FAST_|DEFAULT_[A-Z]+_)?MODEL|MAX_THINKING_TOKENS|MAX_MCP_OUTPUT_TOKENS|"
    r"CLAUDE_CODE_(?:MAX_OUTPUT_TOKENS|SUBAGENT_MODEL|ENABLE_TELEMETRY)|MCP_(?:TOOL_)?TIMEOUT|"
    r"BASH_(?:DEFAULT|MAX)_TIMEOUT_MS|BASH_MAX_OUTPUT_LENGTH|DISABLE_[A-Z_]+|"
    r"NODE_ENV|RAILS_ENV|RACK_ENV|APP_ENV|CI|DEBUG|TZ|LOG_LEVEL|NO_COLOR|FORCE_COLOR"
)
#: The events of Codex whose hash covers the matcher.
_CODEX_MATCHED = ("pre_tool_use", "permission_request", "post_tool_use")


# -- what weakens it


def _check_others(agent: Agent, layer: _Layer) -> Iterator[CheckResult]:
    """Warn about other hooks that may change a call: the agent does not ask again about it."""
    entries = hooks_of(layer.path, layer.settings).get(agent.before, [])
    for hook in (hook for entry in entries for hook in commands_in(entry) if not is_ours(hook)):
        what = str(hook.get(agent.command_key) or hook.get("type", "it"))[:80]
        yield CheckResult(
            f"{agent.name} {layer.scope} {agent.before}",
            "warning",
            f"another hook runs too ({what}): if it changes arguments, what runs may not be what "
            "was approved. The result of the request then says so",
        )


#: Tools that change something. An allow rule for one of them runs it if the hook fails.
_GATED = ("Bash", "Edit", "Write", "MultiEdit", "NotebookEdit", "WebFetch", "mcp__")


def _check_permissions(layer: _Layer) -> Iterator[CheckResult]:
    permissions = _table(layer.settings, "permissions")
    allowed = permissions.get("allow")
    rules = [rule for rule in allowed if isinstance(rule, str)] if isinstance(allowed, list) else []
    gated = [rule for rule in rules if rule.startswith(_GATED)]
    if gated:
        yield CheckResult(
            f"claude {layer.scope}",
            "warning",
            f"{layer.path} allows {', '.join(gated[:5])}: if the hook is killed, these run. "
            "Without the rule, Claude Code asks",
        )
    if permissions.get("defaultMode") in ("bypassPermissions", "acceptEdits"):
        mode = permissions["defaultMode"]
        yield CheckResult(
            f"claude {layer.scope}",
            "warning",
            f"{layer.path} sets defaultMode to {mode}: if the hook is killed, tools run without "
            "asking",
        )


def _check_plugins(agent: Agent, project: Path) -> Iterator[CheckResult]:
    """Report other plugins of OpenCode. It runs each that it finds, also in a repository."""
    ours = {agent.file("user", project), agent.file("project", project)}
    folders = {"warning": agent.home_folder / "opencode", "problem": project / ".opencode"}
    for level, folder in folders.items():
        for path in sorted({*folder.glob("plugin*/*")} - ours):
            why = f"{path} runs too: a plugin can change a call after it was approved"
            yield CheckResult("opencode plugin", level, why)


def _check_surroundings(agent: Agent, project: Path) -> Iterator[CheckResult]:
    """Check what is in no file of the agent: the environment, and where Sayso is installed."""
    for name in sorted(_SWITCHES & os.environ.keys()):
        why = f"{name} is set: an agent that is started here may skip its hooks. Unset it"
        yield CheckResult("environment", "problem", why)
    if Path(sys.prefix).is_relative_to(project_root(project)):
        yield CheckResult(
            agent.name,
            "warning",
            f"Sayso is installed in {sys.prefix}, inside of this project: an agent that may change "
            "the project may change the hook. Install it elsewhere",
        )


# -- the configuration


def _check_config(agent: str, path: Path) -> Iterator[CheckResult]:
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
    else:
        yield _check_server(agent, config)


def _check_server(agent: str, config: Config) -> CheckResult:
    name = f"{agent} server"
    try:
        server = Server(config.server, config.token)
        sessions = server.call("GET", "/api/hooks", deadline=time.monotonic() + 10)["items"]
    except (HookError, KeyError) as error:
        return CheckResult(name, "problem", str(error))
    unasked = [session for session in sessions if session["unasked"]]
    if unasked:
        uses = (f"{item['unasked_tool']} in session {item['session']}" for item in unasked)
        tools = ", ".join(uses)
        why = f"{config.server} got results of tool uses that it was not asked about: {tools}"
        return CheckResult(name, "problem", why[:500])
    spoke = f"; the hook last spoke at {sessions[0]['last_at']}" if sessions else ""
    return CheckResult(name, "ok", f"{config.server} answers{spoke}")
