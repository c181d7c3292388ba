"""The writes that every SQL store makes in the same way.

A store adds ``_write``, which runs a body in a transaction and commits, and what its
database does in its own way: locks, connections, and how it notices the commits of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sayso.engine import UnitOfWork
from sayso.engine.renewing import Renewal
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Delivery, run_from
from sayso.stores.base import Boundary, Hub, Listener, Rekeyed, engine_deps, run_commands
from sayso.stores.row_checks import RowDecoder
from sayso.stores.seals import Seal, SealSchedule, seal_all
from sayso.stores.sql import statements as sql
from sayso.stores.sql.leases import renew_saved
from sayso.stores.sql.maintenance import find_unsealed, prune, prune_in_batches, seal_moved
from sayso.stores.sql.reads import SqlReads, move_cursor, put_deliveries
from sayso.stores.sql.rekeying import rekey
from sayso.stores.sql.statements import ResultSet, Rows
from sayso.stores.sql.transaction import SqlTransaction, StoreParts, ToolCache
from sayso.types import Micros

T = TypeVar("T")

#: Returns whether the rows are there that a transaction with this result has written. A store that
#: may lose the answer to a commit asks it.
Probe = Callable[[Any, Rows], bool]


class WriteTransaction(SqlTransaction):
    """A transaction of a store, which also executes other statements."""

    def execute(self, text: str, values: Sequence[Any] = ()) -> ResultSet:
        raise NotImplementedError

    def lock(self, *threads: str) -> None:
        """Lock these threads, if the transaction does not lock the whole store."""

    def now(self) -> Micros:
        return self._read_time(None)


class SqlStore(SqlReads):
    """A SQL store that can be written."""

    def __init__(
        self,
        url: str,
        keys: Keyring,
        clock: Callable[[], Micros] | None,
        boundary: Boundary | None,
    ) -> None:
        self.url = url
        self.keys = keys
        self.boundary = boundary
        self._decode = RowDecoder(keys)
        self._tool_cache = ToolCache()
        self._parts = StoreParts(self._tool_cache, engine_deps(keys), self._decode, clock)
        self._hub = Hub(self._start_watching)
        self._schedule = SealSchedule()

    def _write(
        self,
        name: str,
        body: Callable[[Any], T],
        is_there: Probe = lambda result, rows: False,
    ) -> T:
        """Run a body in a ``WriteTransaction``, commit, and return its result."""
        raise NotImplementedError

    def _start_watching(self) -> None:
        """Start to publish the commits of other processes to the hub, if there may be any."""

    def _cross(self, name: str, when: str) -> None:
        if self.boundary is not None:
            self.boundary(name, when)

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        return self._hub.subscribe(thread, listener)

    def renew(self, renewals: Sequence[Renewal], patience: float) -> dict[str, bool]:
        """Extend leases in one commit, which waits for other writers."""

        def body(transaction: WriteTransaction) -> dict[str, bool]:
            execute = transaction.execute
            return renew_saved(execute, self._parts, renewals, transaction.now()).extended()

        return self._write("renew", body)

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        def body(transaction: WriteTransaction) -> bool:
            return move_cursor(transaction.execute, name, to, expected)

        def is_there(_: bool, rows: Rows) -> bool:
            return rows("SELECT pos FROM cursor WHERE name = ?", (name,)) == [(to,)]

        return self._write("cursor", body, is_there)

    def put_deliveries(self, deliveries: Sequence[Delivery]) -> list[bool]:
        def body(transaction: WriteTransaction) -> list[bool]:
            return put_deliveries(transaction.execute, deliveries)

        return self._write("deliveries", body)

    def rekey(self, table: str, after: Sequence[Any] | None) -> Rekeyed:
        def body(transaction: WriteTransaction) -> Rekeyed:
            execute = transaction.execute
            return rekey(execute, self.keys, self._decode, table, after, self._dialect)

        return self._write("rekey", body)

    # -- sealing and pruning

    def seal(self) -> Seal | None:
        return seal_all(partial(self._write, "seal", self._seal, _has_seal))

    def seal_if_due(self) -> Seal | None:
        """Make a seal if one is due and no other process is making it.

        Only writers of the threads being sealed wait for it.
        """
        if not self.keys.can_sign:
            return None
        make = partial(self._write, "seal", partial(self._seal, wait=False), _has_seal)
        return self._schedule.seal_if_due(self.now(), partial(find_unsealed, self._rows), make)

    def _seal(self, transaction: WriteTransaction, *, wait: bool = True) -> Seal | None:
        """Make a seal. Without ``wait``, leave it to another process that is making one."""
        return seal_moved(transaction.execute, self.keys, transaction.now(), self._dialect)

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        def prune_batch(runs: list[str]) -> dict[str, int]:
            def body(transaction: WriteTransaction) -> tuple[dict[str, int], UnitOfWork]:
                transaction.lock(SYSTEM_THREAD)
                execute = transaction.execute
                counts, note = prune(execute, self._parts, runs, before, by, self._dialect)
                _, work = run_commands(transaction, (note,))
                self._seal(transaction)  # under plain links, a pruning counts once it is sealed
                self._tool_cache.forget()
                return counts, work

            counts, _ = self._write("prune", body, is_written)
            self._tool_cache.forget()
            self._hub.publish({SYSTEM_THREAD})
            return counts

        return prune_in_batches(self._rows, before, prune_batch)


def is_written(result: Sequence[Any], rows: Rows) -> bool:
    """Return whether the database has what the work has written that is second in a result."""
    work: UnitOfWork = result[1]
    if work.events:
        event = work.events[-1]
        statement = "SELECT hash FROM event WHERE thread = ? AND seq = ?"
        return [row[0] for row in rows(statement, (event.thread, event.seq))] == [event.hash]
    if work.messages:
        message = work.messages[-1]
        statement = f"SELECT {sql.MESSAGE} FROM message WHERE thread = ? AND seq = ?"
        return rows(statement, (message.thread, message.seq)) == [tuple(message)]
    if work.run is not None and work.run_touched:
        # Only a new run, a lease or a snapshot is written without an event or a message. If
        # another change has overwritten it by now, a retry does no harm.
        stored = [run_from(row) for row in rows(sql.LOAD_RUN, (work.run.id,))]
        new = [run for run in stored if work.new_run and run.created == work.run.created]
        return bool(new) or stored == [work.run]
    return not work.touched_calls


def _has_seal(seal: Seal | None, rows: Rows) -> bool:
    if seal is None:
        return False
    return rows("SELECT hash FROM seal WHERE n = ?", (seal.n,)) == [(seal.hash,)]
