"""A call in doubt shows whether its attempt still runs, and does not run meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until, until_async

import sayso
from sayso import Inbox, InvalidDecision, Request
from sayso.testing import ScriptedModel, call, say

LEASE = 0.6


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(tmp_path / "sayso.db")
    yield inbox
    inbox.close()


def doubt(inbox: Inbox) -> Request | None:
    """Return the only call in doubt, once there is one."""
    return next(iter(inbox.pending_sync(kind="in_doubt").items), None)


def running_doubt(inbox: Inbox) -> Request | None:
    """Return the call in doubt if its attempt runs."""
    request = doubt(inbox)
    return request if request is not None and request.execution.attempt_running else None


#: Runs a call until there is a file ``end``.
WORKER = f"""
import pathlib, time, sayso
gate = sayso.Gate("sayso.db", lease={LEASE})
@gate.guard(needs_approval=False)
def pay(to: str) -> str:
    pathlib.Path("started").touch()
    while not pathlib.Path("end").exists():
        time.sleep(0.01)
    return f"paid {{to}}"
with gate.run("order"):
    pay("ana")
"""


@pytest.mark.long
def test_stalled_process_keeps_its_attempt_running(inbox: Inbox, tmp_path: Path) -> None:
    """It loses its lease while it is stopped. Then it goes on, and its late result counts."""
    with subprocess.Popen([sys.executable, "-c", WORKER], cwd=tmp_path) as worker:
        until((tmp_path / "started").exists)
        os.kill(worker.pid, signal.SIGSTOP)
        request = until(lambda: doubt(inbox))
        os.kill(worker.pid, signal.SIGCONT)
        running = until(lambda: running_doubt(inbox))
        assert running.allowed == ("respond", "reject")
        end = time.monotonic() + 2 * LEASE
        while time.monotonic() < end:
            assert inbox.get_sync(request.id).execution.attempt_running
            with pytest.raises(InvalidDecision, match="cannot run again yet"):
                inbox.approve_sync(request.id, by="ana")
        (tmp_path / "end").touch()
        until(lambda: inbox.get_sync(request.id).execution.status == "done")
        assert worker.wait(60) == 0
    assert inbox.get_sync(request.id).execution.result == "paid ana"


def test_killed_process_frees_its_attempt(inbox: Inbox, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER], cwd=tmp_path) as worker:
        until((tmp_path / "started").exists)
        worker.kill()
    request = until(lambda: doubt(inbox))
    assert not request.execution.attempt_running
    assert "approve" in request.allowed
    assert inbox.approve_sync(request, by="ana").status == "approved"


@pytest.mark.long
async def test_cancelled_thread_runs_until_it_returns(inbox: Inbox, tmp_path: Path) -> None:
    """The task that waited for a sync tool is gone, but its OS thread goes on."""
    started, ending = threading.Event(), threading.Event()

    @sayso.tool
    def pay(to: str) -> str:
        """Pay."""
        started.set()
        assert ending.wait(20)
        return f"paid {to}"

    model = ScriptedModel([call("pay", {"to": "ana"}), say("done")], by_turn=True)
    agent = sayso.Agent("shop", model=model, tools=[pay], store=inbox.store, lease=LEASE)
    task = asyncio.create_task(agent.run("Pay Ana", thread="t"))
    await until_async(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    request = await asyncio.to_thread(doubt, inbox)
    assert request is not None
    end = time.monotonic() + 3 * LEASE
    while time.monotonic() < end:
        assert await asyncio.to_thread(running_doubt, inbox) is not None
        await asyncio.sleep(0.05)
    with pytest.raises(InvalidDecision, match="cannot run again yet"):
        await inbox.approve(request.id, by="ana")
    ending.set()
    while await asyncio.to_thread(running_doubt, inbox) is not None:
        await asyncio.sleep(0.05)
    assert (await inbox.approve(request.id, by="ana")).status == "approved"


async def test_cancelled_coroutine_does_not_run(inbox: Inbox, tmp_path: Path) -> None:
    started = asyncio.Event()
    gate = sayso.Gate(inbox.store, lease=LEASE)

    @gate.guard(needs_approval=False)
    async def pay(to: str) -> None:
        started.set()
        await asyncio.sleep(60)

    async def order() -> None:
        async with gate.run("order"):
            await pay("ana")

    task = asyncio.create_task(order())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    request = await asyncio.to_thread(doubt, inbox)
    assert request is not None
    assert not request.execution.attempt_running
    assert "approve" in request.allowed


def test_failed_renewal_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is away for a moment ends no lease."""
    gate = sayso.Gate(tmp_path / "sayso.db", lease=1.5)
    renewed: list[bool] = []
    renew = gate.store.renew

    def renew_late(*args: Any) -> Any:
        if not renewed:
            renewed.append(False)
            raise sayso.StoreError("the disk is away")
        renewed.append(True)
        return renew(*args)

    monkeypatch.setattr(gate.store, "renew", renew_late)

    @gate.guard(needs_approval=False)
    def pay(to: str) -> str:
        until(lambda: any(renewed))
        return f"paid {to}"

    with gate.run("order"):
        assert pay("ana") == "paid ana"
    reports = [text for text in caplog.messages if "leases could not be renewed yet" in text]
    assert reports == ["leases could not be renewed yet: the disk is away"]
    gate.close()
