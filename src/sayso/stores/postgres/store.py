"""PostgreSQL: many machines share one database, and need nothing else.

The thread's row is the lock; runs and grants are locked after it, always in this order. Time is the
database's. A transaction takes two round trips (``transaction``), and each caller has its own. This
module has the order of the events (``OrderedEvents``), the listener for commits of other processes
(``Watcher``), the store itself, and the store inside a transaction of your own
(``JoinedTransaction``).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from sayso.engine import Command, UnitOfWork
from sayso.engine.renewing import Renewal
from sayso.errors import Conflict, InvalidCall, StoreError
from sayso.forking import renew_in_child
from sayso.keys import Keyring
from sayso.rows import Event, Run, event_from, run_from
from sayso.stores.base import (
    RESERVED_SECONDS,
    Boundary,
    Cursor,
    Due,
    Hub,
    SnapshotLost,
    Vitals,
    commit_name,
    run_commands,
)
from sayso.stores.outage import Outage, outage_of
from sayso.stores.postgres.connections import (
    FIRST_NAP,
    GONE,
    LONGEST_NAP,
    TIMED_OUT,
    TRANSIENT,
    UNPREPARED,
    Connection,
    Pipeline,
    Pool,
    Translate,
    connect,
    explained,
    is_lost,
    transaction_settings,
    translator,
)
from sayso.stores.postgres.database import (
    Database,
    check_visible,
    refused,
    restored,
    split_schema,
    without_password,
)
from sayso.stores.postgres.transaction import (
    FREE,
    Clock,
    OpenTransaction,
    PgTransaction,
    PooledTransaction,
    is_over,
    notify,
    unknown,
)
from sayso.stores.seals import Seal, SealSchedule
from sayso.stores.sql import presence
from sayso.stores.sql import statements as sql
from sayso.stores.sql.leases import load_leases, renew_leases
from sayso.stores.sql.reads import Snapshot, SqlReads, move_cursor
from sayso.stores.sql.statements import POSTGRES, ResultSet
from sayso.stores.sql.store import Probe, SqlStore, WriteTransaction, is_written
from sayso.stores.sql.transaction import ToolCache
from sayso.types import Micros

#: An era, and the oldest transaction that is still open.
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
# Like reading forward: an event that an older one may still precede is not returned yet.
_BEFORE = (
    f"SELECT {sql.EVENT}, {_PLACE} FROM event WHERE (era, xid, pos) < (?, ?::xid8, ?) AND {_SAFE} "
    "ORDER BY event.era DESC, event.xid DESC, event.pos DESC LIMIT ?"
)
_END = f"{10**18 - 1}.{(1 << 64) - 1}.{10**18 - 1}"
_LAST = f"SELECT {_PLACE} FROM event {{}} ORDER BY era DESC, event.xid DESC, pos DESC LIMIT 1"

NOW = "(extract(epoch FROM pg_catalog.{}_timestamp()) * 1000000)::bigint"
#: How many seconds to wait for another client's open transaction, once for each.
PATIENCE = 1.0
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,20})\.([0-9]{1,18})")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PLACE_OF = "SELECT era, xid::text, pos FROM event WHERE pos = ?"
_NAP = 0.002


def horizon_of(row: Any) -> Horizon:
    return int(row[0]), int(row[1])


class OrderedEvents(SqlReads):
    """The events in the order (era, transaction, position), with nothing skipped.

    Positions are handed out before the commit, and transactions do not end in the order in which
    they began. An event is returned once no older transaction is open, because then nothing can
    precede it any more. A reader that finds only newer events waits for a moment. A client that
    keeps a transaction open delays the stream, but not the work, which reads rows.
    """

    _dialect = POSTGRES
    _clock: Callable[[], Micros] | None
    #: A transaction that was waited for in vain.
    _stuck = ""

    def _sql_now(self) -> tuple[str, tuple[Micros, ...]]:
        return (NOW.format("statement"), ()) if self._clock is None else super()._sql_now()

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        """Return the next events that nothing can precede any more."""
        era, xid, pos = self._parsed(after)
        rows = self._when_safe(_AFTER, (era, xid, pos, limit))
        return [_placed(row) for row in rows if row[-2]]

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        rows = self._rows(_BEFORE, (*self._parsed(before or _END), limit))
        return [_placed(row) for row in rows]

    def tail(self) -> Cursor:
        rows = self._when_safe(_LAST.format(""), ())
        if rows and not rows[0][-2]:
            rows = self._rows(_LAST.format(f"WHERE {_SAFE}"), ())
        return ".".join(map(str, rows[0][:3])) if rows else ""

    def _parsed(self, cursor: Cursor) -> tuple[int, str, int]:
        """Split a cursor into era, transaction and position.

        The position of an event alone, which is all that the event carries, is looked up.
        """
        if cursor in ("", "0"):
            return 0, "0", 0
        place = _CURSOR.fullmatch(cursor)
        if place is not None and int(place[2]) < 1 << 64:
            return int(place[1]), place[2], int(place[3])
        if _NUMBER.fullmatch(cursor) and (rows := self._rows(_PLACE_OF, (int(cursor),))):
            era, xid, pos = rows[0]
            return era, xid, pos
        raise InvalidCall(f"{cursor!r:.60} is not a cursor: use one that the store returned")

    def _when_safe(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Read, and retry for a moment while the first event is not safe to return."""
        end = time.monotonic() + PATIENCE
        while True:
            rows = self._rows(statement, values)
            if not rows or rows[0][-2] or rows[0][-1] == self._stuck:
                return rows
            if time.monotonic() > end:
                self._stuck = rows[0][-1]  # do not wait for this transaction again
                return rows
            time.sleep(_NAP)


