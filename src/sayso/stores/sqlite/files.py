"""The files of a SQLite store: the database, its log, the lock file and the mark file.

SQLite counts the locks of a file per process, in variables that a forked child inherits. While an
inherited connection is open, a new one to the same file shares those counts and takes the parent's
locks for its own. So a child closes what it inherits, which is safe while nothing happens on it:
every use of SQLite is a section that a fork waits for (``forking.no_fork``). A connection that was
in the middle of a statement is never closed, because closing it would undo the parent's transaction
in memory that both share. Its file cannot be opened in that child.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from weakref import WeakSet, finalize

from sayso.errors import StoreError
from sayso.forking import call_in_child, cut_short, no_fork
from sayso.keys import Keyring
from sayso.rows import Event, Run
from sayso.stores.base import RESERVED_SECONDS, StoreReads
from sayso.stores.sql import statements as sql
from sayso.stores.sql.migrate import (
    check_key,
    check_version,
    damaged,
    migrate,
    read_meta,
    version_of,
)

#: How many seconds to wait for another program that has the file locked.
BUSY_SECONDS = 10.0
#: Each commit is on the disk when it returns, whatever the library's defaults are. ``fullfsync``
#: concerns macOS, where a plain fsync leaves data in the disk's cache.
_DURABLE = ("synchronous=FULL", "fullfsync=1", "locking_mode=NORMAL")


#: Identifies a file, whatever its name.
Identity = tuple[int, int]


def identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


class Connection(sqlite3.Connection):
    """A connection that closes when it is garbage collected.

    A store that was not closed has lost nothing, but Python 3.13 and later would warn about each of
    its connections.
    """

    file: Identity = (0, 0)
    #: Whether it reads the index of the log without ever writing to it.
    read_only = False
    #: Whether the parent process was using it at the fork, so that this child must not close it.
    abandoned = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _connections.add(self)

    def close(self) -> None:
        """Close the connection, unless it is a parent's. Idempotent."""
        if not self.abandoned:
            with no_fork.lock:
                super().close()
            _connections.discard(self)

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # one that could not be opened
            self.close()


_connections: WeakSet[Connection] = WeakSet()
_abandoned: list[Connection] = []


def _after_fork() -> None:
    for connection in list(_connections):
        if cut_short() or connection.in_transaction:
            import ctypes

            connection.abandoned = True
            _abandoned.append(connection)
            # One reference too many, so that not even the end of the interpreter closes it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            if cut_short() != "other":  # else an OS thread may have had it locked
                connection.set_authorizer(_deny)
        else:
            connection.close()


def _deny(*_: object) -> int:
    return sqlite3.SQLITE_DENY


call_in_child(_after_fork)


def check_usable(path: Path) -> Identity:
    """Return the identity of a file. Raise if the parent process was using it at the fork."""
    identity = identity_of(os.stat(path))
    if any(connection.file == identity for connection in _abandoned):
        raise forked(path)
    return identity


def connected(path: Path, *, writable: bool = True) -> Connection:
    """Open a connection; a writable one creates the file if it does not exist."""
    try:
        if writable and not path.exists():
            # Other users of this machine must not read what agents ask for.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        identity = check_usable(path)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    if writable and any(other.read_only for other in _connections_to(identity)):
        # SQLite opens the index of a log once per process, and would try to write to it.
        raise StoreError(
            f"this process has opened {path} read-only: close that store before you write to it"
        )
    connection = _connect(path, "mode=rw", identity)
    if not writable:
        with no_fork.lock:
            connection.execute("PRAGMA query_only=1")
    return connection


def connected_read_only(path: Path, parameters: str) -> Connection:
    """Open a connection that changes no file, with these URI parameters of SQLite."""
    try:
        identity = check_usable(path)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    shared = any(not other.read_only for other in _connections_to(identity))
    connection = _connect(path, "mode=ro" if shared else parameters, identity)
    connection.read_only = not shared
    return connection


def _connections_to(file: Identity) -> list[Connection]:
    return [connection for connection in list(_connections) if connection.file == file]


def _connect(path: Path, parameters: str, identity: Identity) -> Connection:
    connection = None
    with no_fork.lock:
        try:
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path))}?{parameters}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=Connection,
            )
            connection.file = identity
            wait_for_locks(connection, BUSY_SECONDS)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise StoreError(f"cannot open {path}: {error}") from error
    return connection


