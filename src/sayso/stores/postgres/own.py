"""The store inside a transaction that belongs to somebody else.

An application that keeps its orders in the same database asks and writes in one transaction: either
both are there or neither is. Nobody hears of it before that transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from sayso.engine import Command, UnitOfWork
from sayso.errors import Conflict, StoreError
from sayso.rows import Event
from sayso.stores.base import Boundary, Cursor, run_commands
from sayso.stores.hub import Listener
from sayso.stores.postgres.attempt import Session
from sayso.stores.postgres.stream import Stream
from sayso.stores.postgres.transaction import PgTransaction, news
from sayso.stores.postgres.wire import explained
from sayso.stores.seals import Seal
from sayso.stores.sql.dialect import POSTGRES, Reply
from sayso.stores.sql.reads import SqlReads, move_cursor
from sayso.stores.sql.tool_cache import ToolCache
from sayso.types import Micros

if TYPE_CHECKING:
    from sayso.stores.postgres import PostgresStore

# Events are read in the order of transactions, and a chain must not be read backwards.
_OVERTAKEN = (
    "SELECT xid > pg_current_xact_id() FROM event WHERE thread = ? ORDER BY seq DESC LIMIT 1"
)


class OwnTransaction(SqlReads):
    """A store whose every change waits for the commit of a connection that was handed in."""

    _dialect = POSTGRES

    def __init__(self, store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
        if not isinstance(connection, psycopg.Connection):
            raise StoreError(
                "a transaction is joined by a psycopg.Connection, which is not async: that is a "
                f"{type(connection).__name__}"
            )
        self.url, self.keys, self.incarnation = store.url, store.keys, store.incarnation
        self.boundary: Boundary | None = None
        self.quick_reads = False
        self._tool_cache = ToolCache()
        self._decode = store._decode
        self._store = store
        self._connection = connection
        self._stream = Stream(self._rows)
        self._check()

    def _check(self) -> None:
        """It must be our database, or the change would go somewhere else."""
        try:
            rows = self._rows("SELECT value FROM meta WHERE key = 'incarnation'")
        except StoreError as error:
            raise StoreError(
                f"that connection does not see the store {self.url}: {error}"
            ) from error
        if rows != [(self.incarnation,)]:
            raise StoreError(f"that connection leads to another store than {self.url}")

    def _execute(self, text: str, values: Sequence[Any]) -> Reply:
        cursor = psycopg.RawCursor(self._connection, row_factory=tuple_row)
        return cursor.execute(self._store._translate(text), values)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._execute(statement, values).fetchall()
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def transact_now(self, *commands: Command) -> None:
        """A database at the other end of a wire is never that quick."""

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread; the surrounding transaction makes them durable."""
        # Nobody comes back here after the commit, so that each one seals what came before it.
        self._store.mind_seals(self.now())
        results: list[Any] = self._inside(lambda session: self._carry_out(session, commands))
        return results

    def _carry_out(self, session: Session, commands: Sequence[Command]) -> list[Any]:
        # What is new here may be undone yet, so that nothing of it is remembered.
        store = self._store
        session.lock(commands[0].thread)
        if self._rows(_OVERTAKEN, (commands[0].thread,)) == [(True,)]:
            raise Conflict(
                f"thread {commands[0].thread} went on since your transaction began to write: roll "
                "it back and do it again, or ask first and write then"
            )
        transaction = PgTransaction(session, ToolCache(), store._deps, self._decode, store._clock)
        results, work = run_commands(transaction, commands)
        _check_starts(work)
        news(session.execute, work, store._channel)
        store.has_reached(transaction.last_pos())
        return results

    def _inside(self, body: Callable[[Session], Any]) -> Any:
        status = self._connection.info.transaction_status
        if self._connection.autocommit and status != TransactionStatus.INTRANS:
            raise StoreError(
                "there is no transaction to be part of: use `with connection.transaction():`"
            )
        try:
            with self._connection.transaction():
                place, clock = self._store._place, self._store._time
                session = Session(self._execute, self.incarnation, place.lineage, clock)
                result = body(session)
                if not session.xid:
                    session.facts()
                place.check(session.lineage)
                return result
        except psycopg.errors.UniqueViolation as error:
            # Your snapshot may be older than the lock: what it does not see is no forgery.
            raise Conflict(f"another live run or call is in the way: {error}") from error
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def now(self) -> Micros:
        """The database's clock."""
        return self._store.now()

    def _said_now(self) -> tuple[str, tuple[Micros, ...]]:
        return self._store._said_now()

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named reader of the events, if the surrounding transaction is committed."""
        return bool(self._inside(lambda at: move_cursor(at.execute, name, to, expected)))

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        return self._store.events(after, limit)

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        return self._store.newest(before, limit)

    def tail(self) -> Cursor:
        return self._store.tail()

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        """Hear of commits, as everybody does."""
        return self._store.subscribe(thread, listener)

    def restored(self) -> bool:
        return self._store.restored()

    def mark_recovered(self) -> None:
        raise _not_here()

    def seal(self) -> Seal | None:
        raise _not_here()

    def seal_if_due(self) -> Seal | None:
        raise _not_here()

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        raise _not_here()

    def close(self) -> None:
        """Nothing to let go of: connection and store belong to others."""


def _check_starts(work: UnitOfWork) -> None:
    """A start that is rolled back would be forgotten, and what it started would run again."""
    started = [work.the_call(event.call) for event in work.events if event.type == "started"]
    # A yes to a text starts nothing of ours: it is written down when it is asked for.
    if wrong := [call.tool for call in started if call.tool and call.terms.effect == "once"]:
        raise StoreError(
            f"{wrong[0]} cannot run inside a transaction of yours, which may be rolled back: "
            "commit first, and run it at a gate on the store itself (or declare "
            'effect="idempotent")'
        )


def _not_here() -> StoreError:
    return StoreError("that is a transaction of its own: do it on the store itself")
