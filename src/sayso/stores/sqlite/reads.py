"""What every SQLite store reads, and the store that only reads.

``ReadOnlySqliteStore`` changes nothing in the folder of its file: no table, no key, no log, not
even the index of the log (``docs/decisions/0048``). How the file is opened depends on what lies
next to it:

- a log and its index: a process has the store open, or was killed. SQLite reads both as they are
  (``readonly_shm``);
- no log: the file is complete. It is opened as immutable, because SQLite would create a log
  otherwise, and every read checks that no process has written meanwhile;
- a log without its index, as in a copy of two files: both are copied to a temporary folder and
  joined there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import finalize

from sayso.errors import NotFound, SaysoError, StoreError
from sayso.forking import no_fork, renew_in_child
from sayso.keys import Keyring
from sayso.rows import Event, event_from
from sayso.stores.base import Cursor, SnapshotLost, position_of
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.migrate import check_current, check_key, damaged, read_meta, version_of
from sayso.stores.sql.read_only import ReadOnlySqlStore
from sayso.stores.sql.reads import Snapshot, SqlReads
from sayso.stores.sql.statements import SQLITE
from sayso.stores.sql.transaction import ToolCache
from sayso.stores.sqlite.files import (
    TICK_NS,
    Connection,
    Fetched,
    check_alone,
    check_local,
    connected_read_only,
    fetch_all,
    has_event,
    lost_store,
    mark_beside,
)
from sayso.types import Micros

_RETRIES = 5
#: Size, time and identity of a file: if they stay the same, so does the file.
_State = tuple[int, int, int]


class SqliteReads(SqlReads):
    """Events are numbered in commit order, because one process writes at a time."""

    _dialect = SQLITE

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        return self._events("pos > ? ORDER BY pos", position_of(after), limit)

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        end = position_of(before) if before else 1 << 62
        return self._events("pos < ? ORDER BY pos DESC", end, limit)

    def _events(self, where: str, pos: int, limit: int) -> list[tuple[Cursor, Event]]:
        rows = self._rows(f"SELECT {sql.EVENT} FROM event WHERE {where} LIMIT ?", (pos, limit))
        return [(str(event.pos), event) for event in map(event_from, rows)]

    def tail(self) -> Cursor:
        return str(self._rows("SELECT max(pos) FROM event")[0][0] or 0)


class _Reader:
    """A connection that only reads, and the state of the file if it was opened as immutable."""

    def __init__(self, connection: Connection, path: Path, state: _State | None = None) -> None:
        self.connection = connection
        self._path = path
        self._state = state

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read. Raise ``SnapshotLost`` if an immutable file was written meanwhile."""
        try:
            with no_fork.lock:
                rows = fetch_all(self.connection, statement, values)
        except sqlite3.Error as error:
            self._check_state()
            raise StoreError(f"{self._path} could not be read: {error}") from error
        self._check_state()
        return rows

    def _check_state(self) -> None:
        if self._state is None:
            return
        log = Path(f"{self._path}-wal")
        if _state(self._path) != self._state or (log.exists() and log.stat().st_size):
            raise SnapshotLost(f"{self._path} was written")


