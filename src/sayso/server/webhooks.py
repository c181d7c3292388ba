"""Signed webhooks: notify other programs when requests are opened, decided and closed.

An endpoint is a channel of ``channels.kit``, which plans, orders and repeats its messages: each is
a row that names an event, and what it says is read from the store when it is sent.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from standardwebhooks import Webhook

from sayso import codec
from sayso.channels.kit.network import Poster
from sayso.channels.kit.planner import Target, new_delivery
from sayso.channels.kit.service import Runner
from sayso.engine.commands import Note
from sayso.errors import SaysoError
from sayso.redaction import Secrets, mask_request, masked_title, redact
from sayso.rows import Call, CallStatus, Delivery, Event
from sayso.server.monitoring import Metrics
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.sync import to_thread
from sayso.text import inert
from sayso.types import SECOND, Json, Micros, iso
from sayso.views import is_request

#: How long a delivered message is remembered.
_KEPT: Micros = 86_400 * SECOND

# -- endpoints

#: The types of messages: a request was opened, decided, or closed without a decision.
EVENTS: tuple[str, ...] = ("request.opened", "request.decided", "request.closed")

_PREFIX = "whsec_"
_MIN_BYTES = 24


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A receiver of webhooks: its URL, and the secret that signs them.

    ``secret`` is ``whsec_`` followed by at least 24 random bytes in base64. Plain HTTP and private
    addresses need ``allow_private``. ``page`` is the URL of the web app, for links. A message is
    retried until it is ``keep_trying`` seconds old, with pauses that double from ``pause``. A
    message that the receiver refuses, while it accepts others, holds up only its own request.
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
                f"webhook {self.shown!r}: use an https:// URL (http:// only inside your network, "
                "with allow_private or --webhook-private)"
            )
        if parts.username is not None or parts.fragment:
            raise ValueError("a webhook URL must not contain a password or a fragment: remove them")
        unknown = sorted(set(self.events) - set(EVENTS))
        if unknown or not self.events:
            raise ValueError(f"unknown webhook events {unknown}: choose from {', '.join(EVENTS)}")
        _check_secret(self.secret)

    @property
    def name(self) -> str:
        """The name of its channel. Another URL is another channel."""
        return f"webhook:{codec.sha256(self.url.encode())[:32]}"

    @property
    def shown(self) -> str:
        """The URL without its query, which may be secret."""
        parts = urlsplit(self.url)
        if not parts.hostname:
            return parts.path
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _check_secret(secret: str) -> None:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:  # not base64, or not ASCII
        key = b""
    if not secret.startswith(_PREFIX) or not _MIN_BYTES <= len(key) <= 64:
        raise ValueError(
            f"a webhook secret is {_PREFIX} plus {_MIN_BYTES} to 64 random bytes in base64"
        )


# -- messages

_OPENED = ("asked", "reasked", "in_doubt")
_CLOSED = ("expired", "cancelled", "superseded")
_STATUS_AFTER = {
    "approve": "approved",
    "model": "approved",
    "edit": "edited",
    "reject": "rejected",
    "respond": "responded",
}


class Message(NamedTuple):
    """A webhook before it is signed. Retries have the same id."""

    id: str
    type: str
    request: str
    at: Micros
    body: str


def message_of(store: Store, event: Event, endpoint: Endpoint) -> Message | None:
    """Return the message for an event, or ``None`` if this endpoint gets none.

    A message says what happened and links to the request. Its title is the present one: it may
    quote arguments, with secrets masked, and changes if they are edited.
    """
    outcome = _type_and_status(event) if event.call else None
    if outcome is None or outcome[0] not in endpoint.events:
        return None
    call = if_readable(store.call, event.call)
    if call is None or not is_request(call) or _retried_without_asking(event, call):
        return None
    request = if_readable(request_in, store, call)
    if request is None:
        return None
    kind, status = outcome
    masked, _, secrets = mask_request(request)
    data = {
        "id": call.id,
        "title": masked_title(request, masked),
        "kind": "in_doubt" if event.type == "in_doubt" else call.kind,
        "status": status,
        "agent": call.agent,
        "tool": call.tool or None,
        "run": call.run,
        "thread": call.thread,
        "requester": request.requester,
        "reviewers": list(call.reviewers),
        "notify": list(call.terms.notify),
        "quorum": call.terms.quorum,
        "risk": {"level": call.terms.risk.level, "reasons": list(masked.risk.reasons)},
        "created_at": iso(call.created),
        "expires_at": iso(call.expires_at),
        "by": None if kind == "request.opened" else event.actor,
        "decision": _decision(event, secrets) if kind == "request.decided" else None,
        "link": f"{endpoint.page.rstrip('/')}/inbox/{call.id}",
    }
    content = {"type": kind, "timestamp": iso(event.at), "data": data}
    # Agents choose names, runs and reasons, which may contain secrets.
    body = codec.dumps(inert(redact(content).value))
    id = codec.sha256(f"{event.thread}/{event.seq}/{event.hash}".encode())[:32]
    return Message(f"evt_{id}", kind, call.id, event.at, body)


def _type_and_status(event: Event) -> tuple[str, str] | None:
    """Return the message type of an event, and the request's status after it."""
    if event.type in _OPENED:
        return "request.opened", "pending"
    if event.type in _CLOSED:
        return "request.closed", event.type
    body = {} if event.body is None else codec.loads(event.body)
    if event.type == "decided" and body:  # pruned events have no body
        return "request.decided", _STATUS_AFTER[body["decision"]]
    if event.type == "recorded" and body.get("late"):
        return "request.closed", "approved"  # a late result settled the doubt
    return None


