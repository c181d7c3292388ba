"""Every page of requests is read through an index, on both databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pg_places import Place
from test_listing import QUERIES, fill

from sayso.keys import Keyring
from sayso.stores.base import Query
from sayso.stores.postgres import PostgresStore
from sayso.stores.sql import reads
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World

#: A step that reads the whole table of requests.
FULL_SCAN = re.compile(r"SCAN call(?! USING)|Seq Scan on call\b")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A store with some requests. PostgreSQL is told to scan a table only if no index serves."""
    clock, keys = FakeClock(), Keyring.ephemeral()
    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("plans") / "store.db"
        store: Any = SqliteStore(path, clock=clock, keys=keys)
    else:
        place: Place = request.getfixturevalue("_kept_place")[0]
        mark = "&" if "?" in place.url else "?"
        url = f"{place.url}{mark}options=-cenable_seqscan%3Doff"
        store = PostgresStore(url, schema=f"{place.schema} plans", clock=clock, keys=keys)
    fill(World(store, clock), 100)
    yield store
    if isinstance(store, PostgresStore):
        place.sql(f'DROP SCHEMA "{store.schema}" CASCADE')
    store.close()


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_page_uses_an_index(
    filled: Any, name: str, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[tuple[str, Any]] = []
    rows = filled._rows
    monkeypatch.setattr(filled, "_rows", lambda *query: statements.append(query) or rows(*query))
    for status in ["pending"] if sort == "expiring" else ["pending", "closed", "any"]:
        filled.page(Query(status=status, sort=sort, limit=20, **QUERIES[name]))
    explain = "EXPLAIN QUERY PLAN" if isinstance(filled, SqliteStore) else "EXPLAIN"
    assert statements
    for statement, *values in statements:
        plan = "\n".join(str(row[-1]) for row in rows(f"{explain} {statement}", *values))
        # The few requests of a run or an id are found by an index, and read under the same name.
        plan = plan.replace("SCAN call", "SCAN here") if "MATERIALIZE here" in plan else plan
        assert not FULL_SCAN.search(plan), f"{statement}\n{plan}"


@pytest.mark.parametrize(("sort", "status"), [("oldest", "pending"), ("newest", "rejected")])
def test_search_walks_along_its_list_only(
    place: Place,
    open_pg: Callable[..., PostgresStore],
    sort: Any,
    status: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A common word is met soon on its list: the planner must not look for it on the others."""
    monkeypatch.setattr(reads, "MANY_SEARCH_KEYS", 0)
    clock = FakeClock()
    mark = "&" if "?" in place.url else "?"  # few rows would be scanned and sorted
    options = "-cenable_seqscan%3Doff%20-cenable_sort%3Doff%20-cenable_bitmapscan%3Doff"
    store = open_pg(f"{place.url}{mark}options={options}", clock=clock)
    world = World(store, clock)
    tools = [f"tool_{n}" for n in range(400)]
    made = world.propose(*[world.new(tool, description="A thing") for tool in tools])
    for call in made[:300]:
        world.decide(call, "reject")
    place.sql(f'ANALYZE "{place.schema}".call')
    statements: list[tuple[str, Any]] = []
    rows = store._rows
    monkeypatch.setattr(store, "_rows", lambda *query: statements.append(query) or rows(*query))
    query = Query(status=status, sort=sort, text="a thing", limit=20)
    first = store.page(query)
    following = store.page(replace(query, after=first[-1][0]))
    assert len({call.id for _, call in [*first, *following]}) == 40
    for statement, *values in statements:
        if "AS walked" in statement:
            plan = "\n".join(str(row[-1]) for row in rows(f"EXPLAIN {statement}", *values))
            assert re.search(r"using call_list_status on call call_\d", plan), plan
            assert not re.search(r"using call_pkey on call call_\d", plan), plan
            if "ROW" not in plan:  # the first page
                assert re.search(r"Limit .* rows=20 ", plan), plan  # a match is no surprise


def test_query_without_index_is_recognized(filled: Any) -> None:
    explain = "EXPLAIN QUERY PLAN" if isinstance(filled, SqliteStore) else "EXPLAIN"
    rows = filled._rows(f"{explain} SELECT n FROM call WHERE note = ?", ("",))
    assert FULL_SCAN.search("\n".join(str(row[-1]) for row in rows))
