"""Count the rows and bytes that SQLite writes in this process.

Import it before anything that opens a file: it turns off checkpoints, so that the log grows by
exactly what was written.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

_opened: list[sqlite3.Connection] = []
_connect = sqlite3.connect


def _watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    connection = _connect(*args, **kwargs)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    _opened.append(connection)
    return connection


sqlite3.connect = _watched  # type: ignore[assignment]


def written(path: str) -> tuple[int, int]:
    """Return the rows changed in this process so far, and the bytes of a file's log."""
    rows = 0
    for connection in list(_opened):
        try:
            rows += connection.total_changes
        except sqlite3.ProgrammingError:  # closed by now
            _opened.remove(connection)
    return rows, os.path.getsize(f"{path}-wal")
