"""Send and update the messages of one channel, at the pace of its platform.

A row is claimed by moving ``next_at`` to the end of a lease, sent, and recorded, each by a
compare-and-set. What a message shows is computed when it is sent, so it is never out of date by
more than that moment; a request that was decided meanwhile is looked at once more after recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from sayso.channels.kit.cards import Card, card_of, code_of, digest_card
from sayso.channels.kit.channel import Channel, TryLater, Undeliverable
from sayso.channels.kit.planner import MANY, addresses, open_requests
from sayso.errors import StoreClosed
from sayso.inbox.accounts import accounts_of
from sayso.inbox.people import may_see, rights
from sayso.rows import Call, Delivery
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.sync import to_thread
from sayso.types import SECOND, Micros, Request, Reviewer, moment

log = logging.getLogger("sayso.channels")

_PAGE = 20
#: How long one attempt may take, and how much longer the row is held.
_TIMEOUT = 20.0
_LEASE: Micros = 60 * SECOND
#: Another process may have planned a message: look this often, in seconds.
_POLL = 5.0
_LONGEST_PAUSE = 3600.0
#: A message that could not be sent for so long is given up, in microseconds.
_KEEP_TRYING: Micros = 86_400 * SECOND


class Observer(Protocol):
    """Counts what channels do; the server's metrics."""

    def message(self, channel: str, outcome: str, delay: float | None) -> None:
        """Count a message: ``sent`` (``delay`` seconds after the ask), ``updated``, ``failed`` or
        ``dead``."""
        ...

    def chat_decision(self, channel: str, decision: str) -> None: ...


class Sender:
    """Sends what is due in one channel. Any number of processes may run one."""

    def __init__(self, store: Store, channel: Channel, page: str, observer: Observer) -> None:
        self._store = store
        self._channel = channel
        self._page = page
        self._observer = observer
        self._nudged = asyncio.Event()
        self._stopping = False
        #: When the next message may be sent, and to each target.
        self._free_at = 0.0
        self._target_free_at: dict[str, float] = {}
        #: Until when the whole channel waits, because the platform said so or is down.
        self._paused_until = 0.0
        self._failed = 0

    def nudge(self) -> None:
        """Look now: there are new messages."""
        self._nudged.set()

    def stop(self) -> None:
        """Finish the messages that are being sent, and send no more."""
        self._stopping = True
        self.nudge()

    async def run(self) -> None:
        """Send until ``stop`` is called, or until the store is closed."""
        while not self._stopping:
            try:
                wait = await self._step()
            except StoreClosed:
                return
            except Exception as error:
                log.warning("%s: cannot send, retrying: %s", self._channel.name, error)
                wait = _POLL
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._nudged.wait()
                self._nudged.clear()

    async def _step(self) -> float:
        """Send a page of messages. Return how many seconds to wait for more."""
        pause = self._paused_until - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        rows = await to_thread(self._store.next_deliveries, self._channel.name, _PAGE)
        now = self._store.now()
        due = [row for row in rows if row.next_at is not None and row.next_at <= now]
        if not due:
            ahead = [row.next_at for row in rows if row.next_at is not None]
            return min([_POLL, *((at - now) / SECOND for at in ahead)])
        by_target = defaultdict(list)
        for row in await to_thread(self._claim, due, now):
            by_target[row.target].append(row)
        await asyncio.gather(*(self._deliver_all(rows) for rows in by_target.values()))
        return 0.0

    def _claim(self, due: Iterable[Delivery], now: Micros) -> list[Delivery]:
        """Take rows for the length of a lease; delete those whose time is over."""
        wanted = [
            row._replace(state="gone")
            if row.state == "seen"
            else row._replace(next_at=now + _LEASE, attempts=row.attempts + 1)
            for row in due
        ]
        written = self._store.put_deliveries(wanted)
        return [
            row._replace(version=row.version + 1)
            for row, ours in zip(wanted, written, strict=True)
            if ours and row.state != "gone"
        ]

    async def _deliver_all(self, rows: Iterable[Delivery]) -> None:
        """Deliver the messages to one target, one after the other."""
        for row in rows:
            await self._deliver(row)

    async def _deliver(self, row: Delivery) -> None:
        try:
            done = await self._attempt(row)
        except Undeliverable as error:
            done = row._replace(state="dead", next_at=None, error=str(error)[:300])
            self._observer.message(row.channel, "dead", None)
        except Exception as error:  # whatever it was, it may work later
            done = self._again(row, error)
        await to_thread(self._record, done)

    async def _attempt(self, row: Delivery) -> Delivery:
        """Send or update a message, if it is still wanted; return the row after that."""
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
        self._failed = 0
        delay = (self._store.now() - row.created) / SECOND
        self._observer.message(row.channel, "sent", delay)
        return row._replace(state="sent", next_at=None, message=message, error="", attempts=0)

    def _card(self, row: Delivery) -> tuple[Card | None, bool]:
        """Return what a message shows now, and whether that is its end."""
        if row.step == "digest":
            count = open_requests(self._store, row.person)
            return digest_card(count, self._page), count <= MANY
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

    def _record(self, row: Delivery) -> None:
        """Store what became of a message, and look whether its request changed meanwhile."""
        if not self._store.put_deliveries([row])[0]:
            return  # its lease ended, and another process has it
        if row.state == "sent" and row.request and self._card(row)[1]:
            late = row._replace(state="updating", next_at=self._store.now())
            self._store.put_deliveries([late._replace(version=row.version + 1)])

    def _again(self, row: Delivery, error: Exception) -> Delivery:
        """Return the row with the time of its next try."""
        now = self._store.now()
        reason = f"{type(error).__name__}: {error}"[:300]
        pause = min(2.0 ** min(row.attempts, 20), _LONGEST_PAUSE) * random.uniform(0.8, 1.2)
        if isinstance(error, TryLater):
            pause = max(error.wait, 0.1)
            self._paused_until = time.monotonic() + min(pause, 60.0)
        else:
            # Most errors are those of a platform that is away: let its other messages wait, too.
            self._failed = min(self._failed + 1, 6)
            self._paused_until = time.monotonic() + 2.0**self._failed / 4
        if row.created + _KEEP_TRYING < now and row.attempts > 3:
            self._observer.message(row.channel, "dead", None)
            log.warning("%s: given up after %d tries: %s", row.channel, row.attempts, reason)
            return row._replace(state="dead", next_at=None, error=reason)
        self._observer.message(row.channel, "failed", None)
        log.warning("%s: try %d failed: %s", row.channel, row.attempts, reason)
        return row._replace(next_at=now + round(pause * SECOND), error=reason)

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
