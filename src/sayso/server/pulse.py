"""Whether the store answers, found out within a moment and by one thread at a time.

A store waits long for a database that went away, and rightly so: work goes on when it is back. Who
asks how things are cannot wait so long, and asks again and again; so those share one look.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

import sayso
from sayso.errors import SaysoError
from sayso.forking import renew_in_child
from sayso.stores.base import Store
from sayso.types import Json

T = TypeVar("T")

#: How long somebody who asks is kept waiting.
WAIT = 2.0
#: A look that takes longer is stuck in a connection that leads nowhere; another one is begun.
_STUCK = 60.0


class Health(NamedTuple):
    """What to answer, and as which status of HTTP."""

    code: int
    body: dict[str, Json]


class Glance(Generic[T]):
    """A look at a store, one at a time, for whoever asks meanwhile."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Forget a look that is under way: its OS thread is not in a forked child."""
        self._lock = threading.Lock()
        self._began = 0.0
        self._looking: Future[T] | None = None

    async def seen(self) -> T | None:
        """What there is to be seen, on a loop; nothing, if that takes too long."""
        looking = asyncio.wrap_future(self._looked())
        await asyncio.wait({looking}, timeout=WAIT)  # leaves it to the others when time is over
        return looking.result() if looking.done() else None

    def seen_sync(self) -> T | None:
        """The same in a thread."""
        try:
            return self._looked().result(WAIT)
        except TimeoutError:
            return None

    def _looked(self) -> Future[T]:
        """The look that is under way, or a new one."""
        with self._lock:
            now = time.monotonic()
            looking = self._looking
            if looking is None or looking.done() or now - self._began > _STUCK:
                looking, self._began = Future(), now
                self._looking = looking
                thread = threading.Thread(
                    target=self._into, args=(looking,), name="sayso-pulse", daemon=True
                )
                thread.start()
            return looking

    def _into(self, looking: Future[T]) -> None:
        try:
            looking.set_result(self._look())
        except BaseException as error:
            looking.set_exception(error)


class Pulse:
    """One store, looked at for whoever asks how it is, or how many wait in it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._health = Glance(self._felt)
        self._waiting = Glance(self._counted)

    async def felt(self) -> Health:
        """How it is, on a loop."""
        return await self._health.seen() or _silent()

    def felt_sync(self) -> Health:
        """How it is, in a thread."""
        return self._health.seen_sync() or _silent()

    async def waiting(self) -> dict[str, int]:
        """How many requests wait for people, on a loop; nothing, while it cannot be known."""
        return await self._waiting.seen() or {}

    def _felt(self) -> Health:
        try:
            self._store.tail()
            restored = self._store.restored()
        except SaysoError as error:
            return _unwell(str(error))
        status = "waiting for `sayso recover`" if restored else "ok"
        body: dict[str, Json] = {"status": status, "store": "restored" if restored else "ok"}
        return Health(503 if restored else 200, body | _version())

    def _counted(self) -> dict[str, int]:
        try:
            return self._store.waiting()
        except SaysoError:
            return {}  # /healthz says why


def _silent() -> Health:
    return _unwell(f"it has not answered for {WAIT:.0f} s; it is tried on")


def _unwell(why: str) -> Health:
    return Health(503, {"status": "unwell", "store": why, **_version()})


def _version() -> dict[str, Json]:
    return {"version": sayso.__version__}
