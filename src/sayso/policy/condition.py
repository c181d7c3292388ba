"""``Condition``: one condition on one argument, written as text such as ``amount > 100``.

    PATH OPERATOR LITERAL

The path names one argument or a value inside it: ``amount``, ``body.lines[0]``,
``head["reply-to"]``. The operator is one of ``== != < > in matches``. The literal is JSON. There is
no ``and``, no ``or`` and no function: write two rules, or a predicate in Python.

Values are compared as JSON: ``1`` equals ``1.0``, and ``true`` is not ``1``. If the path does not
exist, every condition except ``!=`` is false. Values that cannot be compared raise, and a rule that
raises asks.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from sayso.errors import InvalidPolicy
from sayso.types import Json

OPERATORS = ("==", "!=", "<", ">", "in", "matches")

_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"\[\s*(\d{1,9})\s*\]")
_QUOTED = re.compile(r'\[\s*("(?:[^"\\]|\\.)*")\s*\]')
_OPERATOR = re.compile(r"[=!<>~]+|\w+|\S")
_SUGGESTIONS = {
    "=": "for equality write ==",
    ">=": "instead of amount >= 100 write amount > 99",
    "<=": "instead of amount <= 100 write amount < 101",
    "not": "to exclude something, put a rule for it before this one",
    "contains": 'for a part of a string write body matches "*part*"',
    "=~": "matches takes a glob, not a regular expression",
}
_MAX_SHOWN = 80


class _Missing:
    """The value of a path that is not in the arguments."""


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate over the arguments that can explain its answer."""

    text: str
    path: tuple[str | int, ...] = field(compare=False)
    operator: str = field(compare=False)
    literal: Json = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse the text. Raise ``InvalidPolicy`` that says what to write instead."""
        path, at = _path(text)
        match = _OPERATOR.search(text, at)
        operator = match[0] if match else ""
        if operator not in OPERATORS:
            wrong = f"unknown operator {operator!r}" if operator else "the operator is missing"
            advice = f" ({_SUGGESTIONS[operator]})" if operator in _SUGGESTIONS else ""
            raise _bad(text, f"{wrong}; use one of {' '.join(OPERATORS)}{advice}")
        literal = _literal(text, text[match.end() :] if match else "")
        if operator in ("<", ">") and not (is_number(literal) or isinstance(literal, str)):
            raise _bad(text, f"{operator} compares with a number or a string")
        if operator == "in" and not (isinstance(literal, list) and literal):
            raise _bad(text, 'in takes a list that is not empty: ["users", "payments"]')
        if operator == "matches" and not isinstance(literal, str):
            raise _bad(text, 'matches takes a glob: "*@example.com"')
        return cls(text, path, operator, literal)

    def __call__(self, args: Mapping[str, Json]) -> bool:
        value = self._find(args)
        if isinstance(value, _Missing):
            return self.operator == "!="
        return _COMPARE[self.operator](value, self.literal)

    def explain(self, args: Mapping[str, Json]) -> str:
        """Describe the value that the condition found in these arguments."""
        value = self._find(args)
        if isinstance(value, _Missing):
            return f"where {self.text}: there is no {self.target}"
        # ASCII JSON on one line, cut: it came from an agent, and is only a hint.
        return f"where {self.text}: {self.target} is {_cut(json.dumps(value))}"

    @property
    def target(self) -> str:
        return _format_path(self.path)

    def _find(self, args: Mapping[str, Json]) -> Json:
        value: Json = args
        for depth, step in enumerate(self.path):
            try:
                value = _step_into(value, step)
            except TypeError as error:
                raise TypeError(f"{_format_path(self.path[:depth])} {error}") from None
        return value


def _step_into(value: Json, step: str | int) -> Json:
    """Return the value at one step. Nothing is inside null: an optional object was left out."""
    if value is None or isinstance(value, _Missing):
        return MISSING
    if isinstance(step, str):
        if not isinstance(value, Mapping):
            raise TypeError("is not an object")
        return value.get(step, MISSING)
    if not isinstance(value, list | tuple):
        raise TypeError("is not a list")
    return value[step] if step < len(value) else MISSING


def _bad(text: str, advice: str) -> InvalidPolicy:
    return InvalidPolicy(f"where={_cut(repr(text))}: {advice}")


def _path(text: str) -> tuple[tuple[str | int, ...], int]:
    begin = len(text) - len(text.lstrip())
    first = _NAME.match(text, begin) or _QUOTED.match(text, begin)
    if first is None:
        raise _bad(text, "begin with the name of an argument, as in amount > 100")
    path: list[str | int] = [_key(text, first[1]) if first.re is _QUOTED else first[0]]
    at = first.end()
    while at < len(text) and text[at] in ".[":
        step, at = _step(text, at)
        path.append(step)
    return tuple(path), at


def _step(text: str, at: int) -> tuple[str | int, int]:
    if text[at] == ".":
        name = _NAME.match(text, at + 1)
        if name is None:
            raise _bad(text, "write a name after the dot, as in body.lines")
        return name[0], name.end()
    index = _INDEX.match(text, at)
    if index is not None:
        return int(index[1]), index.end()
    quoted = _QUOTED.match(text, at)
    if quoted is None:
        raise _bad(text, 'in brackets write an index from 0 or a key in quotes: [0] or ["key"]')
    return _key(text, quoted[1]), quoted.end()


def _key(text: str, quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        raise _bad(text, f"{quoted} is not a JSON string") from None


def _literal(text: str, written: str) -> Json:
    if not written.strip():
        raise _bad(text, 'the value is missing; write a number, "text" or a list')
    try:
        return json.loads(written, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        pass
    if re.search(r"\b(and|or)\b|&&|\|\|", written):
        raise _bad(text, "a rule has one condition; write another rule, or a predicate in Python")
    excerpt = _cut(written.strip())
    raise _bad(text, f'{excerpt} is not JSON: write 100, "text" in double quotes, true or ["a"]')


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


def is_number(value: Json) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number. A boolean is not, although it is an ``int``."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def json_equal(left: Json, right: Json) -> bool:
    """Return whether two JSON values are equal. In Python, ``True == 1``; in JSON it is not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            json_equal(left[key], right[key]) for key in left
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(json_equal, left, right))
    return bool(left == right)


def _less(left: Json, right: Json) -> bool:
    if is_number(left) and is_number(right):
        return left < right
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    raise TypeError(f"{_kind(left)} cannot be compared with {_kind(right)}")


def _matches(value: Json, pattern: Json) -> bool:
    if not isinstance(value, str):
        raise TypeError(f"{_kind(value)} cannot be matched with a glob")
    return fnmatch.fnmatchcase(value, pattern)


_COMPARE: Mapping[str, Callable[[Json, Json], bool]] = {
    "==": json_equal,
    "!=": lambda left, right: not json_equal(left, right),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "in": lambda value, listed: any(json_equal(value, item) for item in listed),
    "matches": _matches,
}


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if is_number(value):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "a list"


def _format_path(path: tuple[str | int, ...]) -> str:
    formatted = ""
    for step in path:
        if isinstance(step, int):
            formatted += f"[{step}]"
        elif _NAME.fullmatch(step):
            formatted += f".{step}" if formatted else step
        else:
            formatted += f"[{json.dumps(step)}]"
    return formatted


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"
