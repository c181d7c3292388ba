"""How tools run: in parallel, with errors, interrupted, and for longer than their lease."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from agent_world import World, error_in, tool_results
from waiting import until_async

import sayso
from sayso.agent.tool import Tool
from sayso.rows import CallStatus
from sayso.testing.scripted_model import call, calls, say


async def test_sync_tools_run_in_parallel_threads(world: World) -> None:
    main = threading.get_ident()
    meet = threading.Barrier(2, timeout=60)
    both_here, ticked = threading.Event(), threading.Event()

    @sayso.tool
    def work(n: int) -> bool:
        """Work."""
        meet.wait()
        both_here.set()
        assert ticked.wait(60), "the loop stood still"
        return threading.get_ident() == main

    async def tick() -> None:
        await until_async(both_here.is_set)
        ticked.set()

    ticking = asyncio.create_task(tick())
    agent = world.agent(calls(call("work", {"n": 1}), call("work", {"n": 2})), say("Done."))
    agent.tools = {"work": work}
    await agent.run("go", thread="t")
    await ticking
    assert tool_results(agent) == ["false", "false"]


async def test_slow_tools_block_no_other_threads(
    world: World,
) -> None:
    meet = threading.Barrier(41, timeout=60)

    @sayso.tool
    def work(n: int) -> int:
        """Work."""
        meet.wait()
        return n

    agent = world.agent(calls(*(call("work", {"n": n}) for n in range(40))), say("Done."))
    agent.tools = {"work": work}
    running = asyncio.create_task(agent.run("go", thread="t"))
    await until_async(lambda: meet.n_waiting == 40)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"
    meet.wait()
    assert (await running).status == "done"


@pytest.mark.parametrize("error", [ValueError("bad"), StopIteration("end"), TimeoutError("late")])
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_tool_error_is_reported_without_a_traceback(
    world: World, error: Exception, colour: str
) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    async def fail_async() -> None:
        """Fail."""
        raise error

    tool = sayso.tool(name="fail")(fail if colour == "sync" else fail_async)
    agent = world.agent(call("fail"), say("Sorry."), tools=[tool])
    result = await asyncio.wait_for(agent.run("go", thread="t"), 10)
    assert result.status == "done"
    said = error_in(tool_results(agent)[0])
    assert str(error) in said or "coroutine raised StopIteration" in said


async def test_unstorable_result_is_reported_as_run(world: World) -> None:
    @sayso.tool
    def odd():  # type: ignore[no-untyped-def]
        """Give something odd."""
        return object()

    agent = world.agent(call("odd"), say("Sorry."), tools=[odd])
    await agent.run("go", thread="t")
    assert "ran, but its result could not be stored" in error_in(tool_results(agent)[0])


async def test_failing_call_does_not_disturb_its_siblings(world: World) -> None:
    @sayso.tool
    async def fail() -> None:
        """Fail."""
        raise OSError("smoke")

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(calls(call("fail"), call("slow")), say("Done."), tools=[fail, slow])
    await agent.run("go", thread="t")
    assert tool_results(agent)[1] == "slow"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("I have no words")


@pytest.mark.parametrize("error", [OSError("caf\udce9"), OSError("\x00\x1b[31m"), Mute()])
async def test_error_with_any_text_is_recorded(world: World, error: Exception) -> None:
    @sayso.tool
    def fail() -> None:
        """Fail."""
        raise error

    agent = world.agent(call("fail"), say("Sorry."), tools=[fail])
    ended = await agent.run("go", thread="t")
    assert (ended.status, ended.output) == ("done", "Sorry.")
    assert type(error).__name__ in error_in(tool_results(agent)[0])


async def test_pause_does_not_cancel_running_sibling(world: World) -> None:
    @sayso.tool
    async def asks(ctx: sayso.Context) -> str:
        """Ask at once."""
        return str(await ctx.ask("Why?"))

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(calls(call("asks"), call("slow")), say("Done."), tools=[asks, slow])
    result = await agent.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [("slow", None)])
    await agent.resume("t", decisions=[result.interruptions[0].respond("because")])
    assert (tool_results(agent), world.ran) == (["because", "slow"], [("slow", None)])


async def cut_short(agent: sayso.Agent, started: threading.Event, *, resume: bool = False) -> None:
    """Cancel a run as soon as its tool has started."""
    work = agent.resume("t") if resume else agent.run("go", thread="t")
    task = asyncio.create_task(work)
    await until_async(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_cancellation_after_the_start_is_in_doubt(world: World, colour: str) -> None:
    started = threading.Event()
    end = threading.Event()

    def slow() -> str:
        """Take a while."""
        started.set()
        end.wait(5)
        return "done"

    async def slow_async() -> str:
        """Take a while."""
        started.set()
        await asyncio.sleep(60)
        return "done"

    tool = sayso.tool(name="slow")(slow if colour == "sync" else slow_async)
    agent = world.agent(call("slow"), say("Done."), tools=[tool])
    await cut_short(agent, started)
    end.set()
    result = await agent.resume("t")
    (request,) = result.interruptions
    assert (result.status, request.kind) == ("paused", "in_doubt")
    result = await agent.resume("t", decisions=[request.respond("it did")], by="ana")
    assert (result.status, tool_results(agent)) == ("done", ["it did"])


async def test_rejected_doubt_ends_the_call(world: World) -> None:
    started = threading.Event()

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        started.set()
        await asyncio.sleep(60)
        return "done"

    agent = world.agent(call("slow"), say("Sorry."), tools=[slow])
    await cut_short(agent, started)
    result = await agent.resume("t")
    result = await agent.resume("t", decisions=[result.interruptions[0].reject("lost")])
    assert "it is unknown whether it took effect" in error_in(tool_results(agent)[0])


async def test_interrupted_idempotent_tool_repeats_its_key(
    world: World,
) -> None:
    keys: list[tuple[str, int]] = []
    started = threading.Event()

    @sayso.tool(effect="idempotent")
    async def sync_up(ctx: sayso.Context) -> str:
        """Sync."""
        keys.append((ctx.key, ctx.attempt))
        started.set()
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "synced"

    agent = world.agent(call("sync_up"), say("Done."), tools=[sync_up])
    await cut_short(agent, started)
    result = await agent.resume("t")
    assert (result.status, tool_results(agent)) == ("done", ["synced"])
    assert [attempt for _, attempt in keys] == [1, 2]
    assert len({key for key, _ in keys}) == 1


async def test_lease_lapsed_before_effect_is_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent(call("look", {"what": "x"}))
    monkeypatch.setattr("sayso.gate.lease.RunLease.lapsed", property(lambda self: True))
    result = await agent.run("go", thread="t")
    assert (world.ran, [r.kind for r in result.interruptions]) == ([], ["in_doubt"])


@pytest.mark.long
async def test_long_tool_keeps_its_lease(world: World) -> None:
    """A tool that takes longer than its lease keeps it: heartbeats run in their own OS thread."""

    @sayso.tool
    def slow() -> str:
        """Take a while."""
        time.sleep(1.5)
        return "slow"

    agent = world.agent(call("slow"), say("Done."), tools=[slow], lease=1.0)
    assert (await agent.run("go", thread="t")).status == "done"
    (found,) = [c for c in world.store.calls_of(world.store.last_run("t").id)]  # type: ignore[union-attr]
    assert (found.status, found.attempt) == (CallStatus.DONE, 1)


@pytest.mark.parametrize("asks", [False, True])
async def test_interrupted_read_runs_again(world: World, asks: bool) -> None:
    attempts: list[int] = []
    started = threading.Event()

    @sayso.tool(effect="read", needs_approval=asks)
    async def search(ctx: sayso.Context, what: str) -> str:
        """Search."""
        attempts.append(ctx.attempt)
        started.set()
        if len(attempts) == 1:
            await asyncio.sleep(60)
        return f"found {what}"

    agent = world.agent(call("search", {"what": "tea"}), say("Done."), tools=[search])
    if asks:
        result = await agent.run("go", thread="t")
        await world.inbox.decide(
            result.interruptions[0].id, result.interruptions[0].approve(), by="ana"
        )
    await cut_short(agent, started, resume=asks)
    result = await agent.resume("t")
    assert (result.status, tool_results(agent)) == ("done", ["found tea"])
    assert attempts == [1, 2]
    assert "in_doubt" not in [event.type for _, event in world.store.events()]


async def test_failed_read_is_not_repeated(world: World) -> None:
    ran: list[str] = []

    @sayso.tool(effect="read")
    def search(what: str) -> str:
        """Search."""
        ran.append(what)
        raise RuntimeError("no answer")

    agent = world.agent(call("search", {"what": "tea"}), say("Sorry."), tools=[search])
    result = await agent.run("go", thread="t")
    assert (result.status, ran) == ("done", ["tea"])
    assert "no answer" in error_in(tool_results(agent)[0])
    (found,) = world.store.calls_of(result.run)
    assert (found.status, found.attempt) == (CallStatus.FAILED, 1)


class Declined(Exception):
    """Nothing was paid."""


def paying(error: Exception, ran: list[str], **options: Any) -> Tool:
    @sayso.tool(**options)
    def pay(order: str) -> str:
        """Pay."""
        ran.append(order)
        raise error

    return pay


PAYS = (call("pay", {"order": "17"}), say("Done."))


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (TimeoutError("no reply"), {"effect": "once"}),
        (ValueError("half a reply"), {"effect_key": "pay:{order}"}),
        (sayso.InDoubt("no reply"), {}),
    ],
)
async def test_unknown_outcome_pauses_the_run(
    world: World, error: Exception, options: dict[str, Any]
) -> None:
    ran: list[str] = []
    agent = world.agent(*PAYS)
    agent.tools = {"pay": paying(error, ran, **options)}
    for result in (await agent.run("go", thread="t"), await agent.resume("t")):
        (request,) = result.interruptions
        assert (result.status, request.kind) == ("paused", "in_doubt")
        assert request.execution.result == f"{type(error).__name__}: {error}"
    result = await agent.resume("t", decisions=[request.respond("paid by hand")], by="ana")
    assert (result.status, tool_results(agent)) == ("done", ["paid by hand"])
    assert ran == ["17"]


async def test_settle_answers_within_the_run(world: World) -> None:
    ran: list[str] = []
    settle = {"effect_key": "pay:{order}", "settle": lambda key: sayso.Ran(f"receipt for {key}")}
    agent = world.agent(*PAYS)
    agent.tools = {"pay": paying(TimeoutError("no reply"), ran, **settle)}
    assert (await agent.run("go", thread="t")).status == "done"
    assert (ran, tool_results(agent)) == (["17"], ["receipt for pay:17"])


@pytest.mark.parametrize("error", [sayso.NotExecuted("no funds"), Declined("no funds")])
async def test_declared_failure_is_reported_to_model(world: World, error: Exception) -> None:
    ran: list[str] = []
    options = {"effect_key": "pay:{order}", "not_executed": (Declined,)}
    agent = world.agent(*PAYS)
    agent.tools = {"pay": paying(error, ran, **options)}
    assert (await agent.run("go", thread="t")).status == "done"
    assert "no funds" in error_in(tool_results(agent)[0])
    assert agent.store.effects() == []


async def test_time_out_of_undeclared_tool_is_reported(world: World) -> None:
    ran: list[str] = []
    agent = world.agent(*PAYS)
    agent.tools = {"pay": paying(TimeoutError("no reply"), ran)}
    assert (await agent.run("go", thread="t")).status == "done"
    assert "TimeoutError: no reply" in error_in(tool_results(agent)[0])
