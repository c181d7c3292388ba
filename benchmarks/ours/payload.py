"""Measure what a store holds: the values in one thread's rows, and the size of a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path


def of_thread(path: Path | str, thread: str) -> dict[str, int]:
    """Return the bytes of the values in one thread's rows, by table."""
    db = sqlite3.connect(path)
    found = {}
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        key = "id" if table == "thread" else "thread"
        if key in columns:
            values = " + ".join(f"coalesce(length(CAST({name} AS BLOB)), 0)" for name in columns)
            statement = f"SELECT coalesce(sum({values}), 0) FROM {table} WHERE {key} = ?"
            found[table] = db.execute(statement, (thread,)).fetchone()[0]
    db.close()
    return found


def of_file(path: Path | str) -> int:
    """Return the bytes of the file after a checkpoint of its log."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return os.path.getsize(path)
