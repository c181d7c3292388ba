"""SQLite: one file, many OS threads, many processes.

Writers combine: callers queue their operations, and one OS thread commits everything queued so far
in one transaction, with a SAVEPOINT for each (``writer``). So ten OS threads share one fsync.
Between processes, a ``flock`` on a lock file surrounds each batch and each checkpoint: SQLite's
busy loop can starve a process, the kernel's queue cannot.

A mark file remembers the position of the newest event. A database that is behind its mark was
restored from a copy, and nothing starts until you run ``sayso recover``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sayso.engine import Command, UnitOfWork
from sayso.engine.commands import Needs
from sayso.engine.unit_of_work import COUNTERS
from sayso.errors import Conflict, StoreClosed, StoreError
from sayso.forking import no_fork, process, renew_in_child
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Call, Event, Run, Thread
from sayso.stores.base import (
    Boundary,
    Hub,
    Listener,
    commit_name,
    run_commands,
)
from sayso.stores.row_checks import event_taken
from sayso.stores.seals import Seal, SealSchedule, seal_all
from sayso.stores.sql import presence
from sayso.stores.sql import statements as sql
from sayso.stores.sql.maintenance import find_unsealed
from sayso.stores.sql.migrate import another, newest_version, read_meta, upgraded
from sayso.stores.sql.reads import Snapshot
from sayso.stores.sql.statements import SQLITE
from sayso.stores.sql.store import Probe, SqlStore, WriteTransaction
from sayso.stores.sql.transaction import StoreParts
from sayso.stores.sqlite.files import (
    BUSY_SECONDS,
    PATIENCE,
    Connection,
    Newest,
    OpenFiles,
    Reservations,
    Sidecar,
    brought_up_to_date,
    check_alone,
    check_marked,
    check_usable,
    connected,
    fetch_all,
    forked,
    interrupted,
    is_busy,
    newest_event,
    roll_back,
    wait_for_locks,
)
from sayso.stores.sqlite.reads import SqliteReads
from sayso.stores.sqlite.writer import (
    Operation,
    SqliteTransaction,
    WriterThread,
    transaction_on,
)
from sayso.sync import WouldBlock, must_not_block, resolve
from sayso.types import Micros

#: How often to poll ``data_version``, which costs microseconds and changes with every commit.
POLL_SECONDS = 0.004
#: How often to poll after ``_IDLE_POLLS`` polls without a change.
IDLE_SECONDS = 0.008
_IDLE_POLLS = 500


class OwnCommits:
    """The events that this process wrote and publishes itself; shared by writer and watcher."""

    def __init__(self) -> None:
        #: A span dropped while nothing watches is at worst published twice.
        self._spans: deque[tuple[int, int]] = deque(maxlen=1000)

    def add(self, first: int, last: int) -> None:
        """Note a commit, before it is made: the watcher may see it at once."""
        self._spans.append((first, last))

    def undo(self) -> None:
        """Take back the last commit, which failed: its positions go to others."""
        self._spans.pop()

    def others(self, rows: list[tuple[int, str]]) -> set[str]:
        """Return the threads of these rows, in order, that other processes changed."""
        moved = set()
        for pos, thread in rows:
            while self._spans and self._spans[0][1] < pos:
                self._spans.popleft()
            if not self._spans or pos < self._spans[0][0]:
                moved.add(thread)
        return moved


class Watcher(threading.Thread):
    """Publishes to a hub which threads other processes changed, while the hub has listeners."""

    def __init__(
        self, connection: Connection, files: OpenFiles, hub: Hub, own: OwnCommits, seen: int
    ) -> None:
        super().__init__(name="sayso-watch", daemon=True)
        self._connection = connection
        self._files = files
        self._hub = hub
        self._own = own
        self._seen = seen

    def run(self) -> None:
        version = None
        quiet = 0
        try:
            while self._hub.wanted():
                self._files.check()
                with no_fork.lock:
                    current = self._connection.execute("PRAGMA data_version").fetchone()[0]
                quiet += 1
                if current != version:
                    version = current
                    quiet = 0
                    statement = "SELECT pos, thread FROM event WHERE pos > ? ORDER BY pos"
                    with no_fork.lock:
                        rows = self._connection.execute(statement, (self._seen,)).fetchall()
                    if rows:
                        self._seen = rows[-1][0]
                        others = self._own.others(rows)
                        if others:
                            self._hub.publish(others)
                time.sleep(POLL_SECONDS if quiet < _IDLE_POLLS else IDLE_SECONDS)
        except (sqlite3.Error, StoreError):
            self._hub.unwatched()
            self._hub.publish_to_all()  # each listener sees the error when it reads
        finally:
            self._connection.close()


_MOST_ROWS = 1000
#: A call with more text than this is not cached, but read and checked again.
_MOST_TEXT = 16_384


class RowCache:
    """The rows that this process wrote last, so that the next command need not read them again.

    They are current as long as no other process has written, which ``data_version`` tells. Asked
    inside the write transaction, the answer cannot change any more. A rollback empties the cache.
    """

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.runs: dict[str, Run] = {}
        self.calls: dict[str, Call] = {}
        #: The ids of these calls by run and key.
        self.ids: dict[tuple[str, str], str] = {}
        #: Queries for people, grants, refusals and events of the system thread that returned no
        #: rows, with their parameters.
        self.empty: set[tuple[str, Sequence[Any]]] = set()
        self.version: int | None = None

    def check(self, writer: sqlite3.Connection) -> bool:
        """Empty the cache if another process has written since the last check; return whether one
        has. Call it inside the transaction."""
        (version,) = writer.execute("PRAGMA data_version").fetchone()
        if version == self.version:
            return False
        self.forget()
        self.version = version
        return True

    def keep(self, work: UnitOfWork) -> None:
        rows = len(self.threads) + len(self.runs) + len(self.calls)
        if rows + len(self.empty) > _MOST_ROWS:
            self.forget()
        if work.moves_thread:
            self.threads[work.thread.id] = work.thread
        if work.system is not None:
            self.threads.pop(work.system.id, None)
        is_common = work.system is not None or work.thread.id == SYSTEM_THREAD
        if is_common or work.touched_people or work.touched_grants or work.touched_refusals:
            self.empty = set()
        if work.run is not None and work.run_touched:
            self.runs[work.run.id] = work.run
        for call in work.touched_calls.values():
            size = len(call.args) + len(call.preview) + len(call.result or "")
            if size + len(call.original or "") + len(call.written or "") < _MOST_TEXT:
                self.calls[call.id] = call
                self.ids[call.run, call.key] = call.id
            else:
                self.calls.pop(call.id, None)

    def forget(self) -> None:
        """Empty the cache, as if another process had written."""
        self.threads = {}
        self.runs = {}
        self.calls = {}
        self.ids = {}
        self.empty = set()
        self.version = None


#: Queries without rows in most stores.
_OFTEN_EMPTY = frozenset(
    {sql.LOAD_ACTOR, sql.LOAD_GRANTS_FOR, sql.LOAD_REFUSALS_FOR, sql.LOAD_SYSTEM_EVENTS}
)


class CachedTransaction(SqliteTransaction):
    """A transaction that reads only rows that are not cached."""

    def __init__(self, writer: sqlite3.Connection, parts: StoreParts, row_cache: RowCache) -> None:
        super().__init__(self._fetch, writer.execute, SQLITE, parts)
        self._writer = writer
        self._row_cache = row_cache
        #: The events that were saved, and the threads that they belong to.
        self.events: list[Event] = []
        self.moved: set[str] = set()

    def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read a reply to its end at once, like every reply (``Fetched``)."""
        if statement not in _OFTEN_EMPTY:
            return fetch_all(self._writer, statement, values)
        query = (statement, values)
        if query in self._row_cache.empty:
            return []
        rows = fetch_all(self._writer, statement, values)
        if not rows:
            self._row_cache.empty.add(query)
        return rows

    def save(self, work: UnitOfWork) -> None:
        super().save(work)
        self._row_cache.keep(work)
        self.events += work.events
        for event in work.events:
            self.moved.add(event.thread)

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        cache = self._row_cache
        thread_row = cache.threads.get(thread)
        run = cache.runs.get(needs.run or "")
        uncached = needs.keys or needs.callers or needs.grants_for or needs.grants or needs.refusals
        if thread_row is None or run is None or uncached or needs.system:
            return super().load(thread, needs)
        for status in needs.statuses:
            if getattr(run, COUNTERS[status]):
                return super().load(thread, needs)
        calls: dict[str, Call] = {}
        for call_id in needs.calls:
            call = cache.calls.get(call_id)
            spends = needs.spends or needs.gives_back
            if call is None or (spends and (call.grant or call.terms.limits)):
                return super().load(thread, needs)
            calls[call_id] = call
        assert self._clock is not None
        work = UnitOfWork(self._clock(), self._deps, thread_row, run, calls)
        if needs.people or needs.credentials or needs.credentials_of or needs.voters:
            self._load_people(work, needs, self._ask_people(needs))
        if needs.refusals_of_calls or needs.refusals_for:
            self._load_refusals(work, self._ask_refusals(needs, calls.values()))
        if needs.spends or needs.effects:
            self._load_effects(work, needs)
        self._threads[thread] = thread_row
        self._run = run
        self._calls = dict(calls)
        return work


