"""Read rules from a policy file in TOML, and from LangChain's ``interrupt_on``.

A policy file consists of ``[[rule]]`` tables, and may have a ``default`` or a ``preset`` above
them. An unknown key, or a value of the wrong type, makes the whole file invalid: a condition that
was ignored would make its rule match more. Every error names the rule, the key, and what to write.

The shapes of ``interrupt_on`` follow ``langchain/agents/middleware/human_in_the_loop.py`` 1.4:
``True`` asks with all four decisions, ``False`` runs, a mapping has ``allowed_decisions`` and may
have ``description``, ``when`` and ``args_schema`` (which LangChain accepts and does not use; nor do
we). If ``when`` is false, the tool runs. Names are exact. Its functions are called as LangChain
calls them: ``when(request)`` with ``request.tool_call``, ``description(tool_call, state, runtime)``
or ``description(tool_call)``. A policy knows no graph: the state has no messages, and ``tool`` and
``runtime`` are None.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.errors import InvalidPolicy
from sayso.policy.condition import is_number
from sayso.policy.rule import Args, Describe, Predicate, Rule
from sayso.types import DECISIONS, Json, ToolCall, VerdictName

# --- TOML ---

_STRING = "a string"
_STRINGS = "a string or a list of strings"
_DURATION_TEXT = 'a number of seconds, or a string such as "15m", "24h" or "7d"'

#: Every key of a rule, and what it takes.
KEYS = {
    "name": _STRING,
    "tool": _STRINGS,
    "agent": _STRINGS,
    "where": 'a condition such as "amount > 100"',
    "hours": 'a string such as "09:00-17:30"',
    "days": 'a list such as ["mon", "fri"]',
    "timezone": 'a string such as "Europe/Berlin"',
    "until": 'a string such as "2027-01-31" or "2027-01-31T18:00"',
    "verdict": '"allow", "ask" or "deny"',
    "allowed": 'a list such as ["approve", "reject"]',
    "description": _STRING,
    "reviewers": 'a list such as ["ana", "group:finance"]',
    "quorum": "a whole number",
    "requester_decides": "true or false",
    "assurance": '"code", "os-user", "chat", "token", "session" or "passkey"',
    "fresh": _DURATION_TEXT,
    "risk": '"low", "medium", "high" or "critical"',
    "reasons": _STRINGS,
    "expires_in": _DURATION_TEXT,
    "on_expiry": '"reject" or "cancel"',
    "valid_for": _DURATION_TEXT,
    "effect": '"once", "idempotent" or "read"',
    "record": '"all" or "asked"',
    "effect_key": 'a string such as "refund:{order}"',
    "on_duplicate": '"raise" or "result"',
    "overturn": '"anyone" or "rejecter"',
    "max_rejections": "a whole number",
    "notify": 'a list such as ["push", "slack:#ops", "mail:group:finance"]',
    "remind_after": _DURATION_TEXT,
    "escalate_after": _DURATION_TEXT,
    "escalate_to": 'a list such as ["group:leads"]',
    "limits": 'a list such as ["sum(amount) <= 1000 per 1d"]',
    "reviewer": 'a model such as "model:openai:gpt-4o-mini"',
    "reviewer_allows": "true or false",
}
_TO_A_GATE = "; pass the path of a file to a gate instead: Gate(url, policy='policy.toml')"
_LISTS = {
    "tool",
    "agent",
    "days",
    "allowed",
    "reviewers",
    "reasons",
    "limits",
    "notify",
    "escalate_to",
}
_DURATIONS = {"expires_in", "valid_for", "fresh", "remind_after", "escalate_after"}
_SUGGESTIONS = {
    "default": "it above the first [[rule]], because it belongs to no rule",
    "when": 'where, with a condition such as "amount > 100"',
    "tools": "tool",
    "decision": "verdict",
    "action": "verdict",
    "condition": "where",
}


#: The policy files that gates of this process read again when they change, by their paths.
FILES_IN_FORCE: set[str] = set()

#: Ready-made policies for coding agents.
PRESETS = ("watch", "balanced", "strict")


def preset_rules(name: str) -> list[Rule]:
    """Return the rules of a ready-made policy."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidPolicy(f"preset = {_shorten(name)}: write {', '.join(PRESETS)}")
    # Imported here, because only this policy needs it, and because it is a layer above.
    rules: list[Rule] = importlib.import_module("sayso.hooks.policies").rules(name)
    return rules


def content_of_toml(text: str) -> tuple[list[Rule], VerdictName | None]:
    """Return the rules of a policy file in order, then those of its preset; and its default."""
    document = _parse_toml(text)
    tables = document.get("rule", [])
    rules = [_toml_rule(number, table) for number, table in enumerate(tables, start=1)]
    if "preset" in document:
        rules += preset_rules(document["preset"])
    numbers: dict[str, int] = {}
    for number, rule in enumerate(rules, start=1):
        first = numbers.setdefault(rule.name, number)
        if rule.name and first != number:
            raise InvalidPolicy(f"rules {first} and {number} are both named {rule.name!r}")
    return rules, document.get("default")


