"""A connection to a SQLite file: who may read it, and how durable its commits are."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.stores.sql.migrate import check_key, check_version, migrate, version_of

_BUSY_MS = 10_000
_WRITER = ("journal_mode=WAL", "synchronous=FULL")
_READER = ("query_only=1",)


class _Connection(sqlite3.Connection):
    """Closes by itself when nobody has it any more: a store that was not closed has lost nothing,
    and newer Pythons (3.13) would complain of each of its connections."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # one that could not be opened
            self.close()


def connected(path: Path, *, writable: bool = True) -> sqlite3.Connection:
    """A connection to the file, which is made if it is not there."""
    connection = None
    if not path.exists():
        # What agents want to do is for nobody else on this machine to read.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_Connection,
        )
        for setting in (f"busy_timeout={_BUSY_MS}", *(_WRITER if writable else _READER)):
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise StoreError(f"cannot open {path}: {error}") from error
    return connection


def check_ours(path: Path) -> None:
    """Refuse a file that holds something else: the database of an app, say, or no database."""
    if not path.is_file() or not path.stat().st_size:
        return
    # As it lies there, so that nothing is put beside it; what it has in a log is looked at later.
    address = f"file:{quote(str(path))}?immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            version_of(names, connection.execute, f"sqlite:///{path}")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error


def brought_up_to_date(connection: sqlite3.Connection, keys: Keyring, url: str) -> str:
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


def last_pos(connection: sqlite3.Connection) -> int:
    """The number of the last event."""
    row = connection.execute("SELECT max(pos) FROM event").fetchone()
    return row[0] or 0


def roll_back(writer: sqlite3.Connection) -> None:
    """Leave the transaction that is open, if one is; a connection that cannot is of no use."""
    if writer.in_transaction:
        try:
            writer.execute("ROLLBACK")
        except sqlite3.Error:
            writer.close()
