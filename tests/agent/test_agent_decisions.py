"""Pause, decide, resume: every behaviour of the OpenAI Agents SDK in our table."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from agent_world import World, asked, error_in, tool_results

import sayso
from sayso.agent import Agent
from sayso.testing import ScriptedReviewer
from sayso.testing.scripted_model import call, calls, say

PAY = call("pay", {"amount": 3, "to": None})
TWO = calls(call("pay", {"amount": 1, "to": "bo"}), call("pay", {"amount": 2, "to": "cy"}))
MIXED = calls(
    call("pay", {"amount": 1, "to": "bo"}),
    call("look", {"what": "x"}),
    call("pay", {"amount": 2, "to": "cy"}),
)


async def test_approved_call_runs_once(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    assert (result.status, result.output, world.ran) == ("paused", None, [])
    (request,) = result.interruptions
    assert (request.tool, request.args, request.agent) == (
        "pay",
        {"amount": 3, "to": "ana"},
        "assistant",
    )
    result.state.approve(request, by="bea")
    result = await agent.resume(result.state)
    assert (result.status, result.output) == ("done", "Done.")
    assert world.ran == [("pay", (3, "ana"))]
    assert tool_results(agent) == ["paid 3 to ana"]
    decided = await world.inbox.get(request.id)
    assert decided.decision is not None
    assert (decided.decision.by, decided.decision.channel) == ("bea", "state")


async def test_edited_call_runs_and_is_reported(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.edit(result.interruptions[0], {"amount": 2}, by="bea")
    await agent.resume(result.state)
    assert world.ran == [("pay", (2, "ana"))]
    (content,) = tool_results(agent)
    assert '{"amount":2,"to":"ana"} instead of {"amount":3,"to":"ana"}' in content
    assert content.endswith("paid 2 to ana")
    stored = await world.inbox.get(result.interruptions[0].id)
    assert stored.args == {"amount": 2, "to": "ana"}
    assert stored.original == {"amount": 3, "to": "ana"}


async def test_invalid_edit_is_refused(
    world: World,
) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.edit(result.interruptions[0], {"amount": "much"}, by="bea")
    with pytest.raises(sayso.InvalidDecision, match="amount"):
        await agent.resume(result.state)
    assert [r.status for r in (await world.inbox.pending()).items] == ["pending"]


@pytest.mark.parametrize("other", ["t2", "t/2"])
async def test_decision_of_other_thread_refuses_all(world: World, other: str) -> None:
    agent = world.agent(PAY, PAY, say("Done."))
    here = (await agent.run("pay ana", thread="t")).interruptions[0]
    there = (await agent.run("pay ana", thread=other)).interruptions[0]
    with pytest.raises(sayso.InvalidDecision, match=f"asked on thread '{other}', not on 't'"):
        await agent.resume("t", decisions=[here.approve(), there.approve()])
    for request in (here, there):
        assert (await world.inbox.get(request.id)).status == "pending"
    assert (await agent.resume("t", decisions=[here.approve()])).status == "done"


async def test_edit_against_policy_is_refused(
    world: World,
) -> None:
    policy = sayso.Policy([sayso.Rule(tool="pay", where="amount > 100", verdict="deny")])
    agent = world.agent(PAY, say("Done."), policy=policy)
    result = await agent.run("pay ana", thread="t")
    result.state.edit(result.interruptions[0], {"amount": 1000}, by="bea")
    with pytest.raises(sayso.NotAllowed, match="denies"):
        await agent.resume(result.state)
    # A decision made without the policy is cancelled before the call runs.
    request = result.interruptions[0]
    await world.inbox.decide(request.id, request.edit({"amount": 1000}), by="bea")
    result = await agent.resume("t")
    assert (result.status, world.ran) == ("done", [])
    assert "cancelled" in error_in(tool_results(agent)[0])


async def test_rejection_is_reported_to_model(world: World) -> None:
    agent = world.agent(PAY, say("Then not."))
    result = await agent.run("pay ana", thread="t")
    result.state.reject(result.interruptions[0], "too much", by="bea")
    result = await agent.resume(result.state)
    assert (result.status, result.output, world.ran) == ("done", "Then not.", [])
    (content,) = tool_results(agent)
    assert error_in(content) == (
        "A person rejected this call, so it was not run. The reason given: too much"
    )


async def test_rejection_never_becomes_the_final_output(world: World) -> None:
    agent = world.agent(PAY, say("Then not."), tool_choice="pay")
    result = await agent.run("pay ana", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].reject("too much")])
    assert result.output == "Then not."
    assert len(asked(agent)) == 2


async def test_response_replaces_the_run(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.respond(result.interruptions[0], "I paid in cash", by="bea")
    result = await agent.resume(result.state)
    assert (world.ran, tool_results(agent)) == ([], ["I paid in cash"])


async def test_response_must_fit_return_type(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.respond(result.interruptions[0], 7, by="bea")
    with pytest.raises(sayso.InvalidDecision, match="value"):
        await agent.resume(result.state)


async def test_resume_without_decision_calls_no_model(
    world: World,
) -> None:
    agent = world.agent(PAY)
    first = await agent.run("pay ana", thread="t")
    for _ in range(3):
        again = await agent.resume("t")
        assert (again.status, again.interruptions) == ("paused", first.interruptions)
    assert (len(asked(agent)), world.ran) == (1, [])


async def test_siblings_run_as_they_are_decided(
    world: World,
) -> None:
    agent = world.agent(MIXED, say("Done."))
    result = await agent.run("go", thread="t")
    assert world.ran == [("look", "x")]
    first, second = result.interruptions
    result = await agent.resume("t", decisions=[second.approve()], by="bea")
    assert (result.status, result.interruptions) == ("paused", (first,))
    assert world.ran == [("look", "x"), ("pay", (2, "cy"))]
    assert len(asked(agent)) == 1
    result = await agent.resume("t", decisions=[first.approve()], by="bea")
    assert (result.status, len(asked(agent))) == ("done", 2)
    assert world.ran == [("look", "x"), ("pay", (2, "cy")), ("pay", (1, "bo"))]
    # In the order in which the model made them, whenever they came.
    assert tool_results(agent) == ["paid 1 to bo", '{"found":"x"}', "paid 2 to cy"]


async def test_completed_siblings_do_not_run_again(world: World) -> None:
    agent = world.agent(MIXED, say("Done."))
    result = await agent.run("go", thread="t")
    for request in result.interruptions:
        result.state.reject(request)
    await agent.resume(result.state)
    assert world.ran == [("look", "x")]
    assert len(tool_results(agent)) == 3


async def test_each_call_has_one_answer(world: World) -> None:
    agent = world.agent(MIXED, say("Done."))
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    await agent.resume("t", decisions=[first.reject("no")])
    await agent.resume("t")
    await agent.resume("t", decisions=[second.reject("no")])
    await agent.resume("t")
    messages = asked(agent)[-1].messages
    answers = [m["call_id"] for m in messages if m["role"] == "tool"]
    assert len(answers) == len(set(answers)) == 3


async def test_unknown_request_is_an_error(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    made_up = replace(result.interruptions[0], id="req_nobody")
    for unknown in (made_up, "req_nobody"):
        with pytest.raises(sayso.NotFound, match="req_nobody"):
            result.state.approve(unknown)
    with pytest.raises(sayso.NotFound):
        await agent.resume("t", decisions=[made_up.approve()])
    assert (await agent.resume("t")).status == "paused"


async def test_decision_without_request_is_an_error(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    await agent.run("pay ana", thread="t")
    with pytest.raises(sayso.InvalidDecision, match=r"request\.approve"):
        await agent.resume("t", decisions=[sayso.Approve()])


async def test_request_id_is_enough_to_decide(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.approve(result.interruptions[0].id, by="bea")
    assert (await agent.resume(result.state)).status == "done"


async def test_request_of_another_digest_is_a_conflict(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    other = replace(result.interruptions[0], digest="0" * 64)
    with pytest.raises(sayso.Conflict, match="not what you saw"):
        await agent.resume("t", decisions=[other.approve()])


async def test_last_staged_decision_counts(world: World) -> None:
    agent = world.agent(TWO, say("Done."))
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    result.state.approve(first, by="bea")
    result.state.reject(first, "changed my mind", by="bea")
    result = await agent.resume(result.state)
    assert world.ran == []
    # The same again is an echo, the contrary says who won.
    await agent.resume("t", decisions=[first.reject("changed my mind")], by="bea")
    with pytest.raises(sayso.AlreadyDecided, match="bea decided 'reject'"):
        await agent.resume("t", decisions=[first.approve()], by="bea")
    await agent.resume("t", decisions=[second.reject()], by="bea")
    with pytest.raises(sayso.AlreadyDecided):
        await agent.resume("t", decisions=[second.approve()], by="bea")
    assert world.ran == []


async def test_decision_covers_only_its_call(world: World) -> None:
    agent = world.agent(TWO, PAY, say("Done."))
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    result = await agent.resume("t", decisions=[first.reject("no"), second.approve()])
    assert world.ran == [("pay", (2, "cy"))]
    # The next call of the same tool has a request of its own, though the model repeats ids.
    (third,) = result.interruptions
    assert third.id not in (first.id, second.id)
    assert world.ran == [("pay", (2, "cy"))]


async def test_inbox_decision_resumes_the_run(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    (request,) = (await world.inbox.pending()).items
    await world.inbox.decide(request.id, request.approve(), by="bea", channel="elsewhere")
    result = await agent.resume(result.state)
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])


async def test_other_agent_object_resumes_run(world: World) -> None:
    await world.agent(PAY).run("pay ana", thread="t")
    (request,) = (await world.inbox.pending()).items
    other = world.agent(say("Done."))
    result = await other.resume("t", decisions=[request.approve()])
    assert (result.output, world.ran) == ("Done.", [("pay", (3, "ana"))])


async def test_channel_deciding_at_once_avoids_pause(world: World) -> None:
    person = ScriptedReviewer(world.store, {"pay": sayso.Request.approve})
    agent = world.agent(TWO, PAY, say("Done."), channels=[person])
    result = await agent.run("go", thread="t")
    assert (result.status, len(person.decided)) == ("done", 3)
    assert sorted(world.effects("pay")) == [(1, "bo"), (2, "cy"), (3, "ana")]


def test_agent_has_its_public_methods() -> None:
    public = {name for name in vars(Agent) if not name.startswith("_")}
    assert {"run", "resume", "stream", "cancel", "run_sync", "resume_sync"} <= public


# -- once


async def test_state_resumed_twice_runs_call_once(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    result.state.approve(result.interruptions[0])
    staged = list(result.state.staged)
    first = await agent.resume(result.state)
    result.state.staged = staged
    second = await agent.resume(result.state)
    assert (first.output, second.output) == ("Done.", "Done.")
    assert (world.ran, len(asked(agent))) == ([("pay", (3, "ana"))], 2)


async def test_state_resumed_in_parallel_runs_call_once(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    (request,) = result.interruptions
    agents = [agent, *(world.agent(say("Not me.")) for _ in range(4))]
    for other in agents[1:]:
        other.model = agent.model
    results = await asyncio.gather(
        *(a.resume("t", decisions=[request.approve()], by="bea") for a in agents)
    )
    assert [r.output for r in results] == ["Done."] * 5
    assert (world.ran, len(asked(agent))) == ([("pay", (3, "ana"))], 2)


async def test_finished_run_returns_stored_output(world: World) -> None:
    agent = world.agent(say("Done."))
    first = await agent.run("hello", thread="t")
    for where in (first.state, first.run, "t"):
        again = await agent.resume(where)
        assert (again.status, again.output, again.run) == ("done", "Done.", first.run)
    assert len(asked(agent)) == 1


async def test_model_failure_does_not_repeat_tool(world: World) -> None:
    agent = world.agent(PAY, ConnectionError("gone"), say("Done."))
    result = await agent.run("pay ana", thread="t")
    with pytest.raises(ConnectionError):
        await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert world.ran == [("pay", (3, "ana"))]
    # No one has to wait for a lease to expire.
    result = await asyncio.wait_for(agent.resume("t"), 20)
    assert (result.output, world.ran) == ("Done.", [("pay", (3, "ana"))])
    assert tool_results(agent) == ["paid 3 to ana"]


async def test_raising_tool_is_not_run_again(world: World) -> None:
    @sayso.tool(needs_approval=True)
    def burn() -> None:
        """Burn."""
        world.ran.append(("burn", None))
        raise OSError("smoke")

    agent = world.agent(call("burn"), ConnectionError("gone"), say("Done."), tools=[burn])
    result = await agent.run("go", thread="t")
    with pytest.raises(ConnectionError):
        await agent.resume("t", decisions=[result.interruptions[0].approve()])
    await agent.resume("t")
    assert world.effects("burn") == [None]
    assert error_in(tool_results(agent)[0]) == "The call failed: OSError: smoke"


async def test_failing_listener_does_not_repeat_call(world: World) -> None:
    def broken(event: object) -> None:
        raise ValueError("I am broken")

    agent = world.agent(PAY, say("Done."))
    agent.listeners.append(broken)
    result = await agent.run("pay ana", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, world.ran) == ("done", [("pay", (3, "ana"))])


async def test_invalid_run_and_decision_errors_differ(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    with pytest.raises(sayso.InvalidCall, match=r"pass result\.state, a run's id or a thread"):
        await agent.resume(result)  # type: ignore[arg-type]
    with pytest.raises(sayso.InvalidDecision, match="a list made of"):
        await agent.resume("t", decisions=5)  # type: ignore[arg-type]
    assert (await agent.resume("t", decisions=iter([result.interruptions[0].approve()]))).output
