"""A caller that is stopped between start and effect leaves a ready call, and no doubt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import Gate, Inbox, Paused
from sayso.agent import Agent
from sayso.stores.memory import MemoryStore
from sayso.testing.scripted_model import ScriptedModel, call, calls, say


class SlowStore(MemoryStore):
    """Commits in threads; one that starts something takes until ``goes`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.quick_reads = False
        self.slow = False
        self.began, self.goes = threading.Event(), threading.Event()

    def transact(self, *commands: Any) -> list[Any]:
        results = super().transact(*commands)
        if self.slow and any(command.name in ("start", "propose") for command in commands):
            self.slow = False
            self.began.set()
            assert self.goes.wait(20)
        return results

    async def cut(self, work: Callable[[], Any]) -> None:
        """Cancel that work when its start is committed, and before it knows."""
        self.slow = True
        self.began.clear()
        self.goes.clear()
        task = asyncio.create_task(work())
        await asyncio.to_thread(self.began.wait, 20)
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        self.goes.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.mark.parametrize("asks", [False, True])
async def test_guarded_call(store: SlowStore, asks: bool) -> None:
    gate, inbox, ran = Gate(store, wait=0), Inbox(store), []

    @gate.guard(needs_approval=asks)
    async def pay(to: str) -> str:
        ran.append(to)
        return "paid"

    async def enter() -> str:
        async with gate.run("r"):
            return await pay("bo")

    if asks:
        with pytest.raises(Paused):
            await enter()
        (request,) = (await inbox.pending()).items
        await inbox.decide(request.id, request.approve(), by="ana")
    await store.cut(enter)
    assert (await inbox.pending()).items == ()
    assert [str(row.status) for row in store.calls_of("r")] == ["ready"]
    assert await enter() == "paid"
    assert ran == ["bo"]
    assert "in_doubt" not in [event.type for event in store.chain("r")]


async def test_interrupted_call_outside_a_run_is_cancelled(store: SlowStore) -> None:
    gate, ran = Gate(store, wait=0), []

    @gate.guard(needs_approval=False)
    async def pay() -> None:
        ran.append("paid")

    await store.cut(pay)
    ((_, run),) = store.runs()
    assert (str(run.status), ran) == ("cancelled", [])
    assert [str(row.status) for row in store.calls_of(run.id)] == ["cancelled"]


@pytest.mark.parametrize("asks", [False, True])
async def test_calls_of_an_agent(store: SlowStore, asks: bool) -> None:
    ran: list[int] = []

    @sayso.tool(needs_approval=asks)
    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    two = calls(call("pay", {"amount": 1}), call("pay", {"amount": 2}))
    agent = Agent("a", model=ScriptedModel([two, say("Done.")]), tools=[pay], store=store)
    if asks:
        result = await agent.run("go", thread="t")
        yes = [request.approve() for request in result.interruptions]
        for decision in yes:
            await Inbox(store).decide(decision.request or "", decision, by="ana")
        await store.cut(lambda: agent.resume("t"))
    else:
        await store.cut(lambda: agent.run("go", thread="t"))
    assert ran == []
    done = await asyncio.wait_for(agent.resume("t"), 10)
    assert (done.output, sorted(ran)) == ("Done.", [1, 2])
    assert "in_doubt" not in [event.type for event in store.chain("t")]


async def test_cancelled_call_is_never_in_doubt() -> None:
    """Wherever the cancellation comes: before, in or after one of the commits."""
    store, ran = MemoryStore(), []
    gate = Gate(store, wait=0)

    @gate.guard(needs_approval=False)
    async def pay() -> str:
        ran.append("paid")
        return "paid"

    for turn in range(40):
        task = asyncio.create_task(pay())
        await asyncio.sleep(turn * 0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await pay()
    await asyncio.sleep(0.05)
    rows = [row for _, run in store.runs(limit=100) for row in store.calls_of(run.id)]
    statuses = [str(row.status) for row in rows]
    assert set(statuses) <= {"cancelled", "done"}  # none is in doubt, or left running
    assert statuses.count("done") == len(ran) > 0


async def test_finished_call_is_recorded_despite_cancellation(store: SlowStore) -> None:
    gate, ran = Gate(store, wait=0), []

    @gate.guard(needs_approval=False)
    async def pay() -> str:
        ran.append("paid")
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        return "paid"

    async with gate.run("r"):
        with pytest.raises(asyncio.CancelledError):
            await pay()
        await asyncio.sleep(0.05)
        assert [str(row.status) for row in store.calls_of("r")] == ["done"]
    assert ran == ["paid"]
