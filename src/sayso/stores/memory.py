"""A store in memory, for tests and trials: SQLite without a file, gone with the process.

It has one connection. Whatever uses it, read or write, holds one lock, so that nobody reads what is
not committed. A forked child has a copy of the store, and the parent keeps its own.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from sayso.engine import Command, UnitOfWork
from sayso.forking import no_fork, renew_in_child
from sayso.keys import Keyring
from sayso.rows import Run
from sayso.stores.base import Boundary, commit_name, run_commands
from sayso.stores.sql.migrate import migrate, read_meta
from sayso.stores.sql.reads import Snapshot
from sayso.stores.sql.store import Probe, SqlStore
from sayso.stores.sqlite.files import Reservations, fetch_all, interrupted
from sayso.stores.sqlite.reads import SqliteReads
from sayso.stores.sqlite.store import explained
from sayso.stores.sqlite.writer import SqliteTransaction, transaction_on
from sayso.types import Micros

T = TypeVar("T")


class _Connection(sqlite3.Connection):
    """A connection that closes when it is garbage collected, as stores in memory usually are."""

    def __del__(self) -> None:
        self.close()


class MemoryStore(SqlStore, SqliteReads):
    """A store in a SQLite database that has no file."""

    def __init__(
        self,
        *,
        name: str = "",
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        boundary: Boundary | None = None,
    ) -> None:
        super().__init__(f"memory://{name}", keys or Keyring.ephemeral(), clock, boundary)
        self.quick_reads = True
        self._clock = clock
        self._reservations = Reservations(None)
        self._connection = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_Connection,
        )
        migrate(0, "sqlite", self._connection.execute, self.keys.primary_id)
        self.incarnation = read_meta(self._connection.execute, self.url)["incarnation"]
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Free the lock in a forked child."""
        self._lock = threading.RLock()

    # -- writing

    def _write(
        self,
        name: str,
        body: Callable[[Any], T],
        is_there: Probe | None = None,
    ) -> T:
        connection = self._connection
        with self._lock, no_fork.lock:
            if connection.in_transaction:
                raise interrupted(self.url)
            connection.execute("BEGIN")
            try:
                result = body(transaction_on(connection, self._parts))
                self._cross(name, "before")
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise explained(error) from error
                raise
            self._cross(name, "after")
        return result

    def transact(self, *commands: Command) -> list[Any]:
        def body(transaction: SqliteTransaction) -> tuple[list[Any], UnitOfWork, SqliteTransaction]:
            return (*run_commands(transaction, commands), transaction)

        results, work, transaction = self._write(commit_name(commands), body)
        self._tool_cache.learn(transaction.new_tools, transaction.new_keys)
        self._hub.publish({event.thread for event in work.events})
        if self._schedule.may_be_due(int(self.tail()), work.now):
            self.seal_if_due()
        return results

    # -- reading

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, no_fork.lock:
            return fetch_all(self._connection, statement, values)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read a copy of the store."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with closing(copy):
            with self._lock, no_fork.lock:
                self._connection.backup(copy)
            yield Snapshot(self, partial(fetch_all, copy))

    def reserve(
        self, agents: Sequence[str], limit: int, worker: str, skip: Collection[str] = ()
    ) -> list[Run]:
        return self._reservations.take_ready(self, agents, limit, worker, skip)

    # -- the rest

    def restored(self) -> bool:
        """Return ``False``: a store in memory cannot be restored."""
        return False

    def mark_recovered(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Seal what moved. The rows stay while you hold a reference to the store."""
        self.seal()