def fetch_all(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()
) -> list[Any]:
    """Run a query and return its rows.

    Text that is not UTF-8 was not written by Sayso. It is decoded all the same, so that the check
    of its row refuses it, and not SQLite the whole list.
    """
    try:
        return connection.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.text_factory = str


class Fetched(list[Any]):
    """A reply that was read to its end.

    An unfinished statement holds its snapshot as long as anything refers to it, even a traceback,
    and the connection cannot write once another process has.
    """

    rowcount = -1

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        return self


def wait_for_locks(connection: sqlite3.Connection, seconds: float) -> None:
    """Set how long the connection itself waits for other programs.

    It waits without answering to anything, so connections that an event loop may use do not.
    """
    with no_fork.lock:
        connection.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another program has the file locked."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)


def forked(path: Path) -> StoreError:
    """Return the error for a child that was forked during a store call."""
    return StoreError(
        f"{path} cannot be used in this process, which was forked during a store call: fork "
        "outside of store calls, or start processes with spawn (multiprocessing) or exec"
    )


def interrupted(path: Path | str) -> StoreError:
    """Return the error for code that writes while its own OS thread is in a commit."""
    return StoreError(
        f"nothing was written to {path}: this OS thread is in the middle of another call to it, "
        "which a finalizer or a signal handler has interrupted. Close generators that are inside "
        "a run, and write from another OS thread"
    )


def check_alone(path: Path) -> None:
    """Raise ``StoreError`` for a file with several names, or a log without its database."""
    log = Path(f"{path}-wal")
    file_stat = path.stat() if path.exists() else None
    if file_stat is not None and file_stat.st_nlink > 1:
        raise StoreError(
            f"{path} has {file_stat.st_nlink} names (hard links). Each would have its own log and "
            "lock, which loses data: remove the others, or use symbolic links"
        )
    if (file_stat is None or not file_stat.st_size) and log.exists() and log.stat().st_size:
        raise StoreError(
            f"{log} belongs to {path.name}, which is missing: put that file back; or, to start "
            f"with an empty store, stop every process that uses it and delete {log}, {path}-shm "
            f"and {path}.mark"
        )


def check_ours(path: Path) -> None:
    """Raise ``StoreError`` if a file holds something else, such as the database of an app."""
    # Opened immutable, so that SQLite creates no files beside it. Its log is checked later.
    if path.is_file() and path.stat().st_size:
        _meta_in(path, "immutable=1")


def check_marked(path: Path, incarnation: str) -> None:
    """Raise ``StoreError`` unless a database holds the store that its mark names.

    The file is opened read-only: closing a connection that can write would copy a log that does not
    belong to the database into it.
    """
    if not path.exists():
        raise lost_store(path, "is missing")
    meta = _meta_in(path, "mode=ro")
    if meta is None:
        raise lost_store(path, "is empty")
    if meta["incarnation"] != incarnation:
        raise lost_store(path, "holds another store")


def _meta_in(path: Path, parameters: str) -> dict[str, str] | None:
    """Read the table ``meta`` of a store; return ``None`` if the database is empty."""
    url = f"sqlite:///{path}"
    address = f"file:{quote(os.fsencode(path))}?{parameters}"
    try:
        with no_fork.lock, closing(sqlite3.connect(address, uri=True)) as connection:
            wait_for_locks(connection, BUSY_SECONDS)
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if version_of(names, connection.execute, url):
                return read_meta(connection.execute, url)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error
    return None


def lost_store(path: Path, content: str) -> StoreError:
    """Return the error for a database that does not hold the store that its mark names."""
    return StoreError(
        f"{path} {content}, and {path.name}.mark says that a store was here: restore it from a "
        f"backup and run `sayso recover`. If this is intended, delete {path}.mark"
    )


