"""The same commands in any order on PostgreSQL and in memory: both must agree, step by step."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from engine_machine import Machine
from engine_model import KEYS
from hypothesis import HealthCheck, settings
from postgres_server import shared_url, why_not

from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres import store as postgres
from sayso.testing.world import World

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

SCHEMA = "machine"


class Numbered(World):
    """Shows the events by their order: positions have gaps here, and cursors are no numbers."""

    def everything(self) -> dict[str, Any]:
        shown = super().everything()
        ordered = enumerate((event for _, event in shown["events"]), 1)
        return {**shown, "events": [(str(n), event._replace(pos=n)) for n, event in ordered]}


class PostgresMachine(Machine):
    """The machine of two stores, with PostgreSQL in the place of SQLite."""

    def __init__(self) -> None:
        postgres.PATIENCE = 60.0  # other workers have transactions open on the same server
        with psycopg.connect(shared_url(), autocommit=True) as connection:
            if self._schema_is_there(connection):
                names = (
                    "thread, message, run, call, search_key, search_word, tool, grants, effect, "
                    "event, seal"
                )
                connection.execute(f"SET search_path TO {SCHEMA}")
                connection.execute(f"TRUNCATE {names}, principal, cursor RESTART IDENTITY")
        super().__init__()
        self.sqlite = Numbered(self.sqlite.store, self.clock)

    @staticmethod
    def _schema_is_there(connection: Any) -> bool:
        found = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.event",)).fetchone()
        return found is not None and found[0] is not None

    def _open(self) -> Any:
        options: dict[str, Any] = {"schema": SCHEMA, "clock": self.clock, "keys": KEYS}
        return self._plain(PostgresStore(shared_url(), **options))

    def crash(self) -> None:
        """Go on with a store that knows nothing of the one before."""
        abandoned = self.sqlite.store
        self.sqlite.store = self._open()
        assert not self.sqlite.store.restored()
        abandoned._pool.close()


PostgresMachine.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestPostgres = PostgresMachine.TestCase
