"""The live feed: one watcher of the store, however many readers.

Events are formatted once and kept in a short ring. A reader is only a place in it, so a slow one
costs nothing and holds up nobody: where it has fallen behind the ring, it reads from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from assent.errors import AssentError
from assent.rows import SYSTEM_THREAD, Call, Event
from assent.stores.base import Store
from assent.twin import News, hop
from assent.types import moment

log = logging.getLogger("assent.server")

_RING = 2_000
_PAGE = 200
_KNOWN_CALLS = 5_000
_LOOK_AGAIN = 30.0
#: How long events gather, for each reader, while they come without a pause: telling a crowd of each
#: by itself would leave no time for anything else.
_GATHER = 0.0002


@dataclass(frozen=True, slots=True)
class Item:
    """One event as it goes out, and the call that it is about."""

    cursor: str
    type: str
    frame: bytes
    call: Call | None


class Feed:
    """Follows the store while it runs; ``follow`` gives a reader its events."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ring: deque[Item] = deque(maxlen=_RING)
        #: How many events were ever put into the ring; a reader's place counts like it.
        self._count = 0
        self._cursor = ""
        self._wanted = asyncio.Event()
        self._awake = asyncio.Event()
        self._fresh = asyncio.Event()
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._closed = False
        self.running = False
        self.readers = 0

    def close(self) -> None:
        """Let all readers go: the server stops. Safe in a signal handler."""
        self._closed = True
        self._fresh.set()

    async def run(self) -> None:
        """Follow the store until cancelled, for as long as somebody reads."""
        self.running = True
        while True:
            await self._wanted.wait()
            try:
                with contextlib.closing(News(self._store, None)) as news:
                    await self._follow_store(news)
            except AssentError as error:
                log.warning("the live feed cannot read the store: %s", error)
                await asyncio.sleep(1)

    async def _follow_store(self, news: News) -> None:
        if not self._awake.is_set():
            self._cursor = await hop(self._store.tail)
            self._awake.set()
        stream = False
        while self.readers:
            batch = await hop(self._read, self._cursor)
            if not batch:
                stream = False
                await news.wait(_LOOK_AGAIN)
                continue
            self._cursor = batch[-1].cursor
            self._ring.extend(batch)
            self._count += len(batch)
            fresh, self._fresh = self._fresh, asyncio.Event()
            fresh.set()
            if self._closed:
                self._fresh.set()
            if stream:
                await asyncio.sleep(self.readers * _GATHER)
            stream = True
        self._ring.clear()
        self._awake.clear()
        self._wanted.clear()

    async def follow(self, after: str | None, keep_alive: float) -> AsyncIterator[list[Item]]:
        """Batches of events after a place, or from now on; the first one is empty, and says that
        nothing is missed from here. So is one after a while in which nothing happened.
        """
        self.readers += 1
        self._wanted.set()
        try:
            await self._awake.wait()
            place, last = self._count, after if after is not None else self._cursor
            yield []
            skip: set[str] = set()
            behind = after is not None
            while not self._closed:
                fresh = self._fresh
                oldest = self._count - len(self._ring)
                if behind or place < oldest:
                    behind, place = False, max(place, oldest)
                    async for missed in self._missed(last):
                        last = missed[-1].cursor
                        skip.update(item.cursor for item in missed)
                        yield missed
                elif place < self._count:
                    batch = [self._ring[i - oldest] for i in range(place, self._count)]
                    place = self._count
                    # What was read from the store may come by in the ring once more.
                    unseen = [item for item in batch if item.cursor not in skip]
                    if unseen:
                        skip.clear()
                        last = unseen[-1].cursor
                        yield unseen
                else:
                    try:
                        async with asyncio.timeout(keep_alive):
                            await fresh.wait()
                    except TimeoutError:
                        yield []
        finally:
            self.readers -= 1

    async def _missed(self, after: str) -> AsyncIterator[list[Item]]:
        while batch := await hop(self._read, after):
            yield batch
            after = batch[-1].cursor

    # -- in a thread

    def _read(self, cursor: str) -> list[Item]:
        return [self._news(at, event) for at, event in self._store.events(cursor, _PAGE)]

    def _news(self, cursor: str, event: Event) -> Item:
        call = self._call(event.call) if event.call else None
        return Item(cursor, event.type, frame(cursor, event), call)

    def _call(self, call_id: str) -> Call | None:
        """The call, as far as who may see it goes: that is fixed when it is asked."""
        call = self._calls.get(call_id) or self._store.call(call_id)
        if call is not None:
            self._calls[call_id] = call
            while len(self._calls) > _KNOWN_CALLS:
                self._calls.popitem(last=False)
        return call


def frame(cursor: str, event: Event) -> bytes:
    """One event on the wire: that something moved, not what it says; who may read it asks."""
    data = {
        "type": event.type,
        "thread": "" if event.thread == SYSTEM_THREAD else event.thread,
        "run": event.run,
        "request": event.call,
        "at": moment(event.at).isoformat(),
        "actor": event.actor,
    }
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {cursor}\nevent: change\ndata: {text}\n\n".encode()