class SqliteFile:
    """The file of a store, opened so that nothing in its folder changes."""

    def __init__(self, path: Path) -> None:
        """Raise ``NotFound`` if there is no file or an empty one, ``StoreError`` for a folder."""
        self.path = path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise _no_store(path, "is missing") from None
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        if path.is_dir():
            raise StoreError(f"{path} is a folder: name the file of the store in it")
        check_local(path)
        check_alone(path)
        if not size:
            raise _no_store(path, "is empty")
        self._lock = threading.Lock()
        self._copied: Path | None = None
        self._remove_copy: finalize[..., SqliteFile] | None = None
        self._reader: _Reader | None = None
        renew_in_child(self)

    def after_fork(self) -> None:
        """Open another connection on first use, and leave the copy to the parent."""
        self._lock = threading.Lock()
        self._reader = None
        if self._remove_copy is not None:
            self._remove_copy.detach()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read from the file as it is now."""
        for _ in range(_RETRIES):
            with self._lock:
                reader = self._reader = self._reader or self._open()
                try:
                    return reader.rows(statement, values)
                except SnapshotLost:
                    reader.connection.close()
                    self._reader = None
        raise StoreError(f"{self.path} could not be read: other processes keep replacing it")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Callable[..., list[Any]]]:
        """Read the file as it is at this moment, over a function like ``rows``."""
        reader = self._open()
        with contextlib.closing(reader.connection):
            reader.rows("BEGIN")
            yield reader.rows

    def tables(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT name FROM sqlite_master")}

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Read like ``rows``, for functions that expect a cursor."""
        return Fetched(self.rows(statement, values))

    def version(self) -> int:
        """Return the version of the tables. Raise ``StoreError`` if they are not a store's."""
        version = version_of(self.tables(), self.execute, f"sqlite:///{self.path}")
        if not version:
            raise _no_store(self.path, "has no tables")
        return version

    def _open(self) -> _Reader:
        log = Path(f"{self.path}-wal")
        if self._copied is None and log.exists() and os.path.exists(f"{self.path}-shm"):
            return _Reader(connected_read_only(self.path, "mode=ro&readonly_shm=1"), self.path)
        if self._copied is None and log.exists() and log.stat().st_size:
            self._copied = self._copy(log)
        journal = Path(f"{self.path}-journal")
        if journal.exists() and journal.stat().st_size:
            raise StoreError(
                f"{self.path} is being created, or the process that created it died ({journal} "
                "exists): try again, or start the agent that creates it"
            )
        complete = self._copied or self.path
        state = _settled_state(complete)
        return _Reader(connected_read_only(complete, "immutable=1"), complete, state)

    def _copy(self, log: Path) -> Path:
        """Join the file and its log in a copy. No process has them open: the index is missing."""
        folder = tempfile.mkdtemp(prefix="sayso-")
        self._remove_copy = finalize(self, shutil.rmtree, folder, True)
        copy = Path(folder) / "store.db"
        try:
            shutil.copyfile(self.path, copy)
            shutil.copyfile(log, f"{copy}-wal")
            with no_fork.lock, contextlib.closing(sqlite3.connect(copy)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"{log} has no index, so it was copied to be read, and that failed: {error}"
            ) from error
        return copy

    def close(self) -> None:
        """Close the file, and delete its copy. Idempotent."""
        with self._lock:
            if self._reader is not None:
                self._reader.connection.close()
                self._reader = None
            if self._remove_copy is not None:
                self._remove_copy()


def _state(path: Path) -> _State:
    try:
        stat = path.stat()
    except OSError as error:
        raise StoreError(f"{path} can no longer be read: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _settled_state(path: Path) -> _State:
    """Return the state of a file once its time can tell a later write from the last one."""
    while time.time_ns() - (state := _state(path))[1] in range(TICK_NS):
        time.sleep(TICK_NS / 1e9)
    return state


def _no_store(path: Path, content: str) -> SaysoError:
    """Return the error for a file that is missing or has no store in it."""
    if mark_beside(path) is not None:
        return lost_store(path, content)
    return NotFound(
        f"there is no store at {path}, which {content}: start the agent that creates it, or name "
        "another with --store or SAYSO_STORE"
    )


class ReadOnlySqliteStore(ReadOnlySqlStore, SqliteReads):
    """A store in one SQLite file that is read and never written."""

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] = lambda: time.time_ns() // 1000,
    ) -> None:
        super().__init__()
        self.path = Path(os.path.realpath(Path(path).expanduser()))
        self.url = f"sqlite:///{self.path}"
        self._clock = clock
        self._tool_cache = ToolCache()
        self._file = SqliteFile(self.path)
        try:
            check_current(self._file.version(), "sqlite", self.url)
            try:
                self._file.rows(sql.CHECK_TABLES)
            except StoreError as error:
                raise damaged(self.url, str(error)) from error
            meta = read_meta(self._file.execute, self.url)
            self.incarnation = meta["incarnation"]
            mark = mark_beside(self.path)
            if mark is not None and mark.incarnation != self.incarnation:
                raise lost_store(self.path, "holds another store")
            self.keys = keys or Keyring.for_store(self.path)
            check_key(meta["key"], [key.id for key in self.keys.keys], self._file.execute, self.url)
        except BaseException:
            self._file.close()
            raise
        self._decode = RowDecoder(self.keys)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._file.rows(statement, values)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._file.snapshot() as rows:
            yield Snapshot(self, rows)

    def restored(self) -> bool:
        """Return whether the database is older than its mark: a copy was put back."""
        mark = mark_beside(self.path)
        return mark is not None and not has_event(self._file.execute, mark.newest)

    def close(self) -> None:
        self._file.close()