#: Errors about the values of one operation; all others concern the whole batch.
_OWN_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


def explained(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError) and "event.thread, event.seq" in str(error):
        return event_taken()
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"this conflicts with another live run or call: {error}")
    if isinstance(error, _OWN_ERRORS):
        return StoreError(f"the value cannot be stored: {error}")
    return error


log = logging.getLogger("sayso.stores")
T = TypeVar("T")

_RETRIES = 5
#: The commits of ``presence``, which no boundary interrupts: they belong to no work.
_HEARTBEAT = "heartbeat"
#: Operations after which no seal is made: they take no longer than they have to, or are one.
_APART = frozenset({"renew", "seal", _HEARTBEAT})
#: The commits that write rows otherwise than by commands, which the row cache does not see.
_PAST_THE_CACHE = frozenset({"renew", "rekey", "prune", "seal"})
#: How often to try again while another program has the file locked, in seconds.
_BUSY_NAP = 0.005
#: How often a caller that waits for a commit looks whether it was forked, in seconds.
_CHECK_SECONDS = 1.0


class SqliteStore(SqlStore, SqliteReads):
    """A store in one SQLite file (WAL, ``synchronous=FULL``)."""

    _clock: Callable[[], Micros]

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        boundary: Boundary | None = None,
    ) -> None:
        # The user's path may be a link. Lock, mark and key are beside the file itself.
        self._name = Path(path).expanduser().absolute()
        self.path = Path(os.path.realpath(self._name))
        self.incarnation = ""
        self._version = str(newest_version("sqlite"))
        #: The version that the tables have now, if another process has changed them.
        self._upgraded_to = ""
        self.quick_reads = True  # a reader of a WAL waits for no writer
        self._clock = clock
        self._sidecar = Sidecar(self.path, self._name)
        try:
            keys = keys or Keyring.for_store(self.path)
            super().__init__(f"sqlite:///{self.path}", keys, clock, boundary)
            self._can_seal = keys.can_sign
            self._closed = False
            self._reset()
            self._ready()
        except BaseException:
            self._sidecar.close()
            raise
        renew_in_child(self)

    def _reset(self) -> None:
        self._generation = process.forks
        #: Held while a connection is opened.
        self._opening = threading.Lock()
        #: Held during a commit. Nothing waits for it but the next commit.
        self._writing = threading.Lock()
        self._writer_thread = WriterThread(self)
        self._readers: list[Connection] = []
        self._writer: Connection | None = None
        self._schedule = SealSchedule()
        #: Whether this process has committed events since it sealed.
        self._has_written = False
        #: The newest event, and the last one before the watcher.
        self._newest = Newest(0, "")
        self._seen = 0
        self._own = OwnCommits()
        self._row_cache = RowCache()
        self._reservations = Reservations(self.path)

    def after_fork(self) -> None:
        """Forget the parent's connections and locks. The child opens the file on first use."""
        # Not unlocked: parent and child share the open file, and its lock.
        self._sidecar.close()
        self._reservations.close()
        self._reset()

    def _ready(self) -> Connection:
        """Return the connection that writes; a forked child opens its own."""
        writer = self._writer
        if writer is None:
            with self._opening:
                writer = self._writer or self._open()
        return writer

    def _open(self) -> Connection:
        if self._closed:
            raise StoreClosed(f"{self.url} is closed: open it again")
        if self._sidecar.closed:  # this is a forked child
            check_usable(self.path)
            self._sidecar = Sidecar(self.path, self._name)
        with self._sidecar, no_fork.lock:
            check_alone(self.path)
            if marked := self._sidecar.marked():
                check_marked(self.path, marked)
            writer = connected(self.path)
            try:
                self._prepare(writer)
                wait_for_locks(writer, 0)
                self._files = OpenFiles(self.path, self._name)
                if writer.file != check_usable(self._name):
                    raise StoreError(f"{self._name} was replaced while it was opened: try again")
            except BaseException:
                writer.close()
                raise
        self._writer = writer
        presence.keep_present(self)
        return writer

    def _prepare(self, connection: Connection) -> None:
        incarnation = brought_up_to_date(connection, self.keys, self.url)
        if self.incarnation not in ("", incarnation):  # this is a forked child
            raise another(self.url)
        self.incarnation = incarnation
        self._newest = newest_event(connection)
        self._seen = self._newest.pos
        unsealed = find_unsealed(partial(fetch_all, connection))
        if not unsealed.is_due(self._clock()):
            self._schedule.looked(unsealed, self._clock())
        self._sidecar.adopt(self.incarnation, connection)

    # -- writing

    def _write(self, name: str, body: Callable[[Any], T], is_there: Probe | None = None) -> T:
        result: T = self._submit(Operation(name, body))
        return result

    def transact(self, *commands: Command) -> list[Any]:
        name = "" if self.boundary is None else commit_name(commands)
        body = partial(run_commands, commands=commands)
        results: list[Any] = self._submit(Operation(name, body))[0]
        return results

    def _transact_soon(self, future: asyncio.Future[list[Any]], *commands: Command) -> bool:
        """Queue commands. Their commit resolves the future, so no OS thread waits for it.

        If the future is cancelled before that, nothing is written. Returns False if the caller has
        to call ``transact`` in an OS thread, because the file must be opened first.
        """
        if self._writer is None or sys.is_finalizing():
            return False

        def body(transaction: SqliteTransaction) -> list[Any]:
            return [] if future.cancelled() else run_commands(transaction, commands)[0]

        def then(operation: Operation) -> None:
            try:
                self._report(operation)
            except BaseException as raised:  # whatever it is, it belongs to the caller
                operation.error = raised
            resolve(future, operation.result, operation.error)

        name = "" if self.boundary is None else commit_name(commands)
        self._writer_thread.put(Operation(name, body, then))
        return True

    # ``sayso.sync`` finds it here, and not if a subclass or a test has replaced ``transact``.
    setattr(transact, "soon", _transact_soon)  # noqa: B010

    def _submit(self, operation: Operation, seconds: float | None = None) -> Any:
        """Commit an operation; return its result, or raise why it was refused.

        Raises ``StoreError`` if that takes longer than ``seconds``.
        """
        stuck = sys.is_finalizing() and self._writing.locked()  # no other OS thread runs any more
        if stuck or self._writer_thread.ident == threading.get_ident():
            raise interrupted(self.path)  # or it would wait for itself
        if self._writer is None:
            self._ready()
        began_in = self._generation
        patience = seconds or _CHECK_SECONDS
        try:
            self._writer_thread.put(operation)
            while not operation.pending.acquire(timeout=patience) and began_in == self._generation:
                if seconds is not None:
                    raise StoreError(f"{self.path} is being written by another process: try again")
                if self._closed and self._writer_thread.has_ended and not operation.settled:
                    self._ready()  # raises: it was queued while the store was closed
        except BaseException:
            operation.abandoned = True
            if operation.settled:
                self._hub.publish(operation.moved)
            raise
        if began_in != self._generation:
            raise forked(self.path)
        self._report(operation)
        if operation.error is not None:
            raise operation.error
        return operation.result

    def _report(self, operation: Operation) -> None:
        """Tell listeners about a settled operation."""
        if self._hub.listeners:
            self._hub.publish(operation.moved)
        quiet = operation.error is not None or operation.name == _HEARTBEAT
        if self.boundary is not None and not quiet:
            self.boundary(operation.name, "after")

    def commit_batch(self, batch: list[Operation]) -> None:
        """Commit operations and settle them. Runs in the writer's OS thread."""
        try:
            with self._writing:
                self._commit(batch)
        except BaseException as error:  # whatever it is, every caller waits for an outcome
            for operation in batch:
                operation.error = operation.error or error
        for operation in batch:
            operation.settle()
        for operation in batch:
            if operation.abandoned:
                self._hub.publish(operation.moved)

    def _commit(self, batch: list[Operation]) -> None:
        """Commit operations in one transaction or, if that fails, each in its own.

        So a value that the database cannot take, or that finds the disk full, fails its own caller.
        """
        ran = committed = False
        try:
            writer = self._writer or self._ready()
            with self._sidecar, no_fork.lock:
                try:
                    before = self._begin(writer)
                    ran = True
                    transactions = self._run(writer, batch)
                    # Events are numbered without gaps.
                    newest = self._commit_own(writer, batch, transactions, before)
                    committed = True
                except BaseException:
                    self._row_cache.forget()
                    self._schedule = SealSchedule()
                    roll_back(writer)
                    raise
                self._newest = newest
                self._has_written = self._has_written or newest.pos > before.pos
                for transaction in transactions:
                    if transaction.new_tools or transaction.new_keys:
                        self._tool_cache.learn(transaction.new_tools, transaction.new_keys)
                if self._sidecar.folder.look():
                    self._files.check()  # a file deleted during the commit has lost it
                self._sidecar.mark(newest)
        except BaseException as error:
            if ran and not committed and len(batch) > 1:
                for operation in batch:
                    operation.error = None
                    operation.moved = set()
                    self._commit([operation])
                return
            if isinstance(error, sqlite3.Error | OSError):
                error = StoreError(f"{self.path} could not be written: {error}")
            for operation in batch:
                operation.error = operation.error or error

    def _begin(self, writer: Connection) -> Newest:
        """Begin a transaction; return the newest event."""
        if self._sidecar.folder.changed:
            self._files.check_all()
            self._sidecar.folder.settle()
        ends = 0.0
        while True:
            try:
                writer.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            ends = ends or time.monotonic() + BUSY_SECONDS
            if time.monotonic() > ends:
                raise StoreError(
                    f"{self.path} could not be written: another program has had it locked for "
                    f"{BUSY_SECONDS:.0f} seconds"
                )
            time.sleep(_BUSY_NAP)
        return self._check_fence(writer) if self._row_cache.check(writer) else self._newest

    def _run(self, writer: Connection, batch: list[Operation]) -> list[CachedTransaction]:
        """Run operations in the open transaction; return what those did that were not refused.

        One that is refused leaves the transaction as it was.
        """
        alone = len(batch) == 1
        transactions: list[CachedTransaction] = []
        for operation in batch:
            transaction = CachedTransaction(writer, self._parts, self._row_cache)
            if not alone:
                writer.execute("SAVEPOINT operation")
            if operation.name in _PAST_THE_CACHE:
                self._row_cache.forget()
            try:
                operation.result = operation.body(transaction)
            except Exception as error:
                if isinstance(error, sqlite3.Error) and not isinstance(error, _OWN_ERRORS):
                    raise  # the disk failed
                writer.execute("ROLLBACK" if alone else "ROLLBACK TO operation")
                operation.error = explained(error)
                self._row_cache.forget()
            else:
                operation.moved = transaction.moved
                transactions.append(transaction)
            if not alone:
                writer.execute("RELEASE operation")
        return transactions

    def _commit_own(
        self,
        writer: Connection,
        batch: list[Operation],
        transactions: list[CachedTransaction],
        newest: Newest,
    ) -> Newest:
        """Commit what was added to the newest event. Return the newest event after that."""
        if not writer.in_transaction:
            return newest  # the only operation was refused
        first = newest.pos + 1
        for transaction in transactions:
            newest = newest.after(transaction.events)
        may_seal = self._can_seal and (
            newest.pos >= first or any(operation.name not in _APART for operation in batch)
        )
        if may_seal and self._schedule.may_be_due(newest.pos, self._clock()):
            self._seal_when_due(writer)
        if self.boundary is not None:
            for operation in batch:
                if operation.error is None and operation.name != _HEARTBEAT:
                    self.boundary(operation.name, "before")
        self._own.add(first, newest.pos)
        try:
            writer.execute("COMMIT")
        except BaseException:
            self._own.undo()
            raise
        return newest

    def _check_fence(self, writer: Connection) -> Newest:
        """Raise ``StoreError`` if the database was upgraded or replaced, or went back in time.

        Returns the newest event.
        """
        self._check_meta(writer)
        newest = newest_event(writer)
        if newest.pos < self._newest.pos:
            self._newest = newest
            self._sidecar.fall_behind()
            raise StoreError(
                f"an older copy was put back into {self.path}: run `sayso recover` first"
            )
        return newest

    def _check_meta(self, connection: Connection) -> None:
        meta = read_meta(connection.execute, self.url)
        if meta["incarnation"] != self.incarnation:
            raise another(self.url)
        if meta["version"] != self._version:
            self._upgraded_to = meta["version"]
            self._check_version()

    def _check_version(self) -> None:
        """Raise ``StoreVersion`` if a commit has found that another version changed the tables."""
        if self._upgraded_to:
            raise upgraded(self.url, self._upgraded_to, self._version)

    # -- sealing

    def _seal_when_due(self, writer: Connection) -> None:
        find = partial(find_unsealed, partial(fetch_all, writer))
        make = partial(self._seal, transaction_on(writer, self._parts))
        self._schedule.seal_if_due(self._clock(), find, make)

    def _seal(self, transaction: WriteTransaction, *, wait: bool = True) -> Seal | None:
        self._has_written = False
        self._row_cache.forget()
        return super()._seal(transaction)

    def schema_version(self) -> int:
        return int(self._version)

    def write_presence(self, statement: str, values: Sequence[Any]) -> None:
        if self._writer is None:
            return  # a forked child that has not used the store
        body = lambda transaction: transaction.execute(statement, values)  # noqa: E731
        self._submit(Operation(_HEARTBEAT, body), presence.PATIENCE)

    # -- reading

    def run(self, run_id: str) -> Run | None:
        return self._cached("runs", run_id) or super().run(run_id)

    def call(self, call_id: str) -> Call | None:
        return self._cached("calls", call_id) or super().call(call_id)

    def call_by_key(self, run: str, key: str) -> Call | None:
        call_id = self._row_cache.ids.get((run, key), "")
        return self._cached("calls", call_id) or super().call_by_key(run, key)

    def thread(self, thread: str) -> Thread | None:
        return self._cached("threads", thread) or super().thread(thread)

    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        if keys is not None and len(keys) == 1:
            call = self.call_by_key(run, keys[0])
            return [] if call is None else [call]
        return super().calls_of(run, keys)

    def _cached(self, kind: str, row_id: str) -> Any:
        """Find a row that this process wrote last, if it is still current."""
        cache = self._row_cache
        if row_id not in getattr(cache, kind) or not self._writing.acquire(blocking=False):
            return None
        try:
            writer = self._writer
            if writer is None:  # closed
                return None
            if self._sidecar.folder.look():
                self._files.check()
            with no_fork.lock:
                (version,) = writer.execute("PRAGMA data_version").fetchone()
            return getattr(cache, kind).get(row_id) if version == cache.version else None
        except (sqlite3.Error, OSError):
            return None  # reading the file says what is wrong with it
        finally:
            self._writing.release()

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if self._writer is None:
            if must_not_block():
                raise WouldBlock  # a forked child opens the file, and waits for other processes
            self._ready()
        self._check_version()
        self._files.check()
        ends = time.monotonic() + BUSY_SECONDS
        failures = 0
        while True:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._new_reader()
                wait_for_locks(connection, 0)
            try:
                with no_fork.lock:
                    rows = fetch_all(connection, statement, values)
            except sqlite3.Error as error:
                connection.close()
                failures += not is_busy(error)
                is_last = failures == _RETRIES or time.monotonic() > ends
                self._wait_to_read_again(error, is_last=is_last)
            except BaseException:  # such as text that is not Unicode
                connection.close()
                raise
            else:
                self._readers.append(connection)
                if self._closed:  # during the read
                    self._close_readers()
                return rows

    def _wait_to_read_again(self, error: sqlite3.Error, *, is_last: bool) -> None:
        """Wait if another program has the file locked. Raise after the last attempt."""
        if is_last:
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(self._new_reader()) as reader,
                no_fork.lock,
            ):
                self._check_meta(reader)  # says so if another version changed the tables
            raise StoreError(f"{self.path} could not be read: {error}") from error
        if is_busy(error):
            if must_not_block():
                raise WouldBlock from error
            time.sleep(_BUSY_NAP)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        self._ready()
        self._check_version()
        self._files.check()
        connection = self._new_reader()

        def rows(statement: str, values: Sequence[Any] = ()) -> list[Any]:
            try:
                with no_fork.lock:
                    return fetch_all(connection, statement, values)
            except sqlite3.Error as error:
                raise StoreError(f"{self.path} could not be read: {error}") from error

        with contextlib.closing(connection):
            rows("BEGIN")
            yield Snapshot(self, rows)

    # -- commits of other processes

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        self._ready()
        return self._hub.subscribe(thread, listener)

    def _new_reader(self) -> Connection:
        self._files.check_all()
        try:
            return connected(self.path, writable=False)
        except StoreError:
            self._files.check()  # says so if the file was deleted since
            raise

    def _start_watching(self) -> None:
        connection = self._new_reader()
        Watcher(connection, self._files, self._hub, self._own, self._seen).start()

    # -- the rest

    def reserve(
        self, agents: Sequence[str], limit: int, worker: str, skip: Collection[str] = ()
    ) -> list[Run]:
        return self._reservations.take_ready(self, agents, limit, worker, skip)

    def restored(self) -> bool:
        """Return whether the database is older than its mark: a copy was put back."""
        if self._writer is None:
            self._ready()
        return self._sidecar.behind and self._sidecar.still_behind()

    def mark_recovered(self) -> None:
        with contextlib.closing(self._new_reader()) as reader, no_fork.lock:
            self._sidecar.reset(newest_event(reader))

    def close(self) -> None:
        """Seal what moved and close the files. Idempotent. A closed store cannot be used.

        Does not wait for a process that is stopped in a commit: another process seals later.
        """
        if self._closed:
            return
        presence.leave(self)
        try:
            if self._has_written:
                seal_all(lambda: self._submit(Operation("seal", self._seal), PATIENCE))
        except StoreError as error:
            log.warning("not sealed yet; the next seal covers it: %s", error)
        finally:
            self._closed = True
            # If it does not end, it still writes, and keeps the files open.
            has_ended = self._writer_thread.stop(PATIENCE)
            writer = self._writer
            self._writer = None
            self._hub.clear()
            self._reservations.close()
            if has_ended:
                if writer is not None:
                    writer.close()
                self._close_readers()
                self._sidecar.close()

    def _close_readers(self) -> None:
        with contextlib.suppress(IndexError):  # other OS threads take them, too
            while True:
                self._readers.pop().close()
