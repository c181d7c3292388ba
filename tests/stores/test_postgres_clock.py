"""The database's time, as it is known here: seldom asked for, never early, soon right again."""

from __future__ import annotations

import threading
import time

import pytest
from pg_places import PgOpener, Place
from waiting import until_async

from sayso.stores.postgres import transaction
from sayso.stores.postgres.transaction import Clock
from sayso_testing.world import World

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Machine:
    """A steady clock and a database's, both set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady, self.database, self.asked = 5_000_000, 1_000_000_000, 0
        monkeypatch.setattr(transaction, "_monotonic", lambda: self.steady)
        self.clock = Clock(self.ask)

    def ask(self, takes: int = 0) -> int:
        self.asked += 1
        told = self.database
        self.passes(takes)
        return told

    def passes(self, micros: int) -> None:
        self.steady += micros
        self.database += micros


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_clock_asks_the_database_rarely(machine: Machine) -> None:
    for _ in range(100):
        assert machine.clock.now() == machine.database
        machine.passes(50_000)
    assert machine.asked == 5


def test_fast_answer_corrects_the_clock(machine: Machine) -> None:
    machine.clock.learn(machine.ask(takes=30_000))
    assert machine.clock.now() == machine.database - 30_000
    machine.clock.learn(machine.ask(takes=200))
    assert machine.clock.now() == machine.database - 200
    machine.clock.learn(machine.ask(takes=40_000))
    assert machine.clock.now() == machine.database - 200


@pytest.mark.parametrize("step", [600_000_000, -600_000_000])
def test_clock_follows_a_changed_database_clock(machine: Machine, step: int) -> None:
    assert machine.clock.now() == machine.database
    machine.database += step
    machine.passes(1_000_000)
    assert machine.clock.now() == machine.database


async def test_loop_never_waits_for_clock(machine: Machine) -> None:
    answers = threading.Event()
    clock = machine.clock
    clock.learn(machine.database)

    def ask_slowly() -> int:
        assert answers.wait(20)
        return machine.ask()

    clock._ask = ask_slowly
    machine.passes(5_000_000)
    for _ in range(3):  # asked once, and carried forward meanwhile
        assert clock.now() == machine.database
    machine.database += 600_000_000
    answers.set()
    await until_async(lambda: clock.now() == machine.database)
    assert machine.asked == 1


async def test_absent_database_stops_no_clock(open_pg: PgOpener) -> None:
    store = open_pg(patience=20.0)
    store._address = "postgresql://127.0.0.1:1/nowhere"
    store._pool.renew()
    store._time._until = 1  # a reading of long ago
    began = time.monotonic()
    assert store.now() > 0
    assert time.monotonic() - began < 10, "it waited for the database"
    store._pool.close()


def test_store_time_is_the_database_time(open_pg: PgOpener, place: Place) -> None:
    store = open_pg()
    world = World(store, lambda: 0)  # type: ignore[arg-type]
    for n in range(20):
        before = place.sql(_NOW)[0][0]
        call = world.ask(id=f"req_{n}", key=f"k{n}")
        after = place.sql(_NOW)[0][0]
        assert before < call.created < after
        assert store.now() < after + 1_000_000
        said, values = store._sql_now()
        assert store._rows(f"SELECT {said}", values)[0][0] > after


def test_slow_clock_still_finds_due_run(open_pg: PgOpener) -> None:
    """However late the time is known here: the reader compares with the database's own."""
    store = open_pg()
    world = World(store, lambda: 0)  # type: ignore[arg-type]
    world.decide(world.ask(id="req_1"))
    run = world.run()
    store._time._ahead -= 900_000  # the slowest of answers
    assert run.ready_at is not None
    assert store.now() < run.ready_at
    assert store.ready([run.agent]) == [run]
