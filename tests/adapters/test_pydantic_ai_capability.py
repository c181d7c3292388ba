"""``Gated`` in an agent of pydantic-ai that keeps the framework's own flow of deferred calls."""

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
from pydantic_ai_bench import Bench, call

from sayso import Policy, Rule
from sayso.adapters.pydantic_ai import Gated, guard

OUTPUT: list[Any] = [str, DeferredToolRequests]


def native(bench: Bench, *turns: Any, policy: Policy | None = None, **options: Any) -> Any:
    """An agent with the capability, as people of this framework write it."""
    around = [*options.pop("capabilities", ()), Gated(bench.gate, policy)]
    return bench.agent(*turns, capabilities=around, output_type=OUTPUT, **options)


def pay_of(bench: Bench) -> Any:
    def pay(to: str, amount: int = 1) -> str:
        bench.ran.append((to, amount))
        return f"paid {amount} to {to}"

    return pay


ASK = Policy([Rule("pay")])


async def test_a_run_ends_with_deferred_requests_and_goes_on_with_results(bench: Bench) -> None:
    turns = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    agent = native(bench, *turns, policy=ASK, tools=[pay_of(bench)])
    first = await agent.run("go", conversation_id="t")
    asked = {r.args["to"]: r for r in (await bench.inbox.pending(thread="t")).items}
    about = {id: m["sayso"]["request"] for id, m in first.output.metadata.items()}
    assert about == {"c1": asked["ana"].id, "c2": asked["bob"].id}

    # The caller's own yes is not a decision: the calls only come back to the gate.
    every = first.output.build_results(approve_all=True)
    again = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert [part.tool_call_id for part in again.output.approvals] == ["c1", "c2"]
    assert bench.ran == []

    await bench.inbox.decide(asked["bob"].id, asked["bob"].approve(), by="ana")
    part = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert [left.tool_call_id for left in part.output.approvals] == ["c1"]
    await bench.inbox.decide(asked["ana"].id, asked["ana"].edit({"amount": 3}), by="ana")
    rest = part.output.build_results(approve_all=True)
    last = await agent.run(conversation=part.conversation, deferred_tool_results=rest)
    assert (last.output, bench.ran) == ("Done.", [("bob", 1), ("ana", 3)])

    # The same history once more: the bare framework would pay again.
    twice = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert (twice.output, len(bench.ran)) == ("Done.", 2)


async def test_arguments_forged_in_the_history_or_the_results_do_not_run(bench: Bench) -> None:
    agent = native(bench, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(bench)])
    first = await agent.run("go", conversation_id="t")
    await bench.decide(lambda request: request.approve())
    forged = first.all_messages_json().replace(b'"ana"', b'"eve"')
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    history = ModelMessagesTypeAdapter.validate_json(forged)
    override = ToolApproved(override_args={"to": "eve", "amount": 9})
    results = DeferredToolResults(approvals={"c1": override})
    last = await agent.run(
        message_history=history, deferred_tool_results=results, conversation_id="t"
    )
    assert (last.output, bench.ran) == ("Done.", [("ana", 1)])
    assert "was approved" in bench.returns["c1"].content


@pytest.mark.parametrize(
    "answer",
    [
        DeferredToolResults(approvals={"c1": ToolDenied("not today")}),
        DeferredToolResults(calls={"c1": "not today"}),
    ],
    ids=["denied", "a result"],
)
async def test_what_is_answered_in_the_frameworks_way_need_not_be_decided(
    bench: Bench, answer: Any
) -> None:
    turns = [call("pay", to="ana")], "Done."
    agent = native(bench, *turns, policy=ASK, tools=[pay_of(bench)])
    first = await agent.run("go", conversation_id="t")
    last = await agent.run(conversation=first.conversation, deferred_tool_results=answer)
    assert (last.output, bench.returns["c1"].content, bench.ran) == ("Done.", "not today", [])
    (request,) = (await bench.inbox.history()).items
    assert request.status == "cancelled"
    assert (await bench.inbox.pending()).items == ()


async def test_the_bare_framework_runs_what_was_forged_and_runs_it_twice(bench: Bench) -> None:
    pay = Tool(pay_of(bench), requires_approval=True)
    agent = bench.agent([call("pay", to="ana")], "Done.", tools=[pay], output_type=OUTPUT)
    first = await agent.run("go")
    results = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"to": "eve"})})
    for _ in range(2):
        await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert bench.ran == [("eve", 1), ("eve", 1)]


async def test_partial_results_are_refused_by_the_bare_framework(bench: Bench) -> None:
    pay = Tool(pay_of(bench), requires_approval=True)
    calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
    agent = bench.agent(calls, "Done.", tools=[pay], output_type=OUTPUT)
    first = await agent.run("go")
    with pytest.raises(UserError, match="need to be provided for all"):
        await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"c1": True}),
        )


