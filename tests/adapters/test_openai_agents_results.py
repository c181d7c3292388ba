"""Code written for the Agents SDK works with the results of a guarded agent."""

from __future__ import annotations

import copy
import json
from typing import Any

import agents
import pytest
from agents import function_tool
from agents.testing import ScriptedModel
from openai_agents_world import World, call, outputs, say

import sayso
from sayso.adapters.openai_agents import Runner, guard
from sayso.policy import Rule


def paying(world: World, *replies: Any) -> None:
    async def pay(to: str, euros: int = 5) -> str:
        """Pay somebody."""
        world.ran.append((to, euros))
        return f"paid {to}"

    model = ScriptedModel([*replies, [say("done")]])
    world.one(model, function_tool(pay, needs_approval=True))


async def test_interruption_has_sdk_attributes(world: World) -> None:
    paying(world, [call("pay", to="ana")])
    result = await world.guarded().run("go")
    (item,) = result.interruptions
    assert (item.tool.name, item.tool.description) == ("pay", "Pay somebody.")
    assert (item.name, item.tool_name, item.call_id) == ("pay", "pay", "call_1")
    assert (item.type, item.agent.name) == ("tool_approval_item", "teller")
    # What an approval would run, with the defaults that the model left out.
    assert json.loads(item.arguments) == {"to": "ana", "euros": 5}
    # It is still a request of the gate.
    assert (item.tool, item.agent, item.args["to"]) == ("pay", "teller", "ana")
    assert isinstance(item, sayso.Request)
    assert json.dumps([item.tool, item.agent]) == '["pay", "teller"]'


