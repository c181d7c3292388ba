"""A real server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served

from sayso.stores import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sayso.db'}"


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


@pytest.fixture
def open_server(serve: Serve) -> Served:
    """A server without sign-in and without agents."""
    return serve(auth=False)
