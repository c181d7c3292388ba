"""The terms of an approval: expiry, policies, grants, reviewers, and changed rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest
from agent_world import World, asked, error_in, tool_results

import sayso
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock
from sayso.testing.scripted_model import call, calls, say
from sayso.worker import Worker

PAY = call("pay", {"amount": 3, "to": None})
TWO = calls(call("pay", {"amount": 1, "to": "bo"}), call("pay", {"amount": 2, "to": "cy"}))


async def test_expired_request_is_reported_to_model(slow_world: World, clock: FakeClock) -> None:
    world = slow_world

    @sayso.tool(needs_approval=True, expires_in=60)
    def hurry() -> None:
        """Hurry."""
        world.ran.append(("hurry", None))

    agent = world.agent(call("hurry"), say("Too late."), tools=[hurry])
    result = await agent.run("go", thread="t")
    assert result.interruptions[0].expires_at is not None
    clock.advance(61)
    with pytest.raises(sayso.Expired):
        await agent.resume("t", decisions=[result.interruptions[0].approve()])
    result = await agent.resume("t")
    assert (result.output, world.ran) == ("Too late.", [])
    assert error_in(tool_results(agent)[0]) == "Nobody decided in time, so it was not run."


async def test_expiry_may_cancel_the_run(slow_world: World, clock: FakeClock) -> None:
    @sayso.tool(needs_approval=True, expires_in=60, on_expiry="cancel")
    def hurry() -> None:
        """Hurry."""
        raise AssertionError

    agent = slow_world.agent(call("hurry"), tools=[hurry])
    await agent.run("go", thread="t")
    clock.advance(61)
    result = await agent.resume("t")
    assert (result.status, len(asked(agent))) == ("cancelled", 1)


@pytest.mark.parametrize("seen", ["list", "get", "decide", "resume", "sweep"])
async def test_cancelling_expiry_reaches_inner_agents(
    slow_world: World, clock: FakeClock, seen: str
) -> None:
    world = slow_world

    @sayso.tool(needs_approval=True, expires_in=60, on_expiry="cancel")
    def hurry() -> None:
        """Hurry."""
        raise AssertionError

    payer = world.agent(PAY, name="payer", tools=[world.pay])
    both = calls(call("payer", {"input": "go"}), call("hurry"))
    agent = world.agent(both, tools=[payer, hurry])
    first, second = (await agent.run("go", thread="t")).interruptions
    inner, late = (first, second) if second.tool == "hurry" else (second, first)
    clock.advance(61)
    if seen == "list":
        assert (await world.inbox.pending()).items == ()
    elif seen == "get":
        assert (await world.inbox.get(late.id)).status == "expired"
    elif seen == "decide":
        with pytest.raises(sayso.Expired):
            await world.inbox.decide(late.id, late.approve(), by="ana")
    elif seen == "resume":
        assert (await agent.resume("t")).status == "cancelled"
    else:
        Worker([agent], world.store).sweep()
    assert (await world.inbox.pending()).items == ()
    assert (await world.inbox.get(inner.id)).status == "cancelled"
    assert world.ran == []


@pytest.mark.parametrize("how", ["expired", "enough"])
async def test_cancelled_inner_run_wakes_outer_run(
    slow_world: World, clock: FakeClock, how: str
) -> None:
    world = slow_world

    @sayso.tool(needs_approval=True, expires_in=60, on_expiry="cancel")
    def hurry() -> None:
        """Hurry."""
        raise AssertionError

    inner = world.agent(call("hurry"), name="helper", tools=[hurry])
    agent = world.agent(call("helper", {"input": "go"}), say("Then not."), tools=[inner])
    result = await agent.run("go", thread="t")
    if how == "expired":
        clock.advance(61)
        Worker([agent], world.store).sweep()
    else:
        await world.inbox.cancel(result.interruptions[0].run, by="ana", reason=how)
    (due,) = world.store.ready(agent.names, 10)
    assert due.id == result.run
    assert (await agent.resume("t")).output == "Then not."
    assert error_in(tool_results(agent)[0]).endswith(how)


async def test_outdated_approval_is_asked_again(slow_world: World, clock: FakeClock) -> None:
    agent = slow_world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    (request,) = result.interruptions
    await slow_world.inbox.decide(request.id, request.approve(), by="bea")
    clock.advance(100_000)
    result = await agent.resume("t")
    assert (result.status, slow_world.ran) == ("paused", [])
    assert result.interruptions[0].revision == 2
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, slow_world.ran) == ("done", [("pay", (3, "ana"))])


async def test_late_answer_keeps_the_approval(slow_world: World, clock: FakeClock) -> None:
    world = slow_world

    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        return str(await ctx.ask("Which size?"))

    payer = world.agent(PAY, say("Paid."), name="payer", tools=[world.pay])
    both = calls(call("order"), call("payer", {"input": "go"}))
    agent = world.agent(both, say("Done."), tools=[order, payer])
    result = await agent.run("go", thread="t")
    clock.advance(3 * 86_400)
    answers = [
        r.respond("XL") if r.kind == "question" else r.approve() for r in result.interruptions
    ]
    result = await agent.resume("t", decisions=answers)
    assert (result.output, tool_results(agent), world.effects("pay")) == (
        "Done.",
        ["XL", "Paid."],
        [(3, "ana")],
    )


async def test_relaxed_policy_leaves_request_pending(world: World) -> None:
    ask = sayso.Policy([sayso.Rule(tool="look", verdict="ask")])
    await world.agent(call("look", {"what": "x"}), policy=ask).run("go", thread="t")
    relaxed = world.agent(say("Done."))
    assert (await relaxed.resume("t")).status == "paused"
    assert world.ran == []


async def test_policy_may_deny_without_asking(world: World) -> None:
    policy = sayso.Policy([sayso.Rule(tool="pay", verdict="deny", description="No money here.")])
    agent = world.agent(PAY, say("Then not."), policy=policy)
    result = await agent.run("pay ana", thread="t")
    assert (result.status, world.ran) == ("done", [])
    assert error_in(tool_results(agent)[0]) == (
        "The policy denies this call, so it was not run. No money here."
    )
    assert (await world.inbox.pending()).items == ()


async def test_denial_is_repeated_for_later_calls(world: World) -> None:
    policy = sayso.Policy([sayso.Rule(tool="pay", verdict="deny", description="No money here.")])
    agent = world.agent(PAY, PAY, say("Then not."), policy=policy)
    await agent.run("pay ana", thread="t")
    assert len(tool_results(agent)) == 2
    assert all("No money here." in error_in(content) for content in tool_results(agent))


async def test_call_cancelled_during_check_does_not_run(world: World) -> None:
    """The policy judges the edited call again; meanwhile it is cancelled."""
    judged: list[object] = []

    def slow_rule(args: Mapping[str, object]) -> bool:
        judged.append(args)
        if len(judged) == 3:  # asked, edited, and now just before the start
            world.inbox.cancel_sync(request.id, by="cy")
        return True

    @sayso.tool(needs_approval=slow_rule)
    def act(n: int) -> str:
        """Act."""
        world.ran.append(("act", n))
        return "acted"

    agent = world.agent(call("act", {"n": 1}), say("Then not."), tools=[act])
    (request,) = (await agent.run("go", thread="t")).interruptions
    result = await agent.resume("t", decisions=[request.edit({"n": 2})])
    assert (len(judged), result.output, world.ran) == (3, "Then not.", [])


async def test_failing_channel_is_notified_once(world: World) -> None:
    seen: list[str] = []

    async def broken(request: sayso.Request) -> None:
        seen.append(request.id)
        raise ConnectionError("no mail today")

    agent = world.agent(TWO, say("Done."), channels=[broken])
    result = await agent.run("go", thread="t")
    assert result.status == "paused"
    await agent.resume("t")
    assert seen == [request.id for request in result.interruptions]


async def test_grant_covers_its_scope_and_nothing_else(world: World) -> None:
    small = {"properties": {"amount": {"maximum": 5}}}
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("go", thread="t")
    (request,) = result.interruptions
    grant = {"scope": small, "uses": 2}
    await world.inbox.decide(request.id, request.approve(), by="bea", grant=grant)
    await agent.resume("t")
    world.script(agent, call("pay", {"amount": 5, "to": None}), say("Done."))
    assert (await agent.run("go", thread="t")).status == "done"
    world.script(agent, call("pay", {"amount": 1_000_000, "to": None}), say("Done."))
    result = await agent.run("go", thread="t")
    assert (result.status, world.effects("pay")) == ("paused", [(3, "ana"), (5, "ana")])


async def test_decision_about_one_call_beats_a_grant(world: World) -> None:
    agent = world.agent(TWO, PAY, say("Done."))
    first, second = (await agent.run("go", thread="t")).interruptions
    await world.inbox.decide(first.id, first.approve(), by="bea", grant={"scope": "any"})
    # The grant does not release other pending requests: those are decided on their own.
    result = await agent.resume("t")
    assert (result.status, result.interruptions) == ("paused", (second,))
    result = await agent.resume("t", decisions=[second.reject("not this one")])
    assert (result.status, world.effects("pay")) == ("done", [(1, "bo"), (3, "ana")])


async def test_requester_cannot_decide_risky_call(world: World) -> None:
    @sayso.tool(needs_approval=True, risk="high")
    def launch() -> None:
        """Launch."""

        world.ran.append(("launch", None))

    agent = world.agent(call("launch"), say("Done."), tools=[launch])
    result = await agent.run("go", thread="t", requester="ana")
    assert result.interruptions[0].requester == "ana"
    with pytest.raises(sayso.NotAllowed, match="another person"):
        await agent.resume("t", decisions=[result.interruptions[0].approve()], by="ana")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()], by="bo")
    assert (result.status, world.effects("launch")) == ("done", [None])


async def test_tampered_row_does_not_run(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("pay ana", thread="t")
    (request,) = result.interruptions
    await world.inbox.decide(request.id, request.approve(), by="bea")
    _tamper(world, request.id)
    with pytest.raises(sayso.Tampered, match=r"was not (run|used)"):
        await agent.resume("t")
    assert world.ran == []


def _tamper(world: World, request: str) -> None:
    args = '{"amount":1000000,"to":"ana"}'
    store = world.store
    statement = "UPDATE call SET args = ? WHERE id = ?"
    if isinstance(store, MemoryStore):
        store._connection.execute(statement, (args, request))
    else:
        with closing(sqlite3.connect(store.path)) as other, other:  # type: ignore[attr-defined]
            other.execute(statement, (args, request))
