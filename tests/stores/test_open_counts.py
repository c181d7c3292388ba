"""The counts of open requests are correct with concurrent writers."""

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
from sayso.stores.base import Query, Viewer
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]
WRITERS, MOVES = 4, 400


@pytest.mark.long
def test_concurrent_writers_lose_no_count(place: Place, open_pg: PgOpener) -> None:
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
def test_externally_deleted_calls_are_uncounted(
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
    ],
)
def test_changed_count_is_reported(world: World, path: Path, statement: str, said: str) -> None:
    world.ask()
    assert verify(world.store).ok
    _sql(path)(statement)
    problems = [problem.what for problem in verify(world.store).problems]
    assert len(problems) == 1
    assert said in problems[0]


def test_hidden_request_is_not_counted(world: World, open_again: Opener) -> None:
    world.ask("pay", reviewers=("group:money",))
    world.ask("send")
    groups = world.store.groups(Query(), Viewer(names=frozenset(("zoe",))))
    assert [(group.tool, group.count) for group in groups] == [("send", 1)]
    assert world.store.waiting()["asked"] == 2
