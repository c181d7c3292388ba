"""Whether the store answers, found out within a moment and by one thread at a time.

A store waits long for a database that went away, and rightly so: work goes on when it is back. Who
asks how things are cannot wait so long, and asks again and again; so those share one look.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

import assent
from assent.errors import AssentError
from assent.stores.base import Store
from assent.types import Json

#: How long somebody who asks is kept waiting.
WAIT = 2.0
#: A look that takes longer is stuck in a connection that leads nowhere; another one is begun.
_STUCK = 60.0


class Health(NamedTuple):
    """What to answer, and as which status of HTTP."""

    code: int
    body: dict[str, Json]


class Pulse:
    """One store, looked at for whoever asks how it is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._began = 0.0
        self._looking: Future[Health] | None = None

    async def felt(self) -> Health:
        """How it is, on a loop."""
        looking = asyncio.wrap_future(self._look())
        await asyncio.wait({looking}, timeout=WAIT)  # leaves it to the others when time is over
        return looking.result() if looking.done() else _silent()

    def felt_sync(self) -> Health:
        """How it is, in a thread."""
        try:
            return self._look().result(WAIT)
        except TimeoutError:
            return _silent()

    def _look(self) -> Future[Health]:
        """The look that is under way, or a new one."""
        with self._lock:
            now = time.monotonic()
            looking = self._looking
            if looking is None or looking.done() or now - self._began > _STUCK:
                looking, self._began = Future(), now
                self._looking = looking
                thread = threading.Thread(
                    target=self._into, args=(looking,), name="assent-pulse", daemon=True
                )
                thread.start()
            return looking

    def _into(self, looking: Future[Health]) -> None:
        try:
            self._store.tail()
            restored = self._store.restored()
        except AssentError as error:
            looking.set_result(_unwell(str(error)))
        except BaseException as error:
            looking.set_exception(error)
        else:
            status = "waiting for `assent recover`" if restored else "ok"
            body: dict[str, Json] = {"status": status, "store": "restored" if restored else "ok"}
            looking.set_result(Health(503 if restored else 200, body | _version()))


def _silent() -> Health:
    return _unwell(f"it has not answered for {WAIT:.0f} s; it is tried on")


def _unwell(why: str) -> Health:
    return Health(503, {"status": "unwell", "store": why, **_version()})


def _version() -> dict[str, Json]:
    return {"version": assent.__version__}
