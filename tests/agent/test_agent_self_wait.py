"""A tool that waits for its own run gets an error at once; others wait for that run."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_world import World, error_in, tool_results

import sayso
from sayso.agent import Agent
from sayso.testing.scripted_model import call, calls, say

GO = call("again", {})
WHY = "would wait for itself, because this code is part of it: use another thread"


def reentrant(world: World, how: Any) -> Agent:
    """Return an agent with a tool that uses its own thread, and reports what happened."""

    @sayso.tool
    async def again(ctx: sayso.Context) -> str:
        return str(await how(ctx))

    agent = world.agent(GO, say("Done."), say("Second."), tools=[again])
    return agent


async def run(agent: Agent) -> str:
    """Return the result of the model's one call."""
    result = await asyncio.wait_for(agent.run("go", thread="t"), 20)
    assert result.output == "Done."
    return error_in(tool_results(agent)[0])


async def test_tool_cannot_run_its_thread(world: World) -> None:
    agent = reentrant(world, lambda ctx: agent.run("more", thread=ctx.thread))
    assert WHY in await run(agent)


async def test_tool_cannot_resume_its_run(world: World) -> None:
    agent = reentrant(world, lambda ctx: agent.resume(ctx.run))
    assert WHY in await run(agent)


async def test_self_wait_with_time_out_is_refused(world: World) -> None:
    agent = reentrant(world, lambda ctx: asyncio.wait_for(agent.run("m", thread=ctx.thread), 30))
    assert WHY in await run(agent)


async def test_self_wait_in_os_thread_is_refused(world: World) -> None:
    async def how(ctx: sayso.Context) -> Any:
        return await asyncio.to_thread(agent.run_sync, "more", thread=ctx.thread)

    agent = reentrant(world, how)
    assert WHY in await run(agent)


async def test_self_wait_by_stream_is_refused(world: World) -> None:
    async def how(ctx: sayso.Context) -> Any:
        return [event async for event in agent.stream("more", thread=ctx.thread)]

    agent = reentrant(world, how)
    assert WHY in await run(agent)


async def test_self_wait_in_sync_tool_is_refused(world: World) -> None:
    @sayso.tool
    def again(ctx: sayso.Context) -> str:
        return str(agent.run_sync("more", thread=ctx.thread).output)

    agent = world.agent(GO, say("Done."), tools=[again])
    assert WHY in await run(agent)


async def test_self_wait_through_sub_agent_is_refused(world: World) -> None:
    @sayso.tool
    async def back() -> str:
        return str(await outer.run("more", thread="t"))

    two = calls(call("back", {}), call("back", {}))
    inner = world.agent(two, say("Tried."), name="inner", tools=[back])
    outer = world.agent(call("inner", {"input": "go"}), say("Done."), tools=[inner])
    result = await asyncio.wait_for(outer.run("go", thread="t"), 20)
    assert (result.output, tool_results(outer)) == ("Done.", ["Tried."])
    assert [WHY in error_in(content) for content in tool_results(inner)] == [True, True]


async def test_tool_may_run_another_thread(world: World) -> None:
    agent = reentrant(world, lambda ctx: other.run("more", thread="elsewhere"))
    other = world.agent(say("There."), name="other")
    await asyncio.wait_for(agent.run("go", thread="t"), 20)
    assert "There." in tool_results(agent)[0]


async def test_another_caller_waits_for_the_run(world: World) -> None:
    began, goes = asyncio.Event(), asyncio.Event()

    async def how(ctx: sayso.Context) -> str:
        began.set()
        await goes.wait()
        return "went"

    agent = reentrant(world, how)
    first = asyncio.create_task(agent.run("go", thread="t"))
    await began.wait()
    second = asyncio.create_task(agent.run("more", thread="t"))
    await asyncio.sleep(0.05)
    assert not second.done()
    goes.set()
    results = await asyncio.wait_for(asyncio.gather(first, second), 20)
    assert [result.output for result in results] == ["Done.", "Second."]