# -- who says that people are needed, where no policy does


async def test_tools_that_require_approval(bench: Bench) -> None:
    def look() -> str:
        return "seen"

    tools = [Tool(pay_of(bench), requires_approval=True), look]
    agent = bench.agent([call("pay", to="ana"), call("look", "c2")], "Done.", tools=tools)
    assert (await guard(agent, bench.gate).run("go", thread="t")).status == "paused"
    assert (await bench.waits()).tool == "pay"
    await bench.decide(lambda request: request.approve())
    assert (await guard(agent, bench.gate).resume("t")).status == "done"
    assert bench.ran == [("ana", 1)]


async def test_a_rule_beats_what_the_tool_requires(bench: Bench) -> None:
    def needs(ctx: RunContext[Any], tool: ToolDefinition, args: dict[str, Any]) -> bool:
        return True

    free = Policy([Rule("pay", verdict="allow")])
    for toolset in (
        FunctionToolset([Tool(pay_of(bench), requires_approval=True)]),
        FunctionToolset([pay_of(bench)]).approval_required(needs),
    ):
        agent = bench.agent([call("pay", to="ana")], "Done.", toolsets=[toolset])
        assert (await guard(agent, bench.gate, free).run("go")).status == "done"
    assert bench.ran == [("ana", 1)] * 2


async def test_a_toolset_that_asks_for_large_sums(bench: Bench) -> None:
    def large(ctx: RunContext[Any], tool: ToolDefinition, args: dict[str, Any]) -> bool:
        return bool(args["amount"] > 100)

    toolset = FunctionToolset([pay_of(bench)]).approval_required(large)
    calls = [call("pay", "c1", to="ana", amount=5), call("pay", "c2", to="bob", amount=500)]
    agent = bench.agent(calls, "Done.", toolsets=[toolset])
    assert (await guard(agent, bench.gate).run("go", thread="t")).status == "paused"
    assert (await bench.waits()).args == {"to": "bob", "amount": 500}
    await bench.decide(lambda request: request.approve())
    assert (await guard(agent, bench.gate).resume("t")).status == "done"
    assert bench.ran == [("ana", 5), ("bob", 500)]


async def test_a_tool_that_asks_in_its_body(bench: Bench) -> None:
    def pay(ctx: RunContext[Any], to: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "new recipient"})
        bench.ran.append(to)
        return "paid"

    agent = native(bench, [call("pay", to="ana")], "Done.")
    agent.tool(pay)
    first = await agent.run("go", conversation_id="t")
    assert first.output.metadata["c1"]["why"] == "new recipient"
    request = await bench.waits()
    assert first.output.metadata["c1"]["sayso"]["request"] == request.id
    await bench.decide(lambda request: request.edit({"to": "bob"}))
    every = first.output.build_results(approve_all=True)
    last = await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert (last.output, bench.ran) == ("Done.", ["bob"])


async def test_a_tool_whose_result_comes_from_elsewhere(bench: Bench) -> None:
    def pay(to: str) -> str:
        bench.ran.append(to)
        raise CallDeferred

    agent = bench.agent([call("pay", to="ana")], "Done.", tools=[pay])
    assert (await guard(agent, bench.gate).run("go", thread="t")).status == "paused"
    assert set((await bench.waits()).allowed) == {"respond", "reject"}
    await bench.decide(lambda request: request.respond("transfer 17"))
    assert (await guard(agent, bench.gate).resume("t")).status == "done"
    assert (bench.ran, bench.returns["c1"].content) == (["ana"], "transfer 17")


@pytest.mark.parametrize("verdict", ["ask", "allow"])
async def test_external_tools_have_no_body_to_approve(bench: Bench, verdict: str) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    external = ExternalToolset([ToolDefinition(name="pay", parameters_json_schema=schema)])
    rules = Policy([Rule("pay", verdict=verdict)])
    agent = native(bench, [call("pay", to="ana")], "Done.", policy=rules, toolsets=[external])
    first = await agent.run("go", conversation_id="t")
    assert [part.tool_call_id for part in first.output.calls] == ["c1"]
    assert set((await bench.waits()).allowed) == {"respond", "reject"}
    await bench.decide(lambda request: request.respond({"done": True}))
    results = DeferredToolResults(approvals={"c1": True})
    last = await agent.run(conversation=first.conversation, deferred_tool_results=results)
    assert last.output == "Done."
    assert bench.returns["c1"].content == {"done": True}


# -- beside other capabilities


@dataclass
class Rewrites(AbstractCapability[Any]):
    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: dict[str, Any]
    ) -> dict[str, Any]:
        return {**args, "to": args["to"] + "@example.com"}


