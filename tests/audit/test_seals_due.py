"""Seals become due by the store's count of events, whichever process wrote them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from audit_world import SERVER_KEY
from postgres_server import shared_url, why_not

from sayso.audit import verify
from sayso.engine.commands import Note
from sayso.keys import Keyring, new_key, public_key, row_key
from sayso.stores import open_store, seals
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore

# Writes so many events to a thread of its own, and is killed: it closes nothing.
WRITER = """
import os, signal, sys
from sayso.engine.commands import Note
from sayso.stores import open_store
url, name, events = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(url)
for _ in range(events // 10):
    store.transact(*[Note(thread=name, type="seen", actor="ana")] * 10)
os.kill(os.getpid(), signal.SIGKILL)
"""
_numbers = count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/sayso.db"
    else:
        yield request.getfixturevalue("database")


@pytest.fixture
def database(worker_id: str) -> Iterator[str]:
    if why_not():
        pytest.skip(why_not())
    schema = f"seals_{worker_id}_{os.getpid()}_{next(_numbers)}"
    yield f"{shared_url()}{'&' if '?' in shared_url() else '?'}schema={schema}"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def write(url: str, key: str, name: str, events: int) -> subprocess.Popen[bytes]:
    """Start a process that writes, and is killed before it closes its store."""
    command = [sys.executable, "-c", WRITER, url, name, str(events)]
    keys = {"SAYSO_KEY": key, "SAYSO_ROW_KEY": row_key(SERVER_KEY)}
    return subprocess.Popen(command, env={**os.environ, **keys}, stderr=subprocess.PIPE)


def killed(*writers: subprocess.Popen[bytes]) -> bytes:
    """Wait for the processes. Return their output."""
    said = b"".join(writer.communicate(timeout=60)[1] for writer in writers)
    assert [writer.returncode for writer in writers] == [-signal.SIGKILL] * len(writers), said
    return said


def opened(url: str, key: str) -> Store:
    return open_store(url, keys=Keyring.parse(key, rows=row_key(SERVER_KEY)))


@pytest.mark.long
def test_processes_killed_in_turn_leave_seals(url: str) -> None:
    key = new_key()
    for n in range(6):
        killed(write(url, key, f"t{n}", 400))
    store = opened(url, key)
    report = verify(store)
    assert (report.ok, report.events, report.seals, report.unsealed) == (True, 2400, 2, 400)
    store.close()


@pytest.mark.long
def test_processes_killed_together_leave_seals(url: str) -> None:
    key = new_key()
    opened(url, key).close()
    killed(*[write(url, key, f"t{n}", 400) for n in range(6)])
    store = opened(url, key)
    report = verify(store)
    assert (report.ok, report.events) == (True, 2400)
    assert report.seals >= 2
    assert report.unsealed < 1000
    store.close()


def test_only_server_seals_for_public_key(url: str) -> None:
    public = public_key(SERVER_KEY)
    said = killed(*[write(url, public, f"t{n}", 400) for n in range(3)])
    # The tests' PostgreSQL runs without fsync, which the store reports.
    assert [line for line in said.splitlines() if not line.startswith(b"fsync is off")] == []
    worker = opened(url, public)
    assert worker.seal_if_due() is None
    worker.transact(Note(type="seen", actor="ana"))
    worker.close()
    server = opened(url, SERVER_KEY)
    report = verify(server)
    assert (report.ok, report.seals, report.unsealed) == (True, 0, 1201)
    assert server.seal_if_due() is not None
    assert verify(server).unsealed == 0
    server.close()


def test_backlog_is_sealed_in_small_steps(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_HEADS", 10)
    worker = opened(url, public_key(SERVER_KEY))
    for n in range(35):
        worker.transact(*[Note(thread=f"t{n:02}", type="seen", actor="ana")] * 50)
    worker.close()
    server = opened(url, SERVER_KEY)
    assert server.seal_if_due() is not None
    assert verify(server).unsealed == 1250
    server.seal()
    report = verify(server)
    assert (report.ok, report.seals, report.unsealed) == (True, 4, 0)
    server.close()


# -- PostgreSQL: many at once


def test_sealing_does_not_wait_and_does_not_block(database: str) -> None:
    """A thread locked by an open transaction is left for the next seal."""
    store = opened(database, new_key())
    assert isinstance(store, PostgresStore)
    for name in ("held", "free"):
        store.transact(*[Note(thread=name, type="seen", actor="ana")] * 499)
    with psycopg.connect(shared_url()) as other:
        held = f"SELECT 1 FROM \"{store.schema}\".thread WHERE id = 'held' FOR UPDATE"
        other.execute(held)  # type: ignore[arg-type]
        began = time.monotonic()
        store.transact(*[Note(thread="free", type="seen", actor="ana")] * 2)
        assert time.monotonic() - began < 10  # a lock is waited for during 30 seconds
        assert {row.id: row.sealed for row in store.threads()} == {"free": 501, "held": 0}
    store.transact(Note(thread="held", type="seen", actor="ana"))
    assert verify(store).unsealed == 500
    store.transact(*[Note(thread="held", type="seen", actor="ana")] * 500)
    report = verify(store)
    assert (report.ok, report.unsealed) == (True, 0)
    store.close()


def test_writers_do_not_wait_for_a_seal(database: str) -> None:
    store = opened(database, new_key())
    assert isinstance(store, PostgresStore)
    with psycopg.connect(shared_url()) as other:
        lock = "SELECT pg_advisory_xact_lock(hashtext('sayso seal'), hashtext(%s))"
        other.execute(lock, [store.schema])
        began = time.monotonic()
        store.transact(*[Note(type="seen", actor="ana")] * 1001)
        assert time.monotonic() - began < 10  # a lock is waited for during 30 seconds
        assert store.seals() == []
    store.transact(*[Note(type="seen", actor="ana")] * 100)
    assert verify(store).unsealed == 0
    store.close()


def test_transactions_of_others_are_sealed_too(database: str) -> None:
    store = opened(database, new_key())
    assert isinstance(store, PostgresStore)
    for _ in range(3):
        with psycopg.connect(shared_url()) as connection:
            store.on(connection).transact(*[Note(type="seen", actor="ana")] * 600)
    report = verify(store)
    assert (report.ok, report.seals, report.unsealed) == (True, 1, 600)
    store.close()


def test_rolled_back_events_demand_no_seal(database: str) -> None:
    store = opened(database, new_key())
    assert isinstance(store, PostgresStore)
    store.transact(Note(type="seen", actor="ana"))
    with psycopg.connect(shared_url()) as connection:
        store.on(connection).transact(*[Note(type="seen", actor="ana")] * 2000)
        connection.rollback()
    store.transact(Note(type="seen", actor="ana"))
    assert store.seals() == []
    store.close()
