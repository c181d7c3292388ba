"""Agents as tools: their pauses surface in the outer run, and their calls are never in doubt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agent_world import World, asked, error_in, tool_results

import sayso
from sayso.agent import Agent, Requested
from sayso.agent.sub_agent import find_run, run_of_call
from sayso.engine.commands import Cancel
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import ScriptedReviewer
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

PAY = call("pay", {"amount": 3, "to": None})


def ask(who: str, what: str = "go") -> Any:
    return call(who, {"input": what})


def pair(world: World, *inner_steps: Any, **options: Any) -> tuple[Agent, Agent]:
    inner = Agent("payer", model=ScriptedModel(inner_steps), tools=[world.pay], **options)
    outer = world.agent(ask("payer"), say("All done."), tools=[inner])
    return outer, inner


async def test_agent_is_a_tool(world: World) -> None:
    outer, inner = pair(world, say("Nothing to pay."), instructions="You pay.")
    result = await outer.run("go", thread="t")
    assert (result.output, tool_results(outer)) == ("All done.", ["Nothing to pay."])
    assert asked(outer)[0].tools[0].description == "Ask payer. You pay."
    assert [run.agent for run in _runs(world)] == ["assistant", "payer"]
    assert inner.store is not world.store


def _runs(world: World) -> list[Any]:
    threads = [row.id for row in world.store.threads() if row.id[0] != "@"]
    runs = [world.store.last_run(name) for name in threads]
    return [run for run in runs if run is not None]


async def test_sub_agent_uses_outer_store(world: World) -> None:
    other = World(MemoryStore())
    by_turn = ScriptedModel([PAY, say("Paid.")], by_turn=True)
    inner = Agent("payer", model=by_turn, tools=[world.pay])
    for place in (world, other, world):
        outer = place.agent(ask("payer"), say("All done."), tools=[inner])
        result = await outer.run("go")
        (pending,) = (await place.inbox.pending()).items
        assert result.interruptions == (pending,)
        await outer.resume(result.state.thread, decisions=[pending.approve()])
    assert world.effects("pay") == [(3, "ana")] * 3


async def test_inner_agent_keeps_its_store(world: World) -> None:
    own = World(MemoryStore())
    inner = own.agent(PAY, say("Paid."), name="payer")
    outer = world.agent(ask("payer"), say("All done."), tools=[inner])
    result = await outer.run("go", thread="t")
    assert (await own.inbox.pending()).items == result.interruptions
    await own.inbox.decide(result.interruptions[0].id, result.interruptions[0].approve(), by="ana")
    assert (await outer.resume("t")).output == "All done."


async def test_failed_inner_model_keeps_the_call(world: World) -> None:
    outer, inner = pair(world, PAY, ConnectionError("gone"), say("Paid."))
    result = await outer.run("go", thread="t")
    with pytest.raises(ConnectionError):
        await outer.resume("t", decisions=[result.interruptions[0].approve()])
    result = await asyncio.wait_for(outer.resume("t"), 20)
    assert (result.output, tool_results(outer), tool_results(inner)) == (
        "All done.",
        ["Paid."],
        ["paid 3 to ana"],
    )
    assert world.effects("pay") == [(3, "ana")]


async def test_inner_model_failing_at_once_is_retried(world: World) -> None:
    outer, _ = pair(world, ConnectionError("gone"), say("Nothing to pay."))
    with pytest.raises(ConnectionError):
        await outer.run("go", thread="t")
    assert (await outer.resume("t")).output == "All done."
    assert tool_results(outer) == ["Nothing to pay."]


async def test_empty_input_to_inner_agent_is_an_error(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([]))
    outer = world.agent(call("payer", {"input": " "}), say("All done."), tools=[inner])
    assert (await outer.run("go", thread="t")).output == "All done."
    assert "the input is empty" in error_in(tool_results(outer)[0])


async def test_inner_end_elsewhere_wakes_outer_run(world: World) -> None:
    outer, _ = pair(world, PAY, say("Paid."))
    (request,) = (await outer.run("go", thread="t")).interruptions
    alone = world.agent(say("Paid."), name="payer")
    await alone.resume(request.run, decisions=[request.approve()])
    (due,) = world.store.ready(["assistant", "payer"])
    assert due.agent == "assistant"
    assert (await outer.resume(due.id)).output == "All done."
    assert (tool_results(outer), world.effects("pay")) == (["Paid."], [(3, "ana")])


async def test_inner_pause_surfaces_in_outer_run(world: World) -> None:
    outer, inner = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t", requester="ana")
    (request,) = result.interruptions
    assert (request.agent, request.tool, request.requester) == ("payer", "pay", "ana")
    assert (request.run, request.thread) != (result.run, "t")
    result.state.approve(request, by="bea")
    result = await outer.resume(result.state)
    assert (result.status, result.output) == ("done", "All done.")
    assert (tool_results(outer), world.ran) == (["Paid."], [("pay", (3, "ana"))])
    assert (len(asked(outer)), len(asked(inner))) == (2, 2)


async def test_inner_rejection_reaches_inner_model(world: World) -> None:
    outer, inner = pair(world, PAY, say("Not paid."))
    result = await outer.run("go", thread="t")
    result = await outer.resume("t", decisions=[result.interruptions[0].reject("no")])
    assert "A person rejected" in error_in(tool_results(inner)[0])
    assert (tool_results(outer), world.ran) == (["Not paid."], [])


async def test_nothing_decided_pauses_again(world: World) -> None:
    outer, inner = pair(world, PAY, say("Paid."))
    first = await outer.run("go", thread="t")
    for _ in range(3):
        again = await outer.resume("t")
        assert (again.status, again.interruptions) == ("paused", first.interruptions)
    assert (len(asked(outer)), len(asked(inner)), world.ran) == (1, 1, [])
    assert world.store.ready(["assistant", "payer"]) == []


async def test_both_layers_may_need_a_person(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([PAY, say("Paid.")]), tools=[world.pay])
    tools = [inner.as_tool(needs_approval=True, name="ask_payer", description="Pay people.")]
    outer = world.agent(ask("ask_payer"), say("All done."), tools=tools)
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    assert (request.agent, request.tool, request.description) == (
        "assistant",
        "ask_payer",
        "Pay people.",
    )
    assert asked(inner) == []
    # Approving the outer call does not approve calls inside it.
    result = await outer.resume("t", decisions=[request.approve()])
    (request,) = result.interruptions
    assert (request.agent, world.ran) == ("payer", [])
    result = await outer.resume("t", decisions=[request.approve()])
    assert (result.status, world.effects("pay")) == ("done", [(3, "ana")])


async def test_parallel_calls_of_agent_stay_separate(world: World) -> None:
    by_input = ScriptedModel(
        lambda messages: (
            say("Paid.")
            if messages[-1]["role"] == "tool"
            else call("pay", {"amount": int(messages[-1]["content"]), "to": None})
        )
    )
    inner = Agent("payer", model=by_input, tools=[world.pay])
    outer = world.agent(
        calls(ask("payer", "1"), ask("payer", "2")), say("All done."), tools=[inner]
    )
    result = await outer.run("go", thread="t")
    one, two = result.interruptions
    assert (one.args["amount"], two.args["amount"]) == (1, 2)
    assert one.thread != two.thread
    result = await outer.resume("t", decisions=[two.approve()])
    assert (result.interruptions, world.effects("pay")) == ((one,), [(2, "ana")])
    result = await outer.resume("t", decisions=[one.reject()])
    assert (result.status, world.effects("pay")) == ("done", [(2, "ana")])


async def test_sibling_runs_while_an_inner_agent_waits(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([PAY, say("Paid.")]), tools=[world.pay])
    both = calls(ask("payer"), call("pay", {"amount": 7, "to": None}))
    outer = world.agent(both, say("All done."), tools=[inner, world.pay])
    result = await outer.run("go", thread="t")
    inside, beside = result.interruptions
    result = await outer.resume("t", decisions=[beside.approve()])
    assert (result.status, world.effects("pay")) == ("paused", [(7, "ana")])
    result = await outer.resume("t", decisions=[inside.approve()])
    assert (result.status, world.effects("pay")) == ("done", [(7, "ana"), (3, "ana")])


async def test_agent_two_levels_deep_pauses(world: World) -> None:
    deepest = Agent("payer", model=ScriptedModel([PAY, PAY, say("Paid.")]), tools=[world.pay])
    middle = Agent("clerk", model=ScriptedModel([ask("payer"), say("Done.")]), tools=[deepest])
    outer = world.agent(ask("clerk"), say("All done."), tools=[middle])
    assert outer.names == ("assistant", "clerk", "payer")
    result = await outer.run("go", thread="t", requester="ana")
    assert result.interruptions[0].requester == "ana"
    for _ in range(2):
        (request,) = result.interruptions
        assert request.agent == "payer"
        result = await outer.resume("t", decisions=[request.approve()], by="bea")
    assert (result.status, result.output) == ("done", "All done.")
    assert world.effects("pay") == [(3, "ana")] * 2


async def test_another_process_resumes_a_nested_run(world: World) -> None:
    outer, _ = pair(world, PAY)
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    inner = Agent("payer", model=ScriptedModel([say("Paid.")]), tools=[world.pay])
    other = world.agent(say("All done."), tools=[inner])
    await world.inbox.decide(request.id, request.approve(), by="bea")
    assert [run.agent for run in world.store.ready(other.names)] == ["payer"]
    # The process that finds the inner run due resumes the outer one.
    result = await other.resume(request.run)
    assert (result.run, result.output) == (outer_run(world), "All done.")
    assert world.effects("pay") == [(3, "ana")]


def outer_run(world: World) -> str:
    return find_run(world.store, "t", "assistant").id


async def test_foreign_agent_cannot_resume_run(world: World) -> None:
    outer, _ = pair(world, PAY)
    result = await outer.run("go", thread="t")
    with pytest.raises(sayso.Conflict, match="belongs to agent 'payer', not to 'stranger'"):
        await world.agent(name="stranger").resume(result.interruptions[0].run)


async def test_inner_failure_is_a_tool_error(world: World) -> None:
    outer, _ = pair(world, PAY, max_turns=1)
    result = await outer.run("go", thread="t")
    result = await outer.resume("t", decisions=[result.interruptions[0].approve()])
    assert "payer: no answer after 1 turn" in error_in(tool_results(outer)[0])
    assert result.output == "All done."


async def test_new_input_supersedes_inner_requests(world: World) -> None:
    outer, _ = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t")
    world.script(outer, say("Then not."))
    assert (await outer.run("stop", thread="t")).output == "Then not."
    stale = await world.inbox.get(result.interruptions[0].id)
    assert (stale.status, (await world.inbox.pending()).items) == ("superseded", ())


async def test_cancellation_reaches_inner_agents(world: World) -> None:
    outer, _ = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t")
    await outer.cancel("t")
    assert (await world.inbox.get(result.interruptions[0].id)).status == "cancelled"
    assert (await world.inbox.pending()).items == ()


@pytest.mark.parametrize("by", ["inbox", "gate"])
async def test_cancellation_by_inbox_or_gate_reaches_inner_agents(world: World, by: str) -> None:
    outer, _ = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    await {"inbox": world.inbox.cancel, "gate": outer.gate.cancel}[by](result.run, by="ana")
    assert (await world.inbox.get(request.id)).status == "cancelled"
    with pytest.raises(sayso.SaysoError):
        await world.inbox.decide(request.id, request.approve(), by="bea")
    assert (await outer.resume(result.run)).status == "cancelled"
    assert world.ran == []


async def test_cancelled_call_cancels_its_inner_run(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([PAY]), tools=[world.pay])
    payer = inner.as_tool(needs_approval=True)
    outer = world.agent(ask("payer"), say("All done."), tools=[payer])
    (request,) = (await outer.run("go", thread="t")).interruptions
    (nested,) = (await outer.resume("t", decisions=[request.approve()])).interruptions
    await world.inbox.cancel(request.id, by="ana", reason="not needed")
    assert (await world.inbox.get(nested.id)).status == "cancelled"
    assert [run.status for run in _runs(world)] == ["running", "cancelled"]
    assert ((await outer.resume("t")).status, world.ran) == ("done", [])


async def test_cancelled_outer_run_cancels_the_inner_one(world: World) -> None:
    outer, _ = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    world.store.transact(Cancel(thread="t", run=result.run, by="clock"))  # of this run alone
    await world.inbox.decide(request.id, request.approve(), by="bea")
    assert (await outer.resume(request.run)).status == "cancelled"
    assert (world.ran, world.store.ready(outer.names)) == ([], [])


async def test_death_inside_leaves_no_outer_doubt(
    world: World,
) -> None:
    """Only calls that the sub-agent itself started are in doubt."""
    begun = asyncio.Event()

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        begun.set()
        await asyncio.sleep(60)
        return "slow"

    inner = Agent("payer", model=ScriptedModel([call("slow"), say("Paid.")]), tools=[slow])
    outer = world.agent(ask("payer"), say("All done."), tools=[inner])
    task = asyncio.create_task(outer.run("go", thread="t"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await outer.resume("t")
    (request,) = result.interruptions
    assert (request.kind, request.agent, request.tool) == ("in_doubt", "payer", "slow")
    result = await outer.resume("t", decisions=[request.respond("it ran")])
    assert (result.status, tool_results(inner), tool_results(outer)) == (
        "done",
        ["it ran"],
        ["Paid."],
    )


async def test_outer_stream_and_channels_show_inner_requests(world: World) -> None:
    person = ScriptedReviewer(world.store, {"pay": None})
    inner = Agent("payer", model=ScriptedModel([PAY, say("Paid.")]), tools=[world.pay])
    outer = world.agent(ask("payer"), say("All done."), tools=[inner], channels=[person])
    events = [event async for event in outer.stream("go", thread="t")]
    (requested,) = [event for event in events if isinstance(event, Requested)]
    assert requested.request.tool == "pay"
    assert [request.tool for request in person.seen] == ["pay"]


async def test_tool_asks_inside_an_inner_agent(world: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        return str(await ctx.ask("Which size?"))

    inner = Agent("cook", model=ScriptedModel([call("order"), say("Cooked.")]), tools=[order])
    outer = world.agent(ask("cook"), say("All done."), tools=[inner])
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    assert (request.kind, request.agent) == ("question", "cook")
    result = await outer.resume("t", decisions=[request.respond("large")])
    assert (result.status, tool_results(inner)) == ("done", ["large"])


async def test_nested_state_survives_its_text(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    world = World(store)
    outer, _ = pair(world, PAY, say("Paid."))
    result = await outer.run("go", thread="t")
    state = sayso.RunState.from_json(result.state.to_json())
    state.approve(state.interruptions[0], by="bea")
    result = await outer.resume(state)
    assert (result.status, world.effects("pay")) == ("done", [(3, "ana")])
    store.close()


def test_agent_name_becomes_a_tool_name(world: World) -> None:
    agent = world.agent(name="Deployment Assistant!")
    assert agent.as_tool().name == "Deployment_Assistant_"


async def test_run_on_inner_thread_is_not_inner(
    world: World,
) -> None:
    inner = world.agent(PAY, say("Paid."), name="payer")
    outer = world.agent(ask("payer"), say("All done."), tools=[inner])
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    await outer.resume("t", decisions=[request.approve()])
    (call_id,) = [c.id for c in world.store.calls_of(result.run) if c.tool == "payer"]
    stranger = world.agent(say("I am the payer."), name="stranger")
    await stranger.run("say it", thread=f"t/{call_id}")
    known = run_of_call(world.store, f"t/{call_id}", call_id)
    assert known is not None
    assert (known.agent, known.id) == ("payer", request.run)


async def test_foreign_run_on_inner_thread_is_untouched(world: World) -> None:
    inner = world.agent(say("Paid."), name="payer")
    outer = world.agent(ask("payer"), say("All done."), tools=[inner.as_tool(needs_approval=True)])
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    stranger = world.agent(PAY, name="stranger")
    waits = await stranger.run("pay", thread=f"t/{request.id}")
    done = await outer.resume("t", decisions=[request.approve()])
    assert done.output == "All done."
    assert f"in use by run {waits.run}" in error_in(tool_results(outer)[0])
    assert (await stranger.resume(waits.run)).status == "paused"
    await outer.cancel("t")
    assert (await stranger.resume(waits.run)).status == "paused"


# -- rejections


async def test_inner_rejection_counts_for_the_outer_run(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([PAY, say("No.")] * 4), tools=[world.pay])
    outer = world.agent(*([ask("payer")] * 3), say("All done."), tools=[inner])
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    result = await outer.resume("t", decisions=[request.reject("a fraudster")])
    assert (result.status, result.output) == ("done", "All done.")
    assert "a fraudster" in error_in(tool_results(inner)[0])
    world.script(outer, ask("payer"), say("All done."))
    again = await outer.run("please", thread="t")
    (shown,) = again.interruptions
    assert [refusal.request for refusal in shown.refusals] == [request.id]


async def test_nested_twice_rejection_counts_outside(world: World) -> None:
    inmost = Agent("payer", model=ScriptedModel([PAY, say("No.")] * 2), tools=[world.pay])
    steps = [ask("payer"), say("Not paid.")] * 2
    middle = Agent("clerk", model=ScriptedModel(steps), tools=[inmost])
    outer = world.agent(ask("clerk"), ask("clerk"), say("All done."), tools=[middle])
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    result = await outer.resume("t", decisions=[request.reject("no")])
    assert (result.output, world.ran) == ("All done.", [])


async def test_inner_rejection_stops_the_outer_run(world: World) -> None:
    outer, _ = pair(world, PAY, say("Not paid."))
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    await world.inbox.reject(request, "no", stop=True, by="ana")
    assert [run.status for run in _runs(world)] == ["cancelled", "cancelled"]
    ended = await outer.resume("t")
    assert (ended.status, "ana rejected" in ended.error) == ("cancelled", True)
    assert len(asked(outer)) == 1


async def test_rejection_stops_nested_runs(world: World) -> None:
    inner = Agent("payer", model=ScriptedModel([PAY]), tools=[world.pay])
    both = calls(ask("payer"), call("pay", {"amount": 4, "to": None}))
    outer = world.agent(both, tools=[inner, world.pay])
    result = await outer.run("go", thread="t")
    nested = next(one for one in result.interruptions if one.agent == "payer")
    own = next(one for one in result.interruptions if one.agent != "payer")
    await world.inbox.reject(own, "no", stop=True, by="ana")
    assert (await world.inbox.get(nested.id)).status == "cancelled"
    assert [run.status for run in _runs(world)] == ["cancelled", "cancelled"]


async def test_stop_reaches_siblings_of_the_inner_run(world: World) -> None:
    model = ScriptedModel([PAY, call("pay", {"amount": 5, "to": None})])
    inner = Agent("payer", model=model, tools=[world.pay])
    outer = world.agent(calls(ask("payer", "a"), ask("payer", "b")), tools=[inner])
    result = await outer.run("go", thread="t")
    first, second = result.interruptions
    await world.inbox.reject(first, "no", stop=True, by="ana")
    assert (await world.inbox.get(second.id)).status == "cancelled"
    assert {run.status for run in _runs(world)} == {"cancelled"}


async def test_stop_survives_death_after_the_decision(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, _ = pair(world, PAY, say("Not paid."))
    result = await outer.run("go", thread="t")
    (request,) = result.interruptions
    monkeypatch.setattr("sayso.stores.nested_runs.stop_around", lambda *given: None)
    await world.inbox.reject(request, "no", stop=True, by="ana")
    assert world.store.run(result.run).status == "paused"  # type: ignore[union-attr]
    ended = await outer.resume("t")
    assert (ended.status, "ana rejected" in ended.error) == ("cancelled", True)
    assert len(asked(outer)) == 1


async def test_stop_crosses_stores(world: World) -> None:
    own = World(MemoryStore())
    inner = own.agent(PAY, say("Paid."), name="payer")
    outer = world.agent(ask("payer"), say("All done."), tools=[inner])
    result = await outer.run("go", thread="t")
    await own.inbox.reject(result.interruptions[0], "no", stop=True, by="ana")
    assert (await outer.resume("t")).status == "cancelled"
