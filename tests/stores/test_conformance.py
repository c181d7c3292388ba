"""Every store passes the public suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pg_places import Place

from assent.keys import Keyring
from assent.stores.base import Store
from assent.stores.memory import MemoryStore
from assent.stores.postgres import PostgresStore
from assent.stores.sqlite import SqliteStore
from assent.testing import StoreSuite
from assent.types import Micros


class TestMemory(StoreSuite):
    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return MemoryStore(clock=clock, keys=keys)


class TestSqlite(StoreSuite):
    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return SqliteStore(self.folder / "store.db", clock=clock, keys=keys)

    def reopen(self, store: Store) -> Store:
        store.close()
        return self.make_store(store.now, store.keys)


class TestPostgres(StoreSuite):
    @pytest.fixture(autouse=True)
    def _place(self, swept_place: Place) -> None:
        self.place = swept_place

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return PostgresStore(self.place.url, schema=self.place.schema, clock=clock, keys=keys)

    def reopen(self, store: Store) -> Store:
        store.close()
        return self.make_store(store.now, store.keys)
