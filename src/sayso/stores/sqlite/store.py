"""SQLite: one file, many threads, many processes.

Writers combine. A caller queues its commands and takes the writer's lock; whoever holds it commits
everything that has queued up so far in one transaction (a SAVEPOINT each), so that ten threads
share one fsync and a lone caller pays for no hand-over. Between processes a ``flock`` on a sidecar
file stands around each batch and each checkpoint: SQLite's own busy loop starves somebody, a queue
in the kernel does not.

A second sidecar remembers how far the events had come. A file that is behind its mark has been
restored from a copy, and nothing starts until ``sayso recover`` was run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sayso.engine import Command
from sayso.errors import StoreError
from sayso.forking import generation, no_fork, renew_in_child
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Event, Tool
from sayso.stores.base import (
    Boundary,
    Cursor,
    engine_deps,
    run_commands,
)
from sayso.stores.hub import Hub, Listener
from sayso.stores.row_checks import RowDecoder
from sayso.stores.seals import Seal, SealSchedule, is_full
from sayso.stores.sql.dialect import SQLITE
from sayso.stores.sql.migrate import another, read_meta
from sayso.stores.sql.prune import prune
from sayso.stores.sql.reads import SqlReads, move_cursor
from sayso.stores.sql.seal import find_unsealed, seal_moved
from sayso.stores.sql.tool_cache import ToolCache
from sayso.stores.sql.transaction import SqlTransaction
from sayso.stores.sqlite.opening import (
    Connection,
    OpenFiles,
    brought_up_to_date,
    check_alone,
    check_usable,
    connected,
    forked,
    last_pos,
    roll_back,
)
from sayso.stores.sqlite.operation import Operation
from sayso.stores.sqlite.row_cache import RowCache, SqliteTransaction
from sayso.stores.sqlite.sidecar import PATIENCE, Sidecar
from sayso.stores.sqlite.stream import Stream
from sayso.stores.sqlite.watcher import OwnCommits, Watcher
from sayso.types import Micros

log = logging.getLogger("sayso.stores")

_RETRIES = 5
#: A commit that takes less is not worth a thread.
_QUICK = 0.001
#: As many events as one commit adds, about.
_FEW = 20


class SqliteStore(SqlReads):
    """A store in one SQLite file (WAL, ``synchronous=FULL``)."""

    _dialect = SQLITE

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        boundary: Boundary | None = None,
    ) -> None:
        # The user's name for it may be a link. Lock, mark and key are beside the file itself.
        self._name = Path(path).expanduser().absolute()
        self.path = Path(os.path.realpath(self._name))
        self.url = f"sqlite:///{self.path}"
        self.boundary = boundary
        self.incarnation = ""
        self.quick_reads = True  # a reader of a WAL waits for no writer
        self._clock = clock
        self._sidecar = Sidecar(self.path)
        try:
            self.keys = keys or Keyring.for_store(self.path)
            self._set_up()
        except BaseException:
            self._sidecar.close()
            raise

    def _set_up(self) -> None:
        self._deps = engine_deps(self.keys)
        self._decode = RowDecoder(self.keys)
        self._tool_cache = ToolCache()
        self._hub = Hub(self._start_watching)
        self._stream = Stream(self._rows)
        self._closed = False
        self._reset()
        self._ready()
        renew_in_child(self)

    def _reset(self) -> None:
        """Set up what belongs to one process."""
        self._generation = generation()
        self._writer_lock = threading.Lock()
        self._queue: deque[Operation] = deque()
        self._news: list[tuple[list[Tool], set[int]]] = []
        self._threads_moved: set[str] = set()
        self._batch: list[Operation] = []
        self._committing = False
        self._readers: list[Connection] = []
        self._writer: Connection | None = None
        self._schedule = SealSchedule()
        #: Whether this process has committed events since it sealed.
        self._has_written = False
        self._pos = 0
        self._seen, self._added = 0, 0
        self._own = OwnCommits()
        self._row_cache = RowCache()
        #: How long a commit takes, of late.
        self._pace = 0.0

    def after_fork(self) -> None:
        """Forget the parent's connections and locks. The child opens the file on first use."""
        # Not unlocked: the lock belongs to the open file, which parent and child share.
        self._sidecar.close()
        self._reset()

    def _ready(self) -> Connection:
        """Return the connection that writes; a forked child opens its own."""
        writer = self._writer
        if writer is None:
            with self._writer_lock:
                writer = self._writer or self._open()
        return writer

    def _open(self) -> Connection:
        if self._closed:
            raise StoreError(f"{self.url} is closed: open it again")
        if self._sidecar.closed:  # this is a forked child
            check_usable(self.path)
            self._sidecar = Sidecar(self.path)
        with self._sidecar.lock(), no_fork():
            check_alone(self.path)
            writer = connected(self.path)
            try:
                self._prepare(writer)
                self._files = OpenFiles(self.path, self._name)
                if writer.file != check_usable(self._name):
                    raise StoreError(f"{self._name} was replaced while it was opened: try again")
            except BaseException:
                writer.close()
                raise
        self._writer = writer
        return writer

    def _prepare(self, connection: Connection) -> None:
        incarnation = brought_up_to_date(connection, self.keys, self.url)
        if self.incarnation not in ("", incarnation):  # this is a forked child
            raise another(self.url)
        self.incarnation = incarnation
        self._seen = self._pos = last_pos(connection)
        unsealed = find_unsealed(lambda *query: connection.execute(*query).fetchall())
        if not unsealed.demand_seal(self._clock()):
            self._schedule.looked(unsealed, self._clock())
        self._sidecar.adopt(self.incarnation, self._seen)

    def now(self) -> Micros:
        """The machine's wall clock."""
        return self._clock()

    # -- writing

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread in one durable transaction."""

        def body(transaction: SqlTransaction) -> list[Any]:
            results, work = run_commands(transaction, commands)
            self._added += len(work.events)
            self._has_written = self._has_written or bool(work.events)
            self._threads_moved.update(event.thread for event in work.events)
            self._news.append(
                (work.tools, {search_key.id for search_key in transaction.search_keys})
            )
            return results

        names = [command.name for command in commands if command.name]
        results: list[Any] = self._submit(names, body)
        return results

    def transact_now(self, *commands: Command) -> list[Any] | None:
        """The same, if nobody writes at this moment and the disk has been quick so far."""
        if self._writer is None or self._pace > _QUICK or self._wants_look(self._pos + _FEW):
            return None
        if not self._writer_lock.acquire(blocking=False):
            return None
        try:  # inside, for the file's lock belongs to all threads of this process together
            free = self._sidecar.free()
        finally:
            self._writer_lock.release()
        return self.transact(*commands) if free else None

    def _submit(self, names: Sequence[str], body: Callable[[SqlTransaction], Any]) -> Any:
        self._ready()
        began_in = self._generation
        operation = Operation(names, body)
        moved: set[str] = set()
        try:
            self._queue.append(operation)
            with self._writer_lock:
                if not operation.done:
                    moved = self._commit_queue()
        finally:
            # Also if interrupted, or a later batch would carry it out.
            with contextlib.suppress(ValueError):
                self._queue.remove(operation)
        if began_in != self._generation:
            raise forked(self.path)
        self._hub.publish(moved)
        if operation.error is not None:
            raise operation.error
        return operation.result

    def _commit_queue(self) -> set[str]:
        """Commit what has queued up; gives the threads that moved."""
        writer = self._writer or self._open()
        with no_fork():
            self._mend(writer)
        batch = self._batch = [operation for operation in list(self._queue) if not operation.done]
        moved: set[str] = set()
        try:
            with self._sidecar.lock(), no_fork():
                try:
                    self._commit(writer, batch)
                except (sqlite3.Error, OSError, StoreError):
                    self._committing = False
                    self._undo(writer)
                    raise
                finally:
                    moved = self._threads_moved
                    self._mend(writer)
        except (sqlite3.Error, OSError) as error:
            self._fail(batch, StoreError(f"{self.path} could not be written: {error}"))
        except StoreError as error:
            self._fail(batch, error)
        return moved

    def _mend(self, writer: Connection) -> None:
        """Settle the last batch, wherever it was interrupted: it is committed, or undone.

        Once ``_committing`` is set, nothing but the COMMIT ends the transaction. What was undone is
        still in the queue, and its callers try again.
        """
        if self._committing and not writer.in_transaction:
            self._finish(self._batch)
        if writer.in_transaction:
            self._undo(writer)
        self._batch, self._committing = [], False
        self._threads_moved, self._news, self._added = set(), [], 0

    def _undo(self, writer: Connection) -> None:
        # First: whoever is interrupted in between has undone less.
        self._row_cache.forget()
        self._schedule = SealSchedule()
        roll_back(writer)

    def _commit(self, writer: Connection, batch: list[Operation]) -> None:
        self._files.check_all()
        writer.execute("BEGIN IMMEDIATE")
        if self._row_cache.check(writer):
            self._check_lineage(writer)
        for operation in batch:
            transaction = SqliteTransaction(
                writer, self._tool_cache, self._deps, self._decode, self._clock, self._row_cache
            )
            operation.run(writer.execute, transaction, alone=len(batch) == 1)
            if operation.error is not None:
                self._row_cache.forget()
        pos = last_pos(writer)
        if writer.in_transaction and self._wants_look(pos):
            self._seal_when_due(writer)
        self._cross(batch, "before")
        if writer.in_transaction:
            self._committing = True
            self._commit_own(writer, pos)
            self._pos = pos
            for tools, search_keys in self._news:
                self._tool_cache.learn(tools, search_keys)
        self._cross(batch, "after")
        self._files.check()  # deleted in the middle, it has taken this commit along
        self._sidecar.mark(pos)
        self._finish(batch)

    def _check_lineage(self, writer: Connection) -> None:
        """Another process has written: refuse what is not the future of what we know."""
        if read_meta(writer.execute, self.url)["incarnation"] != self.incarnation:
            raise another(self.url)
        if (pos := last_pos(writer)) < self._pos:
            self._pos = pos
            self._sidecar.fall_behind()
            raise StoreError(
                f"an older copy was put back into {self.path}: run `sayso recover` first"
            )

    def _commit_own(self, writer: Connection, pos: int) -> None:
        self._own.add(pos - self._added + 1, pos)
        began = time.perf_counter()
        try:
            writer.execute("COMMIT")
        finally:
            if writer.in_transaction:
                self._own.undo()
        self._pace += (time.perf_counter() - began - self._pace) / 4

    def _cross(self, batch: list[Operation], when: str) -> None:
        if self.boundary is not None:
            for operation in batch:
                if operation.error is None:
                    self.boundary("+".join(operation.names), when)

    @staticmethod
    def _finish(batch: list[Operation]) -> None:
        for operation in batch:
            operation.done = True

    def _fail(self, batch: list[Operation], error: StoreError) -> None:
        for operation in batch:
            if not operation.done:
                operation.error = operation.error or error
        self._finish(batch)

    # -- sealing and pruning

    def _wants_look(self, pos: int) -> bool:
        return self.keys.can_sign and self._schedule.wants_look(pos, self._clock())

    def _seal_when_due(self, writer: Connection) -> Seal | None:
        def rows(statement: str, values: Sequence[Any]) -> list[Any]:
            return writer.execute(statement, values).fetchall()

        now, seal, unsealed = self._clock(), None, find_unsealed(rows)
        if unsealed.demand_seal(now):
            seal = self._seal(writer)
            unsealed = find_unsealed(rows)
        self._schedule.looked(unsealed, now)
        return seal

    def _seal(self, writer: Connection) -> Seal | None:
        self._has_written = False
        self._row_cache.forget()
        return seal_moved(writer.execute, self.keys, self._clock())

    def seal(self) -> Seal | None:
        """Sign the heads of all chains that moved."""
        newest: Seal | None = None
        while seal := self._submit(["seal"], lambda _: self._seal(self._ready())):
            newest = seal
            if not is_full(seal):
                break
        return newest

    def seal_if_due(self) -> Seal | None:
        """Make a seal if the unsealed events in the file demand one."""
        if not (self.keys.can_sign and find_unsealed(self._rows).demand_seal(self.now())):
            return None
        seal: Seal | None = self._submit(["seal"], lambda _: self._seal_when_due(self._ready()))
        return seal

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        """Forget the contents of what ended before then."""

        def body(transaction: SqlTransaction) -> dict[str, int]:
            self._row_cache.forget()
            counts, note = prune(self._ready().execute, self._deps, self._decode, before, by)
            _, work = run_commands(transaction, (note,))
            self._added += len(work.events)
            self._tool_cache.forget()
            self._threads_moved.add(SYSTEM_THREAD)
            self._seal(self._ready())
            return counts

        counts: dict[str, int] = self._submit(["prune"], body)
        return counts

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named reader of the events, unless somebody else has moved it."""
        moved: bool = self._submit(
            ["cursor"], lambda _: move_cursor(self._ready().execute, name, to, expected)
        )
        return moved

    # -- reading

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self._ready()
        self._files.check()
        for attempt in range(_RETRIES):
            try:
                connection = self._readers.pop()
            except IndexError:
                self._files.check_all()
                connection = connected(self.path, writable=False)
            try:
                with no_fork():
                    rows = connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                connection.close()
                if attempt == _RETRIES - 1:
                    raise StoreError(f"{self.path} could not be read: {error}") from error
            else:
                self._readers.append(connection)
                return rows
        raise AssertionError("unreachable")

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        return self._stream.events(after, limit)

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        return self._stream.newest(before, limit)

    def tail(self) -> Cursor:
        return self._stream.tail()

    # -- hearing of other processes

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        """Hear of commits, of this process at once and of others within some milliseconds."""
        self._ready()
        return self._hub.subscribe(thread, listener)

    def _start_watching(self) -> None:
        connection = connected(self.path, writable=False)
        Watcher(connection, self._files, self._hub, self._own, self._seen).start()

    # -- the rest

    def restored(self) -> bool:
        """Whether the file is older than its mark: somebody put a copy back."""
        self._ready()
        return self._sidecar.still_behind()

    def mark_recovered(self) -> None:
        """Everything that may have run is in doubt now: go on from here."""
        self._sidecar.reset(int(self.tail()))

    def close(self) -> None:
        """Seal what moved and let go of the file; a closed store can be read no more.

        A process that is stopped in a commit is not waited for: what moved, another one seals.
        """
        if self._closed:
            return
        try:
            if self._has_written and self._sidecar.lets_in(self._writer_lock, PATIENCE):
                self.seal()
        except StoreError as error:
            log.warning("not sealed now, which the next seal makes good: %s", error)
        finally:
            self._closed = True
            # If it is not free, one of our threads waits in there, and has the rest to the end.
            free = self._writer_lock.acquire(timeout=PATIENCE)
            writer, self._writer = self._writer, None
            self._hub.clear()
            if free:
                if writer is not None:
                    writer.close()
                while self._readers:
                    self._readers.pop().close()
                self._sidecar.close()
                self._writer_lock.release()
