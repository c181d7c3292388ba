"""Where webhooks go, and how patiently."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sayso import codec

#: What can be told: people are asked, somebody decided, or it ended without a decision.
EVENTS: tuple[str, ...] = ("request.opened", "request.decided", "request.closed")

_PREFIX = "whsec_"
_LEAST_BYTES = 24


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One receiver: its address, and the secret that both sides sign with.

    ``secret`` is ``whsec_`` and at least 24 random bytes in base64. Plain http, and addresses
    inside the own network, need ``allow_private``. ``page`` is the address under which people open
    the web app; links begin with it. A message is tried again until it is ``keep_trying`` seconds
    old, with pauses that double from ``pause`` on.
    """

    url: str
    secret: str = field(repr=False)
    events: tuple[str, ...] = field(default=EVENTS, kw_only=True)
    page: str = field(default="", kw_only=True)
    allow_private: bool = field(default=False, kw_only=True)
    timeout: float = field(default=10.0, kw_only=True)
    pause: float = field(default=1.0, kw_only=True)
    keep_trying: float = field(default=86_400.0, kw_only=True)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        schemes = ("https", "http") if self.allow_private else ("https",)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(
                f"webhook {self.shown!r}: give an https:// address (http:// only inside the own "
                "network, with allow_private or --webhook-private)"
            )
        if parts.username is not None or parts.fragment:
            raise ValueError("a webhook's address has no password and no fragment: leave them out")
        unknown = sorted(set(self.events) - set(EVENTS))
        if unknown or not self.events:
            raise ValueError(f"webhook events {unknown}: use some of {', '.join(EVENTS)}")
        _check_secret(self.secret)

    @property
    def name(self) -> str:
        """What its place among the events is kept under; another address is another reader."""
        return f"webhook:{codec.sha256(self.url.encode())[:32]}"

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        if not parts.hostname:
            return parts.path
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _check_secret(secret: str) -> None:
    wanted = f"a webhook secret is {_PREFIX} and {_LEAST_BYTES} to 64 random bytes in base64"
    if not secret.startswith(_PREFIX):
        raise ValueError(wanted)
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(wanted) from None
    if not _LEAST_BYTES <= len(key) <= 64:
        raise ValueError(wanted)
