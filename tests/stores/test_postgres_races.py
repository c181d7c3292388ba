"""PostgreSQL: several stores on one database, lost connections, lost news, lost answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from forked_child import fork, in_child, succeeded
from pg_places import PgOpener, Place
from waiting import until

from sayso.errors import AlreadyDecided, Conflict, StoreError
from sayso.stores.postgres import PostgresStore, transaction
from sayso.stores.postgres import store as postgres
from sayso.stores.postgres.transaction import PooledTransaction
from sayso_testing.world import World

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def a_world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


def end_sessions(place: Place) -> None:
    """End every session of the stores, as a server does that goes down."""
    place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'sayso' AND datname = current_database() AND pid <> "
        "pg_backend_pid() AND query LIKE %s",
        f"%{place.schema}%",
    )


def listen(condition: Callable[[], bool], heard: threading.Event) -> None:
    """Look only when told to; it may be told too often, and never too rarely."""
    while not condition():
        assert heard.wait(20), "nobody said a word"
        heard.clear()


# -- two stores


@pytest.mark.long
def test_racing_stores_decide_each_call_once(open_pg: PgOpener) -> None:
    worlds = [a_world(open_pg()) for _ in range(2)]
    calls = [worlds[0].ask(run=f"r{n}", thread=f"t{n}") for n in range(8)]
    wins: list[tuple[str, int]] = []

    def decide(number: int) -> None:
        for call in calls:
            try:
                worlds[number % 2].decide(call, by=f"p{number}", seen_digest=call.digest)
                wins.append((call.id, number))
            except AlreadyDecided:
                pass

    threads = [threading.Thread(target=decide, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(call_id for call_id, _ in wins) == sorted(call.id for call in calls)
    worlds[0].check()


def test_ready_skips_rows_locked_by_others(open_pg: PgOpener, place: Place) -> None:
    world = a_world(open_pg())
    for n in range(2):
        world.decide(world.ask(run=f"r{n}", thread=f"t{n}"))
    with psycopg.connect(place.url) as other:
        query = f'SELECT 1 FROM "{place.schema}".run WHERE id = %s FOR UPDATE'
        other.execute(query, ("r0",))
        assert [run.id for run in world.store.ready(["agent"], 5)] == ["r1"]
    assert {run.id for run in world.store.ready(["agent"], 5)} == {"r0", "r1"}


@pytest.mark.long
def test_no_event_is_skipped_by_a_reader(open_pg: PgOpener) -> None:
    """Many write at once, transactions end in any order, and a reader follows with its cursor."""
    store = open_pg()
    world = a_world(store)
    over = threading.Event()

    def write(number: int) -> None:
        for turn in range(12):
            world.ask(run=f"r{number}", thread=f"t{number}")
            world.ask(key=f"{number} {turn}")

    seen: list[tuple[str, int]] = []

    def read() -> None:
        cursor = ""
        while True:
            last = over.is_set()
            page = other.events(cursor, 7)
            seen.extend((event.thread, event.seq) for _, event in page)
            cursor = page[-1][0] if page else cursor
            if last and not page:
                return

    other = open_pg()
    reader = threading.Thread(target=read)
    threads = [threading.Thread(target=write, args=(n,)) for n in range(5)]
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    reader.join()
    assert len(seen) == 5 * 24
    for name in {thread for thread, _ in seen}:
        numbers = [seq for thread, seq in seen if thread == name]
        assert numbers == list(range(1, len(numbers) + 1)), name


# -- news


@pytest.mark.parametrize("deaf", [False, True])
def test_decision_in_another_store_notifies_listeners(
    open_pg: PgOpener, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    """With NOTIFY at once; without it, as behind a pooler, by looking."""
    if deaf:
        monkeypatch.setattr("sayso.stores.postgres.store.notify", lambda *ignored: None)
    else:
        monkeypatch.setattr(postgres, "POLL_SECONDS", 30.0)
    here, there = a_world(open_pg()), a_world(open_pg())
    call = here.ask()
    other = here.ask(run="r2", thread="t2")
    heard = {name: threading.Event() for name in ("t", "t2")}
    subscriptions = [here.store.subscribe(name, event.set) for name, event in heard.items()]
    there.decide(call)
    listen(lambda: here.call(call).status == "ready", heard["t"])
    there.decide(other, "reject")
    listen(lambda: here.call(other).status == "rejected", heard["t2"])
    for subscription in subscriptions:
        subscription.cancel()


def test_notifications_resume_after_a_lost_connection(open_pg: PgOpener, place: Place) -> None:
    here, there = a_world(open_pg()), a_world(open_pg())
    heard = threading.Event()
    subscription = here.store.subscribe(None, heard.set)
    there.ask()
    assert heard.wait(20)
    end_sessions(place)
    heard.clear()
    there.ask()
    assert heard.wait(20)
    subscription.cancel()


# -- lost connections and answers


def test_lost_connection_is_not_noticed_by_the_caller(open_pg: PgOpener, place: Place) -> None:
    world = a_world(open_pg())
    for _ in range(3):
        call = world.ask()
        end_sessions(place)
        assert world.call(call) == call
        end_sessions(place)
        assert world.decide(call).status == "ready"
    world.check()


def cut(monkeypatch: pytest.MonkeyPatch, place: Place, when: str) -> list[str]:
    """Break the connection of the next transaction, before or after the server has committed."""
    real, done = PooledTransaction.run, list[str]()

    def run(self: PooledTransaction, body: Any, before: Any) -> Any:
        if done:
            return real(self, body, before)

        def at_the_end() -> None:
            before()
            done.append(self.xid)
            if when == "before":
                place.sql("SELECT pg_terminate_backend(%s)", self.pid)
                until(lambda: not place.sql(ALIVE, self.pid))

        real(self, body, at_the_end)
        self._connection.close()
        raise psycopg.OperationalError("the connection was lost before the answer came")

    monkeypatch.setattr(PooledTransaction, "run", run)
    return done


ALIVE = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_commit_without_an_answer_is_read_back(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Done twice it would be refused, or the same words would stand there twice."""
    world = a_world(open_pg())
    acts: list[Callable[[], Any]] = [
        lambda: world.ask(id="req_1", key="k1"),
        lambda: world.decide("req_1"),
        lambda: world.start(world.call("req_1")),
        lambda: world.record(world.call("req_1")),
        lambda: world.propose(says=("only words",)),
        lambda: world.propose(run="r5", thread="t5"),
        lambda: world.propose(world.new(), run="r2", thread="t2"),
        lambda: world.finish(),
        lambda: world.store.move_cursor("hooks", "1", expected=""),
        lambda: world.store.seal(),
        lambda: world.store.prune(0, "ops"),
    ]
    for act in acts:
        with monkeypatch.context() as patched:
            done = cut(patched, place, when)
            assert act() is not False
            assert len(done) == 1
    types = [event.type for event in world.store.chain("t")]
    assert types == ["asked", "decided", "started", "recorded", "said", "finished"]
    assert world.store.messages("t") == [(1, "only words")]
    assert world.store.cursor("hooks") == "1"
    assert len(world.store.seals()) == 2
    world.check()


