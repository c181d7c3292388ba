"""Tools that call functions guarded by the user's own gate on the agent's store."""

from __future__ import annotations

from typing import Any

import pytest
from agent_world import World

import sayso
from sayso.agent.tool import Tool
from sayso.testing.scripted_model import call, calls, say


@pytest.fixture(params=["sync", "async"])
def order(request: Any, world: World) -> Tool:
    """Return a tool that calls a guarded function."""
    gate = sayso.Gate(world.store, wait=0)

    @gate.guard
    def pay(to: str) -> str:
        world.ran.append(("pay", to))
        return f"paid {to}"

    @gate.guard(name="pay")
    async def pay_async(to: str) -> str:
        world.ran.append(("pay", to))
        return f"paid {to}"

    def order(to: str) -> str:
        return pay(to)

    async def order_async(to: str) -> str:
        return await pay_async(to)

    return sayso.tool(name="order")(order if request.param == "sync" else order_async)


async def test_guarded_function_asks_once(world: World, order: Any) -> None:
    agent = world.agent(call("order", {"to": "bo"}), say("Done."), tools=[order])
    result = await agent.run("order", thread="t")
    (request,) = result.interruptions
    assert (result.status, request.tool, request.run) == ("paused", "pay", result.run)
    again = await agent.resume("t")
    assert (again.status, [r.id for r in again.interruptions]) == ("paused", [request.id])
    await world.inbox.decide(request.id, request.approve(), by="ana")
    elsewhere = world.agent(say("Done."), tools=[order])
    assert (await elsewhere.resume("t")).output == "Done."
    assert world.ran == [("pay", "bo")]


async def test_equal_calls_of_turn_ask_separately(world: World, order: Any) -> None:
    both = calls(call("order", {"to": "bo"}), call("order", {"to": "bo"}))
    agent = world.agent(both, say("Done."), tools=[order])
    first, second = (await agent.run("order", thread="t")).interruptions
    result = await agent.resume("t", decisions=[first.approve()])
    assert (result.status, len(world.ran)) == ("paused", 1)
    result = await agent.resume("t", decisions=[second.reject("once is enough")])
    assert (result.status, len(world.ran)) == ("done", 1)
