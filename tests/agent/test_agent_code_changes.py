"""The code changes while a request is pending: resume, ask again, or refuse."""

from __future__ import annotations

from typing import Any

import pytest
from agent_world import World, asked, error_in, tool_results
from pydantic import BaseModel, Field

import sayso
from sayso.agent.tool import Tool
from sayso.testing.scripted_model import ScriptedModel, call, calls, say


class Item(BaseModel):
    name: str
    tags: list[str] = Field(default_factory=lambda: ["vip"])


PAY = call("pay", {"amount": 3, "to": None})


def a_tool(world: World, **options: Any) -> Tool:
    @sayso.tool(needs_approval=True, **options)
    def pay(amount: int, to: str = "ana") -> str:
        """Pay somebody.

        Args:
            amount: Euros.
            to: Who gets it.
        """
        world.ran.append(("new pay", (amount, to)))
        return "paid"

    return pay


async def paused(world: World, **options: Any) -> sayso.Request:
    result = await world.agent(PAY, **options).run("pay ana", thread="t")
    return result.interruptions[0]


async def test_changed_instructions_and_models_continue_by_default(world: World) -> None:
    request = await paused(world, instructions="Be kind.")
    model = ScriptedModel([say("Done.")], name="another")
    agent = world.agent(model=model, instructions="Be quick.")
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])
    assert asked(agent)[0].instructions == "Be quick."


async def test_refuse_option_leaves_run_untouched(world: World) -> None:
    request = await paused(world, instructions="Be kind.")
    changed = world.agent(say("Done."), instructions="Be quick.", on_change="refuse")
    with pytest.raises(sayso.Conflict, match="changed since run"):
        await changed.resume("t", decisions=[request.approve()])
    # Not even the decision was written.
    assert (await world.inbox.get(request.id)).status == "pending"
    same = world.agent(say("Done."), instructions="Be kind.", on_change="refuse")
    result = await same.resume("t", decisions=[request.approve()])
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])
    assert (await changed.resume("t")).output == "Done."


async def test_ask_option_asks_again_once(world: World) -> None:
    request = await paused(world, instructions="Be kind.", on_change="ask")
    await world.inbox.decide(request.id, request.approve(), by="bea")
    changed = world.agent(say("Done."), instructions="Be quick.", on_change="ask")
    result = await changed.resume("t")
    (again,) = result.interruptions
    assert (again.id, again.revision, world.ran) == (request.id, 2, [])
    result = await changed.resume("t", decisions=[again.approve()])
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])


async def test_ask_option_resumes_unchanged_agent(world: World) -> None:
    request = await paused(world, on_change="ask")
    agent = world.agent(say("Done."), on_change="ask")
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])


@pytest.mark.parametrize("on_change", ["resume", "ask"])
async def test_changed_tool_is_always_asked_again(world: World, on_change: str) -> None:
    request = await paused(world, on_change=on_change)
    agent = world.agent(say("Done."), tools=[a_tool(world, version="2")], on_change=on_change)
    result = await agent.resume("t", decisions=[request.approve()])
    (again,) = result.interruptions
    assert (result.status, again.id, again.revision, world.ran) == ("paused", request.id, 2, [])
    with pytest.raises(sayso.Conflict, match="not what you saw"):
        await agent.resume("t", decisions=[request.approve()], by="cy")
    result = await agent.resume("t", decisions=[again.approve()])
    assert (result.status, world.ran) == ("done", [("new pay", (3, "ana"))])


async def test_tool_changed_while_pending_asks_again(world: World) -> None:
    request = await paused(world)
    agent = world.agent(say("Done."), tools=[a_tool(world, version="2")])
    assert (await agent.resume("t")).interruptions == (request,)
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.interruptions[0].revision, world.ran) == (2, [])


async def test_tool_with_new_argument_asks_again(world: World) -> None:
    request = await paused(world)

    @sayso.tool(needs_approval=True)
    def pay(amount: int, to: str = "ana", currency: str = "EUR") -> str:
        """Pay somebody."""
        world.ran.append((currency, (amount, to)))
        return "paid"

    agent = world.agent(say("Done."), tools=[pay])
    result = await agent.resume("t", decisions=[request.approve()])
    (again,) = result.interruptions
    assert again.args == {**request.args, "currency": "EUR"}
    assert (result.status, again.id, again.revision, world.ran) == ("paused", request.id, 2, [])
    result = await agent.resume("t", decisions=[again.approve()])
    assert (result.status, world.ran) == ("done", [("EUR", (3, "ana"))])


async def test_call_with_outdated_arguments_is_cancelled(world: World) -> None:
    request = await paused(world)

    @sayso.tool(needs_approval=True)
    def pay(amount: int, iban: str) -> str:
        """Pay somebody."""
        raise AssertionError

    agent = world.agent(say("Then not."), tools=[pay])
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.output, world.ran) == ("Then not.", [])
    assert error_in(tool_results(agent)[0]) == (
        "It was cancelled before it ran. "
        "The reason given: the tool pay changed, and takes other arguments: "
        "iban: is missing; to: is unknown; remove it"
    )


async def test_removed_tool_is_reported_to_model(world: World) -> None:
    request = await paused(world)
    agent = world.agent(say("Then not."), tools=[])
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.output, world.ran) == ("Then not.", [])
    assert error_in(tool_results(agent)[0]) == "The tool 'pay' no longer exists. It did not run."


async def test_removed_tool_keeps_undecided_requests(
    world: World,
) -> None:
    agent = world.agent(calls(PAY, PAY))
    first, second = (await agent.run("go", thread="t")).interruptions
    agent = world.agent(say("Then not."), tools=[])
    assert (await agent.resume("t")).interruptions == (first, second)
    result = await agent.resume("t", decisions=[first.reject("no")])
    (shown,) = result.interruptions
    assert (shown.id, [r.message for r in shown.refusals]) == (second.id, ["no"])
    result = await agent.resume("t", decisions=[second.reject("no")])
    assert (result.output, len(tool_results(agent))) == ("Then not.", 2)


async def test_renamed_agent_cannot_resume_run(world: World) -> None:
    request = await paused(world)
    renamed = world.agent(say("Done."), name="renamed")
    with pytest.raises(sayso.Conflict, match="belongs to agent 'assistant', not to 'renamed'"):
        await renamed.resume("t", decisions=[request.approve()])
    assert (await world.inbox.get(request.id)).status == "pending"


async def test_tool_without_its_body_is_not_run(world: World) -> None:
    request = await paused(world)

    @sayso.tool
    def pay(amount: int, to: str = "ana") -> str: ...

    agent = world.agent(say("Then not."), tools=[pay])
    result = await agent.resume("t", decisions=[request.approve()])
    assert (result.output, world.ran) == ("Then not.", [])


async def test_defaults_added_to_edit_are_shown(world: World) -> None:
    @sayso.tool(needs_approval=True)
    def pay(item: Item) -> str:
        """Pay for it."""
        world.ran.append(item.tags)
        return "paid"

    wanted = call("pay", {"item": {"name": "a", "tags": []}})
    result = await world.agent(wanted, tools=[pay]).run("pay", thread="t")
    edit = result.interruptions[0].edit({"item": {"name": "b"}})
    agent = world.agent(say("Done."), tools=[pay])
    result = await agent.resume("t", decisions=[edit])
    (again,) = result.interruptions
    assert (again.args, world.ran) == ({"item": {"name": "b", "tags": ["vip"]}}, [])
    result = await agent.resume("t", decisions=again.approve())  # one decision needs no list
    assert (result.status, world.ran) == ("done", [["vip"]])
