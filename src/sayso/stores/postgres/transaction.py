"""One attempt at a transaction: a round trip to lock and load, and one to write and commit.

Statements are sent without waiting; reading a reply waits for everything sent so far. If the
connection breaks, it matters when:

- *Before COMMIT was sent*: nothing changed. Try again.
- *The server answered COMMIT, or refused a statement*: its answer is the outcome.
- *After COMMIT was sent, before its answer*: the change may or may not be there. A blind retry
  would be wrong: the engine could refuse a command that was in fact committed, and the caller would
  believe the refusal. So the outcome is read back: wait until the transaction is over
  (``pg_xact_status``), then look for a row that only this transaction can have written. An event is
  such a row, because its hash covers a random salt. The status alone is not enough: after a server
  crash, the id of a transaction that was not yet on disk is handed out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import errors

from sayso.engine import EngineDeps, UnitOfWork
from sayso.engine.command import Needs
from sayso.errors import StoreError
from sayso.rows import SYSTEM_THREAD
from sayso.stores.postgres.connections import Answer, Connection, Pipe, Translate
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import POSTGRES, Execute, Reply
from sayso.stores.sql.rowcodec import run_from
from sayso.stores.sql.tool_cache import ToolCache
from sayso.stores.sql.transaction import SqlTransaction
from sayso.types import Micros

#: How long a look is good for: clocks are set, and standbys have their own.
_SURE = 1_000_000


class Clock:
    """Tells the database's time; ``ask`` is how to look at it."""

    def __init__(self, ask: Callable[[], Micros]) -> None:
        self._ask = ask
        self._ahead = 0
        self._until = 0

    def now(self) -> Micros:
        """The time, asked for once in a while."""
        steady = _steady()
        if steady >= self._until:
            self.learn(self._ask())
            steady = _steady()
        return steady + self._ahead

    def learn(self, at: Micros) -> None:
        """The database has just said what time it is: the answer that came fastest counts."""
        steady = _steady()
        ahead = at - steady
        if ahead > self._ahead or steady >= self._until:
            self._ahead, self._until = ahead, steady + _SURE


def _steady() -> Micros:
    return time.monotonic_ns() // 1000


#: The time, and who we are: read after the lock.
FACTS = (
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "pg_current_xact_id()::text, pg_backend_pid(), {}"
)
LOCK = "pg_advisory_xact_lock(hashtextextended(? || ':' || ?, 0))"
#: Which of these threads nobody holds at this moment.
FREE = (
    "SELECT name FROM json_array_elements_text(?::json) AS name "
    "WHERE pg_try_advisory_xact_lock(hashtextextended(? || ':' || name, 0))"
)
#: Who waits for a thread looks up from time to time, and a client that is frozen in the middle
#: lets go of it: the session is ended, and the client finds out when it wakes up. In the middle of
#: a pipeline it does not count as idle, and only newer servers (17) know an end for that.
LOCK_MS = 5_000
FROZEN_MS = 30_000
_IDLE = "idle_in_transaction_session_timeout"
_KNOWS_WHOLE = 170_000
_OVER_AFTER = 5.0

#: Looks for what a transaction wrote; true if it is there.
Probe = Callable[[Callable[[str, Sequence[Any]], list[Any]]], bool]


class Session:
    """An open transaction: a way to send statements, and what the server says of it."""

    def __init__(self, execute: Execute, store: str, lineage: str, clock: Clock) -> None:
        self.execute = execute
        self._store = store
        self._clock = clock
        self._lineage = lineage
        self.xid = ""
        self.pid = 0
        #: Which tables these are, for ``Database.check``.
        self.lineage = ""

    def lock(self, *threads: str) -> None:
        """Take these threads, before the transaction gets its number.

        So the numbers of transactions on one thread are in the order of its chain, and readers of
        the events find it in order. A lock on the row would come too late: who waits for that has
        its number already. It also holds threads that are not there yet.
        """
        self._locked(threads)

    def _locked(self, threads: Sequence[str], *first: str) -> Reply:
        """One statement, whose columns are made from left to right: the time is that of after."""
        facts = FACTS.format(self._lineage)
        columns = ", ".join((*first, *[LOCK] * len(threads), facts))
        values = [value for thread in threads for value in (self._store, thread)]
        return self.execute(f"SELECT {columns}", values)

    def ask_facts(self) -> Reply:
        """Ask for the time, and for what names this transaction."""
        return self._locked(())

    def facts(self, reply: Reply | None = None) -> Micros:
        """The time, once everything is locked."""
        row = (reply or self.ask_facts()).fetchone()
        at, self.xid, self.pid, self.lineage = row[-4:]
        self._clock.learn(at)
        return int(at)


