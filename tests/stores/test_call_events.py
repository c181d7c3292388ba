"""What happened to one call: all of it, on every store, without reading a whole long thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pg_places import Place

from sayso.keys import Keyring
from sayso.stores import call_events
from sayso.stores.base import Store
from sayso.stores.call_events import events_about
from sayso.stores.memory import MemoryStore
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.testing.world import World


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


def test_the_events_of_one_call_are_found_in_a_long_thread(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_events, "_PAGE", 10)
    monkeypatch.setattr(call_events, "_PAGES", 2)
    store = any_world.store
    calls = []
    for n in range(60):
        any_world.clock.advance(1)
        call = any_world.running(run=f"r{n}")
        calls.append(any_world.record(call))
        any_world.finish(run=f"r{n}")
    thread = store.thread("t")
    assert thread is not None
    assert thread.seq > 200
    read: list[int] = []
    chain = store.chain

    def counted(thread: str, after: int = 0, limit: int = 1000) -> Any:
        rows = chain(thread, after, limit)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(store, "chain", counted)
    for call in (calls[0], calls[30], calls[-1]):
        wanted = [event for event in chain("t") if event.call == call.id]
        read.clear()
        assert events_about(store, call) == wanted
        assert len(wanted) >= 3
        assert sum(read) <= 9 + 20 + 10  # halving, two pages, and the last one
    for one, other in pairwise(calls):
        assert one.created <= other.created


def test_a_clock_that_was_set_back_hides_nothing(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_events, "_PAGE", 5)
    monkeypatch.setattr(call_events, "_PAGES", 1)
    any_world.clock.advance(1000)
    for n in range(10):
        any_world.record(any_world.running(run=f"r{n}"))
        any_world.finish(run=f"r{n}")
    any_world.clock.set(any_world.clock() - 900_000_000)
    late = any_world.record(any_world.running(run="back"))
    any_world.finish(run="back")
    wanted = [event for event in any_world.store.chain("t") if event.call == late.id]
    assert events_about(any_world.store, late) == wanted
    assert wanted