def _retried_without_asking(event: Event, call: Call) -> bool:
    """Return whether a call in doubt needed no person: an idempotent call runs again."""
    retried = call.terms.effect == "idempotent" and call.status is not CallStatus.IN_DOUBT
    return event.type == "in_doubt" and retried


def _decision(event: Event, secrets: Secrets) -> dict[str, Json]:
    body = codec.loads(event.body or "{}")
    return {
        "type": body["decision"],
        "by": event.actor,
        "at": iso(event.at),
        "channel": body["channel"],
        "assurance": body["assurance"],
        "message": redact(body["message"], None, secrets).value,
    }


# -- sending


class NotDelivered(SaysoError):
    """The receiver did not accept a message."""


class WebhookSender:
    """Sends messages to endpoints."""

    def __init__(self) -> None:
        self._poster = Poster()

    async def deliver(self, endpoint: Endpoint, message: Message) -> None:
        """Send a message once. Raise ``NotDelivered`` or ``Forbidden`` if it was not accepted."""
        now = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "sayso-webhooks",
            "webhook-id": message.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(endpoint.secret).sign(message.id, now, message.body),
        }
        try:
            response = await self._poster.post(
                endpoint.url,
                message.body.encode(),
                headers,
                allow_private=endpoint.allow_private,
                timeout=endpoint.timeout,
            )
        except TimeoutError:
            raise NotDelivered(f"no answer within {endpoint.timeout:g} seconds") from None
        except httpx.HTTPError as error:
            raise NotDelivered(str(error) or type(error).__name__) from None
        status = response.status_code
        if not 200 <= status < 300:
            redirect = ": redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"the receiver answered {status}{redirect}")

    async def close(self) -> None:
        await self._poster.close()


# -- the channel


class WebhookPlanner:
    """Plans a message for each event that an endpoint gets."""

    def __init__(self, store: Store, endpoint: Endpoint) -> None:
        self._store = store
        self._endpoint = endpoint

    def wants(self, event: Event) -> bool:
        outcome = _type_and_status(event) if event.call else None
        return outcome is not None and outcome[0] in self._endpoint.events

    def plan(self, events: Sequence[Event]) -> int:
        rows = []
        at: Micros = 0
        for event in events:
            at = max(event.at, at + 1)  # in the order of the events, also within a transaction
            step = f"{event.seq:012}"
            target = Target(self._endpoint.shown)
            rows.append(new_delivery(self._endpoint.name, target, event.call, "", step, at))
        return sum(self._store.put_deliveries(rows))


class WebhookCourier:
    """Delivers the messages of an endpoint."""

    def __init__(self, store: Store, endpoint: Endpoint, metrics: Metrics) -> None:
        self.name = endpoint.name
        self.pause = endpoint.pause
        self.keep_trying = endpoint.keep_trying
        self._store = store
        self._endpoint = endpoint
        self._metrics = metrics
        self._sender = WebhookSender()

    async def attempt(self, row: Delivery) -> Delivery:
        message = await to_thread(self._message, row)
        if message is not None:
            await self._sender.deliver(self._endpoint, message)
            self._metrics.webhooks.labels("delivered").inc()
        # Kept for a while, because a process that dies may plan it again.
        return row._replace(state="seen", next_at=self._store.now() + _KEPT, error="")

    def after(self, row: Delivery) -> Delivery | None:
        return None

    def failed(self, row: Delivery) -> None:
        self._metrics.webhooks.labels("failed").inc()

    def give_up(self, row: Delivery, reason: str) -> None:
        """Record in the audit log that a message was given up."""
        message = self._message(row)
        body = {
            "endpoint": self._endpoint.shown,
            "message": "" if message is None else message.id,
            "event": "" if message is None else message.type,
            "request": row.request,
            "tries": row.attempts,
            "reason": reason[:500],
        }
        self._store.transact(Note(type="webhook_dead", actor="server", body=body))
        self._metrics.webhooks.labels("dead").inc()

    async def close(self) -> None:
        await self._sender.close()

    def _message(self, row: Delivery) -> Message | None:
        """Return the message of a row; ``None`` if its request was pruned or needs no person."""
        call = if_readable(self._store.call, row.request)
        seq = int(row.step)
        events = [] if call is None else self._store.chain(call.thread, seq - 1, 1)
        return message_of(self._store, events[0], self._endpoint) if events else None


def webhook_runner(store: Store, endpoint: Endpoint, metrics: Metrics) -> Runner:
    """Return what plans and sends the messages of an endpoint."""
    courier = WebhookCourier(store, endpoint, metrics)
    return Runner(store, courier, WebhookPlanner(store, endpoint))
