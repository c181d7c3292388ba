"""A Temporal server for a file of tests, and a desk with workers in a folder of each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_world import IMPORTED, Desk
from dev_server import DevServer, NoTemporal
from sayso_process import PythonForks


def started(folder: Path, tries: int = 3) -> DevServer:
    """A server that answers; where that cannot be, the test is skipped, except in CI."""
    try:
        server = DevServer(folder)
        server.start()
    except NoTemporal as error:
        if tries > 1:
            return started(folder, tries - 1)  # somebody may have taken its port
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    server = started(tmp_path_factory.mktemp("temporal"))
    yield server
    server.kill()


@pytest.fixture
def killable_server(tmp_path: Path) -> Iterator[DevServer]:
    """A server of the test's own."""
    server = started(tmp_path)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def python() -> Iterator[PythonForks]:
    """What starts the workers."""
    forks = PythonForks(*IMPORTED)
    yield forks
    forks.close()


@pytest.fixture
def desk(tmp_path: Path, server: DevServer, python: PythonForks) -> Iterator[Desk]:
    desk = Desk(tmp_path, server, python)
    yield desk
    desk.close()