def brought_up_to_date(connection: Connection, keys: Keyring, url: str) -> str:
    """Create or migrate the tables and check the keys; return the store's incarnation."""
    try:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        version = version_of(names, connection.execute, url)
        check_version(version, "sqlite", url)
        for setting in _DURABLE:
            connection.execute(f"PRAGMA {setting}")
        if version == 0:
            # Without a log, the commit writes to the main file. So a store that loses its log, or
            # whose main file is copied alone, is an older state of itself and not a new store.
            # The folder is synced too, or a power cut could bring the journal back and undo it.
            _set_journal(connection, "delete")
            connection.execute("PRAGMA synchronous=EXTRA")
        else:
            _set_journal(connection, "wal")
        connection.execute("BEGIN IMMEDIATE")
        migrate(version, "sqlite", connection.execute, keys.primary_id)
        try:
            connection.execute(sql.CHECK_TABLES)
        except sqlite3.OperationalError as error:
            raise damaged(url, str(error)) from error
        meta = read_meta(connection.execute, url)
        check_key(meta["key"], [key.id for key in keys.keys], connection.execute, url)
        connection.execute("COMMIT")
        _set_journal(connection, "wal")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error as error:
        path = url.removeprefix("sqlite:///")
        raise StoreError(f"cannot open the store {path}: {error}") from error
    return meta["incarnation"]


def _set_journal(connection: Connection, mode: str) -> None:
    """Set the journal mode, which SQLite may refuse without an error."""
    (actual,) = connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
    if actual != mode:
        raise sqlite3.OperationalError(
            f"its journal mode is {actual!r} and cannot be changed to {mode!r} here: put it on a "
            "local disk"
        )


class OpenFiles:
    """The files of an open store: the database, its log, and the index of the log.

    SQLite finds them by name once, and then writes to the open files, whatever happens to the name.
    A process that keeps using a deleted file loses what it writes, and a process that opens the new
    file does not see it.
    """

    def __init__(self, path: Path, name: Path) -> None:
        """Note the identities of the files. ``name`` is the user's name for ``path``."""
        files = (str(name), f"{path}-wal", f"{path}-shm")
        self._database, *self._logs = [(file, identity_of(os.stat(file))) for file in files]

    def check(self) -> None:
        """Raise ``StoreError`` if the database was deleted or replaced since it was opened."""
        _check_file(*self._database)

    def check_all(self) -> None:
        """Check the log and its index too."""
        for file, identity in (self._database, *self._logs):
            _check_file(file, identity)


def _check_file(file: str, known: Identity) -> None:
    try:
        if identity_of(os.stat(file)) == known:
            return
        what = "replaced"
    except FileNotFoundError:
        what = "deleted"
    except OSError as error:
        raise StoreError(f"{file} can no longer be read: {error.strerror}") from None
    raise StoreError(
        f"{file} was {what} while it was open, so it can no longer be used: put the file back, or "
        "restore a backup and restart every process that uses it"
    )


class Newest(NamedTuple):
    """The newest event of a store: its position, and the end of its hash."""

    pos: int
    hash: str

    def after(self, events: Sequence[Event]) -> Newest:
        """Return the last of the events that were added to this one. They leave no gap."""
        if not events:
            return self
        return tuple.__new__(Newest, (self.pos + len(events), events[-1].hash[-_HASH_SIZE:]))


#: How many characters of a hash are kept.
_HASH_SIZE = 32


def newest_event(connection: Connection) -> Newest:
    row = connection.execute("SELECT pos, hash FROM event ORDER BY pos DESC LIMIT 1").fetchone()
    return Newest(row[0], row[1][-_HASH_SIZE:]) if row else Newest(0, "")


def has_event(execute: Callable[..., Any], newest: Newest) -> bool:
    """Return whether a database has an event, so that it is neither older nor another one."""
    row = execute("SELECT hash FROM event WHERE pos = ?", (newest.pos,)).fetchone()
    return (row[0][-_HASH_SIZE:] if row else "") == newest.hash


def roll_back(writer: Connection) -> None:
    """Roll back the open transaction, if any; close a connection that cannot."""
    if writer.in_transaction:
        try:
            writer.execute("ROLLBACK")
        except sqlite3.Error:
            writer.close()


#: File systems on which neither flock nor WAL can be trusted.
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "fuse.sshfs", "ceph", "glusterfs"}
)

#: How many seconds ``close`` waits for other writers.
PATIENCE = 2.0

#: The mark of a restored store: no position reaches it.
_RESTORED = Newest((1 << 63) - 1, "restored")


#: Two changes of a folder may have the same time, because file systems round it: to the ticks of
#: the kernel, or, where the fraction is always zero, to a second or two.
TICK_NS = 50_000_000
_ROUNDED_NS = 3_000_000_000


