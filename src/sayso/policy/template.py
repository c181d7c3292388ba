"""Templates: texts with the names of arguments in braces, such as ``refund:{order}``.

They come from policy files and decorators, and are filled in with values that a model wrote. So
they can name arguments and nothing else: no attributes, no indexes, no formats. Write ``{{`` and
``}}`` for the braces themselves.

``effect_key`` gives two sets of arguments the same text only if they are equal: it percent-encodes
the characters of a value that also appear between the parts of the template, and all characters but
letters, digits and ``_ . @ + -``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from sayso.errors import InvalidCall
from sayso.types import Json

MAX_TEMPLATE = 500
MAX_KEY = 500

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLAIN = "_.@+-"


class BadTemplate(ValueError):
    """Raised for a template with a lone brace, or with braces that hold no argument's name."""


@lru_cache(maxsize=1024)
def parts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a template: return its literal texts (one more than the names), and the names."""
    literals: list[str] = []
    names: list[str] = []
    at = 0
    literal = ""
    for match in _PARTS.finditer(text):
        literal += text[at : match.start()]
        at = match.end()
        brace = match[0]
        name = match[1]
        if brace in ("{{", "}}"):
            literal += brace[0]
        elif name is not None and name.isidentifier():
            literals.append(literal)
            names.append(name)
            literal = ""
        elif name is None:
            raise BadTemplate(f"a lone {brace!r}: write {brace * 2} for the character itself")
        else:
            raise BadTemplate(f"{{{name}}} is not an argument: write a name, as in {{order}}")
    return (*literals, literal + text[at:]), tuple(names)


def check_template(text: object, arguments: Iterable[str] | None = None) -> str:
    """Return the template if it is valid. With ``arguments``, it may name only these."""
    if not isinstance(text, str) or not text.strip():
        raise BadTemplate("write a text such as 'refund:{order}'")
    if len(text) > MAX_TEMPLATE:
        raise BadTemplate(f"it has {len(text):,} characters; the limit is {MAX_TEMPLATE}")
    literals, names = parts(text)
    for before in literals[1:-1]:
        if before.isalnum() or not before:
            raise BadTemplate(
                "two arguments next to each other would be ambiguous: put a character such as ':' "
                "between them"
            )
    if arguments is not None:
        allowed = list(arguments)
        unknown = [name for name in names if name not in allowed]
        if unknown:
            use = f"use {', '.join(allowed)}" if allowed else "the function has no arguments"
            raise BadTemplate(f"there is no argument {unknown[0]!r}: {use}")
    return text


def escaped(text: str) -> str:
    """Return the template for exactly this text, with its braces escaped."""
    return text.replace("{", "{{").replace("}", "}}")


def effect_key(template: str, args: Mapping[str, Json]) -> str:
    """Fill in an effect key. Raise ``InvalidCall`` if an argument is missing or the key is bad."""
    literals, names = parts(template)
    separators = set("".join(literals))
    pieces = [literals[0]]
    for name, literal in zip(names, literals[1:], strict=True):
        if name not in args:
            raise InvalidCall(
                f"effect_key {template!r} needs the argument {name!r}: pass it with the call",
                "effect_key",
            )
        pieces += _percent_encode(args[name], separators), literal
    return checked_key("".join(pieces))


def checked_key(key: object) -> str:
    """Return the key if it can be stored and shown; otherwise raise ``InvalidCall``."""
    if not isinstance(key, str) or not key.strip("/ "):
        raise InvalidCall(f"effect_key={key!r:.80}: pass a string that is not empty", "effect_key")
    if len(key) > MAX_KEY:
        raise InvalidCall(
            f"effect_key has {len(key):,} characters; the limit is {MAX_KEY}: use fewer or shorter "
            "arguments",
            "effect_key",
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        why = "effect_key contains half a surrogate pair, which cannot be stored: remove it"
        raise InvalidCall(why, "effect_key") from None
    return key


def _percent_encode(value: Json, separators: set[str]) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    plain = set(_PLAIN) - separators
    return "".join(
        character
        if character.isalnum() or character in plain
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in text
    )
