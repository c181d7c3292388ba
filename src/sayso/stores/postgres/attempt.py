"""One try at a transaction: a round trip to lock and load, and one to write and commit.

Statements are sent without waiting; reading an answer waits for all that were sent so far. What
can go wrong has three outcomes, and it matters which:

- *Before COMMIT was sent*: nothing was changed, whatever happened. It may be tried again.
- *The server answered COMMIT, or refused a statement*: it says itself what holds.
- *COMMIT was sent, and the connection broke before the answer*: the change may be there or not.
  Trying again blindly would be wrong, for a command that was carried out may be refused the second
  time, and its caller would believe the refusal. So the outcome is read back: first wait until the
  transaction is over (``pg_xact_status``), then look for a row that only it can have written. An
  event is such a row, because its hash is over a random salt. The status alone would not do: after
  a crash of the server, the number of a transaction that was not yet on disk is given out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import errors

from sayso.engine import UnitOfWork
from sayso.errors import StoreError
from sayso.stores.postgres.clock import Clock
from sayso.stores.postgres.pipe import Pipe
from sayso.stores.postgres.wire import Connection, Translate
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Execute, Reply
from sayso.stores.sql.rowcodec import run_from
from sayso.types import Micros

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
        #: Which tables these are, for ``Place.check``.
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
