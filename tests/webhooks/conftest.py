"""Servers with webhooks; the server itself is that of the client's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "client"))

import pytest
from hook_world import Receiver, asking
from remote_world import Server

import sayso


@pytest.fixture(autouse=True)
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that comes late was not woken by the commit: it waited for the next poll."""
    monkeypatch.setattr("sayso.channels.kit.sender._POLL", 600.0)
    monkeypatch.setattr("sayso.stores.event_follower._POLL_SECONDS", 600.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sayso.db'}"


@pytest.fixture
def gate(url: str) -> Iterator[sayso.Gate]:
    with asking(url) as made:
        yield made


@pytest.fixture
def inbox(url: str) -> Iterator[sayso.Inbox]:
    made = sayso.Inbox(url)
    yield made
    made.close()


@pytest.fixture
def receivers() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(**options: Any) -> Receiver:
        made.append(Receiver(**options))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def receiver(receivers: Callable[..., Receiver]) -> Receiver:
    return receivers()


@pytest.fixture
def serve(url: str, receivers: Callable[..., Receiver]) -> Iterator[Callable[..., Server]]:
    """Start servers; they are stopped before the receivers are."""
    running: list[Server] = []

    def start(*endpoints: Any) -> Server:
        running.append(Server(url, webhooks=endpoints).start())
        return running[-1]

    yield start
    for server in running:
        server.stop()
