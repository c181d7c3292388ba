"""Policies for coding agents: ``watch``, ``balanced`` and ``strict``.

Each call is classified into kinds (``sayso.hooks.commands``): a shell command by its programs and
options, a file tool by its path, a fetch as network. A preset is an ordinary ``Policy``, whose
rules go from the most serious kind to the least; the first that matches decides.

* ``watch`` records everything and asks about nothing.
* ``balanced`` allows reading, and changing files of the project; it asks about everything else.
* ``strict`` allows reading; it asks about everything else, and denies changes of agents' settings.

``preset = "balanced"`` in a policy file puts these rules after the file's own ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sayso.errors import InvalidPolicy
from sayso.hooks.commands import (
    KINDS,
    UnclearCommand,
    command_kinds,
    load_parser,
    parse,
    path_kinds,
    simple_kinds,
)
from sayso.policy import Rule
from sayso.types import Risk, RiskLevel, VerdictName

#: The names that agents give to the same tools.
SHELLS = ("Bash", "bash", "shell", "local_shell", "exec_command", "run_shell_command", "powershell")
READERS = (
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "view", "view_image", "read_file", "glob"),
    *("read_many_files", "list_directory", "search_file_content", "grep", "list_dir"),
)
EDITORS = (
    *("Write", "Edit", "MultiEdit", "NotebookEdit", "write_file", "replace", "create", "edit"),
    *("str_replace_editor", "str_replace", "apply_patch"),
)
FETCHERS = ("WebFetch", "WebSearch", "web_fetch", "google_web_search", "web_search", "fetch")
#: Tools that act on the conversation only, or whose own calls are gated one by one.
HARMLESS = (
    *("TodoWrite", "TodoRead", "Task", "Agent", "TaskOutput", "BashOutput", "ExitPlanMode"),
    *("AskUserQuestion", "ToolSearch", "update_plan", "read_bash", "list_bash", "report_intent"),
    *("save_memory", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"),
)

_PATHS = ("file_path", "notebook_path", "absolute_path", "path", "filePath", "dir_path")
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.M)

_RISKS: dict[str, RiskLevel] = {
    **dict.fromkeys(("read", "write"), "low"),
    **dict.fromkeys(("other", "outside", "network", "install"), "medium"),
    **dict.fromkeys(("delete", "publish", "secret", "settings", "unclear"), "high"),
    **dict.fromkeys(("privileged", "download"), "critical"),
}


def call_kinds(tool: str, args: Mapping[str, Any]) -> set[str]:
    cwd = args.get("cwd")
    cwd = cwd if isinstance(cwd, str) else ""
    if tool in SHELLS:
        command = args.get("command", args.get("cmd"))
        return command_kinds(command, cwd) if isinstance(command, str) else {"unclear"}
    if tool in FETCHERS:
        return {"network"}
    if tool in READERS or tool in EDITORS:
        return _file_kinds(args, cwd, writing=tool in EDITORS)
    return {"read"} if tool in HARMLESS else {"other"}


def _file_kinds(args: Mapping[str, Any], cwd: str, *, writing: bool) -> set[str]:
    paths = [args[name] for name in _PATHS if name in args]
    for text in (args.get("command"), args.get("input"), args.get("patch")):
        if writing and isinstance(text, str):
            paths += _PATCHED.findall(text)
    if not all(isinstance(path, str) for path in paths) or (writing and not paths):
        return {"unclear"}
    kinds = set() if paths else {"read"}
    for path in paths:
        kinds |= path_kinds(path, cwd, writing=writing)
    return kinds


def explain_call(tool: str, args: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the parts of a call, each with its kinds in words."""
    cwd = args.get("cwd")
    cwd = cwd if isinstance(cwd, str) else ""
    command = args.get("command", args.get("cmd"))
    if tool not in SHELLS or not isinstance(command, str):
        return [(tool, _in_words(call_kinds(tool, args)))]
    try:
        simples = parse(command)
    except UnclearCommand as error:
        return [(command, [f"{KINDS['unclear']}: {error}"])]
    return [
        (" ".join("…" if word is None else word for word in simple.words), _in_words(kinds))
        for simple in simples
        if (kinds := simple_kinds(simple, cwd))
    ]


def _in_words(kinds: set[str]) -> list[str]:
    return [words for kind, words in KINDS.items() if kind in kinds]


#: Groups of tools: the name of a group, its tools, and the kinds that their calls can have.
_TOOL_GROUPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("command", SHELLS, tuple(KINDS)),
    ("edit", EDITORS, ("write", "outside", "secret", "settings", "unclear")),
    ("read", READERS, ("read", "secret", "unclear")),
    ("fetch", FETCHERS, ("network",)),
)


def rules(preset: str) -> list[Rule]:
    if preset == "watch":
        return [Rule("*", verdict="allow", name="watch")]
    try:
        load_parser()
    except ImportError as error:
        raise InvalidPolicy(f"preset {preset!r} cannot be used: {error}") from None
    if preset == "balanced":
        return _preset("balanced", frozenset({"read", "write"}), {})
    if preset == "strict":
        return _preset("strict", frozenset({"read"}), {"settings": "deny"})
    raise InvalidPolicy(f"preset = {preset!r}: write watch, balanced or strict")


def _preset(name: str, allowed: frozenset[str], verdicts: Mapping[str, VerdictName]) -> list[Rule]:
    rules: list[Rule] = []
    for kind in reversed(KINDS):
        verdict = verdicts.get(kind, "ask")
        for group, tools, kinds in _TOOL_GROUPS:
            if kind in allowed or kind not in kinds:
                continue
            rules.append(
                Rule(
                    tools,
                    when=_when(f"{group} {kind}", tools[0], {kind}.issubset),
                    verdict=verdict,
                    name=f"{name}: {group} {kind}",
                    description=f"It {KINDS[kind]}.",
                    risk=Risk(_RISKS[kind], (KINDS[kind],)) if verdict == "ask" else None,
                )
            )
    for group, tools, _ in _TOOL_GROUPS:
        only = _when(f"{group} of {sorted(allowed)}", tools[0], allowed.issuperset)
        rules.append(Rule(tools, when=only, verdict="allow", name=f"{name}: {group} allowed"))
    rules.append(Rule(HARMLESS, verdict="allow", name=f"{name}: conversation"))
    other = Risk("medium", (KINDS["other"],))
    rules.append(Rule("*", name=f"{name}: everything else", risk=other))
    return rules


def _when(name: str, tool: str, matches: Callable[[set[str]], bool]) -> Callable[[Any], bool]:
    """Return a predicate over the kinds of a call. The policy's digest identifies it by name."""

    def when(args: Any) -> bool:
        kinds = call_kinds(tool, args)
        return bool(kinds) and matches(kinds)

    when.__qualname__ = when.__name__ = name
    return when
