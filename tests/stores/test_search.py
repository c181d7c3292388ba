"""A search finds what a plain comparison finds, and costs no more in a larger store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from homes import Home
from reference_store import ReferenceStore
from test_listing import PLANS, choose, steps

from sayso.audit import verify
from sayso.errors import Tampered
from sayso.keys import Keyring
from sayso.stores.base import NEVER, Query, Viewer
from sayso.stores.sql import reads
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Risk
from sayso_testing.world import World, seconds

CITIES = ("Graz", "Ghent", "Lisbon")
TEXTS = (
    *(
        "",
        "g",
        "graz",
        "GHENT",
        "gh lis",
        "order 1",
        "1",
        "12",
        "a-1",
        "refund graz",
        "refund 3 lis",
    ),
    *("pay ghent 2", "ana", "req_0", "req_01", "nothing", "graz nothing", "...", "order pay 1 g"),
)


def fill_at_random(world: World, random: Random) -> None:
    """Requests whose words are their own, their tool's, or both; some of them are closed."""
    for batch in range(12):
        calls = [
            world.new(
                random.choice(["pay", "refund", "order_shoes"]),
                {"city": random.choice(CITIES), "order": f"A-{random.randrange(200)}"},
                title=random.choice(["", "Pay now", "Order 12 for Ana"]),
                description=random.choice(["", "Refund it", f"Pay in Ghent {random.randrange(4)}"]),
                risk=Risk(random.choice(["low", "high"])),
                reviewers=random.choice([(), ("ana",), ("bo", "cy")]),
                expires_in=random.choice([None, 1000.0, 5000.0]),
            )
            for _ in range(10)
        ]
        place: Any = {"run": f"r{batch}", "thread": f"t{batch}", "agent": f"agent {batch % 3}"}
        for call in world.propose(*calls, **place):
            closing = random.choice(["", "", "approve", "reject"])
            if closing:
                world.decide(call, closing, by=(call.terms.reviewers or ("ana",))[0])
        world.clock.set(world.clock() + seconds(1))


def every_page(store: Any, query: Query) -> list[str]:
    """Return the ids on all pages of a list."""
    ids: list[str] = []
    page = store.page(query)
    while page:
        ids += [call.id for _, call in page]
        page = store.page(replace(query, after=page[-1][0]))
    return ids


def every_quick_page(store: Any, query: Query) -> list[str]:
    """Return the ids on all quick pages of a list, of which some are short."""
    ids: list[str] = []
    page, following = store.quick_page(query)
    while page or following is not None:
        assert following is None or len(page) < query.limit
        ids += [call.id for _, call in page]
        after = page[-1][0] if following is None else following
        page, following = store.quick_page(replace(query, after=after))
    return ids


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("seed", [1, 2])
def test_search_finds_what_a_scan_finds(
    home: Home, clock: FakeClock, seed: int, plan: tuple[int, int, int, int], monkeypatch: Any
) -> None:
    start = clock()
    world = World(home.open(clock=clock), clock)
    fill_at_random(world, Random(seed))
    clock.set(start)
    oracle = World(ReferenceStore(clock=clock), clock)
    fill_at_random(oracle, Random(seed))
    choose(monkeypatch, plan)
    random = Random(seed)
    for _ in range(25):
        query = Query(
            text=random.choice(TEXTS),
            status=random.choice(["pending", "closed", "any", "approved"]),
            sort=random.choice(["oldest", "newest", "expiring"]),
            agent=random.choice([None, None, "agent 1"]),
            tool=random.choice([None, None, "pay"]),
            run=random.choice([None, None, None, "r3"]),
            created_after=random.choice([None, None, start + seconds(4)]),
            expires_by=random.choice([None, None, start + seconds(1002)]),
            limit=random.choice([3, 7, 100]),
        )
        ids = every_page(oracle.store, query)
        assert every_page(world.store, query) == ids, query
        assert every_quick_page(world.store, query) == ids, query
        if plan == PLANS[0]:
            names = random.choice([None, frozenset({"ana"})])
            viewer = Viewer(names=names)
            groups = oracle.store.groups(query, viewer)
            assert world.store.groups(query, viewer) == groups, query


