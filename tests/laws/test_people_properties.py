"""No sequence of changes lets anyone decide who may not, or counts a person twice."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from people_machine import PeopleMachine
from postgres_server import why_not
from test_engine_properties_postgres import empty_schema, open_postgres

from sayso.stores.base import Store

pytestmark = pytest.mark.timeout(600)


class PostgresPeople(PeopleMachine):
    """The same on PostgreSQL."""

    def _open(self) -> Store:
        empty_schema()
        return open_postgres(self.clock)


NO_POSTGRES = pytest.mark.skipif(bool(why_not()), reason=why_not())
SETTINGS = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(
    ("machine", "examples"),
    [(PeopleMachine, 60), pytest.param(PostgresPeople, 12, marks=NO_POSTGRES)],
    ids=["sqlite", "postgres"],
)
def test_nobody_decides_without_the_right(
    machine: type[PeopleMachine], examples: int, full_strength: bool
) -> None:
    most = examples if full_strength else examples // 6
    run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=most))
