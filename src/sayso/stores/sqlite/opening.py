"""A connection to a SQLite file: who may read it, how durable its commits are, and what a forked
child makes of it.

SQLite counts the locks of a file per process, in variables that a forked child inherits. While an
inherited connection is open, a new one to the same file shares those counts and takes the parent's
locks for its own. So a child closes what it inherits, which is safe while nothing happens on it:
every use of SQLite is a section that a fork waits for (``forking.no_fork``). A connection that was
in the middle of something is left as it is for ever, because closing it would undo its parent's
transaction in memory that both share, and its file cannot be opened in that child.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from sayso.errors import StoreError
from sayso.forking import call_in_child, cut_short, no_fork
from sayso.keys import Keyring
from sayso.stores.sql.migrate import check_key, check_version, migrate, version_of

_BUSY_MS = 10_000
_WRITER = ("journal_mode=WAL", "synchronous=FULL")
_READER = ("query_only=1",)


#: Which file it is, whatever its name.
Identity = tuple[int, int]


class Connection(sqlite3.Connection):
    """A connection that closes when nothing refers to it any more: a store that was not closed has
    lost nothing, and newer Pythons (3.13) would complain about each of its connections."""

    file: Identity = (0, 0)
    #: Whether a parent process was in the middle of something with it.
    abandoned = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _connections.add(self)

    def close(self) -> None:
        """Close the connection, unless it is a parent's. Idempotent."""
        if not self.abandoned:
            with no_fork():
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
            _abandon(connection)
        else:
            connection.close()


def _abandon(connection: Connection) -> None:
    import ctypes

    connection.abandoned = True
    _abandoned.append(connection)
    # One reference more than there are, so that not even the end of the interpreter closes it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    if cut_short() != "other":  # else an OS thread may have had it locked
        connection.set_authorizer(_deny)


def _deny(*_: object) -> int:
    return sqlite3.SQLITE_DENY


call_in_child(_after_fork)


def check_usable(path: Path) -> Identity:
    """Refuse a file that a parent was in the middle of something with; gives its identity."""
    found = os.stat(path)
    identity = found.st_dev, found.st_ino
    if any(connection.file == identity for connection in _abandoned):
        raise forked(path)
    return identity


def connected(path: Path, *, writable: bool = True) -> Connection:
    """A connection to the file, which is made if it is not there."""
    connection = None
    if not path.exists():
        # What agents want to do is for nobody else on this machine to read.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    identity = check_usable(path)
    with no_fork():
        try:
            connection = sqlite3.connect(
                path,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=Connection,
            )
            connection.file = identity
            for setting in (f"busy_timeout={_BUSY_MS}", *(_WRITER if writable else _READER)):
                connection.execute(f"PRAGMA {setting}")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise StoreError(f"cannot open {path}: {error}") from error
    return connection


def forked(path: Path) -> StoreError:
    """The error for a child that was forked in the middle of something."""
    return StoreError(
        f"{path} cannot be used in this process, which was forked while SQLite was at work on it: "
        "fork outside of store calls, or start processes with spawn (multiprocessing) or exec"
    )


def check_ours(path: Path) -> None:
    """Refuse a file that holds something else: the database of an app, say, or no database."""
    if not path.is_file() or not path.stat().st_size:
        return
    # As it lies there, so that nothing is put beside it; what it has in a log is looked at later.
    address = f"file:{quote(str(path))}?immutable=1"
    try:
        with no_fork(), closing(sqlite3.connect(address, uri=True)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            version_of(names, connection.execute, f"sqlite:///{path}")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error


def brought_up_to_date(connection: Connection, keys: Keyring, url: str) -> str:
    """Make or migrate the tables, and check that the keys are theirs; gives the incarnation."""
    try:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        version = version_of(names, connection.execute, url)
        check_version(version, "sqlite", url)
        connection.execute("BEGIN IMMEDIATE")
        migrate(version, "sqlite", connection.execute, keys.primary_id)
        connection.execute("COMMIT")
        facts = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        check_key(facts["key"], [key.id for key in keys.keys], connection.execute, url)
    except sqlite3.Error as error:
        path = url.removeprefix("sqlite:///")
        raise StoreError(f"{path} is not a store that can be used: {error}") from error
    return str(facts["incarnation"])


def last_pos(connection: Connection) -> int:
    """The number of the last event."""
    row = connection.execute("SELECT max(pos) FROM event").fetchone()
    return row[0] or 0


def roll_back(writer: Connection) -> None:
    """Leave the transaction that is open, if one is; a connection that cannot is of no use."""
    if writer.in_transaction:
        try:
            writer.execute("ROLLBACK")
        except sqlite3.Error:
            writer.close()
