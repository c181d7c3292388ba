"""What the tests with many processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fork_server import PATIENCE, ForkServer

from sayso.stores.postgres import store


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    warm = ForkServer()
    yield warm
    warm.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other workers have transactions open on the same PostgreSQL."""
    monkeypatch.setattr(store, "PATIENCE", PATIENCE)
