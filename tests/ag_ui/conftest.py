"""An agent of the demo on a store of each kind, with the log of what really ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ag_ui_screen import Screen

import sayso
import sayso.demo
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore


@pytest.fixture(params=["hopping", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """SQLite, and one whose reads take an OS thread each, as those of a database elsewhere do."""
    store: Store = MemoryStore() if request.param == "hopping" else SqliteStore(tmp_path / "a.db")
    store.quick_reads = request.param == "sqlite"
    yield store
    store.close()


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch) -> sayso.demo.Effects:
    monkeypatch.setattr("sayso.demo.script.WORD_SECONDS", 0.0)
    return sayso.demo.Effects()


@pytest.fixture
def agent(store: Store, effects: sayso.demo.Effects) -> sayso.Agent:
    return sayso.demo.agent(store, effects)


@pytest.fixture
def screen(agent: sayso.Agent) -> Screen:
    return Screen(agent)
