"""The events of one call, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pg_places import Place

from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_world(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, keys: Keyring
) -> Iterator[World]:
    options: dict[str, Any] = {"clock": clock, "keys": keys}
    if request.param == "memory":
        store: Store = MemoryStore(**options)
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "store.db", **options)
    else:
        place: Place = request.getfixturevalue("place")
        store = PostgresStore(place.url, schema=place.schema, **options)
    yield World(store, clock)
    store.close()


def test_call_events_are_found_in_a_long_thread(any_world: World) -> None:
    store, calls = any_world.store, []
    for n in range(60):
        calls.append(any_world.record(any_world.running(run=f"r{n}")))
        any_world.finish(run=f"r{n}")
    for call in (calls[0], calls[30], calls[-1]):
        wanted = [event for event in store.chain("t") if event.call == call.id]
        assert store.call_events(call.id) == wanted
        assert store.call_events(call.id, limit=2) == wanted[:2]
        assert len(wanted) >= 3
    assert store.call_events("no_such_call") == store.call_events("") == []


def test_call_events_use_an_index(tmp_path: Path, keys: Keyring) -> None:
    store = SqliteStore(tmp_path / "store.db", keys=keys)
    query = "SELECT * FROM event WHERE call = ? AND call <> '' ORDER BY seq LIMIT 9"
    plan = store._rows(f"EXPLAIN QUERY PLAN {query}", ("c",))
    assert [row[-1] for row in plan] == ["SEARCH event USING INDEX event_call (call=?)"]
    store.close()


@pytest.mark.parametrize("status", ["running", "done"])
def test_runs_by_agent_and_status_use_an_index(
    tmp_path: Path, keys: Keyring, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db", keys=keys)
    asked: list[tuple[str, Any]] = []
    rows = store._rows
    monkeypatch.setattr(store, "_rows", lambda *query: asked.append(query) or rows(*query))
    assert store.runs(status=status, agent="clerk") == []
    ((statement, values),) = asked
    plan = [row[-1] for row in rows(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any("INDEX run_agent (agent=? AND status=? AND created<?)" in step for step in plan)
    store.close()
