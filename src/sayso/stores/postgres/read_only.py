"""A PostgreSQL store that is read and never written: every transaction is ``READ ONLY``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel

from sayso.errors import StoreError
from sayso.forking import renew_in_child
from sayso.keys import Keyring
from sayso.stores.base import SnapshotLost
from sayso.stores.postgres.connections import (
    GONE,
    Connection,
    connect,
    explained,
    is_lost,
    transaction_settings,
    translator,
)
from sayso.stores.postgres.database import (
    TABLES,
    check_visible,
    identity_of,
    no_store,
    split_schema,
    without_password,
)
from sayso.stores.postgres.store import NOW, OrderedEvents
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.migrate import check_current, check_key, damaged, read_meta, version_of
from sayso.stores.sql.read_only import ReadOnlySqlStore
from sayso.stores.sql.reads import Snapshot
from sayso.stores.sql.transaction import ToolCache
from sayso.types import Micros


class ReadOnlyDatabase:
    """One session that reads a database, and writes nothing whatever the server allows."""

    def __init__(self, url: str, schema: str | None = None) -> None:
        self.url = without_password(url)
        self._address, schema_in_url = split_schema(url)
        self.schema = schema or schema_in_url or "sayso"
        self._translate = translator(self.schema)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        renew_in_child(self)

    def after_fork(self) -> None:
        """Open another session on first use."""
        self._lock = threading.Lock()
        self._connection = None

    @property
    def connection(self) -> Connection:
        """The session. Raise ``StoreError`` if the server cannot be reached."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect(IsolationLevel.READ_COMMITTED)
        return self._connection

    def _connect(self, isolation: IsolationLevel) -> Connection:
        try:
            connection = connect(self._address, prepare=False)
        except psycopg.Error as error:
            raise StoreError(f"{self.url} cannot be reached: {str(error).strip()}") from error
        connection.read_only = True
        connection.isolation_level = isolation
        return connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a query on the tables of the store, as they are now."""
        return self.ask(self._translate(statement), values)

    def ask(self, statement: str | bytes, values: Sequence[Any] = ()) -> list[Any]:
        """Run a query that is written in PostgreSQL's own dialect."""
        with self._lock:
            connection = self.connection
            text = statement.encode() if isinstance(statement, str) else statement
            try:
                with connection.transaction():
                    return connection.execute(text, values or None).fetchall()
            except psycopg.Error as error:
                is_lost(error, connection)  # then the next read opens another session
                raise explained(error, self.url) from error

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Read like ``rows``, for functions that expect a cursor."""
        with self._lock:
            connection = self.connection
            with connection.transaction():
                return connection.execute(self._translate(statement), values or None)

    @contextmanager
    def snapshot(self) -> Iterator[Callable[..., list[Any]]]:
        """Read the database as it is at this moment, over a function like ``rows``."""
        with closing(self._connect(IsolationLevel.REPEATABLE_READ)) as connection:

            def rows(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                try:
                    with connection.transaction():  # a savepoint: one refused read ends no other
                        text = self._translate(statement)
                        return connection.execute(text, values or None).fetchall()
                except psycopg.Error as error:
                    if is_lost(error, connection):
                        raise SnapshotLost(str(error)) from error
                    raise explained(error, self.url) from error

            settings = transaction_settings(connection.info.server_version, 0, 0, 0)
            with connection.transaction():
                connection.execute(f"SELECT {settings}".encode())
                yield rows

    def version(self) -> int:
        """Return the version of the tables. Raise ``NotFound`` if there are none."""
        names = {row[0] for row in self.ask(TABLES, (self.schema,))}
        version = version_of(names, self.execute, self.url)
        if not version:
            raise no_store(self.url, self.schema)
        return version

    def close(self) -> None:
        """Close the session. Idempotent."""
        if self._connection is not None:
            self._connection.close()


class ReadOnlyPostgresStore(ReadOnlySqlStore, OrderedEvents):
    """A store in a PostgreSQL database that is read and never written."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        keys: Keyring | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        super().__init__()
        self._database = ReadOnlyDatabase(url, schema)
        self.url = self._database.url
        self.schema = self._database.schema
        self._clock = clock
        self._tool_cache = ToolCache()
        try:
            check_visible(self._database.connection, self.schema, self.url)
            check_current(self._database.version(), "postgres", self.url)
            try:
                self._database.execute(sql.CHECK_TABLES)
            except GONE as error:
                raise damaged(self.url, str(error).splitlines()[0]) from error
            meta = read_meta(self._database.execute, self.url)
            self.incarnation = meta["incarnation"]
            self.keys = keys or Keyring.for_store(None)
            ids = [key.id for key in self.keys.keys]
            check_key(meta["key"], ids, self._database.execute, self.url)
        except BaseException:
            self._database.close()
            raise
        self._decode = RowDecoder(self.keys)

    def now(self) -> Micros:
        if self._clock is not None:
            return super().now()
        return int(self._rows(f"SELECT {NOW.format('clock')}")[0][0])

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._database.rows(statement, values)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._database.snapshot() as rows:
            yield Snapshot(self, rows)

    def restored(self) -> bool:
        """Return whether the database was restored, copied or taken over by a standby."""
        meta = read_meta(self._database.execute, self.url)
        stored_identity = meta.get("identity")
        identity = identity_of(self._database.connection, self.schema)
        moved = bool(identity) and stored_identity not in (None, ".".join(identity))
        return moved or "restored" in meta

    def close(self) -> None:
        self._database.close()