class Attempt(Session):
    """A transaction of our own, and what is known of its outcome."""

    def __init__(
        self,
        connection: Connection,
        translate: Translate,
        store: str,
        lineage: str,
        clock: Clock,
    ) -> None:
        self._pipe = Pipe(connection, translate)
        super().__init__(self._pipe.send, store, lineage, clock)
        #: Whether it takes moments, so that one which takes long is of a client that is frozen.
        self.brief = False
        self._connection = connection
        self._told: Reply | None = None
        self.sent = False
        self.result: Any = None
        self.probe: Probe = lambda rows: False

    def lock(self, *threads: str) -> None:
        """Take these threads; the time and the rest is told with it."""
        self._told = self._locked(threads, *self._limits())

    def ask_facts(self) -> Reply:
        """What was told with the last lock, if there was one."""
        told, self._told = self._told, None
        return told or self._locked((), *self._limits())

    def run(self, body: Callable[[Attempt], Any], before: Callable[[Attempt], None]) -> Any:
        """Carry out a body and commit; ``before`` is called when only the commit is left."""
        with self._pipe:
            self.execute("BEGIN", ())
            self.result = body(self)
            if not self.xid:
                self.facts()
            before(self)
            self.sent = True
            self.execute("COMMIT", ())
            self._pipe.receive()
        return self.result

    def _limits(self) -> list[str]:
        limits = {"lock_timeout": LOCK_MS, _IDLE: FROZEN_MS}
        if self.brief and self._connection.info.server_version >= _KNOWS_WHOLE:
            limits["transaction_timeout"] = FROZEN_MS
        return [f"set_config('{name}', '{ms}', true)" for name, ms in limits.items()]


def probe_of(work: UnitOfWork) -> Probe:
    """How to see whether the changes of a work were committed."""

    def probe(rows: Callable[[str, Sequence[Any]], list[Any]]) -> bool:
        if work.events:
            event = work.events[-1]
            statement = "SELECT hash FROM event WHERE thread = ? AND seq = ?"
            return [row[0] for row in rows(statement, (event.thread, event.seq))] == [event.hash]
        if work.messages:
            message = work.messages[-1]
            statement = f"SELECT {sql.MESSAGE} FROM message WHERE thread = ? AND seq = ?"
            return rows(statement, (message.thread, message.seq)) == [tuple(message)]
        if work.run is not None and work.run_touched:
            # Only a new run, a lease or a snapshot is written without a word. If another change
            # covers it by now, doing it again does no harm.
            stored = [run_from(row) for row in rows(sql.LOAD_RUN, (work.run.id,))]
            new = [run for run in stored if work.new_run and run.created == work.run.created]
            return bool(new) or stored == [work.run]
        return not work.touched_calls

    return probe


def is_over(connection: Connection, attempt: Attempt) -> bool:
    """Wait until a transaction is neither open nor about to be committed."""
    began = time.monotonic()
    while True:
        try:
            row = connection.execute("SELECT pg_xact_status($1::xid8)", (attempt.xid,)).fetchone()
        except errors.InvalidParameterValue:
            return True  # no such transaction yet: it was lost with the server
        if row is None or row[0] != "in progress":
            return True
        if time.monotonic() - began > _OVER_AFTER:
            _end(connection, attempt)
        time.sleep(0.02)


