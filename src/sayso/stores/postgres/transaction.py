"""One try at a transaction: a round trip to lock and load, and one to write and commit.

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

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from psycopg import errors

from sayso.engine import UnitOfWork
from sayso.engine.commands import Needs
from sayso.errors import StoreError
from sayso.forking import fork_safe_lock
from sayso.rows import SYSTEM_THREAD, Event
from sayso.stores.postgres.connections import (
    BEGIN,
    DURABLE,
    Answer,
    Connection,
    Pipeline,
    Translate,
    transaction_settings,
)
from sayso.stores.postgres.database import Database
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import POSTGRES, Execute, ResultSet
from sayso.stores.sql.store import WriteTransaction
from sayso.stores.sql.transaction import StoreParts
from sayso.sync import on_loop
from sayso.types import Micros

log = logging.getLogger("sayso.stores")

#: How many microseconds a reading is good for: clocks are set, and standbys have their own.
_CLOCK_VALID = 1_000_000


class Clock:
    """The database's clock, carried forward between two readings by this machine's monotonic one.

    Rows get their time from the database itself, inside the transaction. Everyone else asks for the
    time often, sometimes on an event loop, and must not wait for the network. The time told here is
    late by the latency of an answer, and never early. ``ask`` reads the database's clock.
    """

    def __init__(self, ask: Callable[[], Micros]) -> None:
        self._ask = ask
        self._ahead = 0
        self._until = 0
        #: Held while another OS thread asks.
        self._asking = fork_safe_lock()

    def now(self) -> Micros:
        """Return the time; ask the database once in a while, and never wait for it on a loop."""
        monotonic = _monotonic()
        if monotonic >= self._until:
            if self._until and on_loop():
                if self._asking.acquire(blocking=False):
                    threading.Thread(target=self._ask_once, name="sayso-clock", daemon=True).start()
            else:
                self.learn(self._ask())
                monotonic = _monotonic()
        return monotonic + self._ahead

    def _ask_once(self) -> None:
        try:
            self.learn(self._ask())
        except StoreError as error:
            log.warning("the database's time is carried forward: %s", error)
        finally:
            self._asking.release()

    def learn(self, at: Micros) -> None:
        """Take a reading of the database's clock. The answer with the least latency counts."""
        monotonic = _monotonic()
        ahead = at - monotonic
        if ahead > self._ahead or monotonic >= self._until:
            self._ahead = ahead
            self._until = monotonic + _CLOCK_VALID


def _monotonic() -> Micros:
    return time.monotonic_ns() // 1000


#: The time and the identity of this transaction, read after the lock. Functions are named with
#: their schema, because a role's search_path may lead to others of the same name.
FACTS = (
    "(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint, "
    "pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_backend_pid(), {}"
)
LOCK = "pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(? || ':' || ?, 0))"
#: Which of these runs are not locked at this moment, and neither are their threads.
FREE = (
    "SELECT run.id FROM run JOIN thread ON thread.id = run.thread "
    "WHERE run.id IN (SELECT json_array_elements_text(?::json)) "
    "AND pg_try_advisory_xact_lock(hashtextextended(? || ':' || run.thread, 0)) "
    "FOR UPDATE SKIP LOCKED"
)
#: Waiting for a locked thread is cut into pieces of ``LOCK_MS``. A client that freezes while it
#: holds one loses its session after ``FROZEN_MS``. Inside a pipeline it does not count as idle, and
#: only PostgreSQL 17 and later has a timeout for that.
LOCK_MS = 5_000
FROZEN_MS = 30_000
_END_AFTER_SECONDS = 5.0


class OpenTransaction:
    """An open transaction: sends its statements, and knows its server-side identity."""

    def __init__(
        self, execute: Execute, database: Database, check: Callable[[str], None], clock: Clock
    ) -> None:
        """``check`` raises if the fence of the transaction is not the one of ``database``."""
        self.execute = execute
        self._database = database
        self._check = check
        self._clock = clock
        self.xid = ""
        self.pid = 0

    def lock(self, *threads: str) -> None:
        """Lock these threads before the transaction gets its id.

        So the ids of transactions on one thread are in the order of its chain, and readers of the
        events find it in order. A row lock would come too late: a transaction that waits for one
        has its id already. An advisory lock also works for threads that do not exist yet.
        """
        self._locked(threads, DURABLE)

    def _locked(self, threads: Sequence[str], *first: str) -> ResultSet:
        """Send one statement.

        Columns are computed left to right, so the time is read after the locks are taken.
        """
        facts = FACTS.format(self._database.fence)
        columns = ", ".join((*first, *[LOCK] * len(threads), facts))
        store = self._database.incarnation
        values = [value for thread in threads for value in (store, thread)]
        return self.execute(f"SELECT {columns}", values)

    def ask_facts(self) -> ResultSet:
        """Ask for the time and the identity of this transaction."""
        return self._locked((), DURABLE)

    def facts(self, reply: ResultSet | None = None) -> Micros:
        """Return the time, read after everything was locked.

        Raises ``StoreError`` if this transaction must not be committed.
        """
        row = (reply or self.ask_facts()).fetchone()
        at, self.xid, self.pid, fence = row[-4:]
        self._check(fence)
        self._clock.learn(at)
        return int(at)


