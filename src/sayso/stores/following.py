"""The events of a store, handed on in order: each at least once, by one process at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing

from sayso.rows import Event
from sayso.stores.base import Cursor, Store
from sayso.twin import News, hop
from sayso.types import Micros

log = logging.getLogger("sayso.stores")

_PAGE = 100
#: How long a process that hands events on is left alone with them.
_HELD: Micros = 30_000_000
_LOOK_AGAIN = 5.0
_FIRST_TRY, _LAST_TRY = 0.5, 10.0


class Follower:
    """Reads on from a place that the store keeps under ``name``, whoever reads there next.

    ``hand_on`` gets those that are wanted; what it raises is logged, and it gets them again later.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        wants: Callable[[Event], bool],
        hand_on: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._name = name
        self._wants = wants
        self._hand_on = hand_on
        self._failed = 0
        #: The stored place that was last looked at, and how far nothing was wanted after it.
        self._looked: tuple[str, Cursor] = ("", "")

    async def begin(self) -> None:
        """The very first time: from now on, and not from the beginning of time."""
        if not await hop(self._store.cursor, self._name):
            tail = _written(self._store.tail(), 0)
            await hop(lambda: self._store.move_cursor(self._name, tail, expected=""))

    async def run(self) -> None:
        """Hand on until cancelled."""
        with closing(News(self._store, None)) as news:
            while True:
                try:
                    rest = await self._step()
                    self._failed = 0
                except Exception as error:
                    rest = min(_FIRST_TRY * 2**self._failed, _LAST_TRY)
                    self._failed = min(self._failed + 1, 10)
                    said = f"{type(error).__name__}: {error}"
                    log.warning("%s: again in %.1f s: %s", self._name, rest, said)
                    await asyncio.sleep(rest)
                    continue
                if rest is None:
                    await news.wait(_LOOK_AGAIN)
                elif rest > 0:
                    await asyncio.sleep(rest)

    async def _step(self) -> float | None:
        """One batch; how long somebody else is at it, 0 for more, or nothing left to read."""
        raw = await hop(self._store.cursor, self._name)
        at, held = _read(raw)
        now = self._store.now()
        if held > now:
            return min((held - now) / 1_000_000, _LOOK_AGAIN)
        seen, looked = self._looked
        batch = await hop(self._store.events, looked if seen == raw else at, _PAGE)
        if not batch:
            return None
        wanted = [event for _, event in batch if self._wants(event)]
        if not wanted:
            to = raw
            if len(batch) == _PAGE and await self._move(raw, ahead := _written(batch[-1][0], 0)):
                to = ahead  # so that a restart need not read all of it again
            self._looked = to, batch[-1][0]
            return 0.0
        taken = _written(at, now + _HELD)
        if not await self._move(raw, taken):
            return 0.0
        reached = at
        try:
            await self._hand_on(wanted)
            reached = batch[-1][0]
        finally:
            # Also when it failed or is cancelled: the next need not wait until it is let go.
            await asyncio.shield(asyncio.ensure_future(self._move(taken, _written(reached, 0))))
        return 0.0

    async def _move(self, raw: str, to: str) -> bool:
        return await hop(lambda: self._store.move_cursor(self._name, to, expected=raw))


def _written(at: Cursor, held: Micros) -> str:
    return f"{held} {at}"


def _read(raw: str) -> tuple[Cursor, Micros]:
    held, _, at = raw.partition(" ")
    return at, int(held or 0)
