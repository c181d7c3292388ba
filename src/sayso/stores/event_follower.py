"""Deliver the events of a store in order, at least once, from one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing

from sayso.errors import StoreClosed
from sayso.rows import Event
from sayso.stores.base import Cursor, Store
from sayso.stores.outage import Outage, outage_of
from sayso.sync import CommitWaiter, to_thread
from sayso.types import Micros

_PAGE = 100
#: How long a process holds the cursor while it delivers a batch.
_LEASE: Micros = 30_000_000
_POLL_SECONDS = 5.0
_FIRST_TRY = 0.5
_LAST_TRY = 10.0


class EventFollower:
    """Delivers events from a cursor that the store keeps under ``name``, shared by all processes.

    ``deliver`` receives the events that ``wants`` selects. If it raises, ``outage`` logs the error
    and it receives them again later.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        wants: Callable[[Event], bool],
        deliver: Callable[[Sequence[Event]], Awaitable[None]],
        outage: Outage | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._wants = wants
        self._deliver = deliver
        self._failed = 0
        self._outage = outage or Outage(name, within=outage_of(store))
        #: The stored cursor last read, and how far no event after it was wanted.
        self._scanned: tuple[str, Cursor] = ("", "")

    async def begin(self) -> None:
        """Start a new cursor at the end of the stream. Does nothing if it exists."""
        await to_thread(self.begin_sync)

    def begin_sync(self) -> None:
        if not self._store.cursor(self._name):
            self._store.move_cursor(self._name, _written(self._store.tail(), 0), expected="")

    async def catch_up(self) -> None:
        """Deliver the events that are stored now."""
        while (rest := await self._step()) is not None:
            await asyncio.sleep(rest)

    async def run(self) -> None:
        """Deliver events until cancelled, or until the store is closed."""
        with closing(CommitWaiter(self._store, None)) as commits:
            while True:
                try:
                    rest = await self._step()
                    if self._failed and not rest:
                        self._outage.over()
                        self._failed = 0
                except StoreClosed:
                    return
                except Exception as error:
                    rest = min(_FIRST_TRY * 2**self._failed, _LAST_TRY)
                    self._failed = min(self._failed + 1, 10)
                    self._outage.failed(error)
                    await asyncio.sleep(rest)
                    continue
                if rest is None:
                    await commits.wait(_POLL_SECONDS)
                elif rest > 0:
                    await asyncio.sleep(rest)

    async def _step(self) -> float | None:
        """Deliver one batch.

        Returns the seconds for which another process holds the cursor, 0 if there may be more, or
        ``None`` if there is nothing left to read.
        """
        raw = await to_thread(self._store.cursor, self._name)
        at, held = _read(raw)
        now = self._store.now()
        if held > now:
            return min((held - now) / 1_000_000, _POLL_SECONDS)
        newest, scanned = self._scanned
        batch = await to_thread(self._store.events, scanned if newest == raw else at, _PAGE)
        if not batch:
            return None
        wanted_events = [event for _, event in batch if self._wants(event)]
        if not wanted_events:
            to = raw
            if len(batch) == _PAGE and await self._move(raw, ahead := _written(batch[-1][0], 0)):
                to = ahead  # a restart need not read all of it again
            self._scanned = to, batch[-1][0]
            return 0.0
        lease_text = _written(at, now + _LEASE)
        if not await self._move(raw, lease_text):
            return 0.0
        reached = at
        try:
            await self._deliver(wanted_events)
            reached = batch[-1][0]
        finally:
            # Release the cursor also after an error or a cancellation.
            await asyncio.shield(
                asyncio.ensure_future(self._move(lease_text, _written(reached, 0)))
            )
        return 0.0

    async def _move(self, raw: str, to: str) -> bool:
        return await to_thread(lambda: self._store.move_cursor(self._name, to, expected=raw))


def _written(at: Cursor, held: Micros) -> str:
    return f"{held} {at}"


def _read(raw: str) -> tuple[Cursor, Micros]:
    held, _, at = raw.partition(" ")
    return at, int(held or 0)