class Folder:
    """The folder of a store's files. One look at it replaces a look at each of them.

    Creating, deleting and renaming a file changes the time of its folder, so as long as that time
    stays the same, every name still leads to the same file. A name that is a link may change
    elsewhere, and a recent time may be the rounded time of two changes: then every look reports a
    change.
    """

    def __init__(self, name: Path) -> None:
        self._path = os.path.dirname(name)
        self._is_link = os.path.islink(name)
        self._seen = self._settled = (0, 0, 0)
        #: Whether the last look found a change that is not settled.
        self.changed = True

    def look(self) -> bool:
        """Return whether a file may have been created, deleted or renamed since ``settle``."""
        folder_stat = os.stat(self._path)
        self._seen = (folder_stat.st_dev, folder_stat.st_ino, folder_stat.st_mtime_ns)
        self.changed = self._seen != self._settled
        return self.changed

    def settle(self) -> None:
        """Accept what the last look found, after every file was checked."""
        changed_at = self._seen[2]
        rounding = TICK_NS if changed_at % 1_000_000_000 else _ROUNDED_NS
        if not self._is_link and time.time_ns() - changed_at > rounding:
            self._settled = self._seen


class Reservations:
    """Which due runs the workers of this machine are about to take, as locks on bytes of a file.

    A byte stands for a run. The system drops the locks of a process that dies. A store in memory
    has no file, and its workers are all in this process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else f"{path}.work"
        self._lock = threading.Lock()
        self._fd: int | None = None
        #: The token, worker and end of each reservation of this process, by run.
        self._ours: dict[str, tuple[int, str, float]] = {}

    def take_ready(
        self,
        store: StoreReads,
        agents: Sequence[str],
        limit: int,
        worker: str,
        skip: Collection[str],
    ) -> list[Run]:
        """Reserve the runs of these agents that are due first, as ``Store.reserve`` says."""
        window = 2 * (limit + len(skip))
        while True:
            due = store.ready(agents, window)
            reserved = self._take(due, limit, worker, skip)
            if len(reserved) == limit or len(due) < window:
                return reserved + [run for run in due if run.id in skip or run.thread in skip]
            window *= 4  # other workers have reserved these

    def _take(
        self, due: Sequence[Run], limit: int, worker: str, skip: Collection[str]
    ) -> list[Run]:
        """Reserve the first runs, up to a limit, that no other worker has reserved."""
        now = time.monotonic()
        reserved_runs = list[Run]()
        tokens = {run.id: run.token for run in due}
        with self._lock, no_fork.lock:
            for name, (token, _, until) in list(self._ours.items()):
                if until <= now or tokens.get(name) != token:  # it was claimed since
                    del self._ours[name]
                    self._locked(name, release=True)
            for run in due:
                if len(reserved_runs) == limit:
                    break
                if run.id in skip or run.thread in skip:
                    continue
                _, other, _ = self._ours.get(run.id, (0, "", 0.0))
                free = other == worker or (not other and self._locked(run.id))
                if free:
                    self._ours[run.id] = (run.token, worker, now + RESERVED_SECONDS)
                    reserved_runs.append(run)
        return reserved_runs

    def _locked(self, run: str, *, release: bool = False) -> bool:
        if self._path is None:
            return True
        how = fcntl.LOCK_UN if release else fcntl.LOCK_EX | fcntl.LOCK_NB
        place = int.from_bytes(hashlib.sha256(run.encode()).digest()[:7])
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._fd, how, 1, place)
        except BlockingIOError:
            return False
        except OSError:
            return True  # without locks, workers may race for a run, and its claim decides
        return True

    def close(self) -> None:
        """Give all of them back. Idempotent."""
        with self._lock:
            self._ours.clear()
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


class Sidecar:
    """The lock file and the mark file beside a database.

    The lock keeps the writers of other processes out. The mark records the position and hash of the
    newest event, so that a database is noticed that was restored from an older copy, or whose log
    is that of another one.
    """

    def __init__(self, path: Path, name: Path) -> None:
        check_local(path)
        self._lock = f"{path}.lock"
        self._mark = f"{path}.mark"
        if not os.path.exists(self._mark):  # no Sayso store was opened here before
            try:
                check_ours(path)
            except StoreError:
                if not os.path.exists(self._mark):  # else another process is creating it now
                    raise
        self._lock_fd = self._open(self._lock)
        self._mark_fd = self._open(self._mark)
        #: The identities of the open files.
        self._files = {fd: identity_of(os.fstat(fd)) for fd in (self._lock_fd, self._mark_fd)}
        # A store that is garbage collected without close() must not leak file descriptors.
        self._closing = finalize(self, _close, self._lock_fd, self._mark_fd)
        self._closing.atexit = False  # a write during interpreter exit still needs the lock
        self.closed = False
        self._incarnation = ""
        self.folder = Folder(name)
        self.behind = False

    def _open(self, path: str) -> int:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error

    def _opened_again(self, path: str, descriptor: int) -> bool:
        """Reopen a file that was deleted or replaced, under its old descriptor."""
        try:
            if identity_of(os.stat(path)) == self._files[descriptor]:
                return False
        except FileNotFoundError:
            pass
        new = self._open(path)
        os.dup2(new, descriptor, inheritable=False)
        os.close(new)
        self._files[descriptor] = identity_of(os.fstat(descriptor))
        return True

    def __enter__(self) -> None:
        """Keep the writers of other processes out inside ``with sidecar:``."""
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            if self.folder.look():
                while self._opened_again(self._lock, self._lock_fd):
                    fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                self._opened_again(self._mark, self._mark_fd)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        # In a forked child, where it is closed, it would be unlocked for the parent, too.
        if not self.closed:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def marked(self) -> str:
        """Return the incarnation of the store that the mark names; "" if there is none."""
        mark = self._read()
        return mark.incarnation if mark else ""

    def adopt(self, incarnation: str, connection: Connection) -> None:
        """Compare the events of the store with its mark; create a missing mark."""
        self._incarnation = incarnation
        mark = self._read()
        self.behind = mark is not None and not has_event(connection.execute, mark.newest)
        if self.behind:
            # It stays behind until it is recovered, however many events are added.
            self.fall_behind()
        elif mark is None:
            self.mark(newest_event(connection))

    def still_behind(self) -> bool:
        """Look again: another process may have recovered the store."""
        mark = self._read()
        self.behind = mark is None or mark.newest == _RESTORED
        return self.behind

    def _read(self) -> Mark | None:
        return _parsed_mark(os.pread(self._mark_fd, 200, 0))

    def mark(self, newest: Newest) -> None:
        """Record the newest event. Not synced: an old mark misses a restore."""
        if self.behind:
            return
        try:  # noqa: SIM105 - suppress() costs more
            self._write(newest)
        except (OSError, StoreError):
            pass  # the commit is done, with or without the mark

    def fall_behind(self) -> None:
        """Mark the store as restored: nothing starts until it is recovered."""
        self.behind = True
        self._write(_RESTORED)

    def _write(self, newest: Newest) -> None:
        if self.folder.changed:
            self._opened_again(self._mark, self._mark_fd)
        # Always of the same length: it is written over the last one.
        pos = f'"{newest.pos:020d}", "{newest.hash:{_HASH_SIZE}}"'
        os.pwrite(self._mark_fd, f'["{self._incarnation}", {pos}]'.encode(), 0)

    def reset(self, newest: Newest) -> None:
        """Mark the store as recovered with this event."""
        self.behind = False
        self._write(newest)

    def close(self) -> None:
        """Close both files. Idempotent."""
        self.closed = True
        self._closing()


class Mark(NamedTuple):
    """What the mark of a store says: its incarnation, and its newest event."""

    incarnation: str
    newest: Newest


def mark_beside(path: Path) -> Mark | None:
    """Read the mark of a store."""
    try:
        return _parsed_mark(Path(f"{path}.mark").read_bytes()[:200])
    except OSError:
        return None


def _parsed_mark(content: bytes) -> Mark | None:
    try:
        incarnation, pos, hash_ = json.loads(content)
        newest = Newest(int(pos), str(hash_).strip())
    except (ValueError, TypeError):
        return None
    return Mark(str(incarnation), newest) if newest.pos <= _RESTORED.pos else None


def check_local(path: Path) -> None:
    """Raise ``StoreError`` if a file is on a network file system."""
    kind = _file_system(path)
    if kind in _NETWORK:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where SQLite can lose data: put "
            "it on a local disk"
        )


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds a path; "" if unknown."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    path = Path(os.path.realpath(path))
    best = ""
    kind = ""
    for line in mounts:
        fields = line.split()
        point = fields[1].replace("\\040", " ")
        inside = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best = point
            kind = fields[2]
    return kind
