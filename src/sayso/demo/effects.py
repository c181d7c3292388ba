"""What really ran: one row for each execution of a tool, in a file that all processes share."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SQLITE = "sqlite:///"
_TABLE = "CREATE TABLE IF NOT EXISTS effects (n INTEGER PRIMARY KEY, tool TEXT, args TEXT, at TEXT)"

Row = tuple[str, str, str]


class Effects:
    """A log of executions; without a path it lives and dies with this object.

    It is written by the tools themselves and by nothing else, so whoever distrusts the record of
    the store can compare the two.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._rows: list[Row] = []
        self._lock = threading.Lock()

    @classmethod
    def beside(cls, store: str) -> Effects:
        """The log that belongs to a store: a file beside its file, where it has one."""
        if not store.startswith(_SQLITE):
            return cls()
        path = Path(store.removeprefix(_SQLITE)).expanduser()
        return cls(path.with_name(f"{path.name}.effects"))

    def record(self, tool: str, args: Mapping[str, Any]) -> None:
        """Write down that a tool runs, at this moment and with these arguments."""
        row = (tool, json.dumps(dict(args)), datetime.now(UTC).isoformat())
        if self.path is None:
            with self._lock:
                self._rows.append(row)
            return
        with self._database() as database:
            database.execute("INSERT INTO effects (tool, args, at) VALUES (?, ?, ?)", row)

    def all(self) -> list[dict[str, Any]]:
        """Every execution in its order: ``tool``, ``args`` and ``at``, ready for JSON."""
        rows = list(self._rows)
        if self.path is not None:
            with self._database() as database:
                rows = database.execute("SELECT tool, args, at FROM effects ORDER BY n").fetchall()
        return [{"tool": tool, "args": json.loads(args), "at": at} for tool, args, at in rows]

    def clear(self) -> None:
        """Forget what ran so far."""
        self._rows.clear()
        if self.path is not None:
            with self._database() as database:
                database.execute("DELETE FROM effects")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        assert self.path is not None
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.execute(_TABLE)
            yield database