def _parse_toml(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise InvalidPolicy(f"pass the file's text, read as UTF-8{_TO_A_GATE}")
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        more = _TO_A_GATE if text.strip().endswith(".toml") else ""
        raise InvalidPolicy(f"this is not TOML: {error}{more}") from None
    except RecursionError:
        raise InvalidPolicy("this is not a policy: it is nested too deeply") from None
    unknown = sorted(set(document) - {"rule", "preset", "default"})
    if unknown:
        raise InvalidPolicy(f"unknown key {unknown[0]!r} outside a rule: begin each with [[rule]]")
    if not isinstance(document.get("rule", []), list):
        raise InvalidPolicy("rule: begin each rule with [[rule]], in double brackets")
    if "preset" in document and "default" in document:
        raise InvalidPolicy(
            "default: a preset has a rule for every call, so no default would apply: leave out "
            "one of them"
        )
    if not document.get("rule") and not {"preset", "default"} & set(document):
        # Probably not an empty policy but a file that is being written right now.
        raise InvalidPolicy("there is no [[rule]] in the file: write one, or use no file")
    return document


def _toml_rule(number: int, table: object) -> Rule:
    if not isinstance(table, dict):
        raise InvalidPolicy(f"rule {number}: begin each rule with [[rule]], in double brackets")
    name = table.get("name")
    label = f"rule {number} ({name!r})" if isinstance(name, str) and name else f"rule {number}"
    for key, value in table.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            instead = _SUGGESTIONS.get(key) or (close[0] if close else f"one of {', '.join(KEYS)}")
            raise InvalidPolicy(f"{label}: unknown key {key!r}; write {instead}")
        if not _has_right_type(key, value):
            raise InvalidPolicy(f"{label}: {key} = {_shorten(value)}: write {KEYS[key]}")
    try:
        return Rule(**table)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{label}: {error}") from None


def _has_right_type(key: str, value: object) -> bool:
    """Return whether the value has the key's type. ``Rule`` checks the value itself."""
    if key in ("requester_decides", "reviewer_allows"):
        return isinstance(value, bool)
    if key in ("quorum", "max_rejections"):
        return is_number(value) and isinstance(value, int)
    if key in _DURATIONS and is_number(value):
        return True
    if key in _LISTS and isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str) and bool(value.strip())


def _shorten(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"


# --- LangChain's interrupt_on ---

_INTERRUPT_KEYS = {"allowed_decisions", "description", "when", "args_schema"}


def _empty_state() -> dict[str, Any]:
    return {"messages": []}


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """The argument of LangChain's ``when``, as far as a policy knows it."""

    tool_call: dict[str, Json]
    tool: None = None
    state: dict[str, Any] = field(default_factory=_empty_state)
    runtime: None = None


def rules_from_interrupt_on(interrupt_on: Mapping[str, bool | Mapping[str, Any]]) -> list[Rule]:
    """Return one rule for each tool that the mapping names."""
    if not isinstance(interrupt_on, Mapping):
        raise InvalidPolicy("interrupt_on: map a tool's name to True, False or a dict")
    return [rule for tool, config in interrupt_on.items() for rule in _rules_of(tool, config)]


def _rules_of(tool: object, config: object) -> Iterator[Rule]:
    where = f"interrupt_on[{tool!r}]"
    if not isinstance(tool, str) or not tool or set(tool) & set("*?["):
        raise InvalidPolicy(f"{where}: use a tool's exact name; for a glob write a Rule(...)")
    name = f"interrupt_on {tool}"
    if isinstance(config, bool):
        yield Rule(tool, verdict="ask" if config else "allow", name=name)
        return
    if not isinstance(config, Mapping):
        raise InvalidPolicy(f"{where}: use True, False or a mapping with allowed_decisions")
    _check_interrupt(where, config)
    when = config.get("when")
    description = config.get("description")
    yield Rule(
        tool,
        name=name,
        allowed=config["allowed_decisions"],
        when=None if when is None else _when(tool, when),
        description=_describe(where, description) if callable(description) else description,
    )
    if when is not None:
        yield Rule(tool, verdict="allow", name=f"{name} otherwise")


def _check_interrupt(where: str, config: Mapping[str, Any]) -> None:
    unknown = sorted(str(key) for key in set(config) - _INTERRUPT_KEYS)
    if unknown:
        keys = ", ".join(sorted(_INTERRUPT_KEYS))
        raise InvalidPolicy(f"{where}: unknown {', '.join(unknown)}; use {keys}")
    allowed = config.get("allowed_decisions")
    if (
        not isinstance(allowed, list | tuple | set | frozenset)
        or not allowed
        or not all(name in DECISIONS for name in allowed)
    ):
        raise InvalidPolicy(f"{where}: allowed_decisions is a list of {', '.join(DECISIONS)}")
    if config.get("when") is not None and not callable(config["when"]):
        raise InvalidPolicy(f"{where}: when is a function of the request")
    description = config.get("description")
    if description is not None and not isinstance(description, str) and not callable(description):
        raise InvalidPolicy(f"{where}: description is a string or a function")


def _tool_call(name: str, args: Args, id: str | None) -> dict[str, Json]:
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def _when(tool: str, when: Callable[[Any], bool | Awaitable[bool]]) -> Predicate:
    @functools.wraps(when)
    def predicate(args: Args) -> bool | Awaitable[bool]:
        return when(ToolCallRequest(_tool_call(tool, args, None)))

    @functools.wraps(when)
    async def async_predicate(args: Args) -> bool:
        answer = predicate(args)
        return await answer if inspect.isawaitable(answer) else answer

    return async_predicate if inspect.iscoroutinefunction(when) else predicate


def _describe(where: str, description: Callable[..., str]) -> Describe:
    arguments = _positional_arguments(description)
    if arguments not in (1, 3):
        raise InvalidPolicy(
            f"{where}: description takes (tool_call, state, runtime) or (tool_call)"
        )
    more: tuple[Any, ...] = (_empty_state(), None) if arguments == 3 else ()

    @functools.wraps(description)
    def describe(call: ToolCall) -> str:
        return description(_tool_call(call.name, dict(call.args), call.id or None), *more)

    return describe


def _positional_arguments(function: Callable[..., Any]) -> int:
    """Return 3 if the function takes three arguments by position, 1 if it takes one, else 0."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for count in (3, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    return 0
