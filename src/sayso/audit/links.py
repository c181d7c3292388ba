"""One event and the one before it: does the hash hold, and does the body fit?"""

from __future__ import annotations

import hashlib

from sayso.audit.reading import DAMAGE
from sayso.engine.unit_of_work import link_bytes
from sayso.errors import UnknownKey
from sayso.keys import Keyring
from sayso.rows import Event

PLAIN = "sha256"


def is_keyed(event: Event) -> bool:
    """Whether only the holder of a key can have made this hash."""
    return _maker(event) != PLAIN


def link_wrong(keys: Keyring, previous: str, event: Event) -> str:
    """What is wrong with the hash of an event, or nothing."""
    try:
        if keys.check_link(link_bytes(previous, event), event.hash):
            return ""
    except UnknownKey as error:
        return f"its hash cannot be checked: {error}"
    except DAMAGE:
        return "it was changed: its columns cannot be hashed"
    maker = _maker(event)
    if maker == PLAIN and not keys.link(b"").startswith(PLAIN):
        return "its hash was made without the key"
    return "it was changed, or it does not follow on the row before it"


def body_wrong(event: Event) -> str:
    """What is wrong with the body of an event, or nothing; a missing body is another matter."""
    if event.body is None:
        return ""
    body = event.body.encode() if isinstance(event.body, str) else b""
    return "" if hashlib.sha256(body).hexdigest() == event.digest else "its body was changed"


def _maker(event: Event) -> str:
    return str(event.hash).partition(".")[0]
