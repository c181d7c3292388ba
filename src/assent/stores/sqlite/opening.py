"""A connection to a SQLite file: who may read it, and how durable its commits are."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from assent.errors import StoreError

_BUSY_MS = 10_000
_WRITER = ("journal_mode=WAL", "synchronous=FULL")
_READER = ("query_only=1",)


def connected(path: Path, *, writable: bool = True) -> sqlite3.Connection:
    """A connection to the file, which is made if it is not there."""
    connection = None
    if not path.exists():
        # What agents want to do is for nobody else on this machine to read.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for setting in (f"busy_timeout={_BUSY_MS}", *(_WRITER if writable else _READER)):
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise StoreError(f"cannot open {path}: {error}") from error
    return connection


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
