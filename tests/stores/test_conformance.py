"""Every store passes the public suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pg_places import Place
from reference_store import ReferenceStore

from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import StoreSuite
from sayso.types import Micros


@pytest.mark.long
class TestMemory(StoreSuite):
    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return MemoryStore(clock=clock, keys=keys)


@pytest.mark.long
class TestReference(StoreSuite):
    """What the state machines compare other stores with keeps the same promises."""

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return ReferenceStore(clock=clock, keys=keys)


class TestSqlite(StoreSuite):
    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return SqliteStore(self.folder / "store.db", clock=clock, keys=keys)

    def reopen(self, store: Store) -> Store:
        store.close()
        return self.make_store(store.now, store.keys)


class TestPostgres(StoreSuite):
    @pytest.fixture(autouse=True)
    def _place(self, swept_place: Place, sessions: None) -> None:
        self.place = swept_place

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return PostgresStore(self.place.url, schema=self.place.schema, clock=clock, keys=keys)

    def reopen(self, store: Store) -> Store:
        store.close()
        return self.make_store(store.now, store.keys)
