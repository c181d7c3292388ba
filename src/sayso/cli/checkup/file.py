"""A SQLite file, before it is opened: its mode, its journal, its version, its disk."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sayso.cli.checkup.check import Check, Looking, schema_check
from sayso.errors import NotFound, StoreError
from sayso.stores.sql.migrate import migrations, version_of

_LITTLE = 512 * 1024 * 1024


class SqliteFile:
    """Reads the file without changing it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists() or path.stat().st_size == 0:
            raise NotFound(
                f"there is no store at {path}: start the agent that makes it, or name another "
                "with --store or SAYSO_STORE"
            )
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        try:
            self._connection = sqlite3.connect(address, uri=True)
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be opened: {error}") from error

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read rows."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path} could not be read: {error}") from error

    def look(self) -> Looking:
        """Everything about the file itself."""
        yield Check("engine", "ok", f"SQLite {sqlite3.sqlite_version}")
        yield from self._mode()
        yield from self._journal()
        yield from self._disk()
        names = {row[0] for row in self.rows("SELECT name FROM sqlite_master")}
        version = version_of(names, self._connection.execute, str(self._path))
        newest = migrations("sqlite")[-1][0]
        yield schema_check(version, newest)
        return version == newest

    def _mode(self) -> Iterator[Check]:
        mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode & 0o022:
            words = f"mode {mode:04o}: others can write it, run chmod 600 {self._path}"
            yield Check("file", "wrong", words)
        elif mode & 0o044:
            yield Check("file", "note", f"mode {mode:04o}: others can read the requests")
        else:
            yield Check("file", "ok", f"mode {mode:04o}")

    def _journal(self) -> Iterator[Check]:
        ((journal,),) = self.rows("PRAGMA journal_mode")
        if journal == "wal":
            yield Check("durable", "ok", "WAL, and each commit is synced to the disk")
        else:
            words = f"journal mode {journal!r}, not WAL: the next process that opens it sets it"
            yield Check("durable", "note", words)

    def _disk(self) -> Iterator[Check]:
        free = shutil.disk_usage(self._path.absolute().parent).free
        words = f"{free / 1e9:.1f} GB free"
        if free < _LITTLE:
            yield Check("disk", "wrong", f"{words}: on a full disk nobody can decide anything")
        else:
            yield Check("disk", "ok", words)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