class PooledTransaction(OpenTransaction):
    """A transaction on a pooled connection, and what is known of its outcome."""

    def __init__(
        self,
        connection: Connection,
        translate: Translate,
        database: Database,
        check: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._pipe = Pipeline(connection, translate)
        super().__init__(self._pipe.send, database, check, clock)
        #: Whether the transaction is short, so that a long one means a frozen client.
        self.brief = False
        self._connection = connection
        self._has_settings = False
        self._locked_facts: ResultSet | None = None
        self.sent = False
        self.result: Any = None

    def lock(self, *threads: str) -> None:
        """Lock these threads, and ask for the facts in the same statement."""
        self._locked_facts = self._locked(threads, *self._settings())

    def ask_facts(self) -> ResultSet:
        """Return the facts asked for with the last lock, or ask for them."""
        facts = self._locked_facts
        self._locked_facts = None
        return facts or self._locked((), *self._settings())

    def run(self, body: Callable[[PooledTransaction], Any], before: Callable[[], None]) -> Any:
        """Run a body and commit. Calls ``before`` when only the commit is left."""
        with self._pipe:
            self.execute(BEGIN, ())
            if not self.brief:  # one that is brief begins with a lock, which has the settings
                self.execute(f"SELECT {self._settings()[0]}", ())
            self.result = body(self)
            if not self.xid:
                self.facts()
            before()
            self.sent = True
            self.execute("COMMIT", ())
            self._pipe.receive()
        return self.result

    def _settings(self) -> list[str]:
        """Return what the first statement of the transaction sets."""
        if self._has_settings:
            return []
        self._has_settings = True
        version = self._connection.info.server_version
        transaction_ms = FROZEN_MS if self.brief else 0
        return [transaction_settings(version, LOCK_MS, FROZEN_MS, transaction_ms)]


def is_over(connection: Connection, transaction: PooledTransaction) -> bool:
    """Wait until a transaction is neither open nor about to be committed."""
    began = time.monotonic()
    while True:
        try:
            row = connection.execute(
                "SELECT pg_xact_status($1::xid8)", (transaction.xid,)
            ).fetchone()
        except errors.InvalidParameterValue:
            return True  # the id was not handed out yet: the transaction was lost in a crash
        if row is None or row[0] != "in progress":
            return True
        if time.monotonic() - began > _END_AFTER_SECONDS:
            # End the session that still holds the transaction: we lost our end of it.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid = $1 AND backend_xid = $2::xid8::xid",
                (transaction.pid, transaction.xid),
            )
        time.sleep(0.02)


def unknown(url: str) -> StoreError:
    """Return the error for a commit whose outcome cannot be found out."""
    return StoreError(
        f"the connection to {url} broke during a commit, and the database cannot be asked whether "
        "it succeeded: check what is stored before you try again"
    )


#: Frequent events, sent without NOTIFY: commits with a NOTIFY are serialized by the server.
_NO_NOTIFY = frozenset(
    {
        *("allowed", "claimed", "started", "recorded"),
        *("read_started", "read_stopped", "read_recorded"),
        *("released", "reported", "joined", "deferred"),
    }
)


class PgTransaction(WriteTransaction):
    """A transaction that reads the database's clock with the rows, after the lock."""

    def __init__(self, inner: OpenTransaction, parts: StoreParts) -> None:
        super().__init__(inner.execute, self._write_row, POSTGRES, parts)
        self._inner = inner
        self._added: ResultSet | None = None

    def execute(self, text: str, values: Sequence[Any] = ()) -> ResultSet:
        return self._inner.execute(text, values)

    def lock(self, *threads: str) -> None:
        self._inner.lock(*threads)

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        self.lock(thread, *([SYSTEM_THREAD] if needs.system else []))
        return super().load(thread, needs)

    def _write_row(self, text: str, values: Sequence[Any]) -> None:
        if text == sql.ADD_EVENT:
            self._added = self._inner.execute(f"{text} RETURNING pos", values)
        else:
            self._inner.execute(text, values)

    def last_pos(self) -> int:
        """Return the position of the last event that was added; 0 if none, or if it is unknown.

        It is unknown if the connection broke in the commit, which was then found to have succeeded.
        """
        added = self._added
        if added is None or (isinstance(added, Answer) and added.result is None):
            return 0
        return int(added.fetchone()[0])

    def _ask_time(self) -> ResultSet:
        return self._inner.ask_facts()

    def _read_time(self, reply: ResultSet | None) -> Micros:
        at = self._inner.facts(reply)
        return at if self._clock is None else self._clock()


def notify(execute: Execute, events: Iterable[Event], channel: str) -> None:
    if any(event.type not in _NO_NOTIFY for event in events):
        execute("SELECT pg_notify(?, '')", (channel,))
