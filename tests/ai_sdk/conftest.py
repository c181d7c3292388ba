"""An agent of the demo on a store of each kind, with the log of what really ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ai_sdk_browser import Browser

import sayso
import sayso.demo
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore


@pytest.fixture(params=["hopping", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """SQLite, and one whose reads take a thread each, as those of a database elsewhere do."""
    store: Store = MemoryStore() if request.param == "hopping" else SqliteStore(tmp_path / "a.db")
    store.quick_reads = request.param == "sqlite"
    yield store
    store.close()


@pytest.fixture
def effects() -> sayso.demo.Effects:
    return sayso.demo.Effects()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's model speaks at a pace, which no test here needs to see."""
    monkeypatch.setattr("sayso.demo.script.WORD_SECONDS", 0.0)


@pytest.fixture
def agent(store: Store, effects: sayso.demo.Effects) -> sayso.Agent:
    return sayso.demo.agent(store, effects)


@pytest.fixture
def browser(agent: sayso.Agent) -> Browser:
    return Browser(agent)


@pytest.fixture
def recipe(agent: sayso.Agent) -> Browser:
    """The same for a page that was written to the cookbook's recipe."""
    return Browser(agent, recipe=True)
