"""What looks like a secret is not shown unasked: by the name of its field, or by its shape.

The real value stays in the store and in the digest. A view that hides something carries no digest,
so nothing can be approved from it; `reveal` shows it, and that is written down. A field that the
tool itself declares secret (``writeOnly``, or ``format: password``) counts as shown by its length
and fingerprint, since the tool's author said that nobody has to read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sayso import codec, text
from sayso.errors import InvalidCall
from sayso.policy.template import BadTemplate
from sayso.policy.template import parts as template_parts
from sayso.types import Json

_NAMES = re.compile(
    r"(?i)(^|[_\-. ])(pass(word|wd|phrase|code)?|pwd|secrets?|tokens?|api[_\- ]?keys?|"
    r"(private|access|secret|signing|encryption)[_\- ]?keys?|credentials?|authorization|bearer|"
    r"cookies?|session_?id|client_?secret|pin|otp)$"
)
#: Of these, numbers are secrets as well, if they have four digits: others are counts.
_NUMBERS = re.compile(r"(?i)(^|[_\-. ])(pass(word|wd|code)?|pwd|secret|pin|otp)$")
_STAND_IN = re.compile(r"•••• \([\d,]+ chars?, sha256:[0-9a-f]{8}…\)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: What may begin anywhere and need not end has a bound, or a long text would take for ever.
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bsk-[A-Za-z0-9_\-]{20,}|\b[sr]k_(live|test)_[A-Za-z0-9]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bASIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|\bxox[abprs]-[A-Za-z0-9\-]{10,}|\bglpat-[A-Za-z0-9_\-]{20,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,400}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}"
    r"|\bsayso_[A-Za-z0-9_\-]{40,}"
    r"|://[^/\s:@]+:[^/\s:@]{3,}@"
)

#: One of these is in whatever has such a shape; to look for them takes a hundredth of the time.
_MARKS = (
    *("-----BEGIN ", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "k_live_"),
    *("k_test_", "AKIA", "ASIA", "AIza", "xox", "glpat-", "npm_", "eyJ", "sayso_", "://"),
)


class Hidden(NamedTuple):
    """A value with its secrets replaced, and whether that took anything from the reader."""

    value: Json
    masked: bool


def hidden(value: Json, schema: Mapping[str, Any] | None = None) -> Hidden:
    """The same value without what looks like a secret."""
    found: list[bool] = []
    root = schema or {}
    shown = _walk(value, "", [root] if root else [], root, found)
    return Hidden(shown, any(found))


def declared(value: Mapping[str, Json], schema: Mapping[str, Any] | None) -> dict[str, Json]:
    """Arguments without what their tool declares secret, and nothing else taken out."""
    root = schema or {}
    shown: dict[str, Json] = _walk(dict(value), "", [root] if root else [], root, None)
    return shown


def stand_in(value: Json, path: str) -> str | None:
    """Where something stands for a secret that was not shown; it is no value to run with."""
    if isinstance(value, str):
        return path if _STAND_IN.search(value) else None
    inside: list[tuple[Any, Json]] = []
    if isinstance(value, dict | list):
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = (stand_in(item, f"{path}.{key}") for key, item in inside)
    return next((place for place in found if place is not None), None)


def _walk(value: Json, name: str, said: list[Any], root: Any, found: list[bool] | None) -> Json:
    """The value under a name, with what the schema says of it; ``root`` is where it refers to.

    Without a list to note it in, nothing is taken for a secret by its looks.
    """
    forms = list(_forms(said, root)) if said else []
    if any(form.get("writeOnly") is True or form.get("format") == "password" for form in forms):
        if value is None or value == "":
            return value
        return text.fingerprint(value if isinstance(value, str) else codec.dumps(value))
    looks_secret = found is not None and bool(_NAMES.search(_CAMEL.sub("_", name)))
    if isinstance(value, dict):
        # What stands anywhere under such a name is meant by it.
        return {
            k: _walk(v, name if looks_secret else k, _fields(forms, k), root, found)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_walk(v, name, _items(forms, n), root, found) for n, v in enumerate(value)]
    return value if found is None else _unguessed(value, name, looks_secret, found)


def _unguessed(value: Json, name: str, looks_secret: bool, found: list[bool]) -> Json:
    """A value that holds no others, without what looks like a secret."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) < 1000 or not _NUMBERS.search(_CAMEL.sub("_", name)):
            return value
        found.append(True)
        return text.fingerprint(codec.dumps(value))
    if not isinstance(value, str) or not value:
        return value
    if looks_secret:
        found.append(True)
        return text.fingerprint(value)
    if any(mark in value for mark in _MARKS) and _SHAPES.search(value):
        found.append(True)
        return _SHAPES.sub(lambda match: text.fingerprint(match[0]), value)
    return value


def _forms(said: list[Any], root: Any) -> Iterator[Mapping[str, Any]]:
    """Everything that a schema says of one value, behind its references and alternatives."""
    todo, seen = list(said), set()
    while todo:
        node = todo.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo.append(referred(root, node.get("$ref")))
        for several in ("anyOf", "oneOf", "allOf"):
            todo += node.get(several) or ()


def referred(root: Any, ref: object) -> Any:
    """What a reference within a schema means, if it is there."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for part in ref[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _fields(forms: list[Mapping[str, Any]], name: str) -> list[Any]:
    """What is said of a field; of one that is not named, what is said of all others."""
    found = []
    for form in forms:
        named = form.get("properties")
        rest = form.get("additionalProperties")
        found.append(named.get(name, rest) if isinstance(named, Mapping) else rest)
    return found


def _items(forms: list[Mapping[str, Any]], place: int) -> list[Any]:
    found: list[Any] = []
    for form in forms:
        first = form.get("prefixItems") or ()
        found.append(first[place] if place < len(first) else form.get("items"))
    return found


# -- titles

MAX_TITLE = 300


def title_fields(template: str) -> tuple[str, ...]:
    """Return the argument names in braces of a title, or raise ``InvalidCall``.

    A title takes arguments as they are: no attributes, no items, no formats. ``{{`` is a brace.
    """
    try:
        return template_parts(template)[1]
    except BadTemplate as error:
        raise InvalidCall(f"title: {error}", "title") from None


def titled(template: str, args: Mapping[str, Json], schema: Mapping[str, Any] | None) -> str:
    """Make a title of a template and the arguments: inert, on one line, without secrets.

    Gives "" for a template that does not fit, which belongs to another version of the tool.
    """
    try:
        literals, names = template_parts(template)
        shown = hidden(dict(args), schema).value
        assert isinstance(shown, dict)
        values = [_worded(args[name]) if shown[name] == args[name] else "••••" for name in names]
    except (BadTemplate, KeyError):
        return ""
    pairs = zip(literals, [*values, ""], strict=True)
    return plain_title("".join(literal + value for literal, value in pairs))


def plain_title(given: str) -> str:
    """Return a text as a title: inert, on one line, and not too long."""
    shown = text.inline(" ".join(given.split()))
    return shown if len(shown) <= MAX_TITLE else shown[: MAX_TITLE - 1] + "…"


def _worded(value: Json) -> str:
    return value if isinstance(value, str) else codec.dumps(value)
