"""What the SDK is given back later is signed: what somebody changed is refused."""

from __future__ import annotations

import json
from typing import Any

from sayso.errors import Tampered
from sayso.keys import Keyring


def sealed(keys: Keyring, of: str, value: dict[str, Any]) -> dict[str, str]:
    """The value as text with a signature; in ASCII, so that whatever a model writes can be kept."""
    text = json.dumps({"of": of, **value}, separators=(",", ":"))
    return {"kept": text, "signature": keys.sign(text.encode())}


def unsealed(keys: Keyring, of: str, found: Any) -> dict[str, Any]:
    """The value again, if it is of the same thread or run; else ``Tampered``."""
    text, signature = found.get("kept"), found.get("signature")
    genuine = isinstance(text, str) and keys.verify(text.encode(), str(signature))
    value: dict[str, Any] = json.loads(text) if genuine else {}
    if value.get("of") != of:
        raise Tampered(
            f"what is kept of {of} was changed behind our back, and nothing was run: look at "
            "`sayso audit verify`, and begin another thread"
        )
    return value
