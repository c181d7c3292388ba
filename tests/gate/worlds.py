"""Fixtures: each test runs on both stores, in memory and in a file."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cases import Case
from postgres_server import shared_url, why_not

from sayso.keys import new_key
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.testing import FakeClock, check_store


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Yield a function that makes stores, which are checked at the end of the test."""
    opened: list[Store] = []

    def make(**options: Any) -> Store:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'sayso.db'}"
        opened.append(open_store(url, **options))
        return opened[-1]

    yield make
    for store in opened:
        runs = {event.run for _, event in store.events("", 10**6) if event.run}
        check_store(store, [run for run in runs if store.run(run) is not None])
        store.close()


@pytest.fixture
def case(make_store: Callable[..., Store]) -> Case:
    return Case(make_store())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(make_store: Callable[..., Store], clock: FakeClock) -> Case:
    """Make stores on a clock that the test sets."""
    return Case(make_store(clock=clock))


@pytest.fixture(params=["sqlite", "postgres"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Yield the URL of a store that several processes can open."""
    monkeypatch.setenv("SAYSO_KEY", new_key())
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sayso.db'}"
        return
    if why_not():
        pytest.skip(why_not())
    schema = f"gate_{secrets.token_hex(6)}"
    server = shared_url()
    yield f"{server}{'&' if '?' in server else '?'}schema={schema}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
