"""``sayso worker --dispatch temporal://…``: Temporal brings the runs, the store decides."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from desk_world import Desk
from dev_server import DevServer
from dispatch_agents import asking, going_on
from sayso_process import Process, run
from waiting import until, until_async

from sayso import Inbox
from sayso.agent.agent import lend_store
from sayso.errors import InvalidCall
from sayso.rows import Run, RunStatus
from sayso.stores import open_store
from sayso.types import Micros
from sayso.worker import Worker
from sayso.worker.temporal import Address
from sayso.worker.worker import Relay

HERE = Path(__file__).parent


def started(desk: Desk, url: str) -> Process:
    """A worker as people start it."""
    command = ["sayso", "worker", "dispatch_agents:going_on", "--store", desk.url]
    return desk.fork(*command, "--dispatch", url, PYTHONPATH=str(HERE))


def url_of(server: DevServer) -> str:
    return f"temporal://{server.address}/default"


def asked(desk: Desk, tool: str, args: dict[str, object]) -> str:
    """A run of an agent that waits for people, and that nobody has at hand any more."""
    agent = asking(tool, args)
    lend_store(agent, desk.url)
    result = agent.run_sync("Please.")
    assert result.status == "paused"
    agent.gate.close()
    return result.run


def ended(desk: Desk, run: str) -> Run:
    store = desk.inbox.store

    def look() -> Run | None:
        found = store.run(run)
        return found if found is not None and found.status is RunStatus.DONE else None

    return until(look, otherwise=desk.said)


def workflow_of(desk: Desk, run: str) -> str:
    return f"sayso:{desk.inbox.store.incarnation}:{run}"


@pytest.mark.long
def test_temporal_resumes_paused_run(desk: Desk, server: DevServer) -> None:
    run = asked(desk, "pay", {"euros": 5})
    worker = started(desk, url_of(server))
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    ended(desk, run)
    assert desk.effects() == ["5 euros"]
    assert server.ended(workflow_of(desk, run))["status"] == "COMPLETED"

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, desk.said()
    for step in ("dispatched", "taken", "resumed", "call started", "call done", "done in"):
        assert f"run {run} of clerk: {step}" in desk.log.read_text()


@pytest.mark.long
def test_downtime_decisions_and_expiries_apply(desk: Desk, server: DevServer) -> None:
    paid = asked(desk, "pay", {"euros": 5})
    booked = asked(desk, "book", {"room": "12"})
    pay = next(request for request in desk.waiting(2) if request.tool == "pay")
    desk.inbox.decide_sync(pay.id, pay.approve(), by="ana")
    store = desk.inbox.store
    until(store.overdue)
    started(desk, url_of(server))
    ended(desk, paid)
    ended(desk, booked)
    assert desk.effects() == ["5 euros"]
    assert [call.status for call in store.calls_of(booked)] == ["expired"]


@pytest.mark.long
def test_expiry_is_a_temporal_timer(desk: Desk, server: DevServer) -> None:
    started(desk, url_of(server))
    hour, soon = asked(desk, "hire", {"name": "Bob"}), asked(desk, "book", {"room": "12"})
    server.sleeps(workflow_of(desk, hour))
    ended(desk, soon)
    assert [call.status for call in desk.inbox.store.calls_of(soon)] == ["expired"]
    assert server.ended(workflow_of(desk, soon))["status"] == "COMPLETED"
    assert server.status(workflow_of(desk, hour)) == "RUNNING"
    assert desk.effects() == []


@pytest.mark.long
def test_escalation_is_a_temporal_timer(desk: Desk, server: DevServer) -> None:
    started(desk, url_of(server))
    run = asked(desk, "lend", {"euros": 5})
    (call,) = desk.inbox.store.calls_of(run)
    assert call.step_at is not None

    def escalated() -> list[Micros]:
        chain = desk.inbox.store.chain(call.thread)
        return [event.at for event in chain if event.type == "escalated"]

    (at,) = until(escalated, otherwise=desk.said)
    assert 0 <= at - call.step_at < 10_000_000  # the scan of the store comes later
    assert server.status(workflow_of(desk, run)) in ("RUNNING", "COMPLETED")


def test_two_workers_take_a_run_once(desk: Desk, server: DevServer) -> None:
    run = asked(desk, "pay", {"euros": 5})
    for _ in range(2):
        started(desk, url_of(server))
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    ended(desk, run)
    assert desk.effects() == ["5 euros"]


class Forgetful:
    """A dispatcher that is told everything and does nothing."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def wake(self, run: Run) -> None:
        self.told.append(f"wake {run.id}")

    async def at(self, run: Run, time: Micros) -> None:
        self.told.append(f"at {run.id}")


async def test_behind_every_dispatcher_is_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    asker, agent = asking("pay", {"euros": 5}), going_on()
    lend_store(asker, store)
    lend_store(agent, store)
    dispatcher = Forgetful()
    relay = Relay(Worker([agent], store), dispatcher, scan=0.2)
    telling = asyncio.create_task(relay.run())
    result = await asker.run("Please.")
    (request,) = result.interruptions
    await Inbox(store).decide(request.id, request.approve(), by="ana")
    await until_async(lambda: (run := store.run(result.run)) and run.status is RunStatus.DONE)
    assert f"wake {result.run}" in dispatcher.told
    assert Path("effects").read_text() == "5 euros\n"
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    store.close()


@pytest.mark.parametrize(
    ("url", "target", "namespace"),
    [
        ("temporal://localhost", "localhost:7233", "default"),
        ("temporal://t.example.com:80/refunds", "t.example.com:80", "refunds"),
        ("temporal://[::1]:7233/", "[::1]:7233", "default"),
    ],
)
def test_address_is_parsed(url: str, target: str, namespace: str) -> None:
    assert Address.of(url) == (target, namespace)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:7233", "http://localhost", "temporal://", "temporal://h:x", "temporal://h/a/b"],
)
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidCall, match="temporal://host:port"):
        Address.of(url)


def test_invalid_address_is_a_usage_error(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'sayso.db'}"
    command = ["worker", "dispatch_agents:going_on", "--store", store, "--dispatch", "localhost"]
    done = run(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE)})
    assert done.returncode == 2
    assert "temporal://host:port" in done.stderr
