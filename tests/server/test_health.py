"""``/healthz`` while the database is away: soon, and right again when it is back."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Serve

from assent.keys import Keyring, new_key
from assent.server.pulse import WAIT
from assent.stores.postgres import PostgresStore
from assent.testing.postgres_server import PostgresServer, why_not


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of the test's own; its socket needs a short path."""
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="assent-health-"))
    folder.chmod(0o755)
    made = PostgresServer(folder, fsync=False)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_database_that_is_away_is_told_soon(database: PostgresServer, serve: Serve) -> None:
    store = PostgresStore(database.url, keys=Keyring.parse(new_key()))
    server = serve(store=store, auth=False, workers=0)
    client = server.client()
    assert client.get("/healthz").json()["status"] == "ok"
    head = client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
    database.kill()
    # Whoever asks often keeps nobody waiting, and takes no thread each time.
    for _ in range(3):
        began = time.monotonic()
        away = client.get("/healthz")
        assert time.monotonic() - began < WAIT + 3  # with room for a slow machine
        assert (away.status_code, away.json()["status"]) == (503, "unwell")
    looking = [t for t in threading.enumerate() if t.name == "assent-pulse"]
    assert len(looking) <= 1
    database.start()
    ends = time.monotonic() + 60
    while (back := client.get("/healthz")).status_code != 200:
        assert time.monotonic() < ends, back.text
    assert back.json()["store"] == "ok"
