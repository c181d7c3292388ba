"""Send and update the messages to people in one channel, at the pace of its platform.

What a message shows is computed when it is sent, so it is never out of date by more than that
moment; a request that was decided meanwhile is looked at once more after recording.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from dataclasses import replace
from functools import partial
from typing import Protocol

from sayso.channels.kit.cards import (
    Card,
    card_of,
    code_of,
    digest_card,
    ended_digest_card,
    shared_digest_card,
)
from sayso.channels.kit.channel import Channel
from sayso.channels.kit.planner import MANY, Target, addresses, new_digest, open_requests
from sayso.inbox.accounts import accounts_of
from sayso.inbox.notices import Notices, at_page, is_urgent
from sayso.inbox.people import may_see, rights
from sayso.rows import Call, Delivery
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.sync import to_thread
from sayso.types import SECOND, Micros, Request, Reviewer, moment

log = logging.getLogger("sayso.channels")

#: How many seconds one attempt may take.
_TIMEOUT = 20.0
#: How long a message waits for a person at the page before it looks again.
_LOOK_AGAIN: Micros = 60 * SECOND
#: A shared channel takes ``MANY`` messages in so many seconds; the others become a digest.
_SHARED_WINDOW = 60.0


class Observer(Protocol):
    """Counts what channels do; the server's metrics."""

    def message(self, channel: str, outcome: str, delay: float | None) -> None:
        """Count a message: ``sent`` (``delay`` seconds after the ask), ``updated``, ``failed`` or
        ``dead``."""

    def chat_decision(self, channel: str, decision: str) -> None: ...


class NoObserver:
    """Counts nothing."""

    def message(self, channel: str, outcome: str, delay: float | None) -> None: ...

    def chat_decision(self, channel: str, decision: str) -> None: ...


class ChatCourier:
    """Delivers messages to people and to shared channels."""

    pause = 0.5
    keep_trying = 86_400.0

    def __init__(self, store: Store, channel: Channel, page: str, observer: Observer) -> None:
        self.name = channel.name
        self._store = store
        self._channel = channel
        self._page = page
        self._observer = observer
        #: When the next message may be sent, and to each target.
        self._free_at = 0.0
        self._target_free_at: dict[str, float] = {}
        #: When the last messages to each shared channel were sent.
        self._shared_sends: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=MANY))

    async def attempt(self, row: Delivery) -> Delivery:
        if row.state == "due":
            held = await to_thread(self._held, row)
            if held is not None:
                return held
        wanted = row.state == "updating" or await to_thread(self._may_get, row)
        card, is_over = await to_thread(self._card, row)
        closed = row._replace(state="closed", next_at=None, error="")
        if card is None or not wanted:
            return closed
        if row.state == "updating":
            if self._channel.updates and row.message:
                await self._pace(row.target)
                async with asyncio.timeout(_TIMEOUT):
                    await self._channel.update(row, card)
                self._observer.message(row.channel, "updated", None)
            return closed if is_over else row._replace(state="sent", next_at=None, error="")
        if is_over:
            return closed
        await self._pace(row.target)
        async with asyncio.timeout(_TIMEOUT):
            message = await self._channel.send(row, card)
        if not row.person:
            self._shared_sends[row.target].append(time.monotonic())
        delay = (self._store.now() - row.created) / SECOND
        self._observer.message(row.channel, "sent", delay)
        return row._replace(state="sent", next_at=None, message=message, error="", attempts=0)

    def after(self, row: Delivery) -> Delivery | None:
        """Return the update that is due if the request changed while the message was sent."""
        if row.state == "sent" and row.request and self._card(row)[1]:
            return row._replace(state="updating", next_at=self._store.now())
        return None

    def failed(self, row: Delivery) -> None:
        self._observer.message(row.channel, "failed", None)

    def give_up(self, row: Delivery, reason: str) -> None:
        self._observer.message(row.channel, "dead", None)

    async def close(self) -> None:
        await self._channel.close()

    def _held(self, row: Delivery) -> Delivery | None:
        """Return the row as it waits, if it is not to be sent now; else ``None``.

        A digest replaces all messages to a person for whom many requests wait, those of their quiet
        hours, and those in excess of what a shared channel takes.
        """
        now = self._store.now()
        if row.step != "digest" and self._is_flooded(row):
            return self._into_digest(row, now)
        person = self._store.person(row.person) if row.person else None
        call = if_readable(self._store.call, row.request) if row.request else None
        if person is None or not person.notices or (call is not None and is_urgent(call)):
            return None
        notices = Notices.of(person)
        quiet_end = notices.quiet_end(now)
        if quiet_end is None:
            waits = notices.only_away and at_page(self._store, row.person)
            return row._replace(next_at=now + _LOOK_AGAIN) if waits else None
        if row.step == "digest":
            return row._replace(next_at=quiet_end)
        return self._into_digest(row, quiet_end)

    def _is_flooded(self, row: Delivery) -> bool:
        """Return whether there are too many requests for a message each."""
        if row.person:
            return open_requests(self._store, row.person) > MANY
        sends = self._shared_sends[row.target]
        return len(sends) == MANY and sends[0] > time.monotonic() - _SHARED_WINDOW

    def _into_digest(self, row: Delivery, at: Micros) -> Delivery:
        """Return the row as a digest that is due at this time replaces it."""
        digest = new_digest(self._store, self.name, Target(row.target, row.person), at)
        if digest is not None:
            self._store.put_deliveries([digest])
        return row._replace(state="closed", next_at=None)

    def _card(self, row: Delivery) -> tuple[Card | None, bool]:
        """Return what a message shows now, and whether that is its end."""
        if row.step == "digest" and not row.person:
            return shared_digest_card(self._page), False
        if row.step == "digest":
            count = open_requests(self._store, row.person)
            if row.state != "due" and count <= MANY:
                return ended_digest_card(self._page), True
            person = self._store.person(row.person)
            quiet = person is not None and bool(Notices.of(person).quiet_from)
            return digest_card(count, self._page, many=count > MANY, quiet=quiet), count == 0
        pair = read_request(self._store, row.request)
        if pair is None:
            return None, True
        call, request = pair
        accounts = accounts_of(self._store, row.person, row.channel)
        chat = row.target in [account.user for account in accounts]
        now = moment(self._store.now())
        card = card_of(call, request, row, self._page, now, chat=chat)
        if self._channel.takes_mail and card.buttons:
            card = replace(card, code=code_of(self._store.keys, row))
        return card, bool(card.outcome)

    def _may_get(self, row: Delivery) -> bool:
        """Return whether the target is still an address of a person who may see the request."""
        if not row.person:
            return True
        known = addresses(self._store, self._channel, row.person)
        if row.target not in [target.address for target in known]:
            return False
        pair = read_request(self._store, row.request) if row.request else None
        return pair is None or may_see(rights(self._store, Reviewer(row.person)), pair[0])

    async def _pace(self, target: str) -> None:
        """Wait until the platform takes another message, and another one to this target."""
        now = time.monotonic()
        at = max(now, self._free_at, self._target_free_at.get(target, 0.0))
        self._free_at = max(self._free_at, now) + 1 / self._channel.per_second
        if len(self._target_free_at) > 10_000:
            self._target_free_at.clear()
        self._target_free_at[target] = at + self._channel.spacing
        if at > now:
            await asyncio.sleep(at - now)


def read_request(store: Store, request_id: str) -> tuple[Call, Request] | None:
    """Return a call and its request as they are now; ``None`` if pruned or tampered with."""
    call = if_readable(store.call, request_id)
    request = None if call is None else if_readable(request_in, store, call)
    return None if call is None or request is None else (call, request)
