"""Signed webhooks: notify other programs when requests are opened, decided and closed.

The outbox is the store's own event log, which each endpoint reads at its own pace; there is no
other queue. An endpoint's position is a row that advances when a message is accepted, so a restart
loses nothing and repeats at most the message that was being delivered. Each endpoint has its own
task: a slow or dead one delays no other.

A receiver may be down, or it may refuse one message and accept others. To find out, the outbox
tries a message of another request after each refusal. If that one is accepted, the refused message
is set aside in the same row, with its own retry schedule, and later messages about its request are
kept behind it. Otherwise the endpoint waits, and keeps the order of all messages.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import random
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from standardwebhooks import Webhook

from sayso import codec
from sayso.channels.kit.network import Poster
from sayso.engine.commands import Note
from sayso.errors import SaysoError, StoreClosed
from sayso.redaction import Secrets, mask_request, masked_title, redact
from sayso.rows import Call, CallStatus, Event
from sayso.server.monitoring import Metrics
from sayso.server.request_views import inert
from sayso.stores.base import Cursor, Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.sync import CommitWaiter, to_thread
from sayso.types import SECOND, Json, Micros, iso
from sayso.views import is_request

log = logging.getLogger("sayso.webhooks")

_PAGE = 200
_POLL = 30.0
#: Seconds between two tries at most: of a message that was set aside, and of an endpoint that
#: accepts nothing.
_MAX_PAUSE = 3600.0
_MAX_ENDPOINT_PAUSE = 60.0
#: How many messages an endpoint may have set aside; then it waits at the next refusal.
_MAX_ASIDE = 100
#: Try even an old message this often: the server may have been down for long.
_MIN_TRIES = 4
#: Seconds that the lease of a delivery exceeds its timeout.
_LEASE_MARGIN = 20.0
_GRACE = 5.0

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
        """The name of its stored cursor. Another URL is another reader."""
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


# -- the outbox


class Refused(NamedTuple):
    """A message that was set aside. ``before`` is the cursor of the event before its own.

    Messages about one request keep their order, so only the first of them is tried.
    """

    before: Cursor
    request: str
    tries: int = 0
    due: Micros = 0


class DeliveryCursor(NamedTuple):
    """How far an endpoint has come: a row that servers change by compare-and-set.

    Everything up to ``at`` is delivered or in ``aside``, and the next message was tried ``tries``
    times. Nobody may continue before ``due``. A server that delivers moves it into the future,
    which is a lease; so does a failure, which is a pause. When the time has come, any server may
    continue.
    """

    at: Cursor
    tries: int = 0
    due: Micros = 0
    aside: tuple[Refused, ...] = ()
    #: Random, so that no two writes are equal and compare-and-set is reliable.
    mark: str = ""

    def to_json(self) -> str:
        return json.dumps(self._replace(mark=secrets.token_hex(8)))

    def first_of_each(self) -> list[Refused]:
        """Return the messages that were set aside and may be tried: the first of each request."""
        return list({refused.request: refused for refused in reversed(self.aside)}.values())

    def holds_up(self, request: str) -> bool:
        return any(refused.request == request for refused in self.aside)

    def advanced(self, to: Cursor, *refused: Refused) -> DeliveryCursor:
        """Return the cursor after a message, without a lease, with messages set aside."""
        return DeliveryCursor(to, aside=(*self.aside, *refused))

    def without(self, refused: Refused, *instead: Refused) -> DeliveryCursor:
        """Return the cursor with a message that was set aside removed or replaced."""
        at = self.aside.index(refused)
        return self._replace(aside=(*self.aside[:at], *instead, *self.aside[at + 1 :]))


def read_cursor(text: str) -> DeliveryCursor:
    at, tries, due, aside, mark = json.loads(text)
    return DeliveryCursor(at, tries, due, tuple(Refused(*each) for each in aside), mark)


def start_cursor(store: Store, name: str) -> None:
    """Start a new endpoint at the newest event. A known one keeps its cursor."""
    if not store.cursor(name):
        store.move_cursor(name, DeliveryCursor(store.tail()).to_json(), expected="")


class PendingMessage(NamedTuple):
    """A message, with the cursor of its event and of the event before it."""

    before: Cursor
    cursor: Cursor
    message: Message


class Outbox:
    """Delivers to all endpoints until stopped. Any number of servers may run one."""

    def __init__(self, store: Store, endpoints: Sequence[Endpoint], metrics: Metrics) -> None:
        if len({endpoint.url for endpoint in endpoints}) < len(endpoints):
            raise ValueError("two webhooks have the same URL: remove one")
        self._store = store
        self._endpoints = tuple(endpoints)
        self._metrics = metrics
        self._stopping = asyncio.Event()

    async def begin(self) -> None:
        """Store where new endpoints start. Call this before the server accepts requests."""
        for endpoint in self._endpoints:
            await to_thread(start_cursor, self._store, endpoint.name)

    async def run(self) -> None:
        """Deliver until ``stop`` is called. Deliveries in progress then get a few seconds."""
        sender = WebhookSender()
        readers = [EndpointReader(self._store, e, sender, self._metrics) for e in self._endpoints]
        tasks = [asyncio.create_task(reader.run(self._stopping)) for reader in readers]
        try:
            await self._stopping.wait()
            await asyncio.wait(tasks, timeout=_GRACE)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await sender.close()

    def stop(self) -> None:
        """Start no more deliveries."""
        self._stopping.set()


class EndpointReader:
    """Reads the events for one endpoint and delivers them."""

    def __init__(
        self, store: Store, endpoint: Endpoint, sender: WebhookSender, metrics: Metrics
    ) -> None:
        self._store = store
        self._endpoint = endpoint
        self._sender = sender
        self._metrics = metrics
        #: The stored cursor that was last read, and how far there was no message after it.
        self._read_to: tuple[str, Cursor] = ("", "")
        #: Whether a message that was set aside was tried last: new ones take turns with them.
        self._retried = False
        #: The message that other messages were last looked for behind, how far there was none, and
        #: what must stay behind it.
        self._scanned: tuple[Cursor, Cursor, list[Refused]] = ("", "", [])

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow the events until ``stopping`` is set."""
        with contextlib.closing(CommitWaiter(self._store, None)) as commits:
            while not stopping.is_set():
                try:
                    seconds, listening = await self._step()
                except StoreClosed:
                    stopping.set()
                    return
                except SaysoError as error:
                    log.warning("the webhook outbox cannot read the store, retrying: %s", error)
                    seconds = 1.0
                    listening = False
                except Exception:
                    name = self._endpoint.shown
                    log.exception("webhooks to %s failed unexpectedly, retrying", name)
                    seconds = _POLL
                    listening = False
                if seconds > 0:
                    rest = commits.wait(seconds) if listening else asyncio.sleep(seconds)
                    await _wait_for_either(rest, stopping)

    async def _step(self) -> tuple[float, bool]:
        """Deliver a message if one is due. Return how long to wait, and if a commit ends it."""
        raw = await to_thread(self._store.cursor, self._endpoint.name)
        cursor = read_cursor(raw)
        now = self._store.now()
        if cursor.due > now:  # paused after a failure, or another server is delivering
            return min((cursor.due - now) / SECOND, _POLL), False
        refused = min(cursor.first_of_each(), key=lambda each: each.due, default=None)
        again = refused if refused is not None and refused.due <= now else None
        pending = await to_thread(self._next, raw, cursor)
        if pending and cursor.holds_up(pending.message.request) and len(cursor.aside) >= _MAX_ASIDE:
            pending = None
        self._retried = again is not None and (pending is None or not self._retried)
        held = now + round((2 * self._endpoint.timeout + _LEASE_MARGIN) * SECOND)
        claimed = cursor._replace(due=held).to_json()
        if again is not None and self._retried:
            deliver = partial(self._retry, again)
        elif pending is not None:
            deliver = partial(self._advance, pending)
        else:
            pause = _POLL if refused is None else min((refused.due - now) / SECOND, _POLL)
            return pause, True
        if await to_thread(self._move, raw, claimed):
            after = cursor
            try:
                after = await deliver(cursor)
            finally:
                # Even if cancelled, so that the next server need not wait for the lease.
                moving = asyncio.ensure_future(to_thread(self._move, claimed, after.to_json()))
                await asyncio.shield(moving)
        return 0.0, False

    def _next(self, raw: str, cursor: DeliveryCursor) -> PendingMessage | None:
        """Return the next message for this endpoint. Skipped events are not read again."""
        last_raw, at = self._read_to
        if last_raw != raw:
            at = cursor.at
        while batch := self._store.events(at, _PAGE):
            for position, event in batch:
                message = message_of(self._store, event, self._endpoint)
                if message is not None:
                    return PendingMessage(at, position, message)
                at = position
            if len(batch) == _PAGE and self._move(raw, stored := cursor.advanced(at).to_json()):
                raw = stored  # so that a restart does not read all of it again
            self._read_to = raw, at
        return None

    def _move(self, raw: str, to: str) -> bool:
        return self._store.move_cursor(self._endpoint.name, to, expected=raw)

    async def _advance(self, found: PendingMessage, cursor: DeliveryCursor) -> DeliveryCursor:
        """Deliver the next message, or else one of another request; return the cursor after it."""
        message = found.message
        if cursor.holds_up(message.request):
            return cursor.advanced(found.cursor, Refused(found.before, message.request))
        tries = cursor.tries + 1
        if await self._is_done(message, tries):
            return cursor.advanced(found.cursor)
        refused = Refused(found.before, message.request, tries, self._due(tries, _MAX_PAUSE))
        other, behind = await to_thread(self._other, found, cursor)
        if other is not None and await self._try(other.message, 1) is None:
            return cursor.advanced(other.cursor, refused, *behind)
        due = self._due(tries, _MAX_ENDPOINT_PAUSE)
        return cursor._replace(at=found.before, tries=tries, due=due)

    def _other(
        self, found: PendingMessage, cursor: DeliveryCursor
    ) -> tuple[PendingMessage | None, list[Refused]]:
        """Return the next message that may be delivered before this one, and those that may not.

        Returns no message if there is none, or if too many would have to be set aside.
        """
        scanned, at, passed_over = self._scanned
        if scanned != found.cursor:
            at = found.cursor
            passed_over = []
        behind = list(passed_over)
        while batch := self._store.events(at, _PAGE):
            for position, event in batch:
                message = message_of(self._store, event, self._endpoint)
                if len(cursor.aside) + len(behind) + 1 > _MAX_ASIDE:
                    return None, []
                if message is not None:
                    request = message.request
                    if request != found.message.request and not cursor.holds_up(request):
                        return PendingMessage(at, position, message), behind
                    behind.append(Refused(at, request))
                at = position
            self._scanned = found.cursor, at, list(behind)
        return None, []

    async def _retry(self, refused: Refused, cursor: DeliveryCursor) -> DeliveryCursor:
        """Deliver a message that was set aside; return the cursor after it."""
        message = await to_thread(self._message_after, refused.before)
        tries = refused.tries + 1
        # There is no message any more if its request was pruned.
        if message is None or await self._is_done(message, tries):
            return cursor.without(refused)
        later = refused._replace(tries=tries, due=self._due(tries, _MAX_PAUSE))
        return cursor.without(refused, later)

    def _message_after(self, before: Cursor) -> Message | None:
        page = self._store.events(before, 1)
        return message_of(self._store, page[0][1], self._endpoint) if page else None

    async def _is_done(self, message: Message, tries: int) -> bool:
        """Send a message once. Return whether it was accepted, or is too old to be tried again."""
        problem = await self._try(message, tries)
        if problem is None:
            return True
        age = (self._store.now() - message.at) / SECOND
        if tries < _MIN_TRIES or age <= self._endpoint.keep_trying:
            return False
        await to_thread(self._give_up, message, tries, problem)
        return True

    async def _try(self, message: Message, tries: int) -> str | None:
        """Send a message once. Return why it was not accepted, or ``None`` if it was."""
        try:
            await self._sender.deliver(self._endpoint, message)
        except Exception as error:  # whatever it was, a retry may succeed
            self._metrics.webhooks.labels("failed").inc()
            name = self._endpoint.shown
            log.warning("webhook %s to %s, try %d: %s", message.id, name, tries, error)
            return str(error)
        self._metrics.webhooks.labels("delivered").inc()
        return None

    def _due(self, tries: int, longest: float) -> Micros:
        """Return when to try again after so many tries."""
        pause = min(self._endpoint.pause * 2.0 ** min(tries - 1, 20), longest)
        return self._store.now() + round(pause * random.uniform(0.8, 1.2) * SECOND)

    def _give_up(self, message: Message, tries: int, reason: str) -> None:
        """Record in the audit log that a message was given up."""
        body = {
            "endpoint": self._endpoint.shown,
            "message": message.id,
            "event": message.type,
            "request": message.request,
            "tries": tries,
            "reason": reason[:500],
        }
        self._store.transact(Note(type="webhook_dead", actor="server", body=body))
        self._metrics.webhooks.labels("dead").inc()


async def _wait_for_either(rest: Coroutine[Any, Any, None], stopping: asyncio.Event) -> None:
    """Wait until ``rest`` ends or ``stopping`` is set."""
    waits = [asyncio.ensure_future(rest), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