def test_hanging_transaction_is_ended_before_a_retry(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may sit somewhere with the COMMIT still to come."""
    monkeypatch.setattr(transaction, "_END_AFTER_SECONDS", 0.1)
    store = open_pg()
    with psycopg.connect(place.url) as hanging:
        xid, pid = hanging.execute("SELECT pg_current_xact_id()::text, pg_backend_pid()").fetchone()  # type: ignore[misc]
        attempt = PooledTransaction(hanging, store._translate, "", "''", store._time)
        attempt.xid, attempt.pid = xid, pid
        with store._pool.connection(time.monotonic() + 20) as connection:
            assert transaction.is_over(connection, attempt)
        with pytest.raises(psycopg.OperationalError):
            hanging.execute("SELECT 1")


def test_unknown_commit_outcome_is_reported(
    open_pg: PgOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_pg(patience=0.3)
    world = a_world(store)

    def lost(self: PooledTransaction, body: Any, before: Any) -> Any:
        self.sent = True
        self._connection.close()
        store._address = "postgresql://127.0.0.1:1/nowhere"
        raise psycopg.OperationalError("lost")

    with monkeypatch.context() as patched:
        patched.setattr(PooledTransaction, "run", lost)
        with pytest.raises(StoreError, match="check what is stored"):
            world.ask()
    store._pool.close()


# -- the rest


def test_lost_prepared_statements_disable_preparation(open_pg: PgOpener) -> None:
    store = open_pg(size=1)
    world = a_world(store)
    for _ in range(12):
        world.ask()
    with store._pool.connection(time.monotonic() + 20) as connection:
        connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
    assert world.ask().status == "asked"
    assert not store._prepare
    assert len(store.calls_of("r")) == 13
    world.check()


def test_more_threads_than_connections_take_turns(open_pg: PgOpener) -> None:
    world = a_world(open_pg(size=2))
    threads = [
        threading.Thread(target=world.ask, kwargs={"run": f"r{n}", "thread": f"t{n}"})
        for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.store.threads()) == 10
    assert len(world.store._pool._idle) <= 2  # type: ignore[attr-defined]


def test_forked_child_opens_new_connections(open_pg: PgOpener) -> None:
    world = a_world(open_pg())
    world.ask("before")

    def child() -> None:
        world.ask("child", key="child", id="req_child")
        world.store.close()

    assert in_child(child)
    world.ask("parent", key="parent", id="req_parent")
    assert [call.tool for call in world.store.calls_of("r")] == ["before", "child", "parent"]
    world.check()


def test_forked_child_receives_notifications(open_pg: PgOpener) -> None:
    world = a_world(open_pg())
    world.ask("before")
    listening = world.store.subscribe("t", lambda: None)
    ready, tell = os.pipe()

    def child() -> None:
        notified = threading.Event()
        world.store.subscribe("t", notified.set)
        os.write(tell, b"!")
        assert notified.wait(20)

    pid = fork(child)
    os.read(ready, 1)
    world.ask("parent", key="parent", id="req_parent")
    assert succeeded(pid)
    listening.cancel()
    os.close(ready)
    os.close(tell)


def test_second_live_run_conflicts_across_stores(open_pg: PgOpener) -> None:
    one, two = a_world(open_pg()), a_world(open_pg())
    one.ask()
    with pytest.raises(Conflict, match="live run"):
        two.propose(run="r2")
    assert isinstance(two.store, PostgresStore)
