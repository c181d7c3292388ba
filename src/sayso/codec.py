"""Strict JSON in, canonical bytes out.

People approve a digest over RFC 8785 bytes, so every value must have exactly one such form and must
come back from it unchanged. Values that JSON would change on the way (a large integer, NaN, half a
surrogate pair, a key that is not a string) are refused here, with their path, before people are
asked about them.

``canonical`` and ``parse`` are for values from outside; ``dumps`` and ``loads`` are for rows that
this package wrote itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, cast

from sayso.errors import InvalidCall
from sayso.rows import dumps as dumps
from sayso.rows import json_encoder

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 200
MAX_ITEMS = 100_000
MAX_INTEGER = 2**53 - 1

# From here on RFC 8785 writes a float with an exponent; below it, as an integer with all digits.
_FIRST_EXPONENT = 1e21
_LONGEST_KEY = 60

_TOO_BIG = f"more than {MAX_BYTES:,} bytes of JSON; pass a reference to the data instead"
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep; flatten it"
_TOO_MANY = f"more than {MAX_ITEMS:,} keys and items in all; pass a reference to the data instead"

_BIG_INTEGER = f"an integer beyond {MAX_INTEGER:,}, which loses digits in JSON; declare it as str"
_CONTAINERS = frozenset({dict, list, tuple})


def canonical(value: object) -> bytes:
    """Return the RFC 8785 bytes of a JSON value. Raise ``InvalidCall`` with the path at fault."""
    plain = _check(value)
    try:
        if plain:
            data = sorted_text(value).encode()
        else:
            import rfc8785  # here, because few values need it

            data = rfc8785.dumps(cast("Any", value))
    except RecursionError:  # only where the caller's own stack is nearly full
        raise InvalidCall("the value is nested too deeply for the stack that is left") from None
    if len(data) > MAX_BYTES:
        raise _too_big()
    return data


def parse(data: str | bytes) -> Any:
    """Parse JSON from outside. Raise ``InvalidCall`` if it is not valid or is ambiguous."""
    text = _text(data)
    try:
        value = _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidCall(
            f"not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidCall(f"the value is {_TOO_DEEP}") from None
    except ValueError:  # CPython converts no integer of more than 4,300 digits
        raise InvalidCall(f"the JSON holds {_BIG_INTEGER}") from None
    _check(value)
    return value


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments that a model wrote.

    Raise ``InvalidCall`` unless they are one JSON object.
    """
    value = parse(text)
    if not isinstance(value, dict):
        raise InvalidCall("the arguments must be a JSON object")
    return value


def loads(data: str | bytes) -> Any:
    """Parse JSON that this package stored."""
    text = data.decode() if isinstance(data, bytes) else data
    # What we write has no space around it, and skipping space takes as long as a short value.
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)  # it says what is wrong
    return value if end == len(text) else json.loads(text)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of the bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def digest(envelope: Mapping[str, object]) -> str:
    """Return the SHA-256 of an envelope's canonical bytes in hex. Floats are not allowed."""
    return hashlib.sha256(sorted_text(envelope).encode()).hexdigest()


def path_text(parts: Iterable[str | int]) -> str:
    """Format a path for people: ``items[3].price``."""
    return "".join(map(_step, parts)).removeprefix(".")


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if part.isidentifier() and len(part) <= _LONGEST_KEY:
        return f".{part}"
    return f"[{_quoted(part)}]"


def _quoted(key: str) -> str:
    short = key if len(key) <= _LONGEST_KEY else key[: _LONGEST_KEY - 1] + "…"
    return json.dumps(short)  # in ASCII, so that a path never carries a surrogate


def _text(data: str | bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _too_big()
    if isinstance(data, bytes):
        try:
            data = data.decode()
        except UnicodeDecodeError as error:
            raise InvalidCall(f"the JSON is not UTF-8: bad byte at {error.start}") from None
    elif not data.isascii() and len(data.encode(errors="surrogatepass")) > MAX_BYTES:
        raise _too_big()
    if data.startswith("\ufeff"):
        raise InvalidCall("the JSON starts with a byte order mark; send it without one")
    return data


def _too_big() -> InvalidCall:
    return InvalidCall(f"the value has {_TOO_BIG}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Refuse duplicate keys: parsers differ on which one counts."""
    built = dict(pairs)
    if len(built) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InvalidCall(f"the key {_quoted(twice)} appears twice in one object; remove one")
    return built


_STRICT = json.JSONDecoder(object_pairs_hook=_unique)
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


#: If all keys are ASCII and no number is a float, this writes the RFC 8785 bytes, several times
#: faster than a general encoder, which has to sort keys by UTF-16 and write floats as JavaScript.
sorted_text = json_encoder(sort_keys=True)


def _check(value: object) -> bool:
    """Walk the value once, in order and without recursion. Refuse what JSON cannot represent.

    Returns whether it is plain: all keys are ASCII, and no number is a float.
    """
    path: list[str | int] = [""]  # the step into each open level; the root's own is never shown
    levels: list[Iterator[tuple[str | int, Any]]] = [iter((("", value),))]
    items = size = 0
    plain = True
    while levels:
        for step, item in levels[-1]:
            kind = type(item)
            if kind is str and item.isascii():
                size += len(item)
            elif kind in _CONTAINERS:
                items += len(item)
                path[-1] = step
                inside, ascii_keys = _enter(item, path, items, size)
                levels.append(inside)
                plain = plain and ascii_keys
                path.append("")
                break
            elif fault := _fault(item):
                _refuse([*path[:-1], step], fault)
            elif isinstance(item, float):
                plain = False
        else:
            levels.pop()
            path.pop()
    if size > MAX_BYTES:
        raise _too_big()
    return plain


def _enter(
    node: Any, path: list[str | int], items: int, size: int
) -> tuple[Iterator[tuple[str | int, Any]], bool]:
    """Return the entries of a container, and whether its keys are ASCII."""
    if len(path) > MAX_DEPTH:
        _refuse(path, _TOO_DEEP)
    if items > MAX_ITEMS:
        _refuse(path, _TOO_MANY)
    if size > MAX_BYTES:
        raise _too_big()
    if type(node) is not dict:
        return enumerate(node), True
    ascii_keys = True
    for key in node:
        if type(key) is not str:
            _refuse(path, f"a key of type {type(key).__name__}; JSON keys are strings")
        if not key.isascii():
            ascii_keys = False
            if fault := _text_fault(key):
                _refuse([*path, key], fault)
    return iter(node.items()), ascii_keys


def _fault(scalar: object) -> str | None:
    """Return why a scalar has no JSON form, or None if it has one."""
    if scalar is None or isinstance(scalar, bool):
        return None
    if isinstance(scalar, str):
        return _text_fault(scalar)
    if isinstance(scalar, int):
        return _BIG_INTEGER if abs(scalar) > MAX_INTEGER else None
    if isinstance(scalar, float):
        if not math.isfinite(scalar):
            return f"{scalar} is not a JSON number; use null or a string"
        return _BIG_INTEGER if MAX_INTEGER < abs(scalar) < _FIRST_EXPONENT else None
    return f"a value of type {type(scalar).__name__} has no JSON form; convert it first"


def _text_fault(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is not Unicode text; declare it as bytes"
    return None


def _refuse(path: list[str | int], fault: str) -> NoReturn:
    where = path_text(path[1:])
    raise InvalidCall(f"{where or 'the value'}: {fault}", where)
