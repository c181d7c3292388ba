"""Streams and long polls end with the access of whoever opened them.

A request is checked once, when it arrives. What stays open for longer is cut off within a second
after its token or session ends, or gives other rights than before: by time, or because a person was
changed on any server of the store. Every change of rights is an event of the system thread, so a
server reads the number of its last event twice a second, and the rows only if it moved.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias, TypeVar

from sayso.errors import SaysoError, StoreError, Unauthenticated
from sayso.rows import SYSTEM_THREAD
from sayso.stores.base import Store
from sayso.sync import read

T = TypeVar("T")
#: Returns how many seconds the caller has access for; not more than 0 if it has ended.
SecondsLeft: TypeAlias = Callable[[Store], float]

_CHECK_SECONDS = 0.5


class RightsWatch:
    """Notices changes of rights in the store, for all streams of a server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seq = 0
        self._read_at = -math.inf
        self._reading = asyncio.Lock()

    async def wait_for_end(self, seconds_left: SecondsLeft) -> None:
        """Return when the caller's token or session ends, or gives other rights."""
        seq = -1
        ends_at = math.inf
        while True:
            try:
                current = await self._last_change()
                if current != seq or time.monotonic() >= ends_at:
                    left = await read(self._store, seconds_left, self._store)
                    if left <= 0:
                        return
                    seq = current
                    ends_at = time.monotonic() + left
            except StoreError:
                pass  # the stream itself reports that the store is away
            except SaysoError:
                return  # the person's row was changed by something else: it gives no rights
            await asyncio.sleep(max(min(_CHECK_SECONDS, ends_at - time.monotonic()), 0.001))

    async def _last_change(self) -> int:
        """Return the number of the last event, for all streams that ask at about this time."""
        async with self._reading:
            now = time.monotonic()
            if self._read_at + _CHECK_SECONDS / 2 <= now:
                system = await read(self._store, self._store.thread, SYSTEM_THREAD)
                self._seq = 0 if system is None else system.seq
                self._read_at = now
            return self._seq


@asynccontextmanager
async def during_access(watch: RightsWatch, seconds_left: SecondsLeft) -> AsyncIterator[None]:
    """Cancel the block when the caller's access ends, and raise ``Unauthenticated`` then."""

    async def end(limit: asyncio.Timeout) -> None:
        await watch.wait_for_end(seconds_left)
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as limit:
            watcher = asyncio.create_task(end(limit))
            try:
                yield
            finally:
                watcher.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise Unauthenticated("your access was revoked or changed: sign in again") from None


async def until_access_ends(
    watch: RightsWatch,
    seconds_left: SecondsLeft,
    frames: AsyncGenerator[T, None],
    last: T | None = None,
) -> AsyncGenerator[T, None]:
    """Yield the frames of a stream; if access ends before, yield ``last`` instead of the rest."""
    async with aclosing(frames):
        try:
            async with during_access(watch, seconds_left):
                async for frame in frames:
                    yield frame
        except Unauthenticated:
            if last is not None:
                yield last
