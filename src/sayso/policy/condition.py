"""``Condition``: a condition on arguments, written as text such as ``amount >= 100``.

    CONDITION  =  PATH OPERATOR LITERAL  |  PATH exists
               |  not CONDITION  |  CONDITION and CONDITION  |  CONDITION or CONDITION
               |  ( CONDITION )

The path names one argument or a value inside it: ``amount``, ``body.lines[0]``,
``head["reply-to"]``; ``lower(PATH)`` and ``length(PATH)`` compare the string in lower case, and how
long a string, list or object is. The literal is JSON. ``not`` binds more than ``and``, and ``and``
more than ``or``. There are no loops, no arithmetic and no functions but those two, so a condition
ends in time that is linear in the arguments.

Values are compared as JSON: ``1`` equals ``1.0``, and ``true`` is not ``1``. If the path does not
exist, every comparison except ``!=`` is false; inside ``not`` it raises. Values that cannot be
compared raise, unless the other side of an ``and`` or ``or`` decides. A rule that raises asks.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

from sayso.errors import InvalidPolicy
from sayso.types import Json

Args: TypeAlias = Mapping[str, Json]

_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"\[\s*(\d{1,9})\s*\]")
_QUOTED = re.compile(r'\[\s*("(?:[^"\\]|\\.)*")\s*\]')
_OPERATOR = re.compile(r"\s*([=!<>~]+|\w+|\S)?")
_FUNCTION = re.compile(r"(lower|length)\s*\(\s*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\s*(and|or|not)(?![\w-])")
_SUGGESTIONS = {
    "=": "for equality write ==",
    "not": 'write not before the path, as in not to in ["a", "b"]',
    "=~": "matches takes a glob, not a regular expression",
}
_MAX_SHOWN = 80
_MAX_DEPTH = 20


class _Missing:
    """The value of a path that is not in the arguments."""


MISSING = _Missing()


class ArgPath(NamedTuple):
    """Where a value is in the arguments, and the function that is applied to it."""

    steps: tuple[str | int, ...]
    function: str = ""

    def __str__(self) -> str:
        path = _format_path(self.steps)
        return f"{self.function}({path})" if self.function else path

    @classmethod
    def parse(cls, text: str) -> ArgPath:
        """Parse a path that stands alone. Raise ``InvalidPolicy``."""
        path, at = _path(text, _after_space(text, 0))
        if text[at:].strip():
            raise _bad(text, "write one path, such as amount or body.lines[0]")
        return path

    def value(self, args: Args) -> Json | _Missing:
        value: Json | _Missing = args
        for depth, step in enumerate(self.steps):
            try:
                value = _step_into(value, step)
            except TypeError as error:
                raise TypeError(f"{_format_path(self.steps[:depth])} {error}") from None
        if isinstance(value, _Missing) or not self.function:
            return value
        if self.function == "lower" and isinstance(value, str):
            return value.lower()
        if self.function == "length" and isinstance(value, str | list | tuple | Mapping):
            return len(value)
        raise TypeError(f"{_format_path(self.steps)} is {_kind(value)}, which has no {self}")


class _Comparison(NamedTuple):
    path: ArgPath
    operator: str
    literal: Json

    def __str__(self) -> str:
        if self.operator == "exists":
            return f"{self.path} exists"
        return f"{self.path} {self.operator} {json.dumps(self.literal, ensure_ascii=False)}"

    def paths(self) -> list[ArgPath]:
        return [self.path]

    def holds(self, args: Args, negated: bool = False) -> bool:
        value = self.path.value(args)
        if self.operator == "exists":
            return not isinstance(value, _Missing)
        if not isinstance(value, _Missing):
            return _COMPARE[self.operator](value, self.literal)
        if negated:
            raise LookupError(
                f"there is no {self.path}, and not would make that true: also write "
                f"{_format_path(self.path.steps)} exists, outside of not"
            )
        return self.operator == "!="


class _Negation(NamedTuple):
    part: _Part

    def __str__(self) -> str:
        return f"not {_grouped(self.part)}"

    def paths(self) -> list[ArgPath]:
        return self.part.paths()

    def holds(self, args: Args, negated: bool = False) -> bool:
        return not self.part.holds(args, negated=True)


class _Junction(NamedTuple):
    word: Literal["and", "or"]
    parts: tuple[_Part, ...]

    def __str__(self) -> str:
        return f" {self.word} ".join(map(_grouped, self.parts))

    def paths(self) -> list[ArgPath]:
        return list(dict.fromkeys(path for part in self.parts for path in part.paths()))

    def holds(self, args: Args, negated: bool = False) -> bool:
        """Return what one part decides, whatever the others are; raise if none does."""
        deciding = self.word == "or"
        problem: Exception | None = None
        for part in self.parts:
            try:
                if part.holds(args, negated) is deciding:
                    return deciding
            except (TypeError, LookupError) as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return not deciding


_Part: TypeAlias = _Comparison | _Negation | _Junction


def _grouped(part: _Part) -> str:
    return f"({part})" if isinstance(part, _Junction) else str(part)


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate over the arguments that can explain its answer."""

    text: str
    root: _Part = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse the text. Raise ``InvalidPolicy`` that says what to write instead."""
        root, at = _any_of(text, 0, 0)
        if at < len(text):
            raise _bad(text, f"{_cut(text[at:])} does not belong to it: {_AFTER}")
        return cls(text, root)

    def __call__(self, args: Args) -> bool:
        return self.root.holds(args)

    def __str__(self) -> str:
        """Return the condition as text, with parentheses and spaces in their usual places."""
        return str(self.root)

    def explain(self, args: Args) -> str:
        """Describe the values that the condition compares in these arguments."""
        values = [_describe_value(path, args) for path in self.root.paths()]
        return f"where {self.text}: {'; '.join(values)}"


def _describe_value(path: ArgPath, args: Args) -> str:
    try:
        value = path.value(args)
    except TypeError as error:
        return str(error)
    if isinstance(value, _Missing):
        return f"there is no {_format_path(path.steps)}"
    # ASCII JSON on one line, cut: it came from an agent, and is only a hint.
    return f"{path} is {_cut(json.dumps(value))}"


def _step_into(value: Json | _Missing, step: str | int) -> Json | _Missing:
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


# -- reading: each function takes a position in the text and returns the one after what it read

_AFTER = "write and, or, or nothing after a comparison"


def _bad(text: str, advice: str) -> InvalidPolicy:
    return InvalidPolicy(f"where={_cut(repr(text))}: {advice}")


def _any_of(text: str, at: int, depth: int) -> tuple[_Part, int]:
    return _joined(text, at, depth, "or", _all_of)


def _all_of(text: str, at: int, depth: int) -> tuple[_Part, int]:
    return _joined(text, at, depth, "and", _one)


def _joined(
    text: str,
    at: int,
    depth: int,
    word: Literal["and", "or"],
    read: Callable[[str, int, int], tuple[_Part, int]],
) -> tuple[_Part, int]:
    part, at = read(text, at, depth)
    parts = [part]
    while (next_word := _WORD.match(text, at)) and next_word[1] == word:
        part, at = read(text, next_word.end(), depth)
        parts.append(part)
    return (part if len(parts) == 1 else _Junction(word, tuple(parts))), at


def _one(text: str, at: int, depth: int) -> tuple[_Part, int]:
    if depth > _MAX_DEPTH:
        raise _bad(text, f"it is nested more than {_MAX_DEPTH} deep: split it into rules")
    at = _after_space(text, at)
    negation = _WORD.match(text, at)
    if negation is not None and negation[1] == "not":
        part, at = _one(text, negation.end(), depth + 1)
        return _Negation(part), at
    if not text.startswith("(", at):
        return _comparison(text, at)
    part, at = _any_of(text, at + 1, depth + 1)
    if not text.startswith(")", at):
        raise _bad(text, f"a parenthesis is not closed; {_AFTER}")
    return part, _after_space(text, at + 1)


def _comparison(text: str, at: int) -> tuple[_Part, int]:
    path, at = _path(text, at)
    match = _OPERATOR.match(text, at)
    operator = (match and match[1]) or ""
    at = match.end() if match else at
    if operator == "exists":
        return _Comparison(path, operator, None), _after_space(text, at)
    if operator not in OPERATORS:
        wrong = f"unknown operator {operator!r}" if operator else "the operator is missing"
        advice = f" ({_SUGGESTIONS[operator]})" if operator in _SUGGESTIONS else ""
        raise _bad(text, f"{wrong}; use one of {' '.join(OPERATORS)} exists{advice}")
    literal, at = _literal(text, at)
    if operator in _ORDERING and not (is_number(literal) or isinstance(literal, str)):
        raise _bad(text, f"{operator} compares with a number or a string")
    if operator == "in" and not (isinstance(literal, list) and literal):
        raise _bad(text, 'in takes a list that is not empty: ["users", "payments"]')
    if operator == "matches" and not isinstance(literal, str):
        raise _bad(text, 'matches takes a glob: "*@example.com"')
    if operator in ("startswith", "endswith") and not isinstance(literal, str):
        raise _bad(text, f'{operator} takes a string: "/srv/"')
    return _Comparison(path, operator, literal), at


def _path(text: str, at: int) -> tuple[ArgPath, int]:
    function = _FUNCTION.match(text, at)
    at = function.end() if function else at
    first = _NAME.match(text, at) or _QUOTED.match(text, at)
    if first is None:
        raise _bad(text, "begin with the name of an argument, as in amount > 100")
    steps: list[str | int] = [_key(text, first[1]) if first.re is _QUOTED else first[0]]
    at = first.end()
    while at < len(text) and text[at] in ".[":
        step, at = _step(text, at)
        steps.append(step)
    if function is None:
        return ArgPath(tuple(steps)), at
    at = _after_space(text, at)
    if not text.startswith(")", at):
        raise _bad(text, f"{function[1]} takes one path: {function[1]}(to)")
    return ArgPath(tuple(steps), function[1]), at + 1


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


def _literal(text: str, at: int) -> tuple[Json, int]:
    at = _after_space(text, at)
    if at == len(text):
        raise _bad(text, 'the value is missing; write a number, "text" or a list')
    try:
        literal, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        end = at
    if end > at and (text[end : end + 1] in ("", ")") or text[end].isspace()):
        return literal, _after_space(text, end)
    excerpt = _cut(text[at:].strip())
    raise _bad(text, f'{excerpt} is not JSON: write 100, "text" in double quotes, true or ["a"]')


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)

# -- comparing


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


def _order(left: Json, right: Json) -> int:
    """Return how two values compare: -1, 0 or 1. Raise if they have no order."""
    if is_number(left) and is_number(right):
        return (left > right) - (left < right)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    raise TypeError(f"{_kind(left)} cannot be compared with {_kind(right)}")


def _matches(value: Json, pattern: Json) -> bool:
    return fnmatch.fnmatchcase(_text(value, "matched with a glob"), pattern)


def _contains(value: Json, part: Json) -> bool:
    if isinstance(value, list | tuple):
        return any(json_equal(item, part) for item in value)
    if not isinstance(part, str):
        raise TypeError(f"{_kind(value)} cannot contain {_kind(part)}")
    return part in _text(value, "searched")


def _text(value: Json, use: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{_kind(value)} cannot be {use}")
    return value


_ORDERING: Mapping[str, Callable[[Json, Json], bool]] = {
    "<": lambda left, right: _order(left, right) < 0,
    "<=": lambda left, right: _order(left, right) <= 0,
    ">": lambda left, right: _order(left, right) > 0,
    ">=": lambda left, right: _order(left, right) >= 0,
}
_COMPARE: Mapping[str, Callable[[Json, Json], bool]] = {
    "==": json_equal,
    "!=": lambda left, right: not json_equal(left, right),
    **_ORDERING,
    "in": lambda value, listed: any(json_equal(value, item) for item in listed),
    "matches": _matches,
    "contains": _contains,
    "startswith": lambda value, part: _text(value, "searched").startswith(part),
    "endswith": lambda value, part: _text(value, "searched").endswith(part),
}
OPERATORS = tuple(_COMPARE)


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
        elif _NAME.fullmatch(step) and (formatted or step not in _RESERVED):
            formatted += f".{step}" if formatted else step
        else:
            formatted += f"[{json.dumps(step)}]"
    return formatted


_RESERVED = ("and", "or", "not")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"
