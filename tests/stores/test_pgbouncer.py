"""PostgreSQL behind a real PgBouncer in transaction mode: fewer sessions than clients, no bell."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import psycopg
import pytest
from freezing import frozen
from pooler import NEEDED, PgBouncer, bouncer, home, server
from postgres_server import PostgresServer
from waiting import until_async

import sayso
from sayso.audit import verify
from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.rows import CallStatus
from sayso.stores.postgres import PostgresStore, connections
from sayso.testing import ScriptedModel, call, say
from sayso.worker import Worker
from sayso_testing.world import World

__all__ = ["bouncer", "home", "server"]

pytestmark = NEEDED
_numbers = count(1)


@pytest.fixture
def open_store(bouncer: PgBouncer, keys: Keyring) -> Iterator[Callable[..., PostgresStore]]:
    opened: list[PostgresStore] = []
    schema = f"pooled {next(_numbers)}"

    def opener(**options: Any) -> PostgresStore:
        options = {"keys": keys, "schema": schema, **options}
        opened.append(PostgresStore(bouncer.url, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


def a_world(store: PostgresStore) -> World:
    return World(store, None)  # type: ignore[arg-type]


@pytest.mark.long
def test_many_clients_share_few_sessions(
    open_store: Callable[..., PostgresStore], server: PostgresServer
) -> None:
    stores = [open_store() for _ in range(3)]

    def life(n: int) -> CallStatus:
        first, second, third = (a_world(stores[(n + k) % 3]) for k in range(3))
        asked = first.ask(run=f"r{n}", thread=f"t{n % 7}{n}", id=f"c{n}")
        (started,) = third.start(second.decide(asked, "approve"))
        return first.record(started).status

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(life, range(60))) == {CallStatus.DONE}
    with psycopg.connect(server.url) as connection:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ((open_,),) = connection.execute(sessions).fetchall()
    assert open_ <= 3 + 1
    assert verify(stores[0]).ok


def test_waiter_finds_the_decision_without_notify(open_store: Callable[..., PostgresStore]) -> None:
    """Looking now and then is enough, also for an expiry."""
    gate = sayso.Gate(open_store(), agent="clerk")
    inbox = sayso.Inbox(open_store())

    async def asked() -> tuple[Any, float]:
        async with gate.run("order-17"):
            answering = asyncio.create_task(gate.ask(sayso.Question("Which floor?"), wait=30))
            page = await until_async(inbox.pending)
            await inbox.decide(page.items[0], page.items[0].respond("third"), by="ana")
            began = time.monotonic()
            return await answering, time.monotonic() - began

    value, seconds = asyncio.run(asked())
    assert value == "third"
    assert seconds < 5

    async def nobody() -> None:
        async with gate.run("order-18"):
            await gate.ask("Anybody?", expires_in=0.5, wait=30)

    with pytest.raises(sayso.SaysoError):
        asyncio.run(nobody())


def test_worker_resumes_a_run_behind_pgbouncer(open_store: Callable[..., PostgresStore]) -> None:
    effects: list[int] = []

    @sayso.tool(needs_approval=True)
    def pay(euros: int) -> str:
        effects.append(euros)
        return "paid"

    def an_agent(store: PostgresStore) -> sayso.Agent:
        model = ScriptedModel([call("pay", {"euros": 5}), say("Done.")], by_turn=True)
        return sayso.Agent("clerk", model=model, tools=[pay], store=store)

    here, there = open_store(), open_store()
    result = an_agent(here).run_sync("Pay.", thread="t")
    (request,) = result.interruptions

    async def work() -> None:
        worker = Worker([an_agent(there)], there)
        working = asyncio.create_task(worker.run())
        await sayso.Inbox(here).decide(request.id, request.approve(), by="ana")
        await until_async(lambda: (run := here.run(result.run)) and run.status == "done")
        worker.stop()
        await working

    asyncio.run(work())
    assert effects == [5]


def test_request_inside_a_transaction_of_the_users(
    open_store: Callable[..., PostgresStore], bouncer: PgBouncer
) -> None:
    store = open_store()
    inbox = sayso.Inbox(store)
    for asked in (False, True):
        with psycopg.connect(bouncer.url) as connection:
            gate = sayso.Gate(store.on(connection), agent="shop")
            with gate.run("order-17"), pytest.raises(sayso.Paused):
                gate.confirm_sync("Ship it?")
            if not asked:
                connection.rollback()
        assert len(inbox.pending_sync().items) == asked


@pytest.mark.long
@pytest.mark.parametrize("who", ["pooler", "server"])
def test_killed_pooler_or_server_is_survived(
    open_store: Callable[..., PostgresStore],
    bouncer: PgBouncer,
    server: PostgresServer,
    who: str,
) -> None:
    store = open_store()
    world = a_world(store)
    made = world.ask()
    (bouncer if who == "pooler" else server).kill()
    with ThreadPoolExecutor(1) as elsewhere:
        deciding = elsewhere.submit(world.decide, made, "approve")
        time.sleep(0.3)
        (bouncer if who == "pooler" else server).start()
        assert deciding.result(40).status is CallStatus.READY
    assert world.record(world.start(made)[0]).status is CallStatus.DONE
    world.check()


@pytest.mark.long
def test_frozen_server_behind_a_pooler_times_out(
    open_store: Callable[..., PostgresStore],
    server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(connections, "SILENCE", 0.5)
    monkeypatch.setattr(connections, "_CONNECT_SECONDS", 2)
    monkeypatch.setattr(connections, "_FIRST_ANSWER", 2)
    store = open_store(patience=1.0)
    world = a_world(store)
    made = world.ask()
    with frozen(server):
        for attempt in (store.threads, lambda: world.decide(made, "approve"), open_store):
            with pytest.raises(StoreError, match=r"does not answer|has not answered"):
                attempt()
    end = time.monotonic() + 60
    while world.call(made).status is not CallStatus.READY:  # the pooler wakes up, too
        with contextlib.suppress(StoreError):
            world.decide(made, "approve")
        assert time.monotonic() < end
    world.check()
