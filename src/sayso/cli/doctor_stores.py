"""Check a SQLite file or a PostgreSQL database before the store in it is read.

A store of another version cannot be read, and its file or server can still be checked.
"""

from __future__ import annotations

import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sayso.errors import StoreError
from sayso.stores.sql.migrate import SCHEMA_VERSION, newest_version
from sayso.stores.sqlite import SqliteFile
from sayso.types import Micros

State = Literal["ok", "note", "wrong"]

#: Runs a query in the dialect that both databases share.
Rows = Callable[[str, Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    text: str


#: Yields checks; returns whether the store can be opened without upgrading it.
StorageChecks = Generator[Check, None, bool]


def span(seconds: float) -> str:
    """Format a duration in the largest unit that is precise enough."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def schema_check(version: int, database: Literal["sqlite", "postgres"]) -> StorageChecks:
    """Compare the version of the tables with the newest one that this Sayso knows."""
    newest = newest_version(database)
    words = f"version {version}; this sayso knows {newest}"
    if version > newest:
        yield Check("schema", "wrong", f"{words}: written by a newer version of Sayso: upgrade")
    elif version < SCHEMA_VERSION:
        unreleased = "a development version that was never released: open another store"
        yield Check("schema", "wrong", f"{words}; {unreleased}")
    elif version < newest:
        later = "the next process that opens it upgrades it: make a backup first"
        yield Check("schema", "note", f"{words}; {later}")
    else:
        yield Check("schema", "ok", words)
    return version == newest


_LITTLE = 512 * 1024 * 1024


class SqliteChecks:
    """Checks a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = SqliteFile(path)
        self.rows = self._file.rows
        self.version = self._file.version

    def checks(self) -> StorageChecks:
        """Check the file itself, and the version of the tables."""
        yield Check("engine", "ok", f"SQLite {sqlite3.sqlite_version}")
        yield from self._mode()
        yield from self._journal()
        yield from self._disk()
        return (yield from schema_check(self.version(), "sqlite"))

    def now(self) -> Micros:
        """Return the time of the store: that of this machine."""
        return time.time_ns() // 1000

    def _mode(self) -> Iterator[Check]:
        mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode & 0o022:
            words = f"mode {mode:04o}: others can write to it, run chmod 600 {self._path}"
            yield Check("file", "wrong", words)
        elif mode & 0o044:
            yield Check("file", "note", f"mode {mode:04o}: others can read the requests")
        else:
            yield Check("file", "ok", f"mode {mode:04o}")

    def _journal(self) -> Iterator[Check]:
        # An immutable file reports no journal, but its header does. While a log exists, a process
        # may have locks on the file, and closing the file here would drop those of this one.
        header = b""
        if not Path(f"{self._path}-wal").exists():
            with self._path.open("rb") as file:
                header = file.read(20)
        if not header or header[18:] == b"\2\2":
            yield Check("durable", "ok", "WAL; each commit is synced to disk")
        else:
            words = "the journal mode is not WAL: the next process that writes to it fixes that"
            yield Check("durable", "note", words)

    def _disk(self) -> Iterator[Check]:
        free = shutil.disk_usage(self._path.absolute().parent).free
        words = f"{free / 1e9:.1f} GB free"
        if free < _LITTLE:
            yield Check("disk", "wrong", f"{words}: on a full disk, no decision can be recorded")
        else:
            yield Check("disk", "ok", words)

    def close(self) -> None:
        self._file.close()


_OPEN_SECONDS = 60.0
_NAMES = ("full_page_writes", "synchronous_standby_names")
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
# Users who may not see other sessions get NULL states.
_STANDBYS = (
    "SELECT count(*), count(sync_state), "
    "count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication"
)
#: Ten in the pool of a store (``PostgresStore(size=10)``), and one that listens.
_PER_PROCESS = 11
_CONNECTIONS = (
    "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity "
    "WHERE backend_type = 'client backend'"
)
_OLDEST = (
    "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity "
    "WHERE backend_xid IS NOT NULL AND xact_start IS NOT NULL ORDER BY xact_start LIMIT 1"
)
_IDENTITY = "SELECT system_identifier, pg_current_wal_insert_lsn() FROM pg_control_system()"


class PostgresChecks:
    """Checks a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg

            from sayso.stores.postgres import ReadOnlyDatabase
            from sayso.stores.postgres.database import UNSAFE
        except ImportError as missing:
            raise StoreError(
                'PostgreSQL needs a driver: run pip install "sayso[postgres]", and try again'
            ) from missing
        self._driver = psycopg.__version__
        self._unsafe = UNSAFE
        self._database = ReadOnlyDatabase(url)
        self.rows = self._database.rows
        self.version = self._database.version

    def _ask(self, statement: str, *values: Any) -> list[Any]:
        return self._database.ask(statement, values)

    def checks(self) -> StorageChecks:
        """Check the server, and the version of the tables."""
        ((version,),) = self._ask("SHOW server_version")
        yield Check("engine", "ok", f"PostgreSQL {version}, psycopg {self._driver}")
        if self._ask("SELECT pg_is_in_recovery()") == [(True,)]:
            words = "this is a read-only standby: use the address of the primary"
            yield Check("server", "wrong", words)
            return False
        if self._ask("SHOW default_transaction_read_only") == [("on",)]:
            words = (
                "nothing can be written: default_transaction_read_only is on. Some services set it "
                "while their disk is full"
            )
            yield Check("server", "wrong", words)
        ((encoding,),) = self._ask("SHOW server_encoding")
        if encoding not in ("UTF8", "SQL_ASCII"):
            words = f"the encoding {encoding} cannot store every text: create a database in UTF8"
            yield Check("encoding", "wrong", words)
        settings = dict(self._ask(_SETTINGS, [*_NAMES, *self._unsafe]))
        yield from self._durable(settings)
        yield from self._standby(settings)
        yield from self._identity()
        yield from self._pooler()
        yield from self._connections()
        yield from self._oldest()
        return (yield from schema_check(self.version(), "postgres"))

    def now(self) -> Micros:
        """Return the time of the store: that of the database."""
        ((at,),) = self._ask("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(at)

    def _durable(self, settings: dict[str, str]) -> Iterator[Check]:
        pairs = self._unsafe.items()
        unsafe = [f"{name} is {value}" for name, value in pairs if settings.get(name) == value]
        if unsafe:
            words = f"{', '.join(unsafe)}: a crash loses decisions and starts, so a call may run"
            yield Check("durable", "wrong", f"{words} twice; change it in postgresql.conf")
        elif settings["full_page_writes"] == "off":
            words = "full_page_writes is off: safe only if the disk never tears a page"
            yield Check("durable", "note", words)
        else:
            yield Check("durable", "ok", "fsync is on, and each commit waits for the disk")

    def _standby(self, settings: dict[str, str]) -> Iterator[Check]:
        ((standbys, visible, in_step),) = self._ask(_STANDBYS)
        loss = "the latest decisions may be lost on failover"
        if not settings["synchronous_standby_names"]:
            who = f"{standbys} standbys, none of them synchronous: {loss}" if standbys else ""
            alone = "none: if this disk fails, everything since the last backup is lost"
            yield Check("standby", "note", who or alone)
        elif not standbys or (visible and not in_step):
            words = "a synchronous standby is configured but not connected: every commit waits"
            yield Check("standby", "wrong", words)
        else:
            yield Check("standby", "ok", "commits wait for a synchronous standby")

    def _identity(self) -> Iterator[Check]:
        try:
            self._ask(_IDENTITY)
        except StoreError:
            words = (
                "this service does not reveal restores: run `sayso recover --force` after every "
                "restore or failover"
            )
            yield Check("identity", "note", words)

    def _pooler(self) -> Iterator[Check]:
        """Detect a connection pooler: it reports another backend pid than the server does."""
        if self._ask("SELECT pg_backend_pid()") != [(self._database.connection.info.backend_pid,)]:
            words = (
                "connected through a pooler: prepared statements are off, and changes by other "
                "processes are found by polling twice a second"
            )
            yield Check("pooler", "note", words)

    def _connections(self) -> Iterator[Check]:
        ((used, most),) = self._ask(_CONNECTIONS)
        words = f"{used} of {most} in use; a server or worker takes up to {_PER_PROCESS}"
        if used + _PER_PROCESS > most:
            words += ": raise max_connections, or use a pooler"
            yield Check("sessions", "wrong", words)
        else:
            yield Check("sessions", "ok", words)

    def _oldest(self) -> Iterator[Check]:
        oldest = self._ask(_OLDEST)
        if oldest and oldest[0][1] > _OPEN_SECONDS:
            pid, seconds = oldest[0]
            words = (
                f"session {pid} has had a writing transaction open for {span(seconds)}: the live "
                "feed and webhooks wait for it to end"
            )
            yield Check("stream", "wrong", words)

    def close(self) -> None:
        self._database.close()
