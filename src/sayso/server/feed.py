"""The live feed: one watcher of the store, however many readers.

Events are formatted once and kept in a short ring. A reader is only a place in it, so a slow one
costs nothing and holds up nobody: where it has fallen behind the ring, it reads from the store.
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

from sayso.errors import SaysoError
from sayso.inbox.people import Audience
from sayso.rows import SYSTEM_THREAD, Event
from sayso.server.showing.audiences import Audiences
from sayso.stores.base import Store
from sayso.twin import News, hop
from sayso.types import Reviewer, moment

log = logging.getLogger("sayso.server")

_RING = 2_000
_PAGE = 200
_LOOK_AGAIN = 30.0
#: How long events gather, for each reader, while they come without a pause: telling a crowd of each
#: by itself would leave no time for anything else.
_GATHER = 0.0005
_TURNS = 100


@dataclass(frozen=True, slots=True)
class Item:
    """One event as it goes out, and whom it is for besides operators."""

    cursor: str
    type: str
    frame: bytes
    audience: Audience


class Batch:
    """Events that go out together; what one reader may see of them is put together once for all
    who may see the same."""

    __slots__ = ("_seen", "items", "revokes")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        #: Whether somebody's access ended in here.
        self.revokes = any(item.type == "token_revoked" for item in items)
        self._seen: dict[Reviewer, bytes] = {}

    def seen_by(self, who: Reviewer, sees: Callable[[Item], bool]) -> bytes:
        """The frames that this reader may see."""
        seen = self._seen.get(who) if self.items else b""
        if seen is None:
            seen = self._seen[who] = b"".join(item.frame for item in self.items if sees(item))
        return seen


_NOTHING = Batch([])


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
        #: A crowd is told in turns, so that others get theirs in between.
        self._fresh = [asyncio.Event() for _ in range(_TURNS)]
        self._audiences = Audiences(store)
        #: What a reader at this place is given next; most readers are at the same.
        self._next: tuple[int, int, Batch] = (0, 0, _NOTHING)
        self._closed = False
        self._others: set[Callable[[], None]] = set()
        self.running = False
        self.readers = 0

    def close(self) -> None:
        """Let all readers go: the server stops. Safe in a signal handler."""
        self._closed = True
        for turn in self._fresh:
            turn.set()
        for wake in tuple(self._others):
            wake()

    @property
    def closed(self) -> bool:
        """Whether the server stops, and nobody should be kept waiting."""
        return self._closed

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Let somebody know who waits for something else: ``wake`` is called at the end."""
        self._others.add(wake)
        try:
            yield
        finally:
            self._others.discard(wake)

    async def run(self) -> None:
        """Follow the store until cancelled, for as long as somebody reads."""
        self.running = True
        while True:
            await self._wanted.wait()
            try:
                with contextlib.closing(News(self._store, None)) as news:
                    await self._follow_store(news)
            except SaysoError as error:
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
            await self._tell()
            if stream:
                await asyncio.sleep(self.readers * _GATHER)
            stream = True
        self._ring.clear()
        self._awake.clear()
        self._wanted.clear()

    async def _tell(self) -> None:
        for turn, fresh in enumerate(self._fresh):
            self._fresh[turn] = asyncio.Event()
            if self._closed:
                self._fresh[turn].set()
            fresh.set()
            await asyncio.sleep(0)

    async def follow(self, after: str | None, keep_alive: float) -> AsyncIterator[Batch]:
        """Batches of events after a place, or from now on; the first one is empty, and says that
        nothing is missed from here. So is one after a while in which nothing happened.
        """
        self.readers += 1
        turn = self.readers % _TURNS
        self._wanted.set()
        try:
            await self._awake.wait()
            place, last = self._count, after if after is not None else self._cursor
            yield _NOTHING
            skip: set[str] = set()
            behind = after is not None
            while not self._closed:
                fresh = self._fresh[turn]
                oldest = self._count - len(self._ring)
                if behind or place < oldest:
                    behind, place = False, max(place, oldest)
                    async for missed in self._missed(last):
                        last = missed[-1].cursor
                        skip.update(item.cursor for item in missed)
                        yield Batch(missed)
                elif place < self._count:
                    batch, place = self._since(place), self._count
                    if skip:
                        # What was read from the store may come by in the ring once more.
                        batch = Batch([item for item in batch.items if item.cursor not in skip])
                    if batch.items:
                        skip.clear()
                        last = batch.items[-1].cursor
                        yield batch
                else:
                    try:
                        async with asyncio.timeout(keep_alive):
                            await fresh.wait()
                    except TimeoutError:
                        yield _NOTHING
        finally:
            self.readers -= 1

    def _since(self, place: int) -> Batch:
        """What the ring holds from this place on."""
        if self._next[:2] != (place, self._count):
            oldest = self._count - len(self._ring)
            items = list(islice(self._ring, place - oldest, None))
            self._next = (place, self._count, Batch(items))
        return self._next[2]

    async def _missed(self, after: str) -> AsyncIterator[list[Item]]:
        while batch := await hop(self._read, after):
            yield batch
            after = batch[-1].cursor

    # -- in a thread

    def _read(self, cursor: str) -> list[Item]:
        return [self._news(at, event) for at, event in self._store.events(cursor, _PAGE)]

    def _news(self, cursor: str, event: Event) -> Item:
        return Item(cursor, event.type, frame(cursor, event), self._audiences.of(event))


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
