"""Redact values that look like secrets, by field name or by shape, and render request titles.

The store and the digest keep the real value. A redacted view has no digest, so it cannot be
approved; `reveal` shows the value and records who saw it. A field that the tool declares
secret (``writeOnly`` or ``format: password``) is always shown as its length and fingerprint, and
that counts as shown: the tool's author said that reviewers do not need to read it.
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

_SECRET_NAMES = re.compile(
    r"(?i)(^|[_\-. ])(pass(word|wd|phrase|code)?|pwd|secrets?|tokens?|api[_\- ]?keys?|"
    r"(private|access|secret|signing|encryption)[_\- ]?keys?|credentials?|authorization|bearer|"
    r"cookies?|session_?id|client_?secret|pin|otp)$"
)
#: Under these names, numbers of four digits or more are secrets too; smaller ones are counts.
_SECRET_NUMBER_NAMES = re.compile(r"(?i)(^|[_\-. ])(pass(word|wd|code)?|pwd|secret|pin|otp)$")
_PLACEHOLDER = re.compile(r"•••• \([\d,]+ chars?, sha256:[0-9a-f]{8}…\)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: An unanchored pattern needs an upper bound, or matching a long text takes quadratic time.
_SECRET_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bsk-[A-Za-z0-9_\-]{20,}|\b[sr]k_(live|test)_[A-Za-z0-9]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bASIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|\bxox[abprs]-[A-Za-z0-9\-]{10,}|\bglpat-[A-Za-z0-9_\-]{20,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,400}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}"
    r"|\bsayso_[A-Za-z0-9_\-]{40,}"
    r"|://[^/\s:@]+:[^/\s:@]{3,}@"
)

#: Every secret shape contains one of these; checking them first costs a hundredth of the regex.
_SHAPE_MARKERS = (
    *("-----BEGIN ", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "k_live_"),
    *("k_test_", "AKIA", "ASIA", "AIza", "xox", "glpat-", "npm_", "eyJ", "sayso_", "://"),
)


class Redacted(NamedTuple):
    """A value with its secrets replaced, and whether anything undeclared was replaced."""

    value: Json
    masked: bool


def redact(value: Json, schema: Mapping[str, Any] | None = None) -> Redacted:
    """Replace everything in a value that looks like a secret or is declared as one."""
    found: list[bool] = []
    root = schema or {}
    shown = _walk(value, "", [root] if root else [], root, found)
    return Redacted(shown, any(found))


def redact_declared(value: Mapping[str, Json], schema: Mapping[str, Any] | None) -> dict[str, Json]:
    """Replace only the arguments that their tool's schema declares secret."""
    root = schema or {}
    shown: dict[str, Json] = _walk(dict(value), "", [root] if root else [], root, None)
    return shown


def find_placeholder(value: Json, path: str) -> str | None:
    """Return the path of the first redaction placeholder in a value, or ``None``.

    A call must not run with a placeholder in place of the secret.
    """
    if isinstance(value, str):
        return path if _PLACEHOLDER.search(value) else None
    inside: list[tuple[Any, Json]] = []
    if isinstance(value, dict | list):
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = (find_placeholder(item, f"{path}.{key}") for key, item in inside)
    return next((place for place in found if place is not None), None)


def _walk(value: Json, name: str, said: list[Any], root: Any, found: list[bool] | None) -> Json:
    """Redact one value. ``said`` holds its schemas, ``root`` the schema that ``$ref`` points into.

    Appends to ``found`` for each guessed secret. If it is ``None``, replaces declared ones only.
    """
    forms = list(_forms(said, root)) if said else []
    if any(form.get("writeOnly") is True or form.get("format") == "password" for form in forms):
        if value is None or value == "":
            return value
        return text.fingerprint(value if isinstance(value, str) else codec.dumps(value))
    looks_secret = found is not None and bool(_SECRET_NAMES.search(_CAMEL.sub("_", name)))
    if isinstance(value, dict):
        # A secret-looking name covers everything nested below it.
        return {
            k: _walk(v, name if looks_secret else k, _fields(forms, k), root, found)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_walk(v, name, _items(forms, n), root, found) for n, v in enumerate(value)]
    return value if found is None else _redact_scalar(value, name, looks_secret, found)


def _redact_scalar(value: Json, name: str, looks_secret: bool, found: list[bool]) -> Json:
    """Replace a string or number if it looks like a secret."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) < 1000 or not _SECRET_NUMBER_NAMES.search(_CAMEL.sub("_", name)):
            return value
        found.append(True)
        return text.fingerprint(codec.dumps(value))
    if not isinstance(value, str) or not value:
        return value
    if looks_secret:
        found.append(True)
        return text.fingerprint(value)
    if any(mark in value for mark in _SHAPE_MARKERS) and _SECRET_SHAPES.search(value):
        found.append(True)
        return _SECRET_SHAPES.sub(lambda match: text.fingerprint(match[0]), value)
    return value


def _forms(said: list[Any], root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every subschema that applies to one value, following references and alternatives."""
    todo, seen = list(said), set()
    while todo:
        node = todo.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo.append(resolve_ref(root, node.get("$ref")))
        for several in ("anyOf", "oneOf", "allOf"):
            todo += node.get(several) or ()


def resolve_ref(root: Any, ref: object) -> Any:
    """Return the subschema that a local ``$ref`` points to, or ``None``."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for part in ref[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _fields(forms: list[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the schemas of a property; ``additionalProperties`` covers the unnamed ones."""
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
    """Return the argument names that a title template uses. Raise ``InvalidCall`` if it is invalid.

    Templates take plain argument names: no attributes, items or formats. ``{{`` is a literal brace.
    """
    try:
        return template_parts(template)[1]
    except BadTemplate as error:
        raise InvalidCall(f"title: {error}", "title") from None


def render_title(template: str, args: Mapping[str, Json], schema: Mapping[str, Any] | None) -> str:
    """Render a title template: inert, on one line, with secrets redacted.

    Returns "" if the template does not fit the arguments, as after a change of the tool.
    """
    try:
        literals, names = template_parts(template)
        shown = redact(dict(args), schema).value
        assert isinstance(shown, dict)
        values = [_as_text(args[name]) if shown[name] == args[name] else "••••" for name in names]
    except (BadTemplate, KeyError):
        return ""
    pairs = zip(literals, [*values, ""], strict=True)
    return clean_title("".join(literal + value for literal, value in pairs))


def clean_title(given: str) -> str:
    """Return a text as a title: inert, on one line, and cut to ``MAX_TITLE`` characters."""
    shown = text.inline(" ".join(given.split()))
    return shown if len(shown) <= MAX_TITLE else shown[: MAX_TITLE - 1] + "…"


def _as_text(value: Json) -> str:
    return value if isinstance(value, str) else codec.dumps(value)
