"""A SQLite store in a folder of its own, a schema in PostgreSQL, and ways to open them again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from homes import Home
from kept_sessions import kept_sessions
from pg_places import PgOpener, Place
from postgres_server import shared_url, why_not

from sayso.keys import Keyring, new_key
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def key_text() -> str:
    return new_key()


@pytest.fixture
def keys(key_text: str) -> Keyring:
    return Keyring.parse(key_text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def open_again(path: Path, clock: FakeClock, keys: Keyring) -> Iterator[Opener]:
    """Return a function that opens the store's file again. All stores are closed at the end."""
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


_numbers = count(1)
#: In a database that was given, an older run may have left something: it was killed.
_OURS = secrets.token_hex(3)


def _server() -> str:
    if why_not():
        pytest.skip(why_not())
    return shared_url()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other workers have transactions open on the same server, and this machine may be slow."""
    monkeypatch.setattr("sayso.stores.postgres.store.PATIENCE", 60.0)


def _drop(place: Place) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{place.schema}" CASCADE')


@pytest.fixture
def place(worker_id: str) -> Iterator[Place]:
    """Yield a new schema."""
    place = Place(_server(), f"test {worker_id} {_OURS} {next(_numbers)}")
    yield place
    _drop(place)


@pytest.fixture(scope="module")
def _kept_place(worker_id: str) -> Iterator[tuple[Place, psycopg.Connection[Any]]]:
    place = Place(_server(), f"kept {worker_id} {_OURS} {next(_numbers)}")
    with psycopg.connect(place.url, autocommit=True) as sweeper:
        yield place, sweeper
    _drop(place)


@pytest.fixture
def swept_place(_kept_place: tuple[Place, psycopg.Connection[Any]]) -> Iterator[Place]:
    """A schema without rows. Sweeping takes less time than creating, most of all on a connection
    that knows the tables."""
    place, sweeper = _kept_place
    yield place
    tables = sweeper.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s", [place.schema]
    )
    names = [row[0] for row in tables if row[0] != "meta"]
    sweeper.execute("; ".join(f'DELETE FROM "{place.schema}"."{name}"' for name in names) or b"")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sessions() -> Iterator[None]:
    """Stores of a module get the PostgreSQL sessions of those that were closed before them."""
    with kept_sessions():
        yield


@pytest.fixture
def open_pg(place: Place, keys: Keyring) -> Iterator[PgOpener]:
    """Return a function that opens stores on the test's schema, closed at the end."""
    opened: list[PostgresStore] = []

    def opener(url: str = "", **options: Any) -> PostgresStore:
        options = {"keys": keys, "schema": place.schema, **options}
        opened.append(PostgresStore(url or place.url, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, path: Path) -> Iterator[Home]:
    """Yield a place for a store in each database."""
    place = request.getfixturevalue("place") if request.param == "postgres" else None
    home = Home(path, place)
    yield home
    home.close()
