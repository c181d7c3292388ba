"""Policies for coding agents: ``watch``, ``balanced`` and ``strict``.

Each call has kinds (``sayso.hooks.calls``). A preset is an ordinary ``Policy``: its first rules
allow a call of which all kinds are known to be good, and the others ask about the rest, from the
most serious kind to the least.

* ``watch`` records everything and asks about nothing.
* ``balanced`` allows reading, and changing files of the project; it asks about everything else.
* ``strict`` allows reading; it asks about everything else, and denies changes of agents' settings.

``balanced`` and ``strict`` deny a command that waits for input, which nobody could approve.

``preset = "balanced"`` in a policy file puts these rules after the file's own ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sayso.errors import InvalidPolicy
from sayso.hooks import paths
from sayso.hooks.calls import (
    EDITORS,
    FETCHERS,
    HARMLESS,
    READERS,
    SHELLS,
    call_findings,
    call_kinds,
)
from sayso.hooks.commands import KINDS
from sayso.policy import Rule
from sayso.policy.loaders import FILES_IN_FORCE
from sayso.types import Risk, RiskLevel, ToolCall, VerdictName

paths.policy_files = FILES_IN_FORCE

_RISKS: dict[str, RiskLevel] = {
    **dict.fromkeys(("read", "write"), "low"),
    **dict.fromkeys(("other", "outside", "network", "install", "later"), "medium"),
    **dict.fromkeys(("delete", "publish", "secret", "settings", "unclear"), "high"),
    **dict.fromkeys(("privileged", "download", "interactive"), "critical"),
}

#: Groups of tools: the name of a group, its tools, and the kinds that their calls can have.
_TOOL_GROUPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("command", SHELLS, tuple(KINDS)),
    ("edit", EDITORS, ("write", "outside", "later", "secret", "settings", "unclear")),
    ("read", READERS, ("read", "secret", "unclear")),
    ("fetch", FETCHERS, ("network",)),
)


def rules(preset: str) -> list[Rule]:
    if preset == "watch":
        return [Rule("*", verdict="allow", name="watch", preset=True)]
    if preset == "balanced":
        return _preset("balanced", frozenset({"read", "write"}), {"interactive": "deny"})
    if preset == "strict":
        verdicts: dict[str, VerdictName] = {"settings": "deny", "interactive": "deny"}
        return _preset("strict", frozenset({"read"}), verdicts)
    raise InvalidPolicy(f"preset = {preset!r}: write watch, balanced or strict")


def _preset(name: str, allowed: frozenset[str], verdicts: Mapping[str, VerdictName]) -> list[Rule]:
    rules = [Rule(HARMLESS, verdict="allow", name=f"{name}: conversation")]
    for group, tools, _ in _TOOL_GROUPS:
        only = _when(f"{group} of {sorted(allowed)}", tools[0], allowed.issuperset)
        rules.append(Rule(tools, when=only, verdict="allow", name=f"{name}: {group} allowed"))
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
                    description=_describe(kind),
                    risk=Risk(_RISKS[kind], (KINDS[kind],)) if verdict == "ask" else None,
                )
            )
    other = Risk("medium", (KINDS["other"],))
    rules.append(Rule("*", name=f"{name}: everything else", risk=other))
    return [replace(rule, preset=True) for rule in rules]


def _when(name: str, tool: str, matches: Callable[[set[str]], bool]) -> Callable[[Any], bool]:
    """Return a predicate over the kinds of a call. The policy's digest identifies it by name."""

    def when(args: Any) -> bool:
        kinds = call_kinds(tool, args)
        return bool(kinds) and matches(kinds)

    when.__qualname__ = when.__name__ = name
    return when


def _describe(kind: str) -> Callable[[ToolCall], str]:
    """Return a function that says why a call has a kind."""

    def describe(call: ToolCall) -> str:
        parts = call_findings(call.name, call.args)
        sentences = [findings[kind] for _, findings in parts if kind in findings]
        return " ".join([f"It {KINDS[kind]}.", *dict.fromkeys(filter(None, sentences))])

    describe.__qualname__ = describe.__name__ = f"describe {kind}"
    return describe
