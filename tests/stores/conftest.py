"""A SQLite store in a folder of its own, and ways to open it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assent.keys import Keyring, new_key
from assent.stores.sqlite import SqliteStore
from assent.testing import FakeClock
from assent.testing.world import World

Opener = Callable[..., SqliteStore]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keys() -> Keyring:
    return Keyring.parse(new_key())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def open_again(path: Path, clock: FakeClock, keys: Keyring) -> Iterator[Opener]:
    """Opens the store's file, as often as wanted; all is closed in the end."""
    opened: list[SqliteStore] = []

    def opener(where: Path = path, **options: Any) -> SqliteStore:
        opened.append(SqliteStore(where, **{"clock": clock, "keys": keys, **options}))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def world(open_again: Opener, clock: FakeClock) -> World:
    def reopen(store: Any) -> Any:
        store.close()
        return open_again()

    return World(open_again(), clock, reopen)
