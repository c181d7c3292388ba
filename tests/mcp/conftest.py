from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer
from mcp_world import World
from postgres_server import shared_url, why_not

from sayso.keys import new_key
from sayso.server import create_app
from sayso.server.serving import server_config


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def on_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same on PostgreSQL, in a schema of its own."""
    if reason := why_not():
        pytest.skip(reason)
    import psycopg

    monkeypatch.setenv("SAYSO_KEY", new_key())
    schema = f"mcp_{secrets.token_hex(6)}"
    url = shared_url()
    made = World(tmp_path, f"{url}{'&' if '?' in url else '?'}schema={schema}")
    yield made
    made.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@pytest.fixture
def served(world: World) -> Iterator[str]:
    policy = world.folder / "policy.toml"
    policy.write_text('[[rule]]\ntool = "stock"\nverdict = "allow"\neffect = "read"\n')
    app = create_app(store=world.url, policy=policy)
    live = LiveServer(server_config(app, grace=1))
    live.start()
    yield live.url
    app.state.sayso.feed.close()
    live.stop()