def fill_by_city(world: World, number: int) -> None:
    """Requests that are all about Graz once they are closed, and never while they are open.

    No request is about both Ghent and Lisbon. All are refunds, by their words and their tool.
    """
    for batch in range(number // 50):
        calls = [
            world.new("refund", {"city": CITIES[0 if n % 4 else 1 + n // 4 % 2], "why": "refund"})
            for n in range(50)
        ]
        place: Any = {"run": f"r{batch}", "thread": f"t{batch}"}
        for n, call in enumerate(world.propose(*calls, **place)):
            if n % 4:
                world.decide(call, "reject")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One store with five times as many requests as the other."""
    stores = []
    for number in (600, 3000):
        path = tmp_path_factory.mktemp("search") / "store.db"
        stores.append(SqliteStore(path, keys=Keyring.ephemeral()))
        fill_by_city(World(stores[-1], FakeClock()), number)
    yield tuple(stores)
    for store in stores:
        store.close()


LOOKS: dict[str, Callable[[Any], object]] = {
    "absent on the list": lambda store: store.page(Query(text="graz")),
    "common and absent": lambda store: store.page(Query(text="refund graz")),
    "absent, by expiry": lambda store: store.page(Query(text="graz", sort="expiring")),
    "common": lambda store: store.page(Query(text="refund")),
    "newest": lambda store: store.page(Query(text="ghent", status="any", sort="newest")),
    "two common": lambda store: store.page(Query(text="refund ghent")),
    "never together": lambda store: store.quick_page(Query(text="ghent lisbon")),
    "never together, newest of any status": lambda store: store.quick_page(
        Query(text="ghent lisbon", status="any", sort="newest")
    ),
    "never together, by expiry": lambda store: store.quick_page(
        Query(text="ghent lisbon", sort="expiring")
    ),
    "a tool by expiry": lambda store: store.quick_page(Query(tool="pay", sort="expiring")),
    "too new": lambda store: store.quick_page(Query(created_after=NEVER)),
    "too new, by expiry": lambda store: store.quick_page(
        Query(created_after=NEVER, sort="expiring")
    ),
    "groups, absent": lambda store: store.groups(Query(text="graz"), Viewer()),
    "groups, common": lambda store: store.groups(Query(text="refund ghent"), Viewer()),
}


@pytest.mark.parametrize("look", LOOKS)
def test_cost_of_search_does_not_grow(
    stores: tuple[SqliteStore, SqliteStore], look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MANY_CALLS", 50)
    monkeypatch.setattr(reads, "MANY_ENTRIES", 50)
    few, many = (steps(store, partial(LOOKS[look], store)) for store in stores)
    assert many < 1.2 * few + 100, f"{few} steps became {many}"


def test_words_that_never_meet_cost_a_step_for_each_call(
    stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole page is searched for along the list, which a quick page is not."""
    monkeypatch.setattr(reads, "MANY_CALLS", 50)
    query = Query(text="ghent lisbon")
    few, many = (steps(store, partial(store.page, query)) for store in stores)
    assert many < 6 * few


def test_groups_of_a_text_are_counted_up_to_a_limit(
    stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    (group,) = stores[1].groups(Query(text="refund"), Viewer())
    assert (group.count, group.at_least) == (780, False)
    monkeypatch.setattr(reads, "MANY_CALLS", 50)
    (group,) = stores[1].groups(Query(text="refund"), Viewer())
    assert 50 <= group.count <= 100
    assert group.at_least
    assert [group.count for group in stores[1].groups(Query(), Viewer())] == [780]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("n", value) for value in (-(2**63), -20, 2**63 - 20)),
        *(("expires_at", value) for value in (-(2**63), -20, 2**63 - 20)),
        *(("expires_at", value) for value in (-1.5, 1e300, float("-inf"), "x")),
    ],
)
@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
def test_pages_with_tampered_keys_end(
    world: World, path: Path, sort: Any, column: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No MAC covers the key of a page, and every page has to lead on."""
    ids = {call.id for call in world.propose(*[world.new(f"pay_{n}") for n in range(9)])}
    tampered = sorted(ids)[3:6]
    with closing(sqlite3.connect(path)) as database, database:
        for n, call in enumerate(tampered):
            other = value + n if isinstance(value, int) else value
            database.execute(f"UPDATE call SET {column} = ? WHERE id = ?", (other, call))
    choose(monkeypatch, PLANS[-1])
    for text in ("", "pay"):
        query = Query(text=text, sort=sort, limit=1, created_after=1)
        page, following = world.store.quick_page(query)
        found = set[str]()
        for _ in range(40):
            if not page and following is None:
                break
            found |= {call.id for _, call in page}
            after = page[-1][0] if following is None else following
            page, following = world.store.quick_page(replace(query, after=after))
        assert (page, following) == ([], None)
        assert found >= ids - set(tampered)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE call SET created = 'x'",
        "UPDATE call SET expires_at = -9223372036854775808",
        "UPDATE open_count SET many = 9e999",
        "UPDATE open_count SET many = 9e999, list_status = 'asked'",
        "UPDATE request_group SET tool = x'ff'",
        "UPDATE request_group SET risk = x'ff'",
    ],
)
def test_counts_of_a_tampered_index_are_refused(world: World, path: Path, statement: str) -> None:
    world.ask()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    with pytest.raises(Tampered, match="index of requests"):
        world.store.groups(Query(), Viewer())
    if "tool" in statement:
        with pytest.raises(Tampered, match="index of requests"):
            world.store.tallies(Viewer(), [0])
    assert not verify(world.store).ok
