"""PostgreSQL: a frozen server counts as unreachable, and closing does not wait for it."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from freezing import frozen
from postgres_server import PostgresServer, why_not

from sayso.audit import verify
from sayso.errors import SaysoError, StoreError
from sayso.keys import Keyring, new_key
from sayso.rows import CallStatus
from sayso.stores.postgres import PostgresStore, connections
from sayso.stores.postgres.database import Database
from sayso_testing.world import World

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]


@contextmanager
def a_server() -> Iterator[PostgresServer]:
    """A server of its own; its socket needs a short path."""
    folder = Path(tempfile.mkdtemp(prefix="sayso-away-"))
    made = PostgresServer(folder, fsync=False)
    made.start()
    yield made
    made.stop(signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with a_server() as made:
        yield made


@pytest.fixture
def other() -> Iterator[PostgresServer]:
    with a_server() as made:
        yield made


@pytest.fixture
def open_store(server: PostgresServer, keys: Keyring) -> Iterator[Callable[..., PostgresStore]]:
    opened: list[PostgresStore] = []
    schema = f"away_{new_key()[-6:]}"

    def opener(**options: Any) -> PostgresStore:
        options = {"keys": keys, "schema": schema, **options}
        opened.append(PostgresStore(server.url, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(connections, "SILENCE", 0.5)
    monkeypatch.setattr(connections, "_CONNECT_SECONDS", 2)
    monkeypatch.setattr(connections, "_TIMEOUTS", {**connections._TIMEOUTS, "connect_timeout": 2})


def a_world(store: PostgresStore) -> World:
    return World(store, None)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.usefixtures("brisk")
def test_frozen_server_fails_after_patience(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    store = open_store(patience=1.0)
    world = a_world(store)
    call = world.ask()
    with frozen(server):
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"cannot connect|has not answered"):
            store.threads()
        with pytest.raises(StoreError, match=r"cannot connect|has not answered"):
            world.decide(call, "approve")
        assert time.monotonic() - began < 20
    assert world.call(call).status is CallStatus.ASKED
    world.decide(call, "approve")
    assert world.call(call).status is CallStatus.READY
    world.check()


@pytest.mark.long
@pytest.mark.usefixtures("brisk")
def test_briefly_frozen_server_is_waited_for(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    store = open_store(patience=30.0)
    world = a_world(store)
    call = world.ask()
    with ThreadPoolExecutor(1) as elsewhere:
        with frozen(server):
            deciding = elsewhere.submit(world.decide, call, "approve")
            time.sleep(4)
            assert not deciding.done()
        assert deciding.result(30).status is CallStatus.READY
    world.check()


@pytest.mark.long
@pytest.mark.usefixtures("brisk")
def test_freeze_during_a_commit_reports_unknown_outcome(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    store = open_store(patience=1.0)
    world = a_world(store)
    call = world.ask()
    freezing = frozen(server)
    store.boundary = lambda name, when: freezing.__enter__() if when == "before" else None
    try:
        with pytest.raises(StoreError, match="cannot be asked whether it succeeded"):
            world.decide(call, "approve")
    finally:
        store.boundary = None
        freezing.__exit__(None, None, None)
    with suppress(SaysoError):  # it may have been committed when the server woke up
        world.decide(call, "approve")
    assert world.call(call).status is CallStatus.READY
    world.check()


@pytest.mark.usefixtures("brisk")
def test_slow_answer_is_waited_for(
    open_store: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    real = connections.answers

    def counted(server: Any) -> bool:
        asked.append(server)
        return real(server)

    monkeypatch.setattr(connections, "answers", counted)
    assert open_store(patience=0.1)._rows("SELECT 7 FROM pg_sleep(1.5)") == [(7,)]
    assert asked


@pytest.mark.long
@pytest.mark.usefixtures("brisk")
def test_liveness_is_checked_on_the_connected_server(
    server: PostgresServer, other: PostgresServer
) -> None:
    """An address may name several, of which another one has taken over."""
    both = f"postgresql://postgres@/postgres?host={server.folder},{other.folder}"
    with psycopg.connect(both) as connection:
        assert connection.info.host == str(server.folder)
        assert connections.answers(connection.info)
        with frozen(server):
            assert not connections.answers(connection.info)
        server.kill()
        try:
            assert connections.answers(connection.info), (
                "the connection reports that the server is gone"
            )
        finally:
            server.start()


@pytest.mark.long
@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_closing_the_store_releases_waiting_callers(
    server: PostgresServer, open_store: Callable[..., PostgresStore], how: str
) -> None:
    store = open_store()
    a_world(store).ask()  # it has something to seal
    waited: list[float] = []

    def wait() -> None:
        began = time.monotonic()
        with pytest.raises(StoreError):
            store.threads()
        waited.append(time.monotonic() - began)

    if how == "gone":
        server.kill()
    try:
        with frozen(server) if how == "frozen" else nullcontext():
            waiting = threading.Thread(target=wait)
            waiting.start()
            time.sleep(0.5)
            store.close()
            waiting.join(20)
        assert waited
        assert waited[0] < 12
    finally:
        if how == "gone":
            server.start()


def test_connection_lost_during_open_is_retried(
    open_store: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up, tries = Database.set_up, []

    def cut_off_twice(self: Database, connection: Any, keys: Keyring, *, create: bool) -> None:
        tries.append(connection)
        if len(tries) <= 2:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        set_up(self, connection, keys, create=create)

    monkeypatch.setattr(Database, "set_up", cut_off_twice)
    assert a_world(open_store()).ask().status is CallStatus.ASKED
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(StoreError, match="cannot open the store"):
        open_store(patience=0.0)
    began = time.monotonic()
    with pytest.raises(StoreError):  # nobody ever let us in
        PostgresStore("postgresql:///sayso?host=/nowhere", keys=Keyring.parse(new_key()))
    assert time.monotonic() - began < 8


def test_audit_survives_lost_connections(
    server: PostgresServer,
    open_store: Callable[..., PostgresStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store()
    world = a_world(store)
    for number in range(3):
        world.ask(run=f"r{number}", thread=f"t{number}")
    take, left = store.snapshot, [1, 2, 3]

    @contextmanager
    def snapshot() -> Iterator[Any]:
        with take() as rows:
            if left and left.pop() != 2:
                with psycopg.connect(server.url, autocommit=True) as admin:
                    admin.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE state = 'idle in transaction'"
                    )
            yield rows

    monkeypatch.setattr(store, "snapshot", snapshot)
    report = verify(store)
    assert left == []
    assert (report.problems, report.threads, report.events) == ([], 3, 3)
