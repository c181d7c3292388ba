"""The outbox: the store's own events, read by each endpoint at its own pace.

Nothing is queued anywhere else. An endpoint's place among the events is a row, which moves on when
a message was taken; so a restart loses nothing, and repeats at most the one that was under way.
Each endpoint has a task of its own: a slow or dead one holds up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from sayso.engine.commands import Note
from sayso.errors import SaysoError
from sayso.server.metrics import Metrics
from sayso.server.webhooks.courier import Courier
from sayso.server.webhooks.endpoint import Endpoint
from sayso.server.webhooks.payload import Message, message_of
from sayso.server.webhooks.place import Place, begin, read_place
from sayso.stores.base import Cursor, Store
from sayso.twin import News, hop
from sayso.types import Micros

log = logging.getLogger("sayso.webhooks")

_MICROS = 1_000_000
_PAGE = 200
_LOOK_AGAIN = 30.0
_LONGEST_PAUSE = 3600.0
#: However old a message is, it is tried so often; the outbox itself may have been away.
_LEAST_TRIES = 4
#: How much longer than a delivery may take others leave it to who took it.
_MARGIN = 20.0
_GRACE = 5.0


class Next(NamedTuple):
    """The next message, the cursor of its event, and that of the event before it."""

    before: Cursor
    cursor: Cursor
    message: Message


class Outbox:
    """Delivers to all endpoints until it is stopped; any number of servers may run one."""

    def __init__(self, store: Store, endpoints: Sequence[Endpoint], metrics: Metrics) -> None:
        if len({endpoint.url for endpoint in endpoints}) < len(endpoints):
            raise ValueError("two webhooks have the same address: leave one out")
        self._store = store
        self._endpoints = tuple(endpoints)
        self._metrics = metrics
        self._stopping = asyncio.Event()

    async def begin(self) -> None:
        """Note where new endpoints begin: before the server takes its first request."""
        for endpoint in self._endpoints:
            await hop(begin, self._store, endpoint.name)

    async def run(self) -> None:
        """Deliver until ``stop``; what is under way then gets a few seconds."""
        courier = Courier()
        readers = [Reader(self._store, e, courier, self._metrics) for e in self._endpoints]
        tasks = [asyncio.create_task(reader.run(self._stopping)) for reader in readers]
        try:
            await self._stopping.wait()
            await asyncio.wait(tasks, timeout=_GRACE)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await courier.close()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()


class Reader:
    """One endpoint's way through the events."""

    def __init__(
        self, store: Store, endpoint: Endpoint, courier: Courier, metrics: Metrics
    ) -> None:
        self._store = store
        self._endpoint = endpoint
        self._courier = courier
        self._metrics = metrics
        #: The stored place that was last looked at, and how far nothing was found after it.
        self._looked: tuple[str, Cursor] = ("", "")

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow the events until told to stop."""
        with contextlib.closing(News(self._store, None)) as news:
            while not stopping.is_set():
                seconds, listening = await self._safely()
                if seconds > 0:
                    rest = news.wait(seconds) if listening else asyncio.sleep(seconds)
                    await _either(rest, stopping)

    async def _safely(self) -> tuple[float, bool]:
        try:
            return await self._step()
        except SaysoError as error:
            log.warning("the outbox cannot read the store now, trying again: %s", error)
            return 1.0, False
        except Exception:
            log.exception("webhooks to %s: something broke, trying again", self._endpoint.shown)
            return _LOOK_AGAIN, False

    async def _step(self) -> tuple[float, bool]:
        """Deliver one message, if one is due; how long to rest, and whether news end the rest."""
        store, endpoint = self._store, self._endpoint
        raw = await hop(store.cursor, endpoint.name)
        place, now = read_place(raw), store.now()
        if place.due > now:  # a pause after a failure, or somebody else is at it
            return min((place.due - now) / _MICROS, _LOOK_AGAIN), False
        found = await hop(self._next, raw, place)
        if found is None:
            return _LOOK_AGAIN, True
        held = now + round((endpoint.timeout + _MARGIN) * _MICROS)
        taken = place._replace(due=held).written()
        if await hop(self._move, raw, taken):
            await self._deliver(found, place, taken)
        return 0.0, False

    def _next(self, raw: str, place: Place) -> Next | None:
        """The next event that this endpoint is told of; what is passed over is not read again."""
        seen, at = self._looked
        if seen != raw:
            at = place.at
        while batch := self._store.events(at, _PAGE):
            for cursor, event in batch:
                message = message_of(self._store, event, self._endpoint)
                if message is not None:
                    return Next(at, cursor, message)
                at = cursor
            if len(batch) == _PAGE and self._move(raw, written := Place(at).written()):
                raw = written  # so that a restart need not read all of it again
            self._looked = raw, at
        return None

    def _move(self, raw: str, to: str) -> bool:
        return self._store.move_cursor(self._endpoint.name, to, expected=raw)

    async def _deliver(self, found: Next, place: Place, taken: str) -> None:
        """One try, and where it leaves the endpoint; a cut-off one is begun again soon."""
        after = place
        try:
            after = await self._tried(found, place)
        finally:
            # Also while being cancelled: the next server need not wait for the lease.
            moving = asyncio.ensure_future(hop(self._move, taken, after.written()))
            await asyncio.shield(moving)

    async def _tried(self, found: Next, place: Place) -> Place:
        message, endpoint = found.message, self._endpoint
        try:
            await self._courier.deliver(endpoint, message)
        except Exception as error:  # whatever it was, the next try may go better
            tries = place.tries + 1
            self._metrics.webhooks.labels("failed").inc()
            log.warning("webhook %s to %s, try %d: %s", message.id, endpoint.shown, tries, error)
            if not self._hopeless(message, tries):
                return Place(found.before, tries, self._store.now() + self._pause(tries))
            await hop(self._bury, message, tries, str(error))
            return Place(found.cursor)
        self._metrics.webhooks.labels("delivered").inc()
        return Place(found.cursor)

    def _hopeless(self, message: Message, tries: int) -> bool:
        age = (self._store.now() - message.at) / _MICROS
        return tries >= _LEAST_TRIES and age > self._endpoint.keep_trying

    def _pause(self, tries: int) -> Micros:
        longest = min(self._endpoint.pause * 2.0 ** min(tries - 1, 20), _LONGEST_PAUSE)
        return round(longest * random.uniform(0.8, 1.2) * _MICROS)

    def _bury(self, message: Message, tries: int, reason: str) -> None:
        """Give it up, and write that down where auditors look."""
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


async def _either(rest: Coroutine[Any, Any, None], stopping: asyncio.Event) -> None:
    """Wait for the one or the other."""
    waits = [asyncio.ensure_future(rest), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
