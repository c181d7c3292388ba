"""A real server for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import shared_url, why_not
from served import Serve, Served

from sayso.keys import ENVIRONMENT, new_key
from sayso.stores import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sayso.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def each_url(
    request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a new store in each database, with the key for several processes."""
    monkeypatch.setenv(ENVIRONMENT, new_key())
    if request.param == "sqlite":
        yield url
        return
    if why_not():
        pytest.skip(why_not())
    schema = f"test_{os.urandom(4).hex()}"
    yield f"{shared_url()}{'&' if '?' in shared_url() else '?'}schema={schema}"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[arg-type]


@pytest.fixture
def serve(url: str) -> Iterator[Serve]:
    """Start a server; several in one test are stopped in turn."""
    running: list[Served] = []

    def start(**options: Any) -> Served:
        served = Served(open_store(options.pop("store", url)), **options)
        running.append(served)
        return served.start()

    yield start
    for served in reversed(running):
        if served.server.is_alive:
            served.stop()
        served.store.close()


@pytest.fixture
def open_server(serve: Serve) -> Served:
    """A server without sign-in and without agents."""
    return serve(auth=False)
