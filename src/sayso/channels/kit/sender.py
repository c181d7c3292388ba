"""Deliver the messages of one channel, in order, until each is sent or given up.

One process at a time delivers (``lease``). A message that fails is tried again later, and each
pause doubles. Whether it is the message or the receiver that is at fault, the other messages tell:
if one of them was accepted meanwhile, the failed message is set aside until its next try, and only
messages about the same request wait behind it. Otherwise the receiver is away: all messages keep
their places, and the channel waits. A target that takes long delays no other one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from sayso.channels.kit.channel import TryLater, Undeliverable
from sayso.channels.kit.health import HealthNotes
from sayso.channels.kit.lease import wait_for
from sayso.errors import StoreClosed
from sayso.rows import Delivery
from sayso.stores.base import Store
from sayso.stores.outage import Outage, outage_of
from sayso.sync import to_thread
from sayso.types import SECOND

log = logging.getLogger("sayso.channels")

_PAGE = 20
#: A page has room for the messages of slow targets, which may be at its beginning.
_LONGEST_PAGE = 1000
#: How many targets may be served at once.
_MOST_TARGETS = 100
#: Seconds after which the messages to one target no longer delay those to others.
_PATIENCE = 1.0
#: Another process may have planned a message: look this often, in seconds.
_POLL = 5.0
#: Seconds between two tries at most: of a message that was set aside, and of a receiver that is
#: away.
_LONGEST_PAUSE = 3600.0
_LONGEST_OUTAGE = 30.0
#: Try even an old message this often: every process may have been down for long.
_LEAST_TRIES = 4


class Courier(Protocol):
    """Knows what the messages of a channel say, and makes one attempt to deliver one."""

    #: The channel's name, as in its rows.
    name: str
    #: Seconds before the second try, and seconds after which a message is given up.
    pause: float
    keep_trying: float

    async def attempt(self, row: Delivery) -> Delivery:
        """Send or update a message, if that is still wanted; return the row after that.

        Raises ``TryLater`` or ``Undeliverable``; any other error is tried again.
        """

    def after(self, row: Delivery) -> Delivery | None:
        """Return what else is due for a message that was recorded, if anything."""

    def failed(self, row: Delivery) -> None:
        """Count a failed attempt."""

    def give_up(self, row: Delivery, reason: str) -> None:
        """Record that a message is given up."""

    async def close(self) -> None: ...


class _Failure(NamedTuple):
    row: Delivery
    error: Exception


class _Attempts(NamedTuple):
    """What failed of the messages to one target, since how many were accepted in the channel."""

    accepted_before: int
    failures: list[_Failure]


class Sender:
    """Sends what is due in one channel."""

    def __init__(self, store: Store, courier: Courier) -> None:
        self._store = store
        self._courier = courier
        self._health = HealthNotes(store, courier.name)
        self._nudged = asyncio.Event()
        self._stopping = asyncio.Event()
        #: The messages that are being sent, by target.
        self._lanes: dict[str, asyncio.Task[_Attempts]] = {}
        #: How many messages were accepted, and how many rounds in a row none was.
        self._accepted = 0
        self._outage = 0

    def nudge(self) -> None:
        """Look now: there are new messages."""
        self._nudged.set()

    def stop(self) -> None:
        """Finish the messages that are being sent, and send no more."""
        self._stopping.set()
        self.nudge()

    async def run(self) -> None:
        """Send until ``stop`` is called, or until the store is closed."""
        try:
            await self._send_all()
            if self._lanes:
                await asyncio.wait(self._lanes.values())
        finally:
            for lane in self._lanes.values():
                lane.cancel()
            await asyncio.gather(*self._lanes.values(), return_exceptions=True)

    async def _send_all(self) -> None:
        outage = Outage(f"the channel {self._courier.name}", within=outage_of(self._store))
        while not self._stopping.is_set():
            try:
                wait = await self._round()
                outage.over()
            except StoreClosed:
                return
            except Exception as error:
                outage.failed(error)
                wait = _POLL
            if wait > 0:
                await wait_for(self._nudged, wait)
            self._nudged.clear()

    async def _round(self) -> float:
        """Deliver a page of messages. Return how many seconds to wait for more.

        A target that is slow is left behind: its messages are still being sent in later rounds.
        """
        page = min(_PAGE * (1 + len(self._lanes)), _LONGEST_PAGE)
        rows = await to_thread(self._store.next_deliveries, self._courier.name, page)
        now = self._store.now()
        by_target: dict[str, list[Delivery]] = defaultdict(list)
        for row in rows:
            if row.next_at is not None and row.next_at <= now and row.target not in self._lanes:
                by_target[row.target].append(row)
        if not by_target and not self._lanes:
            ahead = [row.next_at for row in rows if row.next_at is not None]
            return min([_POLL, *((at - now) / SECOND for at in ahead)])
        room = _MOST_TARGETS - len(self._lanes)
        begun = {
            target: asyncio.create_task(self._deliver_all(lane))
            for target, lane in islice(by_target.items(), room)
        }
        self._lanes |= begun
        await asyncio.wait((begun or self._lanes).values(), timeout=_PATIENCE)
        targets = [target for target, lane in self._lanes.items() if lane.done()]
        ended = [self._lanes.pop(target).result() for target in targets]
        if ended:
            pause = await to_thread(self._settle, ended)
            if pause > 0:
                await wait_for(self._stopping, pause)
        return 0.0

    async def _deliver_all(self, rows: Sequence[Delivery]) -> _Attempts:
        """Deliver messages to one target, one after the other."""
        attempts = _Attempts(self._accepted, [])
        accepted = 0
        failed: list[str] = []
        for row in rows:
            if self._stopping.is_set() or (row.request and row.request in failed):
                continue
            if row.state == "seen":  # the time for which it was kept is over
                await to_thread(self._store.put_deliveries, [row._replace(state="gone")])
                continue
            if row.state == "due" and row.request and await to_thread(self._is_behind, row):
                continue
            try:
                done = await self._courier.attempt(row)
            except Undeliverable as error:
                done = self._dead(row, str(error))
            except Exception as error:  # whatever it was, it may work later
                attempts.failures.append(_Failure(row, error))
                failed.append(row.request)
                if not accepted and len(failed) > 1:
                    break  # the receiver is away, or may be
                continue
            accepted += 1
            self._accepted += 1
            await to_thread(self._record, done)
        return attempts

    def _is_behind(self, row: Delivery) -> bool:
        """Return whether an earlier message about the same request was not sent yet.

        If that one was set aside, move this one behind it.
        """
        earlier = [
            other
            for other in self._store.deliveries_of(row.request)
            if (other.channel, other.target, other.state) == (row.channel, row.target, "due")
            and (other.created, other.step) < (row.created, row.step)
        ]
        due = max((other.next_at or 0 for other in earlier), default=0)
        if due > (row.next_at or 0):
            self._store.put_deliveries([row._replace(next_at=due + 1)])
        return bool(earlier)

    def _record(self, row: Delivery) -> None:
        """Store what became of a message, and what else is due for it."""
        if row.state == "sent":
            self._health.note()
        if self._store.put_deliveries([row])[0]:
            later = self._courier.after(row)
            if later is not None:
                self._store.put_deliveries([later._replace(version=row.version + 1)])

    def _settle(self, ended: Sequence[_Attempts]) -> float:
        """Record what failed. Return how many seconds the whole channel waits."""
        now = self._store.now()
        failures = [failure for attempts in ended for failure in attempts.failures]
        accepted = self._accepted > min(attempts.accepted_before for attempts in ended)
        # Of one target only, an error says nothing of the others.
        alone = [e for _, e in failures if isinstance(e, TryLater) and e.alone]
        shared = [error for _, error in failures if error not in alone]
        waits = [error.wait for error in shared if isinstance(error, TryLater)]
        away = bool(shared) and not accepted and not waits
        self._outage = self._outage + 1 if away else 0
        for row, error in failures:
            tries = row.attempts + 1
            reason = f"{type(error).__name__}: {error}"[:300]
            log.warning("%s: try %d failed: %s", row.channel, tries, reason)
            self._courier.failed(row)
            self._health.note(reason)
            later = row._replace(attempts=tries, error=reason)
            age = (now - row.created) / SECOND
            if tries >= _LEAST_TRIES and age > self._courier.keep_trying:
                later = self._dead(later, str(error)[:300])
            elif isinstance(error, TryLater) and error.alone:
                pause = max(error.wait, self._pause(tries, _LONGEST_PAUSE))
                later = later._replace(next_at=now + round(pause * SECOND))
            elif accepted and not isinstance(error, TryLater):
                pause = self._pause(tries, _LONGEST_PAUSE)
                later = later._replace(next_at=now + round(pause * SECOND))
            self._store.put_deliveries([later])
        outage = self._pause(self._outage, _LONGEST_OUTAGE) if away else 0.0
        return max(outage, min(max(waits, default=0.0), 60.0))

    def _pause(self, tries: int, longest: float) -> float:
        """Return how many seconds to wait after so many tries."""
        pause = self._courier.pause * 2.0 ** min(tries - 1, 20)
        return min(pause, longest) * random.uniform(0.8, 1.2)

    def _dead(self, row: Delivery, reason: str) -> Delivery:
        self._courier.give_up(row, reason)
        return row._replace(state="dead", next_at=None, error=reason[:300])
