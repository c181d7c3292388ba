"""What looks like a secret is not shown unasked: by the name of its field, or by its shape.

The real value stays in the store and in the digest. A view that hides something carries no digest,
so nothing can be approved from it; `reveal` shows it, and that is written down. A field that the
tool itself declares secret (``writeOnly``, or ``format: password``) counts as shown by its length
and fingerprint, since the tool's author said that nobody has to read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from assent import text
from assent.types import Json

_NAMES = re.compile(
    r"(?i)(^|[_\-.])(pass(word|wd|phrase)?|secrets?|tokens?|api_?keys?|private_?key|"
    r"access_?key|credentials?|authorization|cookies?|session_?id|client_?secret|pin|otp)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bsk-[A-Za-z0-9_\-]{20,}|\b[sr]k_(live|test)_[A-Za-z0-9]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bASIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_\-]{30,}"
    r"|\bxox[abprs]-[A-Za-z0-9\-]{10,}|\bglpat-[A-Za-z0-9_\-]{20,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}"
    r"|\bassent_[A-Za-z0-9_\-]{40,}"
    r"|://[^/\s:@]+:[^/\s:@]{3,}@"
)


class Hidden(NamedTuple):
    """A value with its secrets replaced, and whether that took anything from the reader."""

    value: Json
    masked: bool


def hidden(value: Json, schema: Mapping[str, Any] | None = None) -> Hidden:
    """The same value without what looks like a secret."""
    found: list[bool] = []
    shown = _walk(value, "", schema or {}, found)
    return Hidden(shown, any(found))


def _walk(value: Json, name: str, schema: Mapping[str, Any], found: list[bool]) -> Json:
    if isinstance(value, dict):
        fields = schema.get("properties", {})
        return {k: _walk(v, k, _part(fields, k), found) for k, v in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        inner = items if isinstance(items, dict) else {}
        return [_walk(item, name, inner, found) for item in value]
    if not isinstance(value, str) or not value:
        return value
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return text.fingerprint(value)
    if _NAMES.search(_CAMEL.sub("_", name)):
        found.append(True)
        return text.fingerprint(value)
    if _SHAPES.search(value):
        found.append(True)
        return _SHAPES.sub(lambda match: text.fingerprint(match[0]), value)
    return value


def _part(fields: object, name: str) -> Mapping[str, Any]:
    part = fields.get(name) if isinstance(fields, dict) else None
    return part if isinstance(part, dict) else {}
