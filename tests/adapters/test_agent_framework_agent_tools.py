"""Agents as tools of other agents: their calls are asked about in the same inbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, FunctionTool, Message, tool
from agent_framework_world import World, call
from store_world import pay_of

from sayso import Policy, Rule
from sayso.adapters.agent_framework import Gated, guard
from sayso.errors import SaysoError

ASK = Policy([Rule("pay")])
PAYS = [call("pay", "p1", to="ana")], "Ana has it."
DELEGATES = [call("clerk", "c1", task="pay Ana")], "Done."


def clerk(world: World, *turns: Any, **options: Any) -> Agent[Any]:
    tools = options.pop("tools", None) or [pay_of(world)]
    return world.agent(*(turns or PAYS), name="clerk", tools=tools, **options)


def boss(world: World, *tools: FunctionTool, **options: Any) -> Agent[Any]:
    return world.agent(*DELEGATES, name="boss", tools=list(tools), **options)


def build(world: World) -> Any:
    """Everything anew, as in another process."""
    return guard(boss(world, clerk(world).as_tool()), world.gate, ASK)


@pytest.mark.parametrize(
    ("decide", "ran", "told"),
    [
        (lambda request: request.approve(), [("ana", 1)], "paid 1 to ana"),
        (lambda request: request.edit({"to": "bob", "amount": 2}), [("bob", 2)], "changed"),
        (lambda request: request.reject("she left"), [], "she left"),
        (lambda request: request.respond("by hand"), [], "by hand"),
    ],
)
async def test_each_decision_reaches_the_inner_agent(
    world: World, decide: Callable[[Any], Any], ran: list[Any], told: str
) -> None:
    result = await build(world).run("go", thread="t")
    assert [(request.tool, dict(request.args)) for request in result.interruptions] == [
        ("pay", {"to": "ana", "amount": 1})
    ]
    assert (await build(world).resume("t")).status == "paused"
    await world.decide(decide)
    result = await build(world).resume("t")
    assert (result.status, result.output, world.ran) == ("done", "Done.", ran)
    # Each model was asked for each of its replies once.
    assert len(world.shown) == 4
    assert told in str(world.shown[2][-1].contents[0].result)
    assert world.results["c1"] == "Ana has it."
    assert (await build(world).resume("t")).output == "Done."
    assert world.ran == ran


async def test_inner_tool_asks_without_a_rule(world: World) -> None:
    pay = tool(pay_of(world), approval_mode="always_require")
    ask = FunctionTool(name="which", description="", func=None, input_model={"type": "object"})
    turns = [call("which", "w1"), *PAYS[0]], "Ana has it."
    guarded = guard(boss(world, clerk(world, *turns, tools=[pay, ask]).as_tool()), world.gate)
    result = await guarded.run("go", thread="t")
    which, paying = result.interruptions
    assert (which.tool, set(which.allowed)) == ("which", {"respond", "reject"})
    result = await guarded.resume("t", decisions=[paying.approve()])
    assert (result.status, world.ran) == ("paused", [("ana", 1)])
    result = await guarded.resume("t", decisions=[which.respond("the left one")])
    assert (result.status, world.ran) == ("done", [("ana", 1)])


async def test_parallel_agents_pause_two_levels_deep(world: World) -> None:
    def whole() -> Any:
        below = clerk(world).as_tool()
        desk = world.agent(*DELEGATES, name="desk", tools=[below])
        calls = [call("desk", "d1", task="one"), call("desk", "d2", task="two"), *PAYS[0]]
        top = world.agent(calls, "All done.", tools=[desk.as_tool(), pay_of(world)])
        return guard(top, world.gate, ASK)

    result = await whole().run("go", thread="t")
    assert [request.tool for request in result.interruptions] == ["pay"] * 3
    for request in result.interruptions:
        result = await whole().resume("t", decisions=[request.approve()])
    assert (result.status, result.output, world.ran) == ("done", "All done.", [("ana", 1)] * 3)


async def test_shared_session_runs_inner_call_once(world: World) -> None:
    def whole() -> Any:
        return guard(boss(world, clerk(world).as_tool(propagate_session=True)), world.gate, ASK)

    await whole().run("go", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await whole().resume("t")).status == "done"
    assert (world.ran, len(world.shown)) == ([("ana", 1)], 4)


async def test_call_of_inner_agent_can_be_edited(world: World) -> None:
    guarded = guard(boss(world, clerk(world).as_tool()), world.gate, Policy([Rule("*")]))
    await guarded.run("go", thread="t")
    await world.decide(lambda request: request.edit({"task": "pay Ana today"}))
    result = await guarded.resume("t")
    assert [request.tool for request in result.interruptions] == ["pay"]
    assert world.prompts == ["pay Ana today"]
    await world.decide(lambda request: request.approve())
    assert (await guarded.resume("t")).status == "done"
    assert world.ran == [("ana", 1)]


@pytest.mark.parametrize("own", [False, True])
async def test_middleware_without_guard_gates_inner_call(world: World, own: bool) -> None:
    """Without ``guard``: the framework asks again and again about the call of the agent."""

    def agent() -> Agent[Any]:
        below = clerk(world, middleware=[Gated(world.gate, ASK)] if own else None)
        return boss(world, below.as_tool(), middleware=[Gated(world.gate, ASK)])

    session = AgentSession()
    (wanted,) = (await agent().run("go", session=session)).user_input_requests
    assert wanted.additional_properties["sayso"]["request"] == (await world.waits()).id
    session = AgentSession.from_dict(session.to_dict())
    back = Message("user", [wanted.to_function_approval_response(True)])
    (wanted,) = (await agent().run(back, session=session)).user_input_requests
    assert world.ran == []
    await world.decide(lambda request: request.approve())
    back = Message("user", [wanted.to_function_approval_response(True)])
    response = await agent().run(back, session=session)
    assert (response.text, world.ran) == ("Done.", [("ana", 1)])


async def test_original_inner_agent_runs_ungated(world: World) -> None:
    below = clerk(world)
    await guard(boss(world, below.as_tool()), world.gate, ASK).run("go", thread="t")
    assert (await below.run("pay Ana")).text == "Ana has it."
    assert world.ran == [("ana", 1)]


async def test_tampered_inner_call_ends_the_run(world: World) -> None:
    guarded = build(world)
    await guarded.run("go", thread="t")
    await world.decide(lambda request: request.approve())
    world.store.close()
    import sqlite3

    file = sqlite3.connect(world.folder / "sayso.db")
    with file:
        file.execute("UPDATE call SET args = replace(args, 'ana', 'eve') WHERE tool = 'pay'")
    file.close()
    fresh = World(world.folder)
    with pytest.raises(SaysoError, match=r"was not (run|used)"):
        await build(fresh).resume("t")
    assert fresh.ran == []
    fresh.close()


async def test_removed_inner_function_cancels_its_call(world: World) -> None:
    await build(world).run("go", thread="t")
    request = await world.waits()
    await world.decide(lambda request: request.approve())

    def other() -> str:
        return ""

    without = guard(boss(world, clerk(world, tools=[other]).as_tool()), world.gate, ASK)
    assert (await without.resume("t")).status == "done"
    assert (await world.inbox.get(request.id)).status == "cancelled"
    assert world.ran == []
