"""A guarded agent inside a tool of another agent: it pauses that call, and resumes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agent_framework_world as af
import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from dspy.utils import DummyLM
from harness_dspy import dspy
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse
from pydantic_ai_world import World, call
from store_world import pay_of

from sayso import Gate, Inbox, Policy, Rule
from sayso.adapters import agent_framework as on_af
from sayso.adapters import dspy as on_dspy
from sayso.adapters import openai_agents as on_openai
from sayso.adapters.pydantic_ai import Gated, guard

set_tracing_disabled(True)

ASK = Policy([Rule("pay")], default="allow")
PAYS = [call("pay", "c1", to="ana"), call("look", "c2"), call("pay", "c3", to="bob")]
TURNS = PAYS, [call("pay", "c1", to="cy")], "All have it."


def tools(world: World) -> list[Any]:
    def pay(to: str, amount: int = 1) -> str:
        world.ran.append((to, amount))
        return f"paid {amount} to {to}"

    def look() -> str:
        world.ran.append("look")
        return "seen"

    return [pay, look]


def teams(world: World, kind: str, boss_turns: Any = None) -> Any:
    """Everything anew, as in another process."""
    around: list[Any] = [Gated(world.gate, ASK)] if kind != "guarded" else []
    clerk = world.agent(*TURNS, tools=tools(world), capabilities=around)
    guarded = guard(clerk, world.gate, ASK)

    async def delegate(ctx: RunContext[Any], task: str) -> Any:
        if kind == "guarded":
            return (await guarded.run(task)).output
        if kind == "streamed":
            async with clerk.iter(task) as steps:
                async for _ in steps:
                    pass
            assert steps.result is not None
            return steps.result.output
        return (await clerk.run(task, usage=ctx.usage)).output

    turns = boss_turns or ([call("delegate", "c1", task="pay them")], "Done.")
    return guard(world.agent(*turns, tools=[delegate]), world.gate, ASK)


@pytest.mark.parametrize("kind", ["gated", "guarded", "streamed"])
async def test_inner_calls_are_decided_in_parts(world: World, kind: str) -> None:
    result = await teams(world, kind).run("go", thread="t")
    ana, bob = result.interruptions
    assert (ana.thread, dict(ana.args)) == ("t", {"to": "ana", "amount": 1})
    assert world.ran == ["look"]
    assert (await teams(world, kind).resume("t")).status == "paused"
    await teams(world, kind).resume("t", decisions=[ana.edit({"amount": 2})])
    result = await teams(world, kind).resume("t", decisions=[bob.reject("he left")])
    (cy,) = result.interruptions  # the same id as before, in another reply
    assert (dict(cy.args), world.ran) == ({"to": "cy", "amount": 1}, ["look", ("ana", 2)])
    result = await teams(world, kind).resume("t", decisions=[cy.approve()])
    assert (result.status, result.output) == ("done", "Done.")
    assert world.ran == ["look", ("ana", 2), ("cy", 1)]
    assert world.returns["c1"].content == "All have it."
    # Each model was asked for each of its replies once.
    assert len(world.shown) == 5
    told = [str(part) for message in world.shown[2] for part in message.parts]
    assert any("he left" in text for text in told)
    assert any("changed" in text for text in told)
    assert (await world.inbox.pending()).items == ()


async def test_two_inner_agents_pause_together(world: World) -> None:
    calls = [call("delegate", id, task=id) for id in ("d1", "d2")]
    boss = teams(world, "gated", (calls, "Done."))
    result = await boss.run("go", thread="t")
    assert (len(result.interruptions), world.ran) == (4, ["look"] * 2)
    while result.status == "paused":
        for request in result.interruptions:
            await world.inbox.decide(request.id, request.approve(), by="ana")
        result = await boss.resume("t")
    every = [("ana", 1), ("bob", 1), ("cy", 1)]
    assert sorted(r for r in world.ran if r != "look") == sorted(every * 2)


async def test_failed_inner_model_is_asked_again(world: World) -> None:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai import ModelRetry
    from pydantic_ai.models.function import FunctionModel

    broken = [True]

    def reply(messages: Any, info: Any) -> ModelResponse:
        if broken and broken.pop():
            raise ConnectionError("no line")
        return ModelResponse(parts=[call("pay", to="ana")] if len(messages) == 1 else [])

    clerk = PydanticAgent(
        FunctionModel(reply), tools=tools(world), capabilities=[Gated(world.gate, ASK)]
    )

    async def delegate(task: str) -> str:
        try:
            return str((await clerk.run(task)).output)
        except ConnectionError as error:
            raise ModelRetry("once more") from error

    turns = [call("delegate", "d1", task="a")], [call("delegate", "d2", task="a")], "Done."
    boss = guard(world.agent(*turns, tools=[delegate]), world.gate, ASK)
    assert (await boss.run("go", thread="t")).interruptions[0].tool == "pay"


async def test_inner_agent_with_thread_is_separate(world: World) -> None:
    clerk = guard(world.agent(*TURNS, tools=tools(world)), world.gate, ASK)

    async def delegate(task: str) -> str:
        return (await clerk.run(task, thread="own")).status

    boss = guard(world.agent([call("delegate", task="x")], "Done.", tools=[delegate]), world.gate)
    assert (await boss.run("go", thread="t")).status == "done"
    assert world.returns["c1"].content == "paused"
    assert {request.thread for request in (await world.inbox.pending()).items} == {"own"}


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


END = [step("finish"), {"reasoning": "It is over.", "answer": "Done."}]


@pytest.mark.parametrize("blocking", [False, True])
async def test_nested_dspy_agent_pauses_outer_run(blocking: bool) -> None:
    gate = Gate("memory://", agent="boss", policy=ASK, wait=0)
    ran: list[str] = []

    def pay(to: str) -> str:
        ran.append(to)
        return f"paid {to}"

    def react(tool: Any, of: Gate, *steps: Any) -> Any:
        agent = dspy.ReAct("question -> answer", tools=[tool])
        return on_dspy.guard(agent, of, lm=DummyLM([*steps, *END]))

    other = Gate(gate.store, agent="clerk", policy=ASK, wait=0)
    clerk = react(pay, other, step("pay", to="ana"), step("pay", to="bob"))

    async def delegate(task: str) -> Any:
        return (await clerk.run(task)).output

    def waiting(task: str) -> Any:
        return clerk.run_sync(task).output

    tool = dspy.Tool(waiting if blocking else delegate, name="delegate")
    boss = react(tool, gate, step("delegate", task="pay both"))
    result = await boss.run("go", thread="t")
    assert (result.interruptions[0].thread, result.interruptions[0].agent) == ("t", "clerk")
    for expected in (["ana"], ["ana", "bob"]):
        (request,) = result.interruptions
        result = await boss.resume("t", decisions=[request.approve()])
        assert ran == expected
    assert (result.status, result.output) == ("done", "Done.")
    # No model was asked twice: the scripts ran to their ends.
    assert [len(agent._lm.history) for agent in (clerk, boss)] == [4, 3]


async def test_nested_agent_framework_agent_pauses_outer_run(tmp_path: Path) -> None:
    world = af.World(tmp_path)

    def team() -> Any:
        pays = [af.call("pay", "c1", to="ana")], "Ana has it."
        clerk = on_af.guard(world.agent(*pays, tools=[pay_of(world)]), world.gate, ASK)

        async def delegate(task: str) -> str:
            return str((await clerk.run(task)).output)

        turns = [af.call("delegate", "c1", task="pay")], "Done."
        return on_af.guard(world.agent(*turns, tools=[delegate]), world.gate, ASK)

    (request,) = (await team().run("go", thread="t")).interruptions
    result = await team().resume("t", decisions=[request.approve()])
    assert (result.status, world.ran, len(world.shown)) == ("done", [("ana", 1)], 4)
    assert world.results["c1"] == "Ana has it."
    world.close()


async def test_agent_runs_in_tool_of_another_framework(world: World) -> None:
    clerk = guard(world.agent(*TURNS, tools=tools(world)), world.gate, ASK)

    async def delegate(task: str) -> Any:
        return (await clerk.run(task)).output

    tool = dspy.Tool(delegate, name="delegate")
    script = DummyLM([step("delegate", task="pay them"), *END])
    gate = Gate(world.store, agent="boss", policy=ASK, wait=0)
    boss = on_dspy.guard(dspy.ReAct("question -> answer", tools=[tool]), gate, lm=script)
    result = await boss.run("go", thread="t")
    inbox = Inbox(world.store)
    while result.status == "paused":
        decided = [inbox.decide(r.id, r.approve(), by="ana") for r in result.interruptions]
        await asyncio.gather(*decided)
        result = await boss.resume("t")
    assert result.output == "Done."
    first, *both, last = world.ran  # pydantic-ai runs the two calls of a reply in OS threads
    assert (first, sorted(both), last) == ("look", [("ana", 1), ("bob", 1)], ("cy", 1))


@pytest.mark.parametrize("kind", ["runner", "streamed", "guarded"])
async def test_nested_openai_agent_pauses_outer_run(kind: str) -> None:
    rules = Policy([Rule("delegate", verdict="allow", effect="idempotent")])
    gate = Gate("memory://", policy=rules, agent="boss", wait=0)
    ran: list[Any] = []

    @function_tool(needs_approval=True)
    def pay(to: str, amount: int = 1) -> str:
        ran.append((to, amount))
        return f"paid {to}"

    pays = [  # one with the id of the call around it
        function_call("pay", {"to": "ana"}, call_id="d1"),
        function_call("pay", {"to": "bob"}, call_id="d2"),
    ]
    clerks = ScriptedModel([pays, [assistant_message("Both have it.")]])
    bosses = ScriptedModel(
        [[function_call("delegate", {"task": "x"}, call_id="d1")], [assistant_message("Done.")]]
    )

    def team() -> Any:
        clerk = Agent("Clerk", model=clerks, tools=[pay])
        guarded = on_openai.guard(clerk, gate)

        @function_tool
        async def delegate(task: str) -> str:
            if kind == "guarded":
                return str((await guarded.run(task)).output)
            if kind == "runner":
                return str((await Runner.run(clerk, task)).final_output)
            streamed = Runner.run_streamed(clerk, task)
            async for _ in streamed.stream_events():
                pass
            return str(streamed.final_output)

        return on_openai.guard(Agent("Boss", model=bosses, tools=[delegate]), gate)

    first, second = (await team().run("go", thread="t")).interruptions
    assert (await team().resume("t")).status == "paused"
    result = await team().resume("t", decisions=[second.edit({"amount": 2})])
    assert (result.status, ran) == ("paused", [("bob", 2)])
    result = await team().resume("t", decisions=[first.reject("she left")])
    assert (result.status, result.output, ran) == ("done", "Done.", [("bob", 2)])
    assert (len(clerks.calls), len(bosses.calls)) == (2, 2)
    assert "Both have it." in str(bosses.calls[1].input)
    gate.close()
