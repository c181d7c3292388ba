"""A policy file: ``[[rule]]`` tables, read strictly.

A key that is not known, or not of its type, makes the whole file bad, because a condition that was
not understood would widen the rule. Every error names the rule, the key, and what to write.
"""

from __future__ import annotations

import difflib
import tomllib
from typing import Any, TypeGuard

from sayso.errors import InvalidPolicy
from sayso.policy.rule import Rule

_TEXT = "a text"
_TEXTS = "a text or a list of texts"
_LENGTH = 'a number of seconds, or a text such as "15m", "24h" or "7d"'

#: Every key of a rule, and what it takes.
KEYS = {
    "name": _TEXT,
    "tool": _TEXTS,
    "agent": _TEXTS,
    "where": 'a condition as text, such as "amount > 100"',
    "hours": 'a text such as "09:00-17:30"',
    "days": 'a list such as ["mon", "fri"]',
    "timezone": 'a text such as "Europe/Berlin"',
    "verdict": '"allow", "ask" or "deny"',
    "allowed": 'a list such as ["approve", "reject"]',
    "description": _TEXT,
    "reviewers": 'a list such as ["ana", "group:finance"]',
    "quorum": "a whole number",
    "requester_decides": "true or false",
    "assurance": '"code", "os-user", "token" or "session"',
    "risk": '"low", "medium", "high" or "critical"',
    "reasons": _TEXTS,
    "expires_in": _LENGTH,
    "on_expiry": '"reject" or "cancel"',
    "valid_for": _LENGTH,
    "effect": '"once", "idempotent" or "read"',
    "record": '"all" or "asked"',
    "effect_key": 'a text such as "refund:{order}"',
    "on_duplicate": '"raise" or "result"',
}
_TO_A_GATE = "; the path of a file is for a gate: Gate(url, policy='policy.toml')"
_LISTS = {"tool", "agent", "days", "allowed", "reviewers", "reasons"}
_LENGTHS = {"expires_in", "valid_for"}
_INSTEAD = {
    "when": 'where, with a condition as text such as "amount > 100"',
    "tools": "tool",
    "decision": "verdict",
    "action": "verdict",
    "condition": "where",
}


def rules_from_toml(text: str) -> list[Rule]:
    """The rules of a policy file, in their order."""
    rules = [_rule(number, table) for number, table in enumerate(_tables(text), start=1)]
    named: dict[str, int] = {}
    for number, rule in enumerate(rules, start=1):
        first = named.setdefault(rule.name, number)
        if rule.name and first != number:
            raise InvalidPolicy(f"rules {first} and {number} are both named {rule.name!r}")
    return rules


def _tables(text: str) -> list[object]:
    document = _parsed(text)
    unknown = sorted(set(document) - {"rule"})
    if unknown:
        raise InvalidPolicy(f"unknown key {unknown[0]!r} outside a rule: begin each with [[rule]]")
    tables = document.get("rule", [])
    if not isinstance(tables, list):
        raise InvalidPolicy("rule: begin each rule with [[rule]], in double brackets")
    if not tables:
        # Not an empty policy: more likely a file that is being written just now.
        raise InvalidPolicy("there is no [[rule]] in the file; write one, or use no file")
    return tables


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise InvalidPolicy(f"give the file's text, read as UTF-8{_TO_A_GATE}")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        more = _TO_A_GATE if text.strip().endswith(".toml") else ""
        raise InvalidPolicy(f"this is not TOML: {error}{more}") from None
    except RecursionError:
        raise InvalidPolicy("this is not a policy: it is nested too deeply") from None


def _rule(number: int, table: object) -> Rule:
    if not isinstance(table, dict):
        raise InvalidPolicy(f"rule {number}: begin each rule with [[rule]], in double brackets")
    name = table.get("name")
    label = f"rule {number} ({name!r})" if isinstance(name, str) and name else f"rule {number}"
    for key, value in table.items():
        _check(label, key, value)
    try:
        return Rule(**table)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{label}: {error}") from None


def _check(label: str, key: str, value: object) -> None:
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, n=1)
        instead = _INSTEAD.get(key) or (close[0] if close else f"one of {', '.join(KEYS)}")
        raise InvalidPolicy(f"{label}: unknown key {key!r}; write {instead}")
    if not _is_right(key, value):
        raise InvalidPolicy(f"{label}: {key} = {_shown(value)}: write {KEYS[key]}")


def _is_right(key: str, value: object) -> bool:
    """Whether the value is of the key's type; what it says is the rule's business."""
    if key == "requester_decides":
        return isinstance(value, bool)
    if key == "quorum":
        return _is_number(value) and isinstance(value, int)
    if key in _LENGTHS and _is_number(value):
        return True
    if key in _LISTS and isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
