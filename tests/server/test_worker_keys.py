"""A worker with the public key runs decided calls, and cannot decide."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from served import Serve
from waiting import until

import sayso
from sayso.audit import verify
from sayso.engine.commands import Note
from sayso.errors import KeyMissing
from sayso.inbox import Inbox
from sayso.keys import Keyring, new_key, public_key, row_key
from sayso.server import app
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock, ScriptedModel, call, say
from sayso.worker import Worker

WHOLE = new_key("ed25519")
WORKER = Keyring.parse(public_key(WHOLE), rows=row_key(WHOLE))


def shop(store: Store, *, asks: bool) -> tuple[sayso.Agent, list[str]]:
    """An agent that pays, which needs a person, and then packs, which may need none."""
    ran: list[str] = []

    @sayso.tool(needs_approval=True)
    def pay(to: str) -> str:
        ran.append(f"pay {to}")
        return "paid"

    @sayso.tool(needs_approval=asks)
    def pack(to: str) -> str:
        ran.append(f"pack {to}")
        return "packed"

    steps = [call("pay", {"to": "ana"}), call("pack", {"to": "ana"}), say("Done.")]
    model = ScriptedModel(steps, by_turn=True)
    return sayso.Agent("shop", model=model, tools=[pay, pack], store=store), ran


async def decided_at_the_server(agent: sayso.Agent) -> None:
    (request,) = (await agent.run("Go.")).interruptions
    await Inbox(agent.store).decide(request.id, request.approve(), by="ana")


async def step_of(store: Store, worker: Worker) -> None:
    (run,) = store.ready(worker.names, 1)
    task = worker.begin(run)
    assert task is not None
    await asyncio.wait_for(task, 60)


@contextmanager
def server_and_worker(folder: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """Open a store with the whole key, and again with what a worker has of it."""
    path = folder / "sayso.db"
    with (
        closing(SqliteStore(path, keys=Keyring.parse(WHOLE))) as server,
        closing(SqliteStore(path, keys=WORKER)) as elsewhere,
    ):
        yield server, elsewhere


async def test_worker_runs_decided_calls_but_cannot_decide(tmp_path: Path) -> None:
    with server_and_worker(tmp_path) as (server, elsewhere):
        agent, _ = shop(server, asks=True)
        await decided_at_the_server(agent)
        worker_agent, ran = shop(elsewhere, asks=True)
        worker = Worker([worker_agent], elsewhere)
        await step_of(elsewhere, worker)
        assert ran == ["pay ana"]
        (request,) = (await Inbox(elsewhere).pending()).items
        with pytest.raises(KeyMissing, match="signed by the server"):
            await Inbox(elsewhere).decide(request.id, request.approve(), by="eve")
        await Inbox(server).decide(request.id, request.approve(), by="ana")
        await step_of(elsewhere, worker)
        assert ran == ["pay ana", "pack ana"]
        assert verify(elsewhere).ok


async def test_allowed_calls_run_without_the_signing_key(tmp_path: Path) -> None:
    with server_and_worker(tmp_path) as (server, elsewhere):
        agent, _ = shop(server, asks=False)
        await decided_at_the_server(agent)
        worker_agent, ran = shop(elsewhere, asks=False)
        await step_of(elsewhere, Worker([worker_agent], elsewhere))
        assert ran == ["pay ana", "pack ana"]
        assert verify(server).ok


async def test_worker_spends_grants_but_gives_none(tmp_path: Path) -> None:
    with server_and_worker(tmp_path) as (server, elsewhere):
        agent, _ = shop(server, asks=False)
        (request,) = (await agent.run("Go.")).interruptions
        grant = {"scope": "any", "uses": 2}
        with pytest.raises(KeyMissing, match="signed by the server"):
            await Inbox(elsewhere).decide(request.id, request.approve(), by="ana", grant=grant)
        await Inbox(server).decide(request.id, request.approve(), by="ana", grant=grant)
        worker_agent, ran = shop(elsewhere, asks=False)
        await step_of(elsewhere, Worker([worker_agent], elsewhere))
        assert (await worker_agent.run("Go.")).status == "done"
        assert ran == ["pay ana", "pack ana"] * 2
        (spent,) = server.grants()
        assert spent.uses_left == 1
        assert verify(server).ok


def test_missing_row_key_error_explains_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "sayso.db"
    with (
        closing(SqliteStore(path, keys=Keyring.parse(WHOLE))) as server,
        closing(SqliteStore(path, keys=Keyring.parse(public_key(WHOLE)))) as elsewhere,
    ):
        agent, _ = shop(server, asks=True)
        paused = agent.run_sync("Go.", thread="t")
        for use in (
            lambda: elsewhere.run(paused.run),
            lambda: Inbox(elsewhere).get_sync(paused.interruptions[0].id),
            lambda: shop(elsewhere, asks=True)[0].run_sync("Go."),
        ):
            with pytest.raises(KeyMissing, match=r"SAYSO_ROW_KEY .* `python -m sayso\.keys row`"):
                use()


def test_server_seals_events_of_workers(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers with the public half cannot seal, and the server commits nothing of its own."""
    monkeypatch.setattr(app, "SEAL_CHECK", 0.05)
    path, clock = tmp_path / "sayso.db", FakeClock()
    store = SqliteStore(path, keys=Keyring.parse(WHOLE), clock=clock)
    serve(store=store, workers=0)
    with closing(SqliteStore(path, keys=WORKER, clock=clock)) as worker:
        worker.transact(Note(thread="t", type="seen", actor="ana"))
        clock.advance(59)
        time.sleep(0.3)
        assert worker.seals() == []
        clock.advance(1)
        assert len(until(worker.seals)) == 1
        report = verify(worker)
        assert (report.ok, report.unsealed) == (True, 0)