async def test_interruptions_resume_through_state(world: World) -> None:
    paying(world, [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")])
    agent = world.guarded()
    result: Any = await agent.run("go")
    assert (result.final_output, len(result.interruptions)) == (None, 2)
    for interruption in result.interruptions:
        if "ana" in interruption.arguments:
            result.state.approve(interruption)
        else:
            result.state.reject(interruption)
    final = await agent.resume(result.state)
    assert (final.final_output, final.final_output_as(str)) == ("done", "done")
    assert world.ran == [("ana", 5)]
    with pytest.raises(TypeError, match="not of type int"):
        final.final_output_as(int, raise_if_incorrect_type=True)


@pytest.mark.parametrize("way", ["run", "run_sync", "run_streamed"])
def test_runner_accepts_guarded_agent(world: World, way: str) -> None:
    import asyncio

    paying(world, [call("pay", to="ana")])
    agent = world.guarded()

    async def streamed(given: Any) -> Any:
        stream = Runner.run_streamed(agent, given)
        assert [event async for event in stream.stream_events()]
        return stream

    def run(given: Any) -> Any:
        if way == "run_sync":
            return Runner.run_sync(agent, given)
        return asyncio.run(streamed(given) if way == "run_streamed" else Runner.run(agent, given))

    result = run("go")
    while result.interruptions:
        state = result.to_state()
        for item in state.get_interruptions():
            state.reject(item, rejection_message="not today")
        result = run(state)
    assert (result.final_output, world.ran) == ("done", [])


async def test_reasons_reach_the_model(world: World) -> None:
    paying(world, [call("pay", to="ana")])
    agent = world.guarded()
    result = await Runner.run(agent, "go")
    result.state.reject(result.interruptions[0], rejection_message="not today")
    await Runner.run(agent, result.state)
    model = agent.agent.model.wrapped
    assert "not today" in outputs(model)["call_1"]


async def test_always_approve_is_a_grant(world: World) -> None:
    paying(world, [call("pay", "c1", to="ana")], [call("pay", "c2", to="bob")])
    agent = world.guarded()
    result = await agent.run("go", thread="t-1")
    result.state.approve(result.interruptions[0], always_approve=True, by="ana")
    kept = result.state.to_json()
    result = await world.guarded().resume(sayso.RunState.from_json(kept))
    assert (result.output, world.ran) == ("done", [("ana", 5), ("bob", 5)])
    (grant,) = await world.inbox.grants()
    rows = [world.inbox.store.call_by_key("teller:t-1", id) for id in ("c1", "c2")]
    assert [row and row.decision and row.decision.type for row in rows] == ["approve", "grant"]
    assert [row and row.grant for row in rows] == [None, grant.id]
    # Another run asks again.
    paying(world, [call("pay", "c9", to="eve")])
    assert (await world.guarded().run("go", thread="t-2")).status == "paused"


async def test_always_approve_within_the_rules(world: World) -> None:
    world.policy = sayso.Policy([Rule("pay", where="euros > 10", reviewers=["bea"])])
    paying(world, [call("pay", "c1", to="ana")], [call("pay", "c2", to="bob", euros=11)])
    result = await world.guarded().run("go", thread="t-1")
    result.state.approve(result.interruptions[0], always_approve=True, by="ana")
    result = await world.guarded().resume(result.state)
    assert (result.status, world.ran) == ("paused", [("ana", 5)])
    assert json.loads(result.interruptions[0].arguments)["euros"] == 11


async def test_always_reject_is_refused(world: World) -> None:
    paying(world, [call("pay", to="ana")])
    result = await world.guarded().run("go")
    for wrong in ({"always_reject": True}, {"message": True}):
        with pytest.raises(sayso.InvalidDecision, match="add a rule to the policy that denies"):
            result.state.reject(result.interruptions[0], **wrong)
    assert result.state.staged == []


async def test_runner_refuses_options_of_guard(world: World) -> None:
    guarded = world.guarded()
    with pytest.raises(sayso.InvalidCall, match=r"pass max_turns to guard\(\.\.\.\)"):
        await Runner.run(guarded, "go", max_turns=3)
    with pytest.raises(TypeError, match=r"what guard\(agent, gate\) returns, not Agent"):
        await Runner.run(guarded.agent, "go")  # type: ignore[arg-type]


class TestOwnResult:
    """The SDK's own result is on what a guarded agent returns."""

    async def test_attributes_of_finished_run(self, world: World) -> None:
        paying(world, [call("pay", to="ana")])
        agent = world.build()
        guarded = guard(agent, world.gate())
        result: Any = await guarded.run("go", thread="t-1")
        assert isinstance(result.raw, agents.RunResult)
        (item,) = result.raw.interruptions
        assert isinstance(item, agents.ToolApprovalItem)
        assert item in result.new_items
        (interruption,) = result.interruptions
        assert interruption.item is item
        assert interruption.raw_item.arguments == '{"to":"ana"}'
        result = await guarded.resume("t-1", decisions=[interruption.approve()], by="ana")
        assert [item.type for item in result.new_items] == [
            "tool_call_item",
            "tool_approval_item",
            "tool_call_output_item",
            "message_output_item",
        ]
        assert result.to_input_list() == result.raw.to_input_list()
        assert len(result.to_input_list()) == 4
        assert len(result.raw_responses) == 2
        assert result.last_agent is agent
        assert result.context_wrapper.usage is result.raw.context_wrapper.usage

    async def test_attributes_of_stream(self, world: World) -> None:
        paying(world)
        stream: Any = Runner.run_streamed(world.guarded(), "go")
        async for _ in stream.stream_events():
            pass
        assert isinstance(stream.raw, agents.RunResultStreaming)
        assert (stream.final_output, len(stream.new_items)) == ("done", 1)

    async def test_other_process_has_no_raw_result(self, world: World) -> None:
        paying(world)
        await world.run()
        result: Any = await world.resume()
        assert (result.output, result.raw) == ("done", None)
        with pytest.raises(AttributeError, match="in the process that ran the agent"):
            _ = result.new_items
        assert copy.copy(result) == result


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_empty_call_ids_are_accepted(world: World, way: str) -> None:
    paying(
        world, [call("pay", "", to="ana"), call("pay", "", to="bob")], [call("pay", "", to="eve")]
    )
    guarded = world.guarded()
    if way == "run":
        result = await guarded.run("go", thread="t-1")
    else:
        stream = guarded.stream("go", thread="t-1")
        async for _ in stream:
            pass
        result = stream.result
    assert len(result.interruptions) == 2
    while result.interruptions:
        await world.approve()
        result = await guarded.resume("t-1")
    assert (result.output, sorted(world.ran)) == ("done", [("ana", 5), ("bob", 5), ("eve", 5)])
