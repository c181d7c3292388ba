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
from sayso.sync import CommitWaiter, to_thread
from sayso.types import Reviewer, iso

log = logging.getLogger("sayso.server")

#: Events after which someone may have fewer rights.
RIGHTS_EVENTS = frozenset({"token_revoked", "person_changed", "person_removed"})
_RING_SIZE = 2_000
_PAGE = 200
#: Seconds between reads of the store if no notification arrives.
_POLL = 30.0
#: Seconds per reader to collect events into one batch while they arrive without a break. Waking a
#: thousand readers for each event would leave no time for anything else.
_BATCH_DELAY = 0.0005
#: Readers wake up in this many groups, so that other tasks run in between.
_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Item:
    """An event formatted for the wire, and who may see it besides admins."""

    cursor: str
    type: str
    frame: bytes
    audience: Audience


class Batch:
    """Events that go out together. What a reader may see is joined once per person."""

    __slots__ = ("_seen", "changes_rights", "items")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        #: Whether rights changed: readers have to check their own.
        self.changes_rights = any(item.type in RIGHTS_EVENTS for item in items)
        self._seen: dict[Reviewer, bytes] = {}

    def seen_by(self, who: Reviewer, sees: Callable[[Item], bool]) -> bytes:
        seen = self._seen.get(who) if self.items else b""
        if seen is None:
            seen = self._seen[who] = b"".join(item.frame for item in self.items if sees(item))
        return seen


_EMPTY = Batch([])


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
        #: One event per group of readers, replaced each time it is set.
        self._new_events = [asyncio.Event() for _ in range(_GROUPS)]
        self._audiences = EventAudiences(store)
        #: The batch from one position to another; most readers are at the same position.
        self._next: tuple[int, int, Batch] = (0, 0, _EMPTY)
        #: Whether the server is stopping, so that long polls should return.
        self.closed = False
        self._on_close: set[Callable[[], None]] = set()
        self.running = False
        self.readers = 0

    def close(self) -> None:
        """End all readers because the server stops. Safe to call in a signal handler."""
        self.closed = True
        for group in self._new_events:
            group.set()
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
                log.warning("the live feed cannot read the store, retrying: %s", error)
                await asyncio.sleep(1)

    async def _follow_store(self, commits: CommitWaiter) -> None:
        if not self._following.is_set():
            self._cursor = await to_thread(self._store.tail)
            self._following.set()
        busy = False
        while self.readers:
            batch = await to_thread(self._read, self._cursor)
            if not batch:
                busy = False
                await commits.wait(_POLL)
                continue
            self._cursor = batch[-1].cursor
            self._ring.extend(batch)
            self._count += len(batch)
            await self._wake_readers()
            if busy:
                await asyncio.sleep(self.readers * _BATCH_DELAY)
            busy = True
        self._ring.clear()
        self._following.clear()
        self._has_readers.clear()

    async def _wake_readers(self) -> None:
        for group, new_events in enumerate(self._new_events):
            self._new_events[group] = asyncio.Event()
            if self.closed:
                self._new_events[group].set()
            new_events.set()
            await asyncio.sleep(0)

    async def follow(self, after: str | None, keep_alive: float) -> AsyncIterator[Batch]:
        """Yield batches of events after a cursor, or from now on.

        The first batch is empty: from then on no event is missed. Another empty batch follows
        whenever nothing happened for ``keep_alive`` seconds.
        """
        self.readers += 1
        group = self.readers % _GROUPS
        self._has_readers.set()
        try:
            await self._following.wait()
            position, last = self._count, after if after is not None else self._cursor
            yield _EMPTY
            skip: set[str] = set()
            behind = after is not None
            while not self.closed:
                new_events = self._new_events[group]
                oldest = self._count - len(self._ring)
                if behind or position < oldest:
                    behind, position = False, max(position, oldest)
                    while missed := await to_thread(self._read, last):
                        last = missed[-1].cursor
                        skip.update(item.cursor for item in missed)
                        yield Batch(missed)
                elif position < self._count:
                    batch, position = self._since(position), self._count
                    if skip:
                        # The ring may repeat what was just read from the store.
                        batch = Batch([item for item in batch.items if item.cursor not in skip])
                    if batch.items:
                        skip.clear()
                        last = batch.items[-1].cursor
                        yield batch
                else:
                    try:
                        async with asyncio.timeout(keep_alive):
                            await new_events.wait()
                    except TimeoutError:
                        yield _EMPTY
        finally:
            self.readers -= 1

    def _since(self, position: int) -> Batch:
        """Return the events in the ring from this position on."""
        if self._next[:2] != (position, self._count):
            oldest = self._count - len(self._ring)
            items = list(islice(self._ring, position - oldest, None))
            self._next = (position, self._count, Batch(items))
        return self._next[2]

    def _read(self, cursor: str) -> list[Item]:
        """Read a page of events, in a worker thread."""
        return [
            Item(at, event.type, frame(at, event), self._audiences.of(event))
            for at, event in self._store.events(cursor, _PAGE)
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