def _end(connection: Connection, attempt: Attempt) -> None:
    """End the session that still holds the transaction: its client, we, cannot come back to it."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid = $1 AND backend_xid = $2::xid8::xid",
        (attempt.pid, attempt.xid),
    )


def unknown(url: str) -> StoreError:
    """What to say when an outcome cannot be found out."""
    return StoreError(
        f"the connection to {url} broke while a change was being committed, and the database "
        "cannot be asked whether it was: look at what is there before doing it again"
    )


#: Facts at the rate of machines. NOTIFY is for people: all commits with one wait for each other.
_QUIET = frozenset(
    {
        *("allowed", "claimed", "started", "recorded"),
        *("read_started", "read_stopped", "read_recorded"),
    }
)


#: What may be written together, because none of it looks at what another one writes.
_TOGETHER = frozenset(
    {
        *(sql.ADD_THREAD, sql.SAVE_THREAD, sql.OWN_THREAD, sql.ADD_RUN, sql.SAVE_RUN),
        *(sql.MOVE_RUN, sql.ADD_CALL, sql.SAVE_CALL, sql.MOVE_CALL, sql.ADD_MESSAGE),
        *(sql.ADD_EVENT, sql.SAVE_GRANT, sql.SAVE_PRINCIPAL),
    }
)
#: Added with a number of their own, in the order in which they are given.
_NUMBERED = frozenset({sql.ADD_CALL, sql.ADD_EVENT})
_MOST = 40


class _Nothing:
    """The reply to what has not been sent yet, which nobody may read."""

    rowcount = -1

    def fetchone(self) -> Any:
        raise AssertionError("a write gives no rows")

    fetchall = fetchone


_NOTHING = _Nothing()


class PgTransaction(SqlTransaction):
    """Reads the time together with the rows, after the lock."""

    def __init__(
        self,
        session: Session,
        tool_cache: ToolCache,
        deps: EngineDeps,
        decode: RowDecoder,
        clock: Callable[[], Micros] | None,
    ) -> None:
        super().__init__(session.execute, tool_cache, POSTGRES, deps, decode, clock or (lambda: 0))
        self._session = session
        self._has_clock = clock is None
        self._added: Reply | None = None

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Lock the thread, and load the rows that the commands need."""
        self._session.lock(thread, *([SYSTEM_THREAD] if needs.system else []))
        return super().load(thread, needs)

    def save(self, work: UnitOfWork) -> None:
        """Write what changed, in one statement: each one sent costs more than what it writes."""
        pending: list[tuple[str, Sequence[Any]]] = []
        send = self._execute

        def flush() -> None:
            if pending:
                reply = send(*_together(pending))
                if any(text == sql.ADD_EVENT for text, _ in pending):
                    self._added = reply
                pending.clear()

        def gather(text: str, values: Sequence[Any]) -> Reply:
            if text not in _TOGETHER:
                return send(text, values)
            if text == sql.OWN_THREAD or len(pending) == _MOST:
                flush()  # one statement changes a row once
            pending.append((text, values))
            return _NOTHING

        self._execute = gather
        try:
            super().save(work)
        finally:
            self._execute = send
        flush()

    def last_pos(self) -> int:
        """Return the position of the last event that was added; 0 if none, or if it is unknown.

        It is unknown if the connection broke in the commit, which was then found to have succeeded.
        """
        added = self._added
        if added is None or (isinstance(added, Answer) and added.result is None):
            return 0
        return int(added.fetchone()[0])

    def _ask_time(self) -> Reply | None:
        return self._session.ask_facts()

    def _read_time(self, reply: Reply | None) -> Micros:
        now = self._session.facts(reply)
        return now if self._has_clock else super()._read_time(reply)


def _together(writes: Sequence[tuple[str, Sequence[Any]]]) -> tuple[str, list[Any]]:
    """One statement that makes them all.

    Parts of a statement are carried out in no order of ours, but the rows of one INSERT are; so
    what is numbered as it is added (events, calls) is added by one. Its one row is the position of
    the last event among them, if there are any.
    """
    parts: list[str] = []
    values: list[Any] = []
    gives = "SELECT 1"
    rest = list(writes)
    while rest:
        text = rest[0][0]
        rows = [row for other, row in rest if other == text] if text in _NUMBERED else [rest[0][1]]
        rest = [write for write in rest if write[0] != text] if text in _NUMBERED else rest[1:]
        row = f"({', '.join('?' * len(rows[0]))})"
        part = text + f", {row}" * (len(rows) - 1)
        if text == sql.ADD_EVENT:
            part += " RETURNING pos"
            gives = f"SELECT max(pos) FROM w{len(parts)}"
        parts.append(part)
        values += [value for row_ in rows for value in row_]
    named = ", ".join(f"w{n} AS ({part})" for n, part in enumerate(parts))
    return f"WITH {named} {gives}", values


def news(execute: Execute, work: UnitOfWork, channel: str) -> None:
    """Tell the other processes, when the transaction is committed."""
    if any(event.type not in _QUIET for event in work.events):
        execute("SELECT pg_notify(?, '')", (channel,))
