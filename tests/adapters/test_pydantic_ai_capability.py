"""``Gated`` in an agent of pydantic-ai that keeps the native flow of deferred calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, UserError
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    Tool,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from pydantic_ai_world import World, call

from sayso import Policy, Rule
from sayso.adapters.pydantic_ai import Gated, guard

OUTPUT: list[Any] = [str, DeferredToolRequests]


def native(world: World, *turns: Any, policy: Policy | None = None, **options: Any) -> Any:
    """An agent with the capability, as people of this framework write it."""
    around = [*options.pop("capabilities", ()), Gated(world.gate, policy)]
    return world.agent(*turns, capabilities=around, output_type=OUTPUT, **options)


def pay_of(world: World) -> Any:
    def pay(to: str, amount: int = 1) -> str:
        world.ran.append((to, amount))
        return f"paid {amount} to {to}"

    return pay


ASK = Policy([Rule("pay")])


async def test_deferred_requests_resume_with_results(world: World) -> None:
    turns = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    agent = native(world, *turns, policy=ASK, tools=[pay_of(world)])
    first = await agent.run("go", conversation_id="t")
    asked = {r.args["to"]: r for r in (await world.inbox.pending(thread="t")).items}
    about = {id: m["sayso"]["request"] for id, m in first.output.metadata.items()}
    assert about == {"c1": asked["ana"].id, "c2": asked["bob"].id}

    # The caller's own yes is not a decision: the calls only come back to the gate.
    every = first.output.build_results(approve_all=True)
    again = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert [part.tool_call_id for part in again.output.approvals] == ["c1", "c2"]
    assert world.ran == []

    await world.inbox.decide(asked["bob"].id, asked["bob"].approve(), by="ana")
    part = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert [left.tool_call_id for left in part.output.approvals] == ["c1"]
    await world.inbox.decide(asked["ana"].id, asked["ana"].edit({"amount": 3}), by="ana")
    rest = part.output.build_results(approve_all=True)
    last = await agent.run(conversation=part.conversation, deferred_tool_results=rest)
    assert (last.output, world.ran) == ("Done.", [("bob", 1), ("ana", 3)])

    # The same history once more: the bare framework would pay again.
    twice = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert (twice.output, len(world.ran)) == ("Done.", 2)


async def test_forged_arguments_do_not_run(world: World) -> None:
    agent = native(world, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(world)])
    first = await agent.run("go", conversation_id="t")
    await world.decide(lambda request: request.approve())
    forged = first.all_messages_json().replace(b'"ana"', b'"eve"')
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    history = ModelMessagesTypeAdapter.validate_json(forged)
    override = ToolApproved(override_args={"to": "eve", "amount": 9})
    results = DeferredToolResults(approvals={"c1": override})
    last = await agent.run(
        message_history=history, deferred_tool_results=results, conversation_id="t"
    )
    assert (last.output, world.ran) == ("Done.", [("ana", 1)])
    assert "was approved" in world.returns["c1"].content


@pytest.mark.parametrize(
    "answer",
    [
        DeferredToolResults(approvals={"c1": ToolDenied("not today")}),
        DeferredToolResults(calls={"c1": "not today"}),
    ],
    ids=["denied", "a result"],
)
async def test_native_answer_cancels_the_request(world: World, answer: Any) -> None:
    turns = [call("pay", to="ana")], "Done."
    agent = native(world, *turns, policy=ASK, tools=[pay_of(world)])
    first = await agent.run("go", conversation_id="t")
    last = await agent.run(conversation=first.conversation, deferred_tool_results=answer)
    assert (last.output, world.returns["c1"].content, world.ran) == ("Done.", "not today", [])
    (request,) = (await world.inbox.history()).items
    assert request.status == "cancelled"
    assert (await world.inbox.pending()).items == ()


async def test_bare_framework_runs_forged_call_twice(world: World) -> None:
    pay = Tool(pay_of(world), requires_approval=True)
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay], output_type=OUTPUT)
    first = await agent.run("go")
    results = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"to": "eve"})})
    for _ in range(2):
        await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert world.ran == [("eve", 1), ("eve", 1)]


async def test_bare_framework_refuses_partial_results(world: World) -> None:
    pay = Tool(pay_of(world), requires_approval=True)
    calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
    agent = world.agent(calls, "Done.", tools=[pay], output_type=OUTPUT)
    first = await agent.run("go")
    with pytest.raises(UserError, match="need to be provided for all"):
        await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"c1": True}),
        )


# -- who says that people are needed, where no policy does


async def test_tool_requiring_approval_asks(world: World) -> None:
    def look() -> str:
        return "seen"

    tools = [Tool(pay_of(world), requires_approval=True), look]
    agent = world.agent([call("pay", to="ana"), call("look", "c2")], "Done.", tools=tools)
    assert (await guard(agent, world.gate).run("go", thread="t")).status == "paused"
    assert (await world.waits()).tool == "pay"
    await world.decide(lambda request: request.approve())
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert world.ran == [("ana", 1)]


async def test_rule_overrides_requires_approval(world: World) -> None:
    def needs(ctx: RunContext[Any], tool: ToolDefinition, args: dict[str, Any]) -> bool:
        return True

    free = Policy([Rule("pay", verdict="allow")])
    for toolset in (
        FunctionToolset([Tool(pay_of(world), requires_approval=True)]),
        FunctionToolset([pay_of(world)]).approval_required(needs),
    ):
        agent = world.agent([call("pay", to="ana")], "Done.", toolsets=[toolset])
        assert (await guard(agent, world.gate, free).run("go")).status == "done"
    assert world.ran == [("ana", 1)] * 2


async def test_toolset_condition_selects_calls(world: World) -> None:
    def large(ctx: RunContext[Any], tool: ToolDefinition, args: dict[str, Any]) -> bool:
        return bool(args["amount"] > 100)

    toolset = FunctionToolset([pay_of(world)]).approval_required(large)
    calls = [call("pay", "c1", to="ana", amount=5), call("pay", "c2", to="bob", amount=500)]
    agent = world.agent(calls, "Done.", toolsets=[toolset])
    assert (await guard(agent, world.gate).run("go", thread="t")).status == "paused"
    assert (await world.waits()).args == {"to": "bob", "amount": 500}
    await world.decide(lambda request: request.approve())
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert world.ran == [("ana", 5), ("bob", 500)]


async def test_approval_required_in_body_asks(world: World) -> None:
    def pay(ctx: RunContext[Any], to: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "new recipient"})
        world.ran.append(to)
        return "paid"

    agent = native(world, [call("pay", to="ana")], "Done.")
    agent.tool(pay)
    first = await agent.run("go", conversation_id="t")
    assert first.output.metadata["c1"]["why"] == "new recipient"
    request = await world.waits()
    assert first.output.metadata["c1"]["sayso"]["request"] == request.id
    await world.decide(lambda request: request.edit({"to": "bob"}))
    every = first.output.build_results(approve_all=True)
    last = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert (last.output, world.ran) == ("Done.", ["bob"])


async def test_deferred_call_takes_a_response(world: World) -> None:
    def pay(to: str) -> str:
        world.ran.append(to)
        raise CallDeferred

    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    assert (await guard(agent, world.gate).run("go", thread="t")).status == "paused"
    assert set((await world.waits()).allowed) == {"respond", "reject"}
    await world.decide(lambda request: request.respond("transfer 17"))
    assert (await guard(agent, world.gate).resume("t")).status == "done"
    assert (world.ran, world.returns["c1"].content) == (["ana"], "transfer 17")


@pytest.mark.parametrize("verdict", ["ask", "allow"])
async def test_external_tool_takes_a_response(world: World, verdict: str) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    external = ExternalToolset([ToolDefinition(name="pay", parameters_json_schema=schema)])
    rules = Policy([Rule("pay", verdict=verdict)])
    agent = native(world, [call("pay", to="ana")], "Done.", policy=rules, toolsets=[external])
    first = await agent.run("go", conversation_id="t")
    assert [part.tool_call_id for part in first.output.calls] == ["c1"]
    assert set((await world.waits()).allowed) == {"respond", "reject"}
    await world.decide(lambda request: request.respond({"done": True}))
    results = DeferredToolResults(approvals={"c1": True})
    last = await agent.run(conversation=first.conversation, deferred_tool_results=results)
    assert last.output == "Done."
    assert world.returns["c1"].content == {"done": True}


# -- beside other capabilities


@dataclass
class Rewrites(AbstractCapability[Any]):
    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: dict[str, Any]
    ) -> dict[str, Any]:
        return {**args, "to": args["to"] + "@example.com"}


async def test_people_see_arguments_changed_by_capabilities(world: World) -> None:
    turns = [call("pay", to="ana")], "Done."
    around = [Rewrites()]
    agent = native(world, *turns, policy=ASK, tools=[pay_of(world)], capabilities=around)
    first = await agent.run("go", conversation_id="t")
    assert (await world.waits()).args["to"] == "ana@example.com"
    await world.decide(lambda request: request.approve())
    every = first.output.build_results(approve_all=True)
    await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert world.ran == [("ana@example.com", 1)]


async def test_guard_around_capability_asks_once(world: World) -> None:
    agent = native(world, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(world)])
    await guard(agent, world.gate, ASK).run("go", thread="t")
    await world.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guard(agent, world.gate, ASK).resume("t")).status == "done"
    assert world.ran == [("bob", 1)]


async def test_inner_agent_with_repeated_id_asks(world: World) -> None:
    inner = native(world, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(world)])

    async def delegate(task: str) -> str:
        return type((await inner.run(task)).output).__name__

    outer = native(world, [call("delegate", task="pay")], "Done.", tools=[delegate])
    assert (await outer.run("go", conversation_id="t")).output == "Done."
    assert (world.returns["c1"].content, world.ran) == ("DeferredToolRequests", [])
    assert (await world.waits()).tool == "pay"


@dataclass
class Brings(AbstractCapability[Any]):
    world: World

    def get_toolset(self) -> Any:
        return FunctionToolset([pay_of(self.world)])


async def test_tools_of_other_capability_ask(world: World) -> None:
    turns = [call("pay", to="ana")], "Done."
    agent = native(world, *turns, policy=ASK, capabilities=[Brings(world)])
    assert isinstance((await agent.run("go")).output, DeferredToolRequests)
    assert world.ran == []


async def test_single_model_parameter_is_flattened(world: World) -> None:
    from pydantic import BaseModel

    class Payment(BaseModel):
        to: str
        amount: int = 1

    def pay(payment: Payment) -> Payment:
        world.ran.append(payment)
        return payment

    pay.__annotations__ = {"payment": Payment, "return": Payment}
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, world.gate, ASK).run("go", thread="t")
    assert (await world.waits()).args == {"to": "ana", "amount": 1}
    await world.decide(lambda request: request.edit({"amount": 2}))
    assert (await guard(agent, world.gate, ASK).resume("t")).status == "done"
    assert world.ran == [Payment(to="ana", amount=2)]


async def test_streamed_run_is_gated(world: World) -> None:
    from pydantic_ai.models.test import TestModel

    agent: Agent[None, Any] = Agent(
        TestModel(call_tools=["pay"]),
        tools=[pay_of(world)],
        capabilities=[Gated(world.gate, ASK)],
        output_type=OUTPUT,
    )
    async with agent.run_stream("go") as streaming:
        assert isinstance(await streaming.get_output(), DeferredToolRequests)
    assert (world.ran, len((await world.inbox.pending()).items)) == ([], 1)


class Calm(AbstractCapability[Any]):
    """Tells the model of every error of a tool."""

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, args: Any, handler: Any, **about: Any
    ) -> Any:
        try:
            return await handler(args)
        except Exception as error:
            return f"Tool error: {error}"


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("yes", [False, True])
async def test_error_capability_does_not_catch_pause(world: World, within: bool, yes: bool) -> None:
    turns = [call("pay", to="ana")], "Done."
    clerk = world.agent(*turns, tools=[pay_of(world)], capabilities=[Calm()])
    guarded = guard(clerk, world.gate, ASK)
    if within:
        inner = guarded

        async def delegate(task: str) -> Any:
            return (await inner.run(task)).output

        desk = world.agent([call("delegate", task="go")], "Done.", tools=[delegate])
        guarded = guard(desk, world.gate, ASK)
    result = await guarded.run("go", thread="t")
    assert (result.status, [r.tool for r in result.interruptions]) == ("paused", ["pay"])
    shown = len(world.shown)
    await world.decide(lambda r: r.approve() if yes else r.reject("too late"))
    assert (await guarded.resume("t")).output == "Done."
    assert world.ran == ([("ana", 1)] if yes else [])
    told = world.shown[shown][-1].parts[0].content  # type: ignore[union-attr]
    assert ("paid 1 to ana" if yes else "The reason given: too late") in str(told)
    assert "Tool error" not in str(told)
