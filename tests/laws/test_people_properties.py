"""No sequence of changes lets anyone decide who may not, or counts a person twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from people_machine import PeopleMachine
from postgres_server import why_not
from test_engine_properties_postgres import empty_schema, open_postgres

from sayso.rows import CallStatus
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


def left(machine: PeopleMachine) -> None:
    machine.leave("ana")


def away(machine: PeopleMachine, seconds: int = 1000) -> None:
    machine.leave_to("ana", "bo", seconds)


def back(machine: PeopleMachine) -> None:
    away(machine, 5)
    machine.clock.advance(6)


def demoted(machine: PeopleMachine) -> None:
    machine.set_role("ana", "chat")


def left_by_stand_in(machine: PeopleMachine) -> None:
    away(machine)
    machine.leave("bo")


@pytest.mark.parametrize(
    "machine_class", [PeopleMachine, pytest.param(PostgresPeople, marks=NO_POSTGRES)]
)
@pytest.mark.parametrize("happens", [left, demoted, away, back, left_by_stand_in])
def test_lost_right_is_lost_at_once(
    machine_class: type[PeopleMachine], happens: Callable[[PeopleMachine], None]
) -> None:
    machine = machine_class()
    machine.begin()
    machine.ask((), 1)
    for number, name in enumerate(machine.calls):
        if number == 1:
            happens(machine)
        for held in machine.held:
            machine.attempt(machine.world.call(name), held, "approve")
    assert machine.world.call(machine.calls[0]).status is CallStatus.READY
    machine.teardown()
