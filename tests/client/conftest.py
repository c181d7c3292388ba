"""A server, people, and an agent's gate to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from remote_world import People, Server

from sayso.client import Client, RemoteGate


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sayso.db'}"


@pytest.fixture
def people(url: str) -> Iterator[People]:
    world = People(url)
    yield world
    world.close()


@pytest.fixture
def serve(url: str) -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def start(**options: Any) -> Server:
        running.append(Server(url, **options).start())
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def gate_to(people: People) -> Iterator[Callable[..., RemoteGate]]:
    """Make gates to a server; closed where they were used without a loop."""
    made: list[RemoteGate] = []
    token = people.token("bot")

    def make(url: str, **options: Any) -> RemoteGate:
        made.append(RemoteGate(url, token=token, **options))
        return made[-1]

    yield make
    for gate in made:
        gate.close_sync()


@pytest.fixture
def client(server: Server, people: People) -> Iterator[Client]:
    with Client(server.url, people.token("bot"), patience=5) as made:
        yield made
