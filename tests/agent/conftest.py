"""Run every test of the agent on a store of each kind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import World

from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock


@pytest.fixture(scope="module")
def collector() -> None:
    """Keep the collector off what was there before: it would look through that after each test,
    which takes longer than the test in a process that has run many others."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_connection_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """The client may leave an idle connection for the collector when the server closes it at the
    same moment; it is collected here, and not in a later test that would be blamed for it."""
    has_server = "server" in request.fixturenames
    if has_server:
        request.getfixturevalue("collector")
    yield
    if has_server:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock of the store under test, which moves only when a test moves it."""
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "a.db")
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def timed(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """The same, on a clock that does not move by itself."""
    path = tmp_path / "a.db"
    store: Store = (
        MemoryStore(clock=clock) if request.param == "memory" else SqliteStore(path, clock=clock)
    )
    yield store
    store.close()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
def slow_world(timed: Store) -> World:
    return World(timed)
