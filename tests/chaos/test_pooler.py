"""The whole suite of the stores, through a PgBouncer in transaction mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stores"))
from pg_places import Place
from pooler import NEEDED, PgBouncer, bouncer, home, server
from postgres_server import PostgresServer

from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.testing import StoreSuite
from sayso.types import Micros

__all__ = ["bouncer", "home", "server"]

pytestmark = [pytest.mark.chaos, *NEEDED]
_SCHEMA = "suite"


class TestPooled(StoreSuite):
    @pytest.fixture(autouse=True)
    def _place(self, bouncer: PgBouncer, server: PostgresServer) -> Iterator[None]:
        self.url = bouncer.url
        yield
        place = Place(server.url, _SCHEMA)
        tables = place.sql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = [row[0] for row in tables if row[0] != "meta"]
        place.sql("; ".join(f'DELETE FROM "{name}"' for name in names) or "SELECT 1")

    def make_store(self, clock: Callable[[], Micros], keys: Keyring) -> Store:
        return PostgresStore(self.url, schema=_SCHEMA, clock=clock, keys=keys)

    def reopen(self, store: Store) -> Store:
        store.close()
        return self.make_store(store.now, store.keys)
