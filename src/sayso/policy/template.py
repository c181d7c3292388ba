"""Texts with the names of arguments in braces, such as ``refund:{order}``.

They come from policy files and decorators, and are filled in with what a model wrote. So they can
name an argument and nothing else: no attributes, no indexes, no formats. ``{{`` and ``}}`` stand
for the braces themselves.

``effect_key`` fills in a template so that two sets of arguments get the same text only if they are
the same: characters of a value that also separate the parts of the template are percent-encoded,
and so is everything that is no letter, no digit and none of ``_ . @ + -``.
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
    """A template that names no argument where it should, or has a lone brace."""


@lru_cache(maxsize=1024)
def parts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The literal texts of a template, one more than the names between them; and the names."""
    literals, names, at, literal = [], [], 0, ""
    for found in _PARTS.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        whole, name = found[0], found[1]
        if whole in ("{{", "}}"):
            literal += whole[0]
        elif name is not None and name.isidentifier():
            literals.append(literal)
            names.append(name)
            literal = ""
        elif name is None:
            raise BadTemplate(f"a lone {whole!r}: write {whole * 2} for the character itself")
        else:
            raise BadTemplate(f"{{{name}}} is no argument's name: write one, as in {{order}}")
    return (*literals, literal + text[at:]), tuple(names)


def check_template(text: object, arguments: Iterable[str] | None = None) -> str:
    """A template that can be filled in; with ``arguments``, from these and no others."""
    if not isinstance(text, str) or not text.strip():
        raise BadTemplate("give a text, such as 'refund:{order}'")
    if len(text) > MAX_TEMPLATE:
        raise BadTemplate(f"it has {len(text):,} characters, the limit is {MAX_TEMPLATE}")
    literals, names = parts(text)
    for before in literals[1:-1]:
        if before.isalnum() or not before:
            raise BadTemplate(
                "two arguments side by side could be told apart by nobody: put a character such "
                "as ':' between them"
            )
    if arguments is not None:
        known = list(arguments)
        unknown = [name for name in names if name not in known]
        if unknown:
            use = f"use {', '.join(known)}" if known else "the function has none"
            raise BadTemplate(f"there is no argument {unknown[0]!r}: {use}")
    return text


def escaped(text: str) -> str:
    """A text as a template that gives just this text."""
    return text.replace("{", "{{").replace("}", "}}")


def effect_key(template: str, args: Mapping[str, Json]) -> str:
    """The key of an effect, made of the arguments; InvalidCall if it cannot be made."""
    literals, names = parts(template)
    separators = set("".join(literals))
    found = [literals[0]]
    for name, literal in zip(names, literals[1:], strict=True):
        if name not in args:
            raise InvalidCall(
                f"effect_key {template!r} needs the argument {name!r}, and the call has none",
                "effect_key",
            )
        found += _value(args[name], separators), literal
    return checked_key("".join(found))


def checked_key(key: object) -> str:
    """A key that can be stored and shown."""
    if not isinstance(key, str) or not key.strip("/ "):
        raise InvalidCall(
            f"effect_key: give a text that says something, not {key!r:.80}", "effect_key"
        )
    if len(key) > MAX_KEY:
        raise InvalidCall(
            f"effect_key has {len(key):,} characters, the limit is {MAX_KEY}: make it of fewer or "
            "shorter arguments",
            "effect_key",
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        said = "effect_key: half a surrogate pair is no text: leave it out"
        raise InvalidCall(said, "effect_key") from None
    return key


def _value(value: Json, separators: set[str]) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    plain = set(_PLAIN) - separators
    return "".join(one if one.isalnum() or one in plain else _encoded(one) for one in text)


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
