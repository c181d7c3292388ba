"""Lists cost the same however much is in the store, and every way to make them gives the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from reference_store import ReferenceStore

from sayso.keys import Keyring
from sayso.stores.base import Query
from sayso.stores.sql import reads
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Risk
from sayso_testing.world import World, seconds

Opener = Callable[..., SqliteStore]

QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "agent": {"agent": "agent 1"},
    "rare agent": {"agent": "rare"},
    "tool": {"tool": "tool_3"},
    "risk": {"risk": "critical"},
    "kind": {"kind": "question"},
    "words": {"text": "thing"},
    "rare words": {"text": "thing zebra"},
    "no such words": {"text": "nothing"},
    "own words": {"text": "bo"},
    "own and common words": {"text": "thing b", "agent": "agent 1"},
    "thread": {"thread": "rare"},
    "id": {"text": "req_rare"},
}


def fill(world: World, number: int) -> None:
    """Requests of few search_keys and many, every fourth of them closed, and one that is rare."""
    new = world.new(
        "rare_tool", id="req_rare", description="One zebra thing", risk=Risk("critical")
    )
    world.propose(new, run="rare", thread="rare", agent="rare")
    for batch in range(number // 50):
        calls = [
            world.new(
                f"tool_{n % 5}",
                description=f"Does thing {n % 7}"
                if n % 2
                else f"Does thing number {batch * 50 + n}",
                expires_in=(None, 1000.0 + n)[n % 2],
            )
            for n in range(50)
        ]
        place: Any = {"run": f"r{batch}", "thread": f"t{batch}", "agent": f"agent {batch % 3}"}
        made = world.propose(*calls, **place)
        for call in made[::9]:
            world.decide(call, "reject")


def choose(monkeypatch: pytest.MonkeyPatch, plan: tuple[int, int, int, int]) -> None:
    """Let a small store be searched as a large one is."""
    names = ("MANY_CALLS", "FEW_RANGES", "MANY_SEARCH_KEYS", "MANY_ENTRIES")
    for name, value in zip(names, plan, strict=True):
        monkeypatch.setattr(reads, name, value)


def steps(store: SqliteStore, read: Callable[[], object]) -> int:
    """How many instructions SQLite runs for a read."""
    store.tail()  # one reader at least
    taken = [0]

    def count() -> None:
        taken[0] += 1

    for reader in store._readers:
        reader.set_progress_handler(count, 1)
    read()
    for reader in store._readers:
        reader.set_progress_handler(None, 0)
    return taken[0]


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_page_cost_does_not_grow_with_the_store(
    filled: tuple[SqliteStore, SqliteStore], name: str, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MANY_SEARCH_KEYS", 100)
    monkeypatch.setattr(reads, "MANY_CALLS", 200)
    statuses = ["pending"] if sort == "expiring" else ["pending", "closed", "any"]
    for status in statuses:
        query = Query(status=status, sort=sort, limit=20, **QUERIES[name])
        few, many = (steps(store, partial(store.page, query)) for store in filled)
        assert many < 2 * few + 12_000, f"{status}: {few} steps became {many}"


def test_cost_of_finding_due_runs_stays_constant(
    filled: tuple[SqliteStore, SqliteStore],
) -> None:
    """Every worker looks all the time, and an agent may have had a million runs."""
    few, many = (steps(store, partial(store.ready, ["agent 0", "agent 1"])) for store in filled)
    assert many <= few + 20


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    stores = []
    for number in (300, 3000):
        path = tmp_path_factory.mktemp("lists") / "store.db"
        stores.append(SqliteStore(path, keys=Keyring.ephemeral()))
        fill(World(stores[-1], FakeClock()), number)
    yield tuple(stores)
    for store in stores:
        store.close()


#: How many calls, ranges, search keys and index entries are few: all read, merged in order, or
#: walked along.
PLANS = [(5_000, 32, 1000, 50_000), (0, 1000, 1000, 0), (0, 0, 1000, 3), (5, 2, 3, 20)]


@pytest.mark.parametrize("plan", PLANS)
def test_every_query_plan_gives_the_same_page(
    world: World, monkeypatch: pytest.MonkeyPatch, plan: tuple[int, int, int, int]
) -> None:
    memory = World(ReferenceStore(clock=world.clock), world.clock)
    for each in (world, memory):
        start = each.clock()
        fill(each, 100)
        each.clock.set(start)
    choose(monkeypatch, plan)
    for filters in [*QUERIES.values(), {"created_after": world.clock() - seconds(1)}]:
        for sort in ("oldest", "newest", "expiring"):
            for status in ("pending", "any", "closed"):
                query = Query(status=status, sort=sort, limit=30, **filters)
                found, wanted = ([c.id for _, c in w.store.page(query)] for w in (world, memory))
                assert found == wanted, query
