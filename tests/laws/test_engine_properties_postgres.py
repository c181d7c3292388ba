"""The same commands in any order on PostgreSQL and in memory: both must agree, step by step.

Callers at once do not change each other's outcomes.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from engine_callers import ConcurrentCallers
from engine_machine import Machine
from engine_model import KEYS
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from postgres_server import shared_url, why_not

from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres import store as postgres
from sayso_testing.world import World

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.timeout(600),  # half a minute on an idle machine
]

#: Test files run at once, and each empties its schema.
SCHEMA = f"machine_{os.getpid()}"


class Numbered(World):
    """Shows the events by their order: positions have gaps here, and cursors are no numbers."""

    def everything(self) -> dict[str, Any]:
        shown = super().everything()
        ordered = enumerate((event for _, event in shown["events"]), 1)
        return {**shown, "events": [(str(n), event._replace(pos=n)) for n, event in ordered]}


def empty_schema() -> None:
    """Delete all rows of the machine before."""
    postgres.PATIENCE = 60.0  # other workers have transactions open on the same server
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        wanted = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'meta'"
        names = [f"{SCHEMA}.{name}" for (name,) in connection.execute(wanted, [SCHEMA])]
        if names:
            connection.execute(f"TRUNCATE {', '.join(names)} RESTART IDENTITY")  # type: ignore[arg-type]


def open_postgres(clock: Any) -> PostgresStore:
    return PostgresStore(shared_url(), schema=SCHEMA, clock=clock, keys=KEYS)


class PostgresMachine(Machine):
    """The machine of two stores, with PostgreSQL in the place of SQLite."""

    def __init__(self) -> None:
        empty_schema()
        super().__init__()
        self.sqlite = Numbered(self.sqlite.store, self.clock)

    def _open(self) -> Any:
        return self._plain(open_postgres(self.clock))

    def crash(self) -> None:
        """Go on with a store that knows nothing of the one before."""
        abandoned = self.sqlite.store
        self.sqlite.store = self._open()
        assert not self.sqlite.store.restored()
        for pool in (abandoned._pool, abandoned._lease_pool):
            pool.close()


class PostgresCallers(ConcurrentCallers):
    """Several callers on one PostgreSQL store, and each of them alone in memory."""

    def _open(self) -> Any:
        empty_schema()
        return open_postgres(self.clock)


class SharedErrors(PostgresCallers):
    """A store that gives the refusal of one caller to those that commit meanwhile."""

    def _open(self) -> Any:
        store: Any = super()._open()
        transact = store.transact
        errors: list[Exception] = []

        def leak(*commands: Any) -> list[Any]:
            try:
                results: list[Any] = transact(*commands)
            except Exception as error:
                errors.append(error)
                raise
            if errors:
                raise errors.pop()
            return results

        store.transact = leak
        return store


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
CALLERS = settings(
    max_examples=10, stateful_step_count=10, deadline=None, suppress_health_check=QUIET
)
#: One counterexample is enough to find a mutant.
MUTANT = settings(CALLERS, phases=[Phase.generate], report_multiple_bugs=False)
STORES = settings(stateful_step_count=25, deadline=None, suppress_health_check=QUIET)


def test_postgres_agrees_after_any_commands(full_strength: bool) -> None:
    examples = 20 if full_strength else 4
    run_state_machine_as_test(PostgresMachine, settings=settings(STORES, max_examples=examples))


@pytest.mark.long
def test_callers_at_once_change_no_outcome_on_postgres() -> None:
    run_state_machine_as_test(PostgresCallers, settings=CALLERS)


@pytest.mark.long
def test_law_finds_shared_errors() -> None:
    # It may not fail again in the same way, or at the same step: concurrent callers race.
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(SharedErrors, settings=MUTANT)
