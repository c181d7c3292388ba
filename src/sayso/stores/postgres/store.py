"""PostgreSQL: many machines share one database, and need nothing else.

The thread's row is the lock; runs and grants are locked after it, always in this order. Time is the
database's. A transaction takes two round trips (``transaction``). This module has the order of the
events (``Stream``), the listener for commits of other processes (``Watcher``), the store itself,
and the store inside a transaction of your own (``JoinedTransaction``).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from sayso.engine import Command, UnitOfWork
from sayso.errors import Conflict, InvalidCall, StoreError
from sayso.forking import renew_in_child
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Event
from sayso.stores.base import (
    Boundary,
    Cursor,
    Due,
    engine_deps,
    run_commands,
)
from sayso.stores.hub import Hub, Listener
from sayso.stores.postgres.connections import (
    FIRST_NAP,
    LONGEST_NAP,
    Connection,
    Pipe,
    Pool,
    Translate,
    connect,
    explained,
    is_cut_short,
    is_lost,
    is_passing,
    is_unprepared,
    translator,
)
from sayso.stores.postgres.database import Database, refused, restored, shown, split
from sayso.stores.postgres.transaction import (
    FREE,
    Attempt,
    Clock,
    PgTransaction,
    Session,
    is_over,
    news,
    probe_of,
    unknown,
)
from sayso.stores.row_checks import RowDecoder
from sayso.stores.seals import Seal, SealSchedule, is_full
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import POSTGRES, Reply
from sayso.stores.sql.prune import prune
from sayso.stores.sql.reads import SqlReads, move_cursor
from sayso.stores.sql.rowcodec import event_from
from sayso.stores.sql.seal import find_unsealed, seal_moved
from sayso.stores.sql.tool_cache import ToolCache
from sayso.types import Micros

#: The era and the oldest transaction that is still open.
Horizon = tuple[int, int]

_ERA = "coalesce((SELECT value FROM meta WHERE key = 'era'), '1')::bigint"
_OPEN = "pg_snapshot_xmin(pg_current_snapshot())"
HORIZON = f"SELECT {_ERA}, {_OPEN}::text"
_SAFE = f"(era < {_ERA} OR xid < {_OPEN})"
_PLACE = f"era, xid::text, pos, {_SAFE}, {_OPEN}::text"
_AFTER = (
    f"SELECT {sql.EVENT}, {_PLACE} FROM event WHERE (era, xid, pos) > (?, ?::xid8, ?) "
    "ORDER BY event.era, event.xid, event.pos LIMIT ?"
)
# As forward: what may still get something older before it is not given out yet.
_BEFORE = (
    f"SELECT {sql.EVENT}, {_PLACE} FROM event WHERE (era, xid, pos) < (?, ?::xid8, ?) AND {_SAFE} "
    "ORDER BY event.era DESC, event.xid DESC, event.pos DESC LIMIT ?"
)
_END = f"{10**18 - 1}.{(1 << 64) - 1}.{10**18 - 1}"
_LAST = f"SELECT {_PLACE} FROM event {{}} ORDER BY era DESC, event.xid DESC, pos DESC LIMIT 1"

#: How long to wait for a transaction of somebody else's, once for each.
PATIENCE = 1.0
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,20})\.([0-9]{1,18})")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PLACE_OF = "SELECT era, xid::text, pos FROM event WHERE pos = ?"
_NAP = 0.002


def horizon_of(row: Any) -> Horizon:
    """What ``HORIZON`` gave."""
    return int(row[0]), int(row[1])


class Stream:
    """The events of one store, read through ``rows``."""

    def __init__(self, rows: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._rows = rows
        self._stuck = ""

    def events(self, after: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The next events that are safe to give out."""
        era, xid, pos = self._parsed(after)
        rows = self._when_safe(_AFTER, (era, xid, pos, limit))
        return [_placed(row) for row in rows if row[-2]]

    def newest(self, before: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The events before a place, the newest first."""
        rows = self._rows(_BEFORE, (*self._parsed(before or _END), limit))
        return [_placed(row) for row in rows]

    def tail(self) -> Cursor:
        """The place of the last event."""
        rows = self._when_safe(_LAST.format(""), ())
        if rows and not rows[0][-2]:
            rows = self._rows(_LAST.format(f"WHERE {_SAFE}"), ())
        return ".".join(map(str, rows[0][:3])) if rows else ""

    def _parsed(self, cursor: Cursor) -> tuple[int, str, int]:
        """The era, the transaction and the number that a place is made of.

        The number of an event alone, which is all that the event tells, is looked up.
        """
        if cursor in ("", "0"):
            return 0, "0", 0
        found = _CURSOR.fullmatch(cursor)
        if found is not None and int(found[2]) < 1 << 64:
            return int(found[1]), found[2], int(found[3])
        if _NUMBER.fullmatch(cursor) and (rows := self._rows(_PLACE_OF, (int(cursor),))):
            era, xid, pos = rows[0]
            return era, xid, pos
        raise InvalidCall(f"{cursor!r:.60} is no place among the events: use one you were given")

    def _when_safe(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Read, and again for a moment if the first event that is there is not yet safe."""
        end = time.monotonic() + PATIENCE
        while True:
            rows = self._rows(statement, values)
            if not rows or rows[0][-2] or rows[0][-1] == self._stuck:
                return rows
            if time.monotonic() > end:
                self._stuck = rows[0][-1]  # no use waiting for this one again
                return rows
            time.sleep(_NAP)


def _placed(row: Any) -> tuple[Cursor, Event]:
    return ".".join(map(str, row[-5:-2])), event_from(row)


#: How often to look without having been told.
POLL_SECONDS = 0.5
_LISTEN_SECONDS = 0.25

# All that was committed by transactions that were still open at the last look, or came later.
_SINCE = "SELECT pos, thread, era, xid::text FROM event WHERE (era, xid, pos) >= (?, ?::xid8, 0)"


class Watcher(threading.Thread):
    """Tells a hub which threads moved, for as long as the hub has listeners."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        translate: Translate,
        hub: Hub,
        channel: str,
        horizon: Horizon,
        is_ours: Callable[[int], bool],
    ) -> None:
        super().__init__(name="sayso-listen", daemon=True)
        self._connect = connect
        self._translate = translate
        self._hub = hub
        self._channel = channel
        self._horizon = horizon
        self._told: set[int] = set()
        self._is_ours = is_ours

    def run(self) -> None:
        while self._hub.wanted():
            try:
                with self._connect() as connection:
                    self._watch(connection)
            except (psycopg.Error, StoreError, OSError):
                time.sleep(
                    _LISTEN_SECONDS
                )  # the server is away: nothing can have been committed meanwhile

    def _watch(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        while self._hub.wanted():
            self._tell(connection)
            end = time.monotonic() + POLL_SECONDS
            while time.monotonic() < end and self._hub.wanted():
                notes = list(connection.notifies(timeout=_LISTEN_SECONDS, stop_after=1))
                # Of its own commits a store tells by itself, and at once.
                if not all(self._is_ours(note.pid) for note in notes):
                    break

    def _tell(self, connection: Connection) -> None:
        horizon = horizon_of(connection.execute(self._translate(HORIZON)).fetchone())
        era, xid = self._horizon
        since = connection.execute(self._translate(_SINCE), (era, str(xid))).fetchall()
        moved = {thread for pos, thread, _, _ in since if pos not in self._told}
        # A transaction that is still open may be older than what was told already.
        self._told = {pos for pos, _, era, xid in since if (era, int(xid)) >= horizon}
        self._horizon = horizon
        if moved:
            self._hub.publish(moved)


# Events are read in the order of transactions, and a chain must not be read backwards.
_OVERTAKEN = (
    "SELECT xid > pg_current_xact_id() FROM event WHERE thread = ? ORDER BY seq DESC LIMIT 1"
)


class JoinedTransaction(SqlReads):
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
                place, clock = self._store._database, self._store._time
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


T = TypeVar("T")

log = logging.getLogger("sayso.stores")

_NOW = "(extract(epoch FROM {}_timestamp()) * 1000000)::bigint"
#: How long a database that is away is waited for at the end, in seconds.
_FAREWELL = 2.0
_SEALING = "SELECT pg_advisory_xact_lock(hashtext('sayso seal'), hashtext(?))"
_MAY_SEAL = "SELECT pg_try_advisory_xact_lock(hashtext('sayso seal'), hashtext(?))"


class PostgresStore(SqlReads):
    """A store in a schema of a PostgreSQL database, 14 or later."""

    _dialect = POSTGRES

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] | None = None,
        boundary: Boundary | None = None,
        size: int = 10,
        patience: float = 30.0,
        prepare: bool = True,
    ) -> None:
        """Open the store; a server that goes away later is waited for as long as ``patience``.

        ``prepare=False`` uses no prepared statements. An old pooler needs that; it is also found
        out when the first of them fails.
        """
        self.url = shown(url)
        self._address, named = split(url)
        self.schema = schema or named or "sayso"
        self.boundary = boundary
        self.quick_reads = False
        self.keys = keys or Keyring.for_store(None)
        self._clock = clock
        self._patience = patience
        self._leaving = False
        self._prepare = prepare
        self._time = Clock(self._ask_time)
        self._deps = engine_deps(self.keys)
        self._decode = RowDecoder(self.keys)
        self._tool_cache = ToolCache()
        self._translate = translator(self.schema)
        self._database = Database(self.schema, self._translate, self.url)
        self._pool = Pool(self._connect, size, self.url)
        self._stream = Stream(self._rows)
        self._hub = Hub(self._start_watching)
        self.after_fork()
        renew_in_child(self)
        self._open()
        self.incarnation = self._database.incarnation
        self._channel = f"sayso_{self.incarnation}"

    def after_fork(self) -> None:
        """Forget what the parent has yet to seal."""
        self._schedule = SealSchedule()
        #: Whether this process has committed events since it sealed, and how far they reached.
        self._has_written = False
        self._pos = 0

    def _open(self) -> None:
        """Make the schema ready. A server that cannot be reached is an error at once; one that let
        us in and then goes away is waited for, as later."""
        end, nap, seen = time.monotonic() + self._patience, FIRST_NAP, False
        while True:
            lost = seen
            try:
                with connect(self._address, prepare=False) as connection:
                    lost = seen = True
                    try:
                        self._database.set_up(connection, self.keys)
                    except psycopg.Error as error:
                        lost = is_lost(error, connection)
                        raise
                return
            except psycopg.Error as error:
                if not lost or time.monotonic() + nap > end:
                    raise refused(error, self.url) from error
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)

    def _connect(self) -> Connection:
        connection = connect(self._address, prepare=self._prepare)
        connection.leaving = lambda: self._leaving
        try:
            self._database.greet(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def now(self) -> Micros:
        """The database's clock, as it is known here."""
        return self._time.now() if self._clock is None else self._clock()

    def _said_now(self) -> tuple[str, tuple[Micros, ...]]:
        return (_NOW.format("statement"), ()) if self._clock is None else super()._said_now()

    def _ask_time(self) -> Micros:
        return int(self._rows(f"SELECT {_NOW.format('clock')}")[0][0])

    # -- writing

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread in one durable transaction."""

        def body(attempt: Attempt) -> tuple[list[Any], UnitOfWork, PgTransaction]:
            transaction = self._transaction(attempt)
            results, work = run_commands(transaction, commands)
            attempt.probe = probe_of(work)
            news(attempt.execute, work, self._channel)
            return results, work, transaction

        name = "+".join(c.name for c in commands if c.name)
        results, work, transaction = self._write(name, body, brief=True)
        self._tool_cache.learn(
            work.tools, {search_key.id for search_key in transaction.search_keys}
        )
        self._hub.publish({event.thread for event in work.events})
        self.has_reached(transaction.last_pos())
        self.mind_seals(work.now)
        return results

    def _transaction(self, attempt: Attempt) -> PgTransaction:
        return PgTransaction(attempt, self._tool_cache, self._deps, self._decode, self._clock)

    def transact_now(self, *commands: Command) -> None:
        """A database at the other end of a wire is never that quick."""

    def _write(self, name: str, body: Callable[[Attempt], T], *, brief: bool = False) -> T:
        """Try until it is known to be done, or known not to be."""

        def before(attempt: Attempt) -> None:
            self._check_lineage(attempt)
            self._cross(name, "before")

        end, nap = time.monotonic() + self._patience, 0.0
        knew = self._database.behind
        while True:
            with self._pool.connection(end) as connection:
                if self._database.behind and not knew:
                    raise restored(self.url)  # so says the connection that was just made
                attempt = self._attempt(connection)
                attempt.brief = brief
                try:
                    result: T = attempt.run(body, before)
                    break
                except psycopg.Error as error:
                    again = self._may_try_again(error, connection, attempt)
                    again = again or is_cut_short(error)
                    late = time.monotonic() > end and not attempt.sent
                    if not again or late:
                        raise explained(error, self.url) from error
            if attempt.sent and self._was_committed(attempt, end):
                result = attempt.result
                break
            time.sleep(nap)  # who may only read is refused at once, and would be again
            nap = min(max(2 * nap, FIRST_NAP), LONGEST_NAP)
        self._cross(name, "after")
        return result

    def _attempt(self, connection: Connection) -> Attempt:
        place = self._database
        return Attempt(connection, self._translate, place.incarnation, place.lineage, self._time)

    def _check_lineage(self, attempt: Attempt) -> None:
        try:
            self._database.check(attempt.lineage)
        except StoreError:
            self._pool.renew()
            raise

    def _cross(self, name: str, when: str) -> None:
        if self.boundary is not None:
            self.boundary(name, when)

    def _may_try_again(
        self, error: psycopg.Error, connection: Connection, attempt: Attempt
    ) -> bool:
        if is_unprepared(error):
            self._prepare = False
            self._pool.renew()
        lost = is_lost(error, connection)
        if lost:
            self._pool.renew()  # most likely the others are lost as well
        else:
            attempt.sent = False  # the server has spoken: it refused, and nothing was changed
        return lost or is_unprepared(error) or is_passing(error)

    def _was_committed(self, attempt: Attempt, end: float) -> bool:
        """Read back what became of a commit whose answer was lost."""

        while True:
            try:
                with self._pool.connection(end) as connection:
                    is_over(connection, attempt)
                    with Pipe(connection, self._translate) as pipe:
                        return attempt.probe(lambda *read: pipe.send(*read).fetchall())
            except (psycopg.Error, StoreError) as error:
                lost = isinstance(error, psycopg.Error) and is_lost(error, connection)
                if not lost or time.monotonic() > end:
                    raise unknown(self.url) from error

    def on(self, connection: psycopg.Connection[Any]) -> JoinedTransaction:
        """The same store inside a transaction of yours: what is asked there, your commit asks.

        A refused command leaves your transaction as it was.
        """
        return JoinedTransaction(self, connection)

    # -- sealing, pruning, cursors

    def has_reached(self, pos: int) -> None:
        """Note the position of an event that this process has written; 0 if it wrote none."""
        if pos:
            self._pos, self._has_written = max(pos, self._pos), True

    def mind_seals(self, now: Micros) -> None:
        """Make a seal if the schedule says that one may be due, and it is."""
        if self.keys.can_sign and self._schedule.wants_look(self._pos, now):
            self._try_to_seal(self.seal_if_due)

    def _try_to_seal(self, seal: Callable[[], object]) -> None:
        """Seal, or leave it to the next committer: what was committed is committed."""
        try:
            seal()
        except StoreError as error:
            log.warning("not sealed now, which the next seal makes good: %s", error)

    def seal(self) -> Seal | None:
        """Sign the heads of all chains that moved."""
        newest: Seal | None = None
        while seal := self._write("seal", self._wait_and_seal):
            newest = seal
            if not is_full(seal):
                break
        self._has_written = False
        return newest

    def seal_if_due(self) -> Seal | None:
        """Make a seal if the unsealed events in the database demand one, and nobody else is at it.

        Other writers do not wait for it, unless they write to a thread that it holds.
        """
        if not self.keys.can_sign:
            return None
        now, seal, unsealed = self.now(), None, find_unsealed(self._rows)
        if unsealed.demand_seal(now):
            seal = self._write("seal", self._seal_if_free)
            unsealed = find_unsealed(self._rows)
        self._schedule.looked(unsealed, now)
        return seal

    def _wait_and_seal(self, attempt: Attempt) -> Seal | None:
        attempt.execute(_SEALING, (self.schema,))
        return self._seal(attempt)

    def _seal_if_free(self, attempt: Attempt) -> Seal | None:
        free = attempt.execute(_MAY_SEAL, (self.schema,)).fetchone()[0]
        return self._seal(attempt) if free else None

    def _seal(self, attempt: Attempt) -> Seal | None:
        seal = seal_moved(attempt.execute, self.keys, self._time_of(attempt), POSTGRES)
        if seal is not None:
            n, digest = seal.n, seal.hash
            statement = "SELECT hash FROM seal WHERE n = ?"
            attempt.probe = lambda rows: rows(statement, (n,)) == [(digest,)]
        return seal

    def _time_of(self, attempt: Attempt) -> Micros:
        at = attempt.facts()
        return at if self._clock is None else self._clock()

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        """Forget the contents of what ended before then."""

        def body(attempt: Attempt) -> dict[str, int]:
            attempt.lock(SYSTEM_THREAD)
            counts, note = prune(attempt.execute, self._deps, self._decode, before, by, POSTGRES)
            transaction = self._transaction(attempt)
            _, work = run_commands(transaction, (note,))
            attempt.probe = probe_of(work)
            return counts

        counts = self._write("prune", body)
        self._tool_cache.forget()
        self._hub.publish({SYSTEM_THREAD})
        self.seal()
        return counts

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named reader of the events, unless somebody else has moved it."""

        def body(attempt: Attempt) -> bool:
            statement = "SELECT pos FROM cursor WHERE name = ?"
            attempt.probe = lambda rows: rows(statement, (name,)) == [(to,)]
            return move_cursor(attempt.execute, name, to, expected)

        return self._write("cursor", body)

    # -- reading

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        end = time.monotonic() + self._patience
        while True:
            with self._pool.connection(end) as connection:
                try:
                    with Pipe(connection, self._translate) as pipe:
                        return pipe.send(statement, values).fetchall()
                except psycopg.Error as error:
                    again = self._may_try_again(error, connection, self._attempt(connection))
                    if not again or time.monotonic() > end:
                        raise explained(error, self.url) from error

    def overdue(self, limit: int = 100) -> list[Due]:
        """What is overdue, without the threads that somebody holds: nobody waits for those."""
        found = super().overdue(limit)
        if found:
            names = sorted({due.thread for due in found})
            free = {
                row[0] for row in self._rows(FREE, (json.dumps(names), self._database.incarnation))
            }
            found = [due for due in found if due.thread in free]
        return found

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        return self._stream.events(after, limit)

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        return self._stream.newest(before, limit)

    def tail(self) -> Cursor:
        return self._stream.tail()

    # -- hearing of other processes

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        """Hear of commits: of this process at once, of others by NOTIFY, or by looking."""
        return self._hub.subscribe(thread, listener)

    def _start_watching(self) -> None:
        horizon = horizon_of(self._rows(HORIZON)[0])
        connect_ = lambda: connect(self._address, prepare=False)  # noqa: E731
        ours = self._pool.is_ours
        Watcher(connect_, self._translate, self._hub, self._channel, horizon, ours).start()

    # -- the rest

    def restored(self) -> bool:
        """Whether the database is not the one that it was: restored, copied or taken over."""
        if not self._database.behind:
            return False
        with self._pool.connection(time.monotonic() + self._patience) as connection:
            return self._database.still_behind(connection)

    def mark_recovered(self) -> None:
        """Everything that may have run is in doubt now: go on from here."""
        with self._pool.connection(time.monotonic() + self._patience) as connection:
            self._database.recovered(connection)

    def close(self) -> None:
        """Seal what moved and let go of the connections."""
        if self._pool.closed:
            return
        self._leaving = True
        self._patience = min(self._patience, _FAREWELL)
        try:
            if self._has_written:
                self._try_to_seal(self.seal)
        finally:
            self._hub.clear()
            self._pool.close()