def _placed(row: Any) -> tuple[Cursor, Event]:
    return ".".join(map(str, row[-5:-2])), event_from(row)


#: How often to look for events without a NOTIFY, in seconds.
POLL_SECONDS = 0.5
_LISTEN_SECONDS = 0.25

# Events of transactions that were still open at the last look, or began later.
_SINCE = "SELECT pos, thread, era, xid::text FROM event WHERE (era, xid, pos) >= (?, ?::xid8, 0)"


class Watcher(threading.Thread):
    """Publishes to a hub which threads other processes changed, while the hub has listeners.

    NOTIFY says that something happened; the events say what. Where no NOTIFY gets through, as
    behind a pooler, polling is enough.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        translate: Translate,
        hub: Hub,
        channel: str,
        horizon: Horizon,
        is_ours: Callable[[int], bool],
        outage: Outage,
    ) -> None:
        super().__init__(name="sayso-listen", daemon=True)
        self._outage = outage
        self._connect = connect
        self._translate = translate
        self._hub = hub
        self._channel = channel
        self._horizon = horizon
        self._published: set[int] = set()
        self._is_ours = is_ours

    def run(self) -> None:
        while self._hub.wanted():
            try:
                with self._connect() as connection:
                    self._outage.over()
                    self._watch(connection)
            except (psycopg.Error, StoreError, OSError) as error:
                self._outage.failed(error)
                time.sleep(_LISTEN_SECONDS)  # while the server is away, nothing is committed

    def _watch(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        while self._hub.wanted():
            self._tell(connection)
            end = time.monotonic() + POLL_SECONDS
            while time.monotonic() < end and self._hub.wanted():
                notes = list(connection.notifies(timeout=_LISTEN_SECONDS, stop_after=1))
                # The store publishes its own commits at once.
                if not all(self._is_ours(note.pid) for note in notes):
                    break

    def _tell(self, connection: Connection) -> None:
        horizon = horizon_of(connection.execute(self._translate(HORIZON)).fetchone())
        era, xid = self._horizon
        since = connection.execute(self._translate(_SINCE), (era, str(xid))).fetchall()
        moved = {thread for pos, thread, _, _ in since if pos not in self._published}
        # A transaction that is still open may be older than events published already.
        self._published = {pos for pos, _, era, xid in since if (era, int(xid)) >= horizon}
        self._horizon = horizon
        if moved:
            self._hub.publish(moved)


# Events are read in transaction order, so a thread's chain must be written in that order too.
_OVERTAKEN = (
    "SELECT xid > pg_current_xact_id() FROM event WHERE thread = ? ORDER BY seq DESC LIMIT 1"
)


class JoinedTransaction(SqlReads):
    """The store inside a transaction of yours: ask and write your own rows atomically.

    Every change takes effect when your transaction commits, and other processes hear of it then.
    """

    _dialect = POSTGRES

    def __init__(self, store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
        if not isinstance(connection, psycopg.Connection):
            raise StoreError(
                f"pass a (synchronous) psycopg.Connection, not a {type(connection).__name__}"
            )
        self.url = store.url
        self.keys = store.keys
        self.incarnation = store.incarnation
        self.boundary: Boundary | None = None
        self.quick_reads = False
        self._tool_cache = ToolCache()
        self._decode = store._decode
        self._store = store
        self._connection = connection
        # These do not read your transaction.
        self.events = store.events
        self.newest = store.newest
        self.tail = store.tail
        self.subscribe = store.subscribe
        self.restored = store.restored
        # A lease that is not committed yet is left out: your transaction has locked its row.
        self.renew = store.renew
        check_visible(connection, store.schema, self.url)
        # The connection must lead to the same database, or the change would go elsewhere.
        try:
            rows = self._rows("SELECT value FROM meta WHERE key = 'incarnation'")
        except StoreError as error:
            raise StoreError(
                f"your connection does not see the store {self.url}: {error}"
            ) from error
        if rows != [(self.incarnation,)]:
            raise StoreError(f"your connection leads to another store than {self.url}")

    def _execute(self, text: str, values: Sequence[Any]) -> ResultSet:
        cursor = psycopg.RawCursor(self._connection, row_factory=tuple_row)
        return cursor.execute(self._store._translate(text), values)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._execute(statement, values).fetchall()
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread; your transaction makes them durable."""
        # Nothing runs here after your commit, so each call seals what came before it.
        self._store.make_due_seal(self.now())
        results: list[Any] = self._inside(lambda inner: self._run(inner, commands))
        return results

    def _run(self, inner: OpenTransaction, commands: Sequence[Command]) -> list[Any]:
        # The rows may still be rolled back, so none of them is cached.
        store = self._store
        inner.lock(commands[0].thread)
        if self._rows(_OVERTAKEN, (commands[0].thread,)) == [(True,)]:
            raise Conflict(
                f"thread {commands[0].thread} changed after your transaction began to write: roll "
                "back and try again, or ask before you write"
            )
        parts = store._parts._replace(tool_cache=ToolCache())
        transaction = PgTransaction(inner, parts)
        results, work = run_commands(transaction, commands)
        _check_starts(work)
        notify(inner.execute, work.events, store._channel)
        store.has_reached(transaction.last_pos())
        return results

    def _inside(self, body: Callable[[OpenTransaction], Any]) -> Any:
        status = self._connection.info.transaction_status
        if self._connection.autocommit and status != TransactionStatus.INTRANS:
            raise StoreError("no transaction is open: use `with connection.transaction():`")
        try:
            with self._connection.transaction():
                database = self._store._database
                transaction = OpenTransaction(
                    self._execute, database, database.check, self._store._time
                )
                result = body(transaction)
                if not transaction.xid:
                    transaction.facts()
                return result
        except psycopg.errors.UniqueViolation as error:
            # Your snapshot may be older than the lock, so an unseen event is no forgery here.
            raise Conflict(f"this conflicts with another live run or call: {error}") from error
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def now(self) -> Micros:
        return self._store.now()

    def _sql_now(self) -> tuple[str, tuple[Micros, ...]]:
        return self._store._sql_now()

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named cursor when your transaction commits."""
        return bool(self._inside(lambda at: move_cursor(at.execute, name, to, expected)))

    def _not_here(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreError("this needs a transaction of its own: call it on the store itself")

    snapshot = mark_recovered = seal = seal_if_due = prune = reserve = put_deliveries = _not_here

    def close(self) -> None:
        """Do nothing: you own the connection and the store."""


def _check_starts(work: UnitOfWork) -> None:
    """Raise ``StoreError`` if a call with an effect starts: after a rollback it would again."""
    begin = ("started", "released")
    started = [work.require_call(event.call) for event in work.events if event.type in begin]
    # An approved text starts no tool.
    if wrong := [call.tool for call in started if call.tool and call.terms.effect == "once"]:
        raise StoreError(
            f"{wrong[0]} cannot run inside your transaction, which may be rolled back: commit "
            'first, then run it at a gate on the store itself (or declare effect="idempotent")'
        )


T = TypeVar("T")

log = logging.getLogger("sayso.stores")

#: How many seconds ``close`` waits for a database that is away.
_CLOSE_SECONDS = 2.0
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SEAL_KEY = "pg_catalog.hashtext('sayso seal'), pg_catalog.hashtext(?)"
_SEALING = f"SELECT pg_catalog.pg_advisory_xact_lock({_SEAL_KEY})"
_MAY_SEAL = f"SELECT pg_catalog.pg_try_advisory_xact_lock({_SEAL_KEY})"


# The run's token grows with each claim, so an offer ends when the run is claimed.
_RESERVE = (
    "WITH due AS MATERIALIZED (SELECT id, thread, token, ready_at FROM run "
    "WHERE ready_at <= {now} AND agent IN ({agents}) AND id NOT IN {skip} "
    "AND NOT EXISTS (SELECT 1 FROM offer WHERE offer.run = run.id AND offer.token = run.token "
    "AND until > {now} AND worker <> ?) ORDER BY ready_at LIMIT ?), "
    "free AS (SELECT id, token FROM due WHERE id NOT IN {skip} AND thread NOT IN {skip} "
    "ORDER BY ready_at LIMIT ?), "
    "stale AS (DELETE FROM offer WHERE until < {now}::bigint - 60000000 "
    "AND run NOT IN (SELECT id FROM due)), "
    "mine AS (INSERT INTO offer (run, token, worker, until) "
    "SELECT id, token, ?, {now}::bigint + {until} FROM free ORDER BY id ON CONFLICT (run) "
    "DO UPDATE SET token = excluded.token, worker = excluded.worker, until = excluded.until "
    "WHERE offer.token <> excluded.token OR offer.until <= {now} "
    "OR offer.worker = excluded.worker RETURNING run) "
    "SELECT {run} FROM run WHERE id IN (SELECT run FROM mine "
    "UNION ALL SELECT id FROM due WHERE id IN {skip} OR thread IN {skip}) ORDER BY ready_at"
)


_SAVE_RUN_LEASES = (
    "UPDATE run SET ready_at = (lease ->> 0)::bigint, mac = lease ->> 1 "
    "FROM json_array_elements(?::json) AS lease WHERE id = lease ->> 2"
)
_SAVE_CALL_LEASES = (
    "UPDATE call SET doubt = lease ->> 0, mac = lease ->> 1 "
    "FROM json_array_elements(?::json) AS lease WHERE id = lease ->> 2"
)


class PostgresStore(SqlStore, OrderedEvents):
    """A store in a schema of a PostgreSQL database, 14 or later."""

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
        create: bool = True,
    ) -> None:
        """Open the store. Calls wait up to ``patience`` seconds for a server that goes away later.

        ``prepare=False`` uses no prepared statements. An old pooler needs that; the store also
        switches to it when a prepared statement fails. With ``create=False``, raise ``NotFound`` if
        the database has no store.
        """
        super().__init__(without_password(url), keys or Keyring.for_store(None), clock, boundary)
        self._address, schema_in_url = split_schema(url)
        self.schema = schema or schema_in_url or "sayso"
        self.quick_reads = False
        self._clock = clock
        self._patience = patience
        self._leaving = False
        self._prepare = prepare
        self._time = Clock(self._ask_time)
        self._translate = translator(self.schema)
        self._database = Database(self.schema, self._translate, self.url)
        self._pool = Pool(self._connect, size, self.url)
        self._lease_pool = Pool(self._connect, 1, self.url)
        self.after_fork()
        renew_in_child(self)
        self._open(create)
        self.incarnation = self._database.incarnation
        self._channel = f"sayso_{self.incarnation}"
        presence.keep_present(self)

    def after_fork(self) -> None:
        """Forget what the parent has yet to seal."""
        self._schedule = SealSchedule()
        #: Whether this process has committed events since it sealed, and how far they reached.
        self._has_written = False
        self._pos = 0

    def _open(self, create: bool) -> None:
        """Create or migrate the schema.

        A server that cannot be reached is an error at once; one that goes away after accepting a
        connection is waited for.
        """
        end = time.monotonic() + self._patience
        nap = FIRST_NAP
        connected = False
        while True:
            lost = connected
            try:
                with connect(self._address, prepare=False) as connection:
                    lost = connected = True
                    try:
                        self._database.set_up(connection, self.keys, create=create)
                        for (at,) in connection.execute(f"SELECT {NOW.format('clock')}".encode()):
                            self._time.learn(int(at))
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
        presence.keep_present(self)
        return connection

    def now(self) -> Micros:
        return self._time.now() if self._clock is None else super().now()

    def vitals(self) -> Vitals:
        return super().vitals()._replace(pool=self._pool.use())

    def _ask_time(self) -> Micros:
        return int(self._rows(f"SELECT {NOW.format('clock')}")[0][0])

    # -- writing

    def transact(self, *commands: Command) -> list[Any]:
        def body(transaction: PgTransaction) -> tuple[list[Any], UnitOfWork, PgTransaction]:
            results, work = run_commands(transaction, commands)
            notify(transaction.execute, work.events, self._channel)
            return results, work, transaction

        name = commit_name(commands)
        results, work, transaction = self._write(name, body, is_written, brief=True)
        self._tool_cache.learn(transaction.new_tools, transaction.new_keys)
        self.has_reached(transaction.last_pos())
        self._hub.publish({event.thread for event in work.events})
        self.make_due_seal(work.now)
        return results

    def renew(self, renewals: Sequence[Renewal], patience: float) -> dict[str, bool]:
        """Extend leases on a connection of their own, so that a busy pool delays none of them.

        A lost answer is not read back: the next renewal says what is stored.
        """

        def body(transaction: PooledTransaction) -> dict[str, bool]:
            facts = transaction.ask_facts()
            rows = load_leases(transaction.execute, POSTGRES, renewals)
            now = transaction.facts(facts)
            now = now if self._clock is None else self._clock()
            leases = renew_leases(rows, self._parts, renewals, now)
            if runs := leases.changed_runs():
                transaction.execute(_SAVE_RUN_LEASES, (json.dumps(runs),))
            if calls := leases.changed_calls():
                transaction.execute(_SAVE_CALL_LEASES, (json.dumps(calls),))
            return leases.extended()

        end = time.monotonic() + patience
        while True:
            with self._lease_pool.connection(end) as connection:
                connection.leaving = lambda: self._leaving or time.monotonic() > end
                transaction = self._transaction_on(connection, brief=True)
                try:
                    extended: dict[str, bool] = transaction.run(
                        body, partial(self._cross, "renew", "before")
                    )
                    break
                except psycopg.Error as error:
                    is_lost(error, connection)
                    if not isinstance(error, UNPREPARED) or time.monotonic() > end:
                        raise explained(error, self.url) from error
            self._prepare = False
            self._lease_pool.renew()
        self._cross("renew", "after")
        return extended

    def _write(
        self,
        name: str,
        body: Callable[[Any], T],
        is_there: Probe = lambda result, rows: False,
        *,
        brief: bool = False,
    ) -> T:
        """Retry until the write is known to be committed, or known not to be.

        Raises ``StoreError`` if only this write notices that the database was restored.
        """
        end = time.monotonic() + self._patience
        nap = 0.0
        knew = self._database.behind
        while True:
            with self._pool.connection(end) as connection:
                if self._database.behind and not knew:
                    raise restored(self.url)  # the new connection noticed it
                transaction = self._transaction_on(connection, brief=brief)
                try:
                    result: T = transaction.run(
                        lambda inner: body(PgTransaction(inner, self._parts)),
                        partial(self._cross, name, "before"),
                    )
                    break
                except psycopg.Error as error:
                    again = self._may_try_again(error, connection, transaction)
                    again = again or isinstance(error, TIMED_OUT)
                    late = time.monotonic() > end and not transaction.sent
                    if not again or late:
                        raise explained(error, self.url) from error
            if transaction.sent and self._read_back(transaction, is_there, end):
                result = transaction.result
                break
            time.sleep(nap)  # a read-only server refuses at once, and would again
            nap = min(max(2 * nap, FIRST_NAP), LONGEST_NAP)
        self._cross(name, "after")
        return result

    def _transaction_on(self, connection: Connection, *, brief: bool) -> PooledTransaction:
        transaction = PooledTransaction(
            connection, self._translate, self._database, self._check_fence, self._time
        )
        transaction.brief = brief
        return transaction

    def _check_fence(self, fence: str) -> None:
        try:
            self._database.check(fence)
        except StoreError:
            self._pool.renew()
            raise

    def _may_try_again(
        self,
        error: psycopg.Error,
        connection: Connection,
        transaction: PooledTransaction | None = None,
    ) -> bool:
        if isinstance(error, UNPREPARED):
            self._prepare = False
            self._pool.renew()
        if isinstance(error, GONE):
            with suppress(psycopg.Error):
                connection.rollback()
                self._database.greet(connection)  # says so if another version changed the tables
        lost = is_lost(error, connection)
        if lost:
            self._pool.renew()  # most likely the others are lost too
        elif transaction is not None:
            transaction.sent = False  # the server refused, so nothing changed
        return lost or isinstance(error, (*UNPREPARED, *TRANSIENT))

    def _read_back(self, transaction: PooledTransaction, is_there: Probe, end: float) -> bool:
        """Read back the outcome of a commit whose answer was lost."""
        while True:
            try:
                with self._pool.connection(end) as connection:
                    is_over(connection, transaction)
                    with Pipeline(connection, self._translate) as pipe:
                        rows = lambda *read: pipe.send(*read).fetchall()  # noqa: E731
                        return is_there(transaction.result, rows)
            except (psycopg.Error, StoreError) as error:
                lost = isinstance(error, psycopg.Error) and is_lost(error, connection)
                if not lost or time.monotonic() > end:
                    raise unknown(self.url) from error

    def on(self, connection: psycopg.Connection[Any]) -> JoinedTransaction:
        """Return this store inside your open transaction: requests appear when you commit.

        A refused command leaves your transaction as it was.
        """
        return JoinedTransaction(self, connection)

    # -- sealing, pruning, cursors

    def has_reached(self, pos: int) -> None:
        """Note the position of the last event that this process wrote; 0 if it wrote none."""
        if pos:
            self._pos = max(pos, self._pos)
            self._has_written = True

    def make_due_seal(self, now: Micros) -> None:
        if self.keys.can_sign and self._schedule.may_be_due(self._pos, now):
            self._try_to_seal(self.seal_if_due)

    def _try_to_seal(self, seal: Callable[[], object]) -> None:
        """Seal, or leave it to the next process that commits."""
        try:
            seal()
        except StoreError as error:
            log.warning("not sealed yet; the next seal covers it: %s", error)

    def seal(self) -> Seal | None:
        newest = super().seal()
        self._has_written = False
        return newest

    def _seal(self, transaction: WriteTransaction, *, wait: bool = True) -> Seal | None:
        free = transaction.execute(_SEALING if wait else _MAY_SEAL, (self.schema,))
        return super()._seal(transaction) if wait or free.fetchone()[0] else None

    def reserve(
        self, agents: Sequence[str], limit: int, worker: str, skip: Collection[str] = ()
    ) -> list[Run]:
        if not agents:
            return []
        now, time_values = self._sql_now()
        statement = _RESERVE.format(
            run=sql.RUN,
            now=now,
            agents=", ".join("?" * len(agents)),
            skip=f"({POSTGRES.strings})",
            until=round(RESERVED_SECONDS * 1_000_000),
        )
        skipped = json.dumps(sorted(skip))
        unreadable = list[str]()
        while True:
            due = (
                *time_values,
                *agents,
                json.dumps(unreadable),
                *time_values,
                worker,
                limit + len(skip),
            )
            mine = (skipped, skipped, limit, *time_values, worker, *time_values, *time_values)
            rows = self._rows(statement, (*due, *mine, skipped, skipped))
            reserved_runs = self._decode.listed(run_from, rows)
            # Runs that fail their check do not hide those behind them from workers.
            if len(reserved_runs) == len(rows):
                return reserved_runs
            unreadable += sorted({row[0] for row in rows} - {run.id for run in reserved_runs})

    # -- reading

    def schema_version(self) -> int:
        return self._database.schema_version

    def write_presence(self, statement: str, values: Sequence[Any]) -> None:
        self._rows(f"{statement} RETURNING id", values, presence.PATIENCE)

    def _rows(
        self, statement: str, values: Sequence[Any] = (), patience: float | None = None
    ) -> list[Any]:
        end = time.monotonic() + (self._patience if patience is None else patience)
        while True:
            with self._pool.connection(end) as connection:
                try:
                    with Pipeline(connection, self._translate) as pipe:
                        return pipe.send(statement, values).fetchall()
                except psycopg.Error as error:
                    again = self._may_try_again(error, connection)
                    if not again or time.monotonic() > end:
                        raise explained(error, self.url) from error

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._pool.connection(time.monotonic() + self._patience) as connection:
            settings = transaction_settings(connection.info.server_version, 0, 0, 0)

            def begin() -> None:
                with Pipeline(connection, self._translate) as pipe:
                    pipe.send(_SNAPSHOT, ())
                    pipe.send(f"SELECT {settings}", ()).fetchall()

            def rows(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                try:
                    with Pipeline(connection, self._translate) as pipe:
                        return pipe.send(statement, values).fetchall()
                except psycopg.Error as error:
                    if self._may_try_again(error, connection):
                        raise SnapshotLost(str(error)) from error
                    connection.rollback()
                    begin()  # so that the next statement is not refused for this one
                    raise explained(error, self.url) from error

            try:
                begin()
            except psycopg.Error as error:
                raise SnapshotLost(str(error)) from error
            yield Snapshot(self, rows)

    def overdue(self, limit: int = 100) -> list[Due]:
        """Return what is overdue, without threads and runs that are locked right now."""
        overdue = super().overdue(limit)
        if overdue:
            runs = json.dumps(sorted({due.run for due in overdue}))
            free = {row[0] for row in self._rows(FREE, (runs, self._database.incarnation))}
            overdue = [due for due in overdue if due.run in free]
        return overdue

    # -- commits of other processes

    def _start_watching(self) -> None:
        horizon = horizon_of(self._rows(HORIZON)[0])
        connect_ = lambda: connect(self._address, prepare=False)  # noqa: E731
        ours = self._pool.is_ours
        outage = outage_of(self)
        Watcher(connect_, self._translate, self._hub, self._channel, horizon, ours, outage).start()

    # -- the rest

    def restored(self) -> bool:
        """Return whether the database was restored, copied or taken over by a standby."""
        if not self._database.behind:
            return False
        with self._pool.connection(time.monotonic() + self._patience) as connection:
            return self._database.still_behind(connection)

    def mark_recovered(self) -> None:
        with self._pool.connection(time.monotonic() + self._patience) as connection:
            self._database.recovered(connection)

    def close(self) -> None:
        """Seal what moved and close the connections. Idempotent."""
        if self._pool.closed:
            return
        self._leaving = True
        self._patience = min(self._patience, _CLOSE_SECONDS)
        try:
            if self._has_written:
                self._try_to_seal(self.seal)
        finally:
            presence.leave(self)
            self._hub.clear()
            self._pool.close()
            self._lease_pool.close()
