"""The counts of open requests: right whatever writes at the same time, and whoever writes."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pg_places import PgOpener, Place

from sayso.audit import verify
from sayso.errors import Tampered
from sayso.stores.base import Query, Viewer
from sayso.stores.sql import totals
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]
WRITERS, MOVES = 4, 400


def test_writers_do_not_wait_for_each_other_and_lose_no_count(
    place: Place, open_pg: PgOpener
) -> None:
    """Every 512th row adds up the others, in the middle of all this, and some are rolled back."""
    clock = FakeClock()
    world = World(open_pg(clock=clock), clock, lambda store: store)
    for n in range(WRITERS):
        world.ask(run=f"r{n}", thread=f"t{n}")

    def write(number: int, statuses: Iterable[str], rolled_back: float) -> None:
        dice = random.Random(number)
        with psycopg.connect(place.url) as connection:
            connection.execute(f'SET search_path TO "{place.schema}"')  # type: ignore[arg-type]
            connection.execute("SET lock_timeout = '5s'")
            connection.commit()
            for status in statuses:
                connection.execute(
                    "UPDATE call SET list_status = %s WHERE run = %s", [status, f"r{number}"]
                )
                if dice.random() < rolled_back:
                    connection.rollback()
                else:
                    connection.commit()

    def write_anything(number: int) -> None:
        dice = random.Random(number)
        choices = (dice.choice(["asked", "in_doubt", "approved"]) for _ in range(MOVES))
        write(number, choices, rolled_back=0.1)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write_anything, range(WRITERS)))
    assert world.store.miscounted() == 0
    # The last sums may have been among what was rolled back: two rows each, up to the next sum.
    write(0, ["asked", "in_doubt"] * 130, rolled_back=0)
    assert world.store.miscounted() == 0
    ((rows, most),) = place.sql("SELECT count(*), max(n) FROM open_count")
    assert most > 1024
    assert rows < 1024
    listed = place.sql("SELECT count(*) FROM call WHERE list_status IN ('asked', 'in_doubt')")
    assert [(sum(world.store.waiting().values()),)] == listed


@pytest.mark.parametrize("statement", ["DELETE FROM open_count; DELETE FROM call", "TRUNCATE call"])
def test_nothing_is_left_of_calls_that_something_else_deletes(
    place: Place, open_pg: PgOpener, statement: str
) -> None:
    clock = FakeClock()
    world = World(open_pg(clock=clock), clock, lambda store: store)
    world.ask()
    place.sql(statement)
    assert world.store.waiting() == {"asked": 0, "in_doubt": 0}
    assert world.store.miscounted() == 0


def _sql(path: Path) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(statement)

    return execute


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE open_count SET many = 7",
            "counts of open requests that do not match the requests: 1",
        ),
        ("DELETE FROM open_count", "counts of open requests that do not match the requests: 1"),
        ("UPDATE request_group SET reviewers = '[\"eve\"]'", "listed as 'asked'"),
        ("UPDATE call SET request_group = 0", "listed as 'asked'"),
        ("UPDATE call SET decided_by = 'eve'", "listed as 'asked'"),
        (
            "UPDATE request_change SET call = 'req_none'",
            "totals of the statistics that do not match the requests: 1",
        ),
        ("UPDATE request_change SET counted = '[]'", "the statistics were changed"),
        ("DELETE FROM request_change", "totals of the statistics that do not match"),
    ],
)
def test_a_count_that_was_changed_is_reported(
    world: World, path: Path, statement: str, said: str
) -> None:
    world.ask()
    assert verify(world.store).ok
    _sql(path)(statement)
    problems = [problem.what for problem in verify(world.store).problems]
    assert len(problems) == 1
    assert said in problems[0]


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE request_total SET total = total + 1", 3),
        ("UPDATE request_total SET slot = slot + 1", 3),
        ("DELETE FROM request_total WHERE slot = (SELECT max(slot) FROM request_total)", 3),
        ("DELETE FROM request_series WHERE what = 'asked'", 1),
        ("UPDATE request_series SET person = 'eve' WHERE took >= 0", 1),
        ("UPDATE request_series SET took = took + 1 WHERE took >= 0", 1),
        ("UPDATE request_series SET what = 'expired' WHERE what = 'asked'", 1),
        ("UPDATE request_series SET reviewers = '[\"eve\"]' WHERE what = 'asked'", 1),
        ("UPDATE request_series SET id = 9 WHERE what = 'asked'", 2),
        ('INSERT INTO request_change VALUES (\'req_none\', \'["","","[]",1,"",0,"",-1]\')', 1),
    ],
)
def test_a_total_that_was_changed_is_reported(
    world: World, path: Path, statement: str, wrong: int
) -> None:
    world.decide(world.ask())
    world.store.seal()
    assert verify(world.store).ok
    _sql(path)(statement)
    assert [problem.what for problem in verify(world.store).problems] == [
        f"totals of the statistics that do not match the requests: {wrong}"
    ]


def test_totals_of_pruned_requests_that_were_changed_are_reported(world: World, path: Path) -> None:
    call = world.decide(world.ask())
    world.record(world.start(call)[0])
    world.finish()
    world.clock.advance(1)
    assert world.store.prune(world.clock(), "ops")["calls"] == 1
    assert verify(world.store).ok
    _sql(path)("UPDATE request_total SET total = total + 1")
    assert [problem.what for problem in verify(world.store).problems] == [
        "totals of the statistics that do not match the requests: 3"
    ]


def test_a_damaged_change_is_refused_and_stops_no_seal(world: World, path: Path) -> None:
    began = [world.clock()]
    world.decide(world.ask(run="r1", thread="t1"))
    world.store.seal()
    counted = world.store.tallies(Viewer(), began)
    world.ask(run="r2", thread="t2")
    _sql(path)("UPDATE request_change SET counted = '[1]'")
    with pytest.raises(Tampered, match="Run `sayso audit verify`"):
        world.store.tallies(Viewer(), began)
    world.ask(run="r3", thread="t3")
    assert world.store.seal() is not None
    _sql(path)("DELETE FROM request_change")
    found = world.store.tallies(Viewer(), began)
    assert (found.times, sum(found.tallies[-1].counts)) == (counted.times, 2)


def test_a_seal_adds_changes_to_the_totals_in_parts(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = totals._CHANGED.replace("LIMIT 2000", "LIMIT 3")
    monkeypatch.setattr(totals, "_CHANGED", fewer)
    began = [world.clock()]
    for n in range(8):
        world.decide(world.ask(run=f"r{n}", thread=f"t{n}"))
    before = world.store.tallies(Viewer(), began)
    for left in (5, 2, 0):
        world.ready(run=f"left {left}", thread=f"left {left}")  # so that a seal is needed
        world.store.seal()
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM request_change").fetchone() == (left,)
        assert world.store.tallies(Viewer(), began) == before
        assert verify(world.store).ok


def test_processes_that_seal_at_the_same_time_lose_no_change(open_pg: PgOpener) -> None:
    clock = FakeClock()
    stores = [open_pg(clock=clock) for _ in range(WRITERS)]
    began = [clock()]

    def write(number: int) -> None:
        world = World(stores[number], clock, lambda store: store)
        for n in range(25):
            name = f"{number}-{n}"
            world.decide(world.ask(run=name, thread=name, id=f"req_{name}"))
            stores[number].seal()

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    found = stores[0].tallies(Viewer(), began)
    assert {tally.what: sum(tally.counts) for tally in found.tallies} == {
        "asked": WRITERS * 25,
        "approved": WRITERS * 25,
    }
    assert stores[0].wrong_totals({}) == 0


def test_a_request_of_another_group_is_not_counted_for_a_stranger(
    world: World, open_again: Opener
) -> None:
    world.ask("pay", reviewers=("group:money",))
    world.ask("send")
    groups = world.store.groups(Query(), Viewer(names=frozenset(("zoe",))))
    assert [(group.tool, group.count) for group in groups] == [("send", 1)]
    assert world.store.waiting()["asked"] == 2