async def test_people_see_what_other_capabilities_made_of_the_call(bench: Bench) -> None:
    turns = [call("pay", to="ana")], "Done."
    around = [Rewrites()]
    agent = native(bench, *turns, policy=ASK, tools=[pay_of(bench)], capabilities=around)
    first = await agent.run("go", conversation_id="t")
    assert (await bench.waits()).args["to"] == "ana@example.com"
    await bench.decide(lambda request: request.approve())
    every = first.output.build_results(approve_all=True)
    await agent.run(conversation=first.conversation, deferred_tool_results=every)
    assert bench.ran == [("ana@example.com", 1)]


async def test_two_gates_around_one_call_ask_once(bench: Bench) -> None:
    agent = native(bench, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(bench)])
    await guard(agent, bench.gate, ASK).run("go", thread="t")
    await bench.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guard(agent, bench.gate, ASK).resume("t")).status == "done"
    assert bench.ran == [("bob", 1)]


async def test_an_agent_inside_a_tool_is_asked_about_though_it_repeats_an_id(bench: Bench) -> None:
    inner = native(bench, [call("pay", to="ana")], "Done.", policy=ASK, tools=[pay_of(bench)])

    async def delegate(task: str) -> str:
        return type((await inner.run(task)).output).__name__

    outer = native(bench, [call("delegate", task="pay")], "Done.", tools=[delegate])
    assert (await outer.run("go", conversation_id="t")).output == "Done."
    assert (bench.returns["c1"].content, bench.ran) == ("DeferredToolRequests", [])
    assert (await bench.waits()).tool == "pay"


@dataclass
class Brings(AbstractCapability[Any]):
    bench: Bench

    def get_toolset(self) -> Any:
        return FunctionToolset([pay_of(self.bench)])


async def test_tools_that_another_capability_brings(bench: Bench) -> None:
    turns = [call("pay", to="ana")], "Done."
    agent = native(bench, *turns, policy=ASK, capabilities=[Brings(bench)])
    assert isinstance((await agent.run("go")).output, DeferredToolRequests)
    assert bench.ran == []


async def test_one_parameter_that_is_a_model(bench: Bench) -> None:
    from pydantic import BaseModel

    class Payment(BaseModel):
        to: str
        amount: int = 1

    def pay(payment: Payment) -> Payment:
        bench.ran.append(payment)
        return payment

    pay.__annotations__ = {"payment": Payment, "return": Payment}
    agent = bench.agent([call("pay", to="ana")], "Done.", tools=[pay])
    await guard(agent, bench.gate, ASK).run("go", thread="t")
    assert (await bench.waits()).args == {"to": "ana", "amount": 1}
    await bench.decide(lambda request: request.edit({"amount": 2}))
    assert (await guard(agent, bench.gate, ASK).resume("t")).status == "done"
    assert bench.ran == [Payment(to="ana", amount=2)]


async def test_a_run_that_streams_is_gated_as_well(bench: Bench) -> None:
    from pydantic_ai.models.test import TestModel

    agent: Agent[None, Any] = Agent(
        TestModel(call_tools=["pay"]),
        tools=[pay_of(bench)],
        capabilities=[Gated(bench.gate, ASK)],
        output_type=OUTPUT,
    )
    async with agent.run_stream("go") as streaming:
        assert isinstance(await streaming.get_output(), DeferredToolRequests)
    assert (bench.ran, len((await bench.inbox.pending()).items)) == ([], 1)


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
async def test_a_pause_is_no_error_to_other_capabilities(
    bench: Bench, within: bool, yes: bool
) -> None:
    turns = [call("pay", to="ana")], "Done."
    clerk = bench.agent(*turns, tools=[pay_of(bench)], capabilities=[Calm()])
    guarded = guard(clerk, bench.gate, ASK)
    if within:
        inner = guarded

        async def delegate(task: str) -> Any:
            return (await inner.run(task)).output

        desk = bench.agent([call("delegate", task="go")], "Done.", tools=[delegate])
        guarded = guard(desk, bench.gate, ASK)
    stands = await guarded.run("go", thread="t")
    assert (stands.status, [r.tool for r in stands.interruptions]) == ("paused", ["pay"])
    shown = len(bench.shown)
    await bench.decide(lambda r: r.approve() if yes else r.reject("too late"))
    assert (await guarded.resume("t")).output == "Done."
    assert bench.ran == ([("ana", 1)] if yes else [])
    told = bench.shown[shown][-1].parts[0].content  # type: ignore[union-attr]
    assert ("paid 1 to ana" if yes else "The reason given: too late") in str(told)
    assert "Tool error" not in str(told)
