"""Reading from the end: right on every store, and without reading all that is before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from assent.errors import InvalidCall
from assent.keys import Keyring
from assent.stores import ends
from assent.stores.base import Store
from assent.stores.ends import events_about, newest, thread_of
from assent.stores.memory import MemoryStore
from assent.stores.postgres import PostgresStore
from assent.stores.sqlite import SqliteStore
from assent.testing import FakeClock
from assent.testing.world import World
from conftest import Place


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_world(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, keys: Keyring
) -> Iterator[World]:
    options: dict[str, Any] = {"clock": clock, "keys": keys}
    if request.param == "memory":
        store: Store = MemoryStore(**options)
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "ends.db", **options)
    else:
        place: Place = request.getfixturevalue("place")
        store = PostgresStore(place.url, schema=place.schema, **options)
    yield World(store, clock)
    store.close()


NAMES = ["a", "a-1", "a-10", "a-2", "b\U0010ffff", "ä", "\ue000", "\x01", "x" * 300]


def test_one_thread_is_found_among_its_likes(any_world: World) -> None:
    store = any_world.store
    for name in NAMES:
        any_world.ask(run=f"run {name}", thread=name)
    for name in NAMES:
        found = thread_of(store, name)
        assert found is not None
        assert (found.id, found.seq) == (name, 1)
    for name in ("a-", "a-11", "b", "\ue001", "zz", ""):
        assert thread_of(store, name) is None


def settled(store: Store, count: int) -> list[Any]:
    """The events, once no transaction of other tests on the same server holds some of them up."""
    ends = time.monotonic() + 60
    while len(found := store.events()) < count:
        assert time.monotonic() < ends, found
        time.sleep(0.01)
    return found


def test_the_newest_events_come_first_page_by_page(any_world: World) -> None:
    store = any_world.store
    assert newest(store) == []
    for n in range(7):
        any_world.ask(run=f"r{n}", thread=f"t{n}")
    forward = settled(store, 7)
    backward: list[Any] = []
    place = ""
    while page := newest(store, place, 3):
        backward += page
        place = page[-1][0]
    assert backward == forward[::-1]
    assert [len(newest(store, "", limit)) for limit in (1, 7, 50)] == [1, 7, 7]
    # What comes meanwhile is newer, and moves nothing on the pages after it.
    before = newest(store, forward[3][0], 50)
    any_world.ask(run="later", thread="later")
    assert newest(store, forward[3][0], 50) == before == forward[:3][::-1]


def test_what_is_no_place_is_refused(any_world: World) -> None:
    with pytest.raises(InvalidCall, match="no place"):
        newest(any_world.store, "nowhere")


def test_the_events_of_one_call_are_found_in_a_long_thread(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "_PAGE", 10)
    monkeypatch.setattr(ends, "_PAGES", 2)
    store = any_world.store
    calls = []
    for n in range(60):
        any_world.clock.advance(1)
        call = any_world.running(run=f"r{n}")
        calls.append(any_world.record(call))
        any_world.finish(run=f"r{n}")
    thread = thread_of(store, "t")
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
    monkeypatch.setattr(ends, "_PAGE", 5)
    monkeypatch.setattr(ends, "_PAGES", 1)
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
