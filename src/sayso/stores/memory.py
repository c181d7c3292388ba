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
from typing import Any

from sayso.engine import Command
from sayso.engine.renewing import Renewal
from sayso.forking import no_fork, renew_in_child
from sayso.keys import Keyring
from sayso.rows import Delivery, Run
from sayso.stores.base import (
    Boundary,
    Hub,
    Listener,
    Rekeyed,
    commit_name,
    engine_deps,
    run_commands,
)
from sayso.stores.row_checks import RowDecoder
from sayso.stores.seals import Seal, SealSchedule, seal_all
from sayso.stores.sql.leases import renew_saved
from sayso.stores.sql.maintenance import find_unsealed, prune, prune_in_batches, seal_moved
from sayso.stores.sql.migrate import migrate, read_meta
from sayso.stores.sql.reads import Snapshot, move_cursor, put_deliveries
from sayso.stores.sql.rekeying import rekey
from sayso.stores.sql.statements import SQLITE
from sayso.stores.sql.transaction import SqlTransaction, StoreParts, ToolCache
from sayso.stores.sqlite.files import Reservations, fetch_all, interrupted
from sayso.stores.sqlite.reads import SqliteReads
from sayso.stores.sqlite.store import explained, fetching
from sayso.types import Micros


class _Connection(sqlite3.Connection):
    """A connection that closes when it is garbage collected, as stores in memory usually are."""

    def __del__(self) -> None:
        self.close()


class MemoryStore(SqliteReads):
    """A store in a SQLite database that has no file."""

    def __init__(
        self,
        *,
        name: str = "",
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        boundary: Boundary | None = None,
    ) -> None:
        self.url = f"memory://{name}"
        self.quick_reads = True
        self.keys = keys or Keyring.ephemeral()
        self.boundary = boundary
        self._clock = clock
        self._decode = RowDecoder(self.keys)
        self._tool_cache = ToolCache()
        self._parts = StoreParts(self._tool_cache, engine_deps(self.keys), self._decode, clock)
        self._hub = Hub()
        self._schedule = SealSchedule()
        self._reservations = Reservations(None)
        self._connection = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_Connection,
        )
        self._execute = fetching(self._connection)
        migrate(0, "sqlite", self._execute, self.keys.primary_id)
        self.incarnation = read_meta(self._execute, self.url)["incarnation"]
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Free the lock in a forked child."""
        self._lock = threading.RLock()

    def now(self) -> Micros:
        return self._clock()

    # -- writing

    @contextmanager
    def _transaction(self, name: str) -> Iterator[SqlTransaction]:
        """Commit what the block writes, or nothing if it raises."""
        connection = self._connection
        with self._lock, no_fork.lock:
            if connection.in_transaction:
                raise interrupted(self.url)
            connection.execute("BEGIN")
            try:
                read = partial(fetch_all, connection)
                yield SqlTransaction(read, connection.execute, SQLITE, self._parts)
                self._cross(name, "before")
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise explained(error) from error
                raise
            self._cross(name, "after")

    def _cross(self, name: str, when: str) -> None:
        if self.boundary is not None:
            self.boundary(name, when)

    def transact(self, *commands: Command) -> list[Any]:
        with self._transaction(commit_name(commands)) as transaction:
            results, work = run_commands(transaction, commands)
        self._tool_cache.learn(transaction.new_tools, transaction.new_keys)
        self._hub.publish({event.thread for event in work.events})
        if self._schedule.may_be_due(int(self.tail()), work.now):
            self.seal_if_due()
        return results

    def renew(self, renewals: Sequence[Renewal], patience: float) -> dict[str, bool]:
        with self._transaction("renew"):
            return renew_saved(self._execute, self._parts, renewals, self.now()).extended()

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        with self._transaction("cursor"):
            return move_cursor(self._connection.execute, name, to, expected)

    def put_deliveries(self, deliveries: Sequence[Delivery]) -> list[bool]:
        with self._transaction("deliveries"):
            return put_deliveries(self._connection.execute, deliveries)

    def seal(self) -> Seal | None:
        return seal_all(self._seal)

    def _seal(self) -> Seal | None:
        with self._transaction("seal"):
            return seal_moved(self._execute, self.keys, self.now())

    def seal_if_due(self) -> Seal | None:
        if not self.keys.can_sign:
            return None
        find = partial(find_unsealed, self._rows)
        return self._schedule.seal_if_due(self.now(), find, self._seal)

    def rekey(self, table: str, after: Sequence[Any] | None) -> Rekeyed:
        with self._transaction("rekey"):
            return rekey(self._execute, self.keys, self._decode, table, after)

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        def prune_batch(runs: list[str]) -> dict[str, int]:
            with self._transaction("prune") as transaction:
                counts, note = prune(self._execute, self._parts, runs, before, by)
                _, work = run_commands(transaction, (note,))
                seal_moved(self._execute, self.keys, self.now())
            self._tool_cache.forget()
            self._hub.publish({event.thread for event in work.events})
            return counts

        return prune_in_batches(self._rows, before, prune_batch)

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

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        return self._hub.subscribe(thread, listener)

    # -- the rest

    def restored(self) -> bool:
        """Return ``False``: a store in memory cannot be restored."""
        return False

    def mark_recovered(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Seal what moved. The rows stay while you hold a reference to the store."""
        self.seal()
