"""Messages to the model about ended calls, and text that is sent with an answer."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import (
    AgentSession,
    Content,
    FunctionInvocationContext,
    Message,
    ToolApprovalMiddleware,
)
from agent_framework_world import World, call
from store_world import pay_of

from sayso import InvalidDecision, Policy, Question, Rule, SaysoError
from sayso.adapters.agent_framework import guard

ASK = Policy([Rule("pay")])


def paying(world: World, *turns: Any) -> Any:
    script = turns or ([call("pay", to="ana")], "Done.")
    return guard(world.agent(*script, tools=[pay_of(world)]), world.gate, ASK)


async def test_next_run_shows_cancelled_call(world: World) -> None:
    turns = [call("pay", to="ana")], "I see."
    await paying(world, *turns).run("pay ana", thread="t")
    await paying(world, *turns).cancel("t")
    assert (await paying(world, *turns).run("well?", thread="t")).output == "I see."
    assert "cancelled before it ran" in world.results["c1"]


async def test_rejected_question_tells_model_the_reason(world: World) -> None:
    async def publish() -> str:
        return str(await world.gate.ask(Question("Where?")))

    guarded = guard(world.agent([call("publish")], "Done.", tools=[publish]), world.gate)
    await guarded.run("go", thread="t")
    await world.decide(lambda request: request.reject("nowhere"))
    assert (await guarded.resume("t")).status == "done"
    assert "ana rejected it: nowhere" in world.results["c1"]


async def test_text_with_rejection_is_its_reason(world: World) -> None:
    agent, session = paying(world).as_agent(by="ana"), AgentSession(session_id="t")
    (request,) = (await agent.run("go", session=session)).user_input_requests
    no, words = request.to_function_approval_response(False), Content.from_text("she left")
    assert (await agent.run(Message("user", [no, words]), session=session)).text == "Done."
    assert "she left" in world.results["c1"]


async def test_text_with_approval_is_refused(world: World) -> None:
    agent, session = paying(world).as_agent(by="ana"), AgentSession(session_id="t")
    (request,) = (await agent.run("go", session=session)).user_input_requests
    yes, words = request.to_function_approval_response(True), Content.from_text("but hurry")
    with pytest.raises(InvalidDecision, match="send it in its own message"):
        await agent.run(Message("user", [yes, words]), session=session)
    assert ((await world.waits()).status, world.ran) == ("pending", [])


async def test_answer_from_another_session_is_refused(world: World) -> None:
    agent, session = paying(world).as_agent(by="ana"), AgentSession(session_id="t")
    (request,) = (await agent.run("go", session=session)).user_input_requests
    other = AgentSession(session_id="other")
    await agent.run("go", session=other)
    yes = Message("user", [request.to_function_approval_response(True)])
    asked = len(world.shown)
    for wrong in (None, other):
        with pytest.raises(InvalidDecision, match="session"):
            await agent.run(yes, session=wrong)
    assert (len(world.shown), world.ran) == (asked, [])
    assert (await agent.run(yes, session=session)).text == "Done."


async def test_unknown_function_keeps_its_answer(world: World) -> None:
    """A provider refuses a conversation in which a call has no result."""
    turns = [call("nope", "c1")], [call("nope", "c1")], "Sorry.", "Hello again."
    for words in ("go", "hello"):
        guarded = guard(world.agent(*turns, tools=[pay_of(world)]), world.gate)
        assert (await guarded.run(words, thread="t")).status == "done"
    roles = [message.role for message in world.shown[-1]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]


@pytest.mark.filterwarnings("ignore:.*experimental:FutureWarning")
async def test_function_added_during_run_survives_pause(world: World) -> None:
    def load(ctx: FunctionInvocationContext) -> str:
        ctx.add_tools([pay_of(world)])
        return "loaded"

    turns = [call("load", "c1")], [call("pay", "c2", to="ana")], [call("pay", "c3", to="bob")], "."
    guarded = guard(world.agent(*turns, tools=[load]), world.gate, ASK)
    result = await guarded.run("go", thread="t")
    result = await guarded.resume("t", decisions=[result.interruptions[0].approve()])
    result = await guarded.resume("t", decisions=[result.interruptions[0].edit({"to": "cy"})])
    assert (result.status, world.ran) == ("done", [("ana", 1), ("cy", 1)])


@pytest.mark.filterwarnings("ignore:.*experimental:FutureWarning")
@pytest.mark.parametrize("decided", [True, False])
async def test_missing_added_function_keeps_run_paused(world: World, decided: bool) -> None:
    def load(ctx: FunctionInvocationContext) -> str:
        ctx.add_tools([pay_of(world)])
        return "loaded"

    turns = [call("load", "c1")], [call("pay", "c2", to="ana"), call("look", "c3")], "Done."

    def look() -> str:
        return "seen"

    rules = Policy([Rule("pay"), Rule("look")])
    here = guard(world.agent(*turns, tools=[load, look]), world.gate, rules)
    result = await here.run("go", thread="t")
    pay, looked = result.interruptions
    await world.inbox.decide(looked.id, looked.approve(), by="ana")
    if decided:
        await world.inbox.decide(pay.id, pay.approve(), by="ana")
    there = guard(world.agent(*turns, tools=[load, look]), world.gate, rules)
    for _ in range(2):
        with pytest.raises(SaysoError, match="pay was added by another function"):
            await there.resume("t")
    assert (await world.inbox.get(pay.id)).status == ("approved" if decided else "pending")
    # A version of the agent that has it from the start.
    newer = guard(world.agent(*turns, tools=[load, look, pay_of(world)]), world.gate, rules)
    result = await newer.resume("t", decisions=None if decided else [pay.approve()])
    assert (result.output, world.ran) == ("Done.", [("ana", 1)])


async def test_automatic_approval_ends_the_run(
    world: World,
) -> None:
    agent = world.agent(
        [call("pay", to="ana")],
        "Done.",
        tools=[pay_of(world)],
        middleware=[ToolApprovalMiddleware(auto_approval_rules=[lambda made: True])],
    )
    with pytest.raises(SaysoError, match="not by a person"):
        await guard(agent, world.gate, ASK).run("go", thread="t")
    assert world.ran == []
    assert [request.tool for request in (await world.inbox.pending()).items] == ["pay"]
