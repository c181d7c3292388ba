"""What the log says of a store that is away: at once, once a minute, and when it is back."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer
from postgres_server import PostgresServer, why_not
from waiting import until

from sayso.keys import Keyring, new_key
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import outage
from sayso.stores.outage import Outage
from sayso.stores.postgres import PostgresStore


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the monotonic time, which a test moves."""
    now = [100.0]
    monkeypatch.setattr(outage.time, "monotonic", lambda: now[0])
    return now


def test_outage_is_logged_once_a_minute(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    away = Outage("the store")
    for second in range(130):
        now[0] = 100.0 + second
        away.failed(OSError("refused"))
    away.over()
    away.over()
    assert [record.getMessage() for record in caplog.records] == [
        "the store is not available, trying again: refused",
        "the store is not available for 60 s: refused",
        "the store is not available for 120 s: refused",
        "the store is available again, after 129 s",
    ]


def test_outage_within_another_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = Outage("the store")
    channel = Outage("the channel", within=store)
    store.failed(OSError("refused"))
    channel.failed(OSError("refused"))
    assert len(caplog.records) == 1
    store.over()
    channel.failed(OSError("bad token"))
    assert "the channel" in caplog.text


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    if why_not():
        pytest.skip(why_not())
    folder = Path(tempfile.mkdtemp(prefix="sayso-outage-"))
    server = PostgresServer(folder, fsync=False)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_server_logs_lost_store_within_a_second(
    database: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage, "_REMIND_SECONDS", 3.0)
    caplog.set_level(logging.WARNING, "sayso")
    # Each loop of the server fails on its own when its patience ends.
    store = PostgresStore(database.url, keys=Keyring.parse(new_key()), patience=0.5)
    server = LiveServer(server_config(create_app(store=store, auth=False), grace=1))
    server.start()
    try:
        until(lambda: "sayso-listen" in _threads())
        caplog.clear()
        began = time.monotonic()
        database.kill()
        until(lambda: caplog.records)
        assert time.monotonic() - began < 5  # a second, and room for a busy machine
        time.sleep(7)
        lines = [record.getMessage() for record in caplog.records]
        assert "is not available, trying again" in lines[0]
        assert 2 <= len(lines) <= 3, lines
        database.start()
        until(lambda: "is available again, after" in caplog.text)
    finally:
        server.stop()
        store.close()


def _threads() -> set[str]:

    return {thread.name for thread in threading.enumerate()}
