"""Run something in one process at a time, under a lease that is a row of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable

from sayso.errors import StoreClosed
from sayso.stores.base import Store
from sayso.stores.outage import Outage, outage_of
from sayso.sync import to_thread
from sayso.types import SECOND, Micros

log = logging.getLogger("sayso.channels")

#: How long a process that died keeps others waiting.
_LEASE: Micros = 20 * SECOND
#: Seconds between renewals, and between looks at the lease of another process.
_RENEW = 5.0
_LOOK = 1.0


class Lease:
    """A lease by its name. Its cursor holds when it ends, and a mark of its holder."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = f"lease:{name}"
        self._mark = secrets.token_hex(8)

    async def run(self, work: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
        """Run ``work`` while the lease is held; return when it returns.

        ``work`` is cancelled when the lease is lost, and starts again when it is regained.
        ``stopping`` only ends the wait for the lease.
        """
        outage = Outage(self._name, within=outage_of(self._store))
        while not stopping.is_set():
            try:
                if await to_thread(self._extend) and await self._hold(work):
                    return
            except StoreClosed:
                return
            except Exception as error:
                outage.failed(error)
            await wait_for(stopping, _LOOK)

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run ``work`` and renew the lease; return whether ``work`` ended before the lease."""
        working = asyncio.ensure_future(work())
        try:
            while not (await asyncio.wait({working}, timeout=_RENEW))[0]:
                if not await to_thread(self._extend):
                    log.warning("%s: another process has taken over", self._name)
                    return False
            await working
            return True
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            with contextlib.suppress(Exception):
                await asyncio.shield(asyncio.ensure_future(to_thread(self._release)))

    def _extend(self) -> bool:
        """Take or renew the lease, unless another process holds it."""
        raw = self._store.cursor(self._name)
        ends, _, holder = raw.partition(" ")
        now = self._store.now()
        if holder != self._mark and int(ends or 0) > now:
            return False
        return self._store.move_cursor(self._name, f"{now + _LEASE} {self._mark}", expected=raw)

    def _release(self) -> None:
        raw = self._store.cursor(self._name)
        if raw.endswith(f" {self._mark}"):
            self._store.move_cursor(self._name, f"0 {self._mark}", expected=raw)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for so many seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
