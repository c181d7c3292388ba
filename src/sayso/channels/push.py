"""Web Push: notifications of the web app, on phones and desktops, also while it is closed.

A message has the title of the request and its risk, encrypted so that only the browser can read it.
It opens the request and decides nothing. Messages about one request replace each other, and the
last one says what became of it.

The URL of a subscription comes from a browser, so it is input: the server posts to public addresses
only (``kit.network``), and what one push service does delays no message to another.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from sayso.channels.kit.cards import Card, outcome_of
from sayso.channels.kit.channel import TryLater, Undeliverable
from sayso.channels.kit.courier import read_request
from sayso.channels.kit.desk import Desk
from sayso.channels.kit.network import Forbidden, Poster, allowed_addresses
from sayso.errors import InvalidCall
from sayso.inbox.push import Subscription, end_subscription, subscription_of, subscriptions_of
from sayso.rows import Delivery
from sayso.stores.base import Store
from sayso.sync import to_thread
from sayso.types import moment

try:
    import http_ece
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from py_vapid import Vapid02
except ImportError as error:
    raise ImportError('push needs `pip install "sayso[push]"`') from error

_TIMEOUT = 10.0
#: How long a push service keeps a message for a device that is off, in seconds.
_KEEP = 86_400
_MOST_TITLE = 200
_GONE = (404, 410)
_BUSY = 429


class PushChannel:
    """Sends to the browsers that people subscribed, with the private key of this server.

    ``contact`` is a ``mailto:`` or ``https://`` URL by which a push service can reach the operator.
    """

    name = "push"
    per_second = 100.0
    spacing = 0.0
    updates = True
    takes_mail = False

    def __init__(
        self, store: Store, key: str, *, contact: str = "", allow_private: bool = False
    ) -> None:
        self._store = store
        self._vapid: Any = Vapid02.from_raw(key.encode())
        public = self._vapid.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        #: What a browser needs to subscribe.
        self.public_key = _encoded(public)
        self._contact = contact or "https://localhost"
        self._allow_private = allow_private
        self._poster = Poster()

    # -- out

    async def send(self, delivery: Delivery, card: Card) -> str:
        notice = await to_thread(self._notice, delivery, card)
        await self._push(delivery, notice, urgent=True)
        return json.dumps([delivery.id])

    async def update(self, delivery: Delivery, card: Card) -> None:
        """Replace a notification by what became of its request.

        If the request only changed, the newer notice about it replaces this one.
        """
        notice = await to_thread(self._notice, delivery, card)
        if notice["over"]:
            await self._push(delivery, notice, urgent=False)

    async def send_code(self, target: str, code: str) -> None:
        raise Undeliverable("turn push messages on in the browser that should get them")

    async def listen(self, desk: Desk) -> None:
        """Return: nothing comes back from a notification."""

    async def check(self) -> str:
        return f"the public key {self.public_key}"

    async def close(self) -> None:
        await self._poster.close()

    async def accept(self, subscription: Subscription) -> None:
        """Raise ``InvalidCall`` unless messages can be encrypted for it and posted to its URL."""
        try:
            _encrypted(subscription, b"{}")
        except ValueError:
            words = "send `p256dh` and `auth` as they are in the browser's subscription"
            raise InvalidCall(words, "keys") from None
        endpoint = subscription.endpoint
        parts = urlsplit(endpoint)
        schemes = ("https", "http") if self._allow_private else ("https",)
        if parts.scheme not in schemes or not parts.hostname or parts.username or parts.fragment:
            raise InvalidCall("use the https:// URL that the browser gave", "endpoint")
        try:
            await allowed_addresses(httpx.URL(endpoint), allow_private=self._allow_private)
        except (Forbidden, httpx.InvalidURL) as error:
            raise InvalidCall(f"this is no push service: {error}", "endpoint") from None

    def _notice(self, delivery: Delivery, card: Card) -> dict[str, Any]:
        """Return what the service worker of the web app shows."""
        notice = {
            "title": card.title[:_MOST_TITLE],
            "body": "",
            "url": "/inbox",
            "tag": delivery.request or delivery.step,
            "over": False,
        }
        if not delivery.request:
            return notice | {"over": delivery.state == "updating", "body": " ".join(card.facts)}
        pair = read_request(self._store, delivery.request)
        if pair is None:
            raise Undeliverable("the request is no longer stored")
        call, request = pair
        notice["url"] = f"/inbox/{quote(request.id, safe='')}"
        outcome = outcome_of(request, moment(self._store.now()), shared=True)
        if outcome:
            return notice | {"body": outcome, "over": True}
        if not call.caller:  # of a coding agent, only the title is shown
            notice["body"] = f"Risk: {request.risk.level}"
        return notice

    async def _push(self, delivery: Delivery, notice: Mapping[str, Any], *, urgent: bool) -> None:
        rows = await to_thread(subscriptions_of, self._store, delivery.person)
        row = next((row for row in rows if row.id == delivery.target), None)
        if row is None:
            raise Undeliverable("this subscription has ended")
        subscription = subscription_of(row)
        if subscription.key != self.public_key:
            await to_thread(end_subscription, self._store, row)
            raise Undeliverable("the server has another key now: turn push messages on again")
        parts = urlsplit(subscription.endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "sub": self._contact}
        headers = {
            **self._vapid.sign(claims),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(_KEEP),
            "urgency": "high" if urgent else "normal",
            # A newer message replaces one that the push service still has.
            "topic": _encoded(sha256(str(notice["tag"]).encode()).digest())[:32],
        }
        try:
            response = await self._poster.post(
                subscription.endpoint,
                _encrypted(subscription, json.dumps(notice).encode()),
                headers,
                allow_private=self._allow_private,
                timeout=_TIMEOUT,
            )
        except (Forbidden, TimeoutError, httpx.HTTPError) as error:
            raise TryLater(f"{type(error).__name__} {error}".strip(), alone=True) from None
        status = response.status_code
        if status in _GONE:
            await to_thread(end_subscription, self._store, row)
            raise Undeliverable(f"the push service answered {status}: the subscription has ended")
        if status == _BUSY or status >= 500:
            wait = response.headers.get("retry-after", "")
            seconds = float(wait) if wait.isdecimal() else 0.0
            raise TryLater(f"the push service answered {status}", seconds, alone=True)
        if not 200 <= status < 300:
            raise Undeliverable(f"the push service answered {status}")


def _encrypted(subscription: Subscription, content: bytes) -> bytes:
    """Encrypt a message for the browser, as RFC 8291 says."""
    body: bytes = http_ece.encrypt(
        content,
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=_decoded(subscription.p256dh),
        auth_secret=_decoded(subscription.auth),
        version="aes128gcm",
    )
    return body


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
