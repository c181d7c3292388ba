"""A place for one store in either database, so that a test runs on both."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pg_places import Place

from sayso.keys import Keyring, new_key
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore, ReadOnlyPostgresStore
from sayso.stores.sqlite import ReadOnlySqliteStore, SqliteStore


class Home:
    """A SQLite file, or a schema in PostgreSQL."""

    def __init__(self, path: Path, place: Place | None) -> None:
        """Use ``place`` in PostgreSQL, or without one the SQLite file at ``path``."""
        #: For ``SAYSO_KEY`` of another process.
        self.key = new_key()
        self._path = path
        self._place = place
        self._keys = Keyring.parse(self.key)
        self._stores: list[Store] = []

    @property
    def dialect(self) -> str:
        return "postgres" if self._place else "sqlite"

    @property
    def url(self) -> str:
        """The address of the store, for another process."""
        if self._place is None:
            return f"sqlite:///{self._path}"
        return f"{self.database}&schema={quote(self._place.schema)}"

    @property
    def database(self) -> str:
        """The address of the database in PostgreSQL."""
        assert self._place is not None
        return self._place.url

    def open(self, **options: Any) -> Store:
        """Open the store, which creates or upgrades it."""
        store: Store
        if self._place is None:
            store = SqliteStore(self._path, keys=self._keys, **options)
        else:
            schema = self._place.schema
            store = PostgresStore(self._place.url, schema=schema, keys=self._keys, **options)
        self._stores.append(store)
        return store

    def open_read_only(self, **options: Any) -> Store:
        """Open the store without writing to it."""
        store: Store
        if self._place is None:
            store = ReadOnlySqliteStore(self._path, keys=self._keys, **options)
        else:
            place = self._place
            options = {"schema": place.schema, "keys": self._keys, **options}
            store = ReadOnlyPostgresStore(place.url, **options)
        self._stores.append(store)
        return store

    def sql(self, statement: str) -> list[Any]:
        """Run a statement as another program would."""
        if self._place is not None:
            return self._place.sql(statement)
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement).fetchall()

    def close(self) -> None:
        for store in self._stores:
            store.close()
