"""The OS thread that commits for all callers of a SQLite store.

Callers queue their operations and wait, or give a function to call with the outcome (an event
loop's). The OS thread takes everything that is queued and commits it in one transaction, so ten
callers share one fsync, and each operation has its own outcome.

No caller runs another caller's operation. Signal handlers run in the main OS thread, and debuggers
and time-out libraries throw exceptions into the OS threads of their users. Whatever interrupts a
caller ends its wait and reaches nobody else (``docs/decisions/0041``). A hand-over costs 12 µs.
"""

from __future__ import annotations

import atexit
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol
from weakref import WeakSet, finalize, ref

from sayso.stores.sql.statements import SQLITE, ResultSet
from sayso.stores.sql.store import WriteTransaction
from sayso.stores.sql.transaction import StoreParts
from sayso.stores.sqlite.files import Fetched, fetch_all


class SqliteTransaction(WriteTransaction):
    """A transaction on a connection. It leaves no statement open there."""

    def execute(self, text: str, values: Sequence[Any] = ()) -> ResultSet:
        if text.startswith(("SELECT", "WITH")):
            return Fetched(self._ask(text, values))
        cursor: sqlite3.Cursor = self._write(text, values)  # type: ignore[assignment]
        return cursor


def transaction_on(connection: sqlite3.Connection, parts: StoreParts) -> SqliteTransaction:
    read = partial(fetch_all, connection)
    return SqliteTransaction(read, connection.execute, SQLITE, parts)


class Operation:
    """A write queued for the next commit, and its outcome."""

    __slots__ = ("_then", "abandoned", "body", "error", "moved", "name", "pending", "result")

    def __init__(
        self,
        name: str,
        body: Callable[[Any], Any],
        then: Callable[[Operation], None] | None = None,
    ) -> None:
        self.name = name
        self.body = body
        #: Gets the outcome, in the OS thread that commits. Must not raise.
        self._then = then
        self.result: Any = None
        self.error: BaseException | None = None
        #: The threads that it changed.
        self.moved: set[str] = set()
        #: Whether its caller was interrupted and no longer waits.
        self.abandoned = False
        #: Held until the outcome is final.
        self.pending = threading.Lock()
        self.pending.acquire()

    def settle(self) -> None:
        """Let the caller return: the outcome is final."""
        self.pending.release()
        if self._then is not None:
            self._then(self)

    @property
    def settled(self) -> bool:
        return not self.pending.locked()


class Committer(Protocol):
    """The store that a writer commits to."""

    def commit_batch(self, batch: list[Operation]) -> None:
        """Commit operations, give each its outcome and settle it. Raise nothing."""


class WriterThread:
    """Starts with the first operation, and ends with ``stop`` or with the store."""

    def __init__(self, store: Committer) -> None:
        self._store = ref(store)
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        #: The identifier of the OS thread that commits.
        self.ident: int | None = None
        # A store that is garbage collected without close() must not leave an OS thread behind.
        finalize(self, self._queue.put, None).atexit = False
        _writers.add(self)

    def put(self, operation: Operation) -> None:
        """Queue an operation for the next commit."""
        if sys.is_finalizing() and (store := self._store()) is not None:
            store.commit_batch([operation])  # no OS thread runs any more but this one
            return
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    args = (self._queue, self._running, self._store)
                    thread = threading.Thread(
                        target=_work, args=args, name="sayso-write", daemon=True
                    )
                    thread.start()
                    self.ident = thread.ident
                    self._thread = thread
        self._queue.put(operation)

    def drain(self, seconds: float) -> None:
        """Wait until everything that is queued has been committed, at most this long."""
        if not self.has_ended:
            last = Operation("", lambda _: None)
            last.abandoned = True
            self._queue.put(last)
            last.pending.acquire(timeout=seconds)

    def stop(self, seconds: float) -> bool:
        """End after what is queued; return whether it has ended within this time."""
        self._queue.put(None)
        if self._thread is not None and self.ident != threading.get_ident():
            self._thread.join(seconds)
        return self.has_ended

    @property
    def has_ended(self) -> bool:
        return self._thread is None or not self._thread.is_alive()


_writers: WeakSet[WriterThread] = WeakSet()
#: How many seconds a process that exits waits for commits that nothing waits for.
_EXIT_SECONDS = 3.0


@atexit.register
def _drain_all() -> None:
    for writer in list(_writers):
        writer.drain(_EXIT_SECONDS)


def _work(
    queue: SimpleQueue[Operation | None],
    running: threading.Lock,
    committer: ref[Committer],
) -> None:
    """Commit what is queued, batch by batch, until there is a ``None``.

    Refers to the store weakly, so that one that nobody closes can still be collected.
    """
    if not running.acquire(blocking=False):
        return  # an interrupt came while the first one was started
    while (operation := queue.get()) is not None:
        batch = [operation]
        while not queue.empty() and (operation := queue.get()) is not None:
            batch.append(operation)
        if operation is None:
            queue.put(None)
        waiting = []
        for queued in batch:
            if not queued.abandoned:
                waiting.append(queued)
        store = committer()
        if store is not None:  # else nobody can wait for it
            store.commit_batch(waiting)
        for queued in batch:
            if queued.abandoned and not queued.settled:
                queued.settle()
        del operation, batch, waiting, queued, store  # keep nothing alive while idle
