"""A pending request to show, and channels over a store in each database."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from kit_world import KitWorld
from postgres_server import shared_url, why_not

from sayso import Gate, Paused, Request
from sayso.keys import ENVIRONMENT, Keyring, new_key
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore


@pytest.fixture
def request_() -> Request:
    gate = Gate("memory://", wait=0, agent="assistant")

    @gate.guard(needs_approval=True)
    def send_email(to: str, body: str = "") -> str:
        """Send an email."""
        return "sent"

    with pytest.raises(Paused) as caught, gate.run("r1"):
        send_email("ana@example.com", "Hi")
    return caught.value.requests[0]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store in each database."""
    if request.param == "postgres" and why_not():
        pytest.skip(why_not())
    keys = Keyring.parse(new_key())
    made: Store
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "sayso.db", keys=keys)
    else:
        made = PostgresStore(shared_url(), schema=f"channels {secrets.token_hex(6)}", keys=keys)
    yield made
    made.close()


@pytest.fixture
def sqlite_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a new store in a file, with the key for several processes."""
    monkeypatch.setenv(ENVIRONMENT, new_key())
    return f"sqlite:///{tmp_path / 'sayso.db'}"


@pytest.fixture
def postgres_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a new store on PostgreSQL, with the key for several processes."""
    monkeypatch.setenv(ENVIRONMENT, new_key())
    if why_not():
        pytest.skip(why_not())
    schema = f"channels_{secrets.token_hex(6)}"
    yield f"{shared_url()}{'&' if '?' in shared_url() else '?'}schema={schema}"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


@pytest.fixture(params=["sqlite", "postgres"])
def each_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a new store in each database, with the key for several processes."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def world(store: Store) -> KitWorld:
    return KitWorld(store)
