"""A PostgreSQL that is stopped, restarted and killed under load: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer, why_not
from waiting import until

from sayso.keys import Keyring, new_key
from sayso.stores.postgres import PostgresStore
from sayso_testing.world import World

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(why_not()), reason=why_not())]

THREADS = 4


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="sayso-pg-"))
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
        server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Load:
    """Some threads that say and ask something again and again, and note what was acknowledged."""

    def __init__(self, stores: list[PostgresStore]) -> None:
        self.done: list[list[int]] = [[] for _ in range(THREADS)]
        self.errors: list[BaseException] = []
        self._over = threading.Event()
        self._worlds: list[Any] = [World(store, None) for store in stores]  # type: ignore[arg-type]
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        world = self._worlds[number % len(self._worlds)]
        name, turn = f"t{number}", 0
        try:
            while not self._over.is_set():
                world.propose(says=(str(turn),), run=name, thread=name)
                args = {"to": f"shop {number} {turn}"}  # an equal call would be refused
                new = world.new(id=f"req_{number}_{turn}", key=str(turn), args=args)
                (call,) = world.propose(new, run=name, thread=name)
                world.decide(call, "reject", by="ana")
                self.done[number].append(turn)
                turn += 1
        except BaseException as error:
            self.errors.append(error)

    def progress(self) -> None:
        """Wait until every thread has come further."""
        before = [len(turns) for turns in self.done]

        def further() -> bool:
            assert not self.errors, self.errors
            return all(len(turns) >= n + 2 for turns, n in zip(self.done, before, strict=True))

        until(further)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()


def test_crashes_lose_no_commit_and_repeat_none(server: PostgresServer) -> None:
    keys = Keyring.parse(new_key())
    stores = [PostgresStore(server.url, keys=keys) for _ in range(2)]
    load = Load(stores)
    for how in ("kill", "stop", "kill", "quit", "kill"):
        load.progress()
        if how == "kill":
            server.kill()
        else:
            server.stop(signal.SIGINT if how == "stop" else signal.SIGQUIT)
        server.start()
    load.progress()
    load.stop()
    assert load.errors == []
    store = stores[0]
    for number, turns in enumerate(load.done):
        assert [body for _, body in store.messages(f"t{number}")] == [str(turn) for turn in turns]
        calls = store.calls_of(f"t{number}")
        assert [call.id for call in calls] == [f"req_{number}_{turn}" for turn in turns]
        assert {call.status for call in calls} == {"rejected"}
        types = [event.type for event in store.chain(f"t{number}", limit=100_000)]
        later = ["said", "asked", "decided"] * (len(turns) - 1)
        assert types == ["began", "asked", "decided", *later]
    world = World(store, None)  # type: ignore[arg-type]
    world.runs = {f"t{number}": None for number in range(THREADS)}
    world.check()
    assert not store.restored(), "a restart is no restore"
    for store in stores:
        store.close()


def test_close_does_not_wait_for_a_lost_database(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(server.url, keys=Keyring.ephemeral(), schema="end")
    World(store, None).ask()  # type: ignore[arg-type]
    server.kill()
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 10  # it is waited for during 30 seconds otherwise
    assert "not sealed yet" in caplog.text
    server.start()


def test_lost_database_fails_after_patience(server: PostgresServer) -> None:
    store = PostgresStore(server.url, keys=Keyring.ephemeral(), patience=0.5)
    world = World(store, None)  # type: ignore[arg-type]
    call = world.ask()
    server.kill()
    for act in (world.ask, lambda: world.call(call)):
        with pytest.raises(Exception, match=r"cannot connect|could not be"):
            act()
    server.start()
    assert world.call(call) == call
    assert world.decide(call).status == "ready"
    store.close()


def test_open_transaction_delays_events_but_no_writes(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server of its own, because such a transaction holds back everybody's stream."""
    monkeypatch.setattr("sayso.stores.postgres.store.PATIENCE", 3.0)
    keys = Keyring.ephemeral()
    store, listening = (PostgresStore(server.url, keys=keys) for _ in range(2))
    world = World(store, None)  # type: ignore[arg-type]
    with psycopg.connect(server.url) as other:
        other.execute("SELECT pg_current_xact_id()")
        call = world.decide(world.ask())
        assert store.events() == []
        began = time.monotonic()
        assert store.events() == []
        assert time.monotonic() - began < 2.7, "it does not wait for the same one twice"
        assert world.start(call)[0].status == "running"
        heard = threading.Event()
        subscription = listening.subscribe("t", heard.set)
        world.record(world.call(call))
        assert heard.wait(20), "news do not wait for it either"
        subscription.cancel()
    assert [event.type for _, event in store.events()] == [
        "asked",
        "decided",
        "started",
        "recorded",
    ]
    store.close()
    listening.close()
