"""The live feed: one task follows the store for all readers.

Events are formatted once and kept in a short ring buffer. A reader is only a position in it, so a
slow reader costs nothing and delays no one; one that falls behind the ring reads from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from sayso.errors import SaysoError, StoreClosed
from sayso.inbox.people import Audience
from sayso.rows import SYSTEM_THREAD, Event
from sayso.server.audiences import EventAudiences
from sayso.stores.base import Store
from sayso.stores.outage import outage_of
from sayso.stores.row_checks import readable_event
from sayso.sync import CommitWaiter, to_thread
from sayso.types import iso

log = logging.getLogger("sayso.server")

#: Events after which someone may have fewer rights.
RIGHTS_EVENTS = frozenset({"token_revoked", "person_changed", "person_removed"})
_RING_SIZE = 2_000
_PAGE = 200
#: Seconds between reads of the store if no notification arrives.
_POLL = 30.0


@dataclass(frozen=True, slots=True)
class Item:
    """An event formatted for the wire, and who may see it besides admins."""

    cursor: str
    type: str
    frame: bytes
    audience: Audience


class Feed:
    """Follows the store's events while ``run`` runs, and hands them to readers (``follow``)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ring: deque[Item] = deque(maxlen=_RING_SIZE)
        #: How many events have ever entered the ring; a reader's position counts the same way.
        self._count = 0
        self._cursor = ""
        self._has_readers = asyncio.Event()
        self._following = asyncio.Event()
        #: Replaced each time it is set.
        self._new_events = asyncio.Event()
        self._audiences = EventAudiences(store)
        #: Whether the server is stopping, so that long polls should return.
        self.closed = False
        self._on_close: set[Callable[[], None]] = set()
        self.running = False
        self.readers = 0

    def close(self) -> None:
        """End all readers because the server stops. Safe to call in a signal handler."""
        self.closed = True
        self._new_events.set()
        for wake in tuple(self._on_close):
            wake()

    @contextlib.contextmanager
    def calling_on_close(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` if the feed closes inside this block."""
        self._on_close.add(wake)
        try:
            yield
        finally:
            self._on_close.discard(wake)

    async def run(self) -> None:
        """Follow the store until cancelled. Reads it only while there are readers."""
        self.running = True
        while True:
            await self._has_readers.wait()
            try:
                with contextlib.closing(CommitWaiter(self._store, None)) as commits:
                    await self._follow_store(commits)
            except StoreClosed:
                self.close()
                return
            except SaysoError as error:
                outage_of(self._store).failed(error)
                await asyncio.sleep(1)

    async def _follow_store(self, commits: CommitWaiter) -> None:
        if not self._following.is_set():
            self._cursor = await to_thread(self._store.tail)
            self._following.set()
        while self.readers:
            items = await to_thread(self._read, self._cursor)
            if not items:
                await commits.wait(_POLL)
                continue
            self._cursor = items[-1].cursor
            self._ring.extend(items)
            self._count += len(items)
            new_events = self._new_events
            self._new_events = asyncio.Event()
            new_events.set()
            if self.closed:  # perhaps since the line above, by a signal
                self._new_events.set()
        self._ring.clear()
        self._following.clear()
        self._has_readers.clear()

    async def follow(self, after: str | None, keep_alive: float) -> AsyncIterator[list[Item]]:
        """Yield events after a cursor, or from now on.

        The first list is empty: from then on no event is missed. Another empty list follows
        whenever nothing happened for ``keep_alive`` seconds.
        """
        self.readers += 1
        self._has_readers.set()
        try:
            await self._following.wait()
            position = self._count
            last = self._cursor if after is None else after
            yield []
            skip: set[str] = set()
            behind = after is not None
            while not self.closed:
                new_events = self._new_events
                oldest = self._count - len(self._ring)
                if behind or position < oldest:
                    behind = False
                    position = max(position, oldest)
                    while missed := await to_thread(self._read, last):
                        last = missed[-1].cursor
                        skip.update(item.cursor for item in missed)
                        yield missed
                elif position < self._count:
                    items = list(islice(self._ring, position - oldest, None))
                    position = self._count
                    # The ring may repeat what was just read from the store.
                    items = [item for item in items if item.cursor not in skip]
                    if items:
                        skip.clear()
                        last = items[-1].cursor
                        yield items
                else:
                    try:
                        async with asyncio.timeout(keep_alive):
                            await new_events.wait()
                    except TimeoutError:
                        yield []
        finally:
            self.readers -= 1

    def _read(self, cursor: str) -> list[Item]:
        """Read a page of events, in a worker thread."""
        return [
            Item(at, event.type, frame(at, event), self._audiences.of(event))
            for at, stored in self._store.events(cursor, _PAGE)
            for event in [readable_event(stored)]
        ]


def frame(cursor: str, event: Event) -> bytes:
    """Format an event for the wire. It says what changed, not the content: readers fetch that."""
    data = {
        "type": event.type,
        "thread": "" if event.thread == SYSTEM_THREAD else event.thread,
        "run": event.run,
        "request": event.call,
        "at": iso(event.at),
        "actor": event.actor,
    }
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {cursor}\nevent: change\ndata: {text}\n\n".encode()
