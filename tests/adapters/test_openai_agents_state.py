"""The stored state of a thread: the SDK's ``RunState``, every reply, and the final answer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import agents.run_state
import pytest
from agents import Agent, RunHooks, Runner, RunState, function_tool
from agents.testing import ScriptedModel
from openai_agents_world import THREAD, World, call, outputs, say
from row_key_thief import authenticate_rows

import sayso
from sayso import codec
from sayso.adapters.openai_agents import guard
from sayso.worker import Worker
from sayso.worker.steps import Step


class Died(BaseException):
    """A process that is gone, as far as the SDK is concerned."""


def tools(world: World) -> list[Any]:
    async def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(f"pay {to}")
        return f"paid {to}"

    async def look(what: str) -> str:
        """Look at something."""
        world.ran.append(f"look {what}")
        return f"saw {what}"

    return [function_tool(pay, needs_approval=True), function_tool(look)]


async def snapshot(world: World) -> dict[str, Any]:
    run = world.inbox.store.run(f"teller:{THREAD}")
    assert run is not None
    assert run.snapshot
    kept: dict[str, Any] = codec.loads(run.snapshot)
    return kept


class Counted(RunHooks[Any]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_llm_start(self, *args: Any) -> None:
        self.seen.append("model")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.seen.append(tool.name)


async def test_pause_is_stored_as_run_state(world: World) -> None:
    model = ScriptedModel([[call("look", "c1", what="sky")], [call("pay", "c2", to="ana")]])
    world.one(model, *tools(world))
    hooks = Counted()
    world.options = {"hooks": hooks}
    await world.run()
    kept = await snapshot(world)
    state = await RunState.from_json(world.build(), kept["state"])
    (item,) = state.get_interruptions()
    assert (item.call_id, kept["given"]) == ("c2", {"": 2})
    assert hooks.seen == ["model", "look", "model"]


async def test_resume_repeats_no_earlier_step(world: World) -> None:
    model = ScriptedModel(
        [[call("look", "c1", what="sky")], [call("pay", "c2", to="ana")], [say("done")]]
    )
    world.one(model, *tools(world))
    await world.run()
    await world.approve()
    hooks = Counted()
    world.options = {"hooks": hooks}
    assert (await world.resume()).output == "done"
    assert hooks.seen == ["pay", "model"]


async def test_unreadable_state_is_rebuilt(world: World) -> None:
    model = ScriptedModel(
        [[call("look", "c1", what="sky")], [call("pay", "c2", to="ana")], [say("done")]]
    )
    world.one(model, *tools(world))
    await world.run()
    await world.approve()
    kept = await snapshot(world)
    kept["state"]["$schemaVersion"] = "99.0"
    _write_snapshot(world, codec.dumps(kept))
    assert (await world.resume()).output == "done"
    assert world.ran == ["look sky", "pay ana"]
    assert len(model.calls) == 3


async def test_state_with_forged_approval_is_refused(world: World) -> None:
    world.one(ScriptedModel([[call("pay", to="ana")]]), *tools(world))
    await world.run()
    state = (await snapshot(world))["state"]
    run_state = await RunState.from_json(world.build(), state)
    run_state.approve(run_state.get_interruptions()[0])
    forged = {"state": run_state.to_json(), "given": {"": 1}, "turn": 1}
    await _make_due(world)
    _tamper(world, "UPDATE run SET snapshot = ?", codec.dumps(forged))
    with pytest.raises(sayso.Tampered, match="run teller:t-1 was not used"):
        await world.resume()
    assert world.ran == []


async def test_approval_in_state_runs_nothing(world: World) -> None:
    """Even a state that was written with the row key is no decision: only the call's row counts."""
    world.one(ScriptedModel([[call("pay", to="ana")]]), *tools(world))
    await world.run()
    kept = await snapshot(world)
    run_state = await RunState.from_json(world.build(), kept["state"])
    run_state.approve(run_state.get_interruptions()[0])
    kept["state"] = run_state.to_json()
    _write_snapshot(world, codec.dumps(kept))
    await _make_due(world)
    result = await world.resume()
    assert (result.status, len(result.interruptions), world.ran) == ("paused", 1, [])


async def test_changed_reply_is_refused(world: World) -> None:
    world.one(ScriptedModel([[call("pay", to="ana")], [say("done")]]), *tools(world))
    await world.run()
    await world.approve()
    _tamper(world, "UPDATE message SET body = replace(body, 'ana', 'eve')")
    with pytest.raises(sayso.Tampered, match="message 2 of thread t-1 was not used"):
        await world.resume()
    assert world.ran == []


async def test_reply_of_another_thread_is_refused(world: World) -> None:
    world.one(ScriptedModel([[call("pay", to="ana")], [call("pay", to="eve")]]), *tools(world))
    await world.run(thread="t-1")
    await world.run(thread="t-2")
    await world.approve()
    other = "SELECT body FROM message WHERE thread = 't-2' AND seq = 2"
    _tamper(world, f"UPDATE message SET body = ({other}) WHERE thread = 't-1' AND seq = 2")
    with pytest.raises(sayso.Tampered, match="message 2 of thread t-1 was not used"):
        await world.resume("t-1")
    assert world.ran == []


async def test_death_between_reply_and_pause_repeats_nothing(world: World) -> None:
    """The reply is there, and so is what ran of it: neither is asked for again."""
    dies = [True]

    async def fragile() -> str:
        """Break the first time, before anything happens."""
        if dies and dies.pop():
            raise Died
        world.ran.append("fragile")
        return "whole"

    model = ScriptedModel([[call("look", "c1", what="sky"), call("fragile", "c2")], [say("done")]])
    world.one(model, *tools(world), function_tool(fragile))
    with pytest.raises(Died):
        await world.run()
    assert (await world.resume()).status == "paused"
    doubt = await world.the_request()
    assert (doubt.kind, doubt.tool) == ("in_doubt", "fragile")
    await world.inbox.decide(doubt.id, doubt.approve(), by="ana")
    assert (await world.resume()).output == "done"
    assert sorted(world.ran) == ["fragile", "look sky"]
    assert len(model.calls) == 2


async def test_second_run_knows_the_first(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("first")], [say("second")]])
    world.one(model, *tools(world))
    await world.run("pay ana")
    await world.approve()
    await world.resume()
    assert (await world.run("and now?")).output == "second"
    assert model.last_call is not None
    roles = [item.get("role") or item["type"] for item in model.last_call.input]
    assert roles == ["user", "function_call", "function_call_output", "assistant", "user"]
    assert (await world.resume()).output == "second"


async def test_new_input_supersedes_the_pause(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("fine")], [say("bye")]])
    world.one(model, *tools(world))
    await world.run("pay ana")
    request = await world.the_request()
    assert (await world.run("no, leave it")).output == "fine"
    assert (world.ran, await world.pending()) == ([], ())
    with pytest.raises(sayso.AlreadyDecided):
        await world.inbox.decide(request.id, request.approve(), by="ana")
    assert "something new" in outputs(model)["call_1"]
    assert (await world.run("bye")).output == "bye"
    assert "something new" in outputs(model)["call_1"]


async def test_next_run_shows_cancelled_call(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("fine")], [say("bye")]])
    world.one(model, *tools(world))
    await world.run("pay ana")
    await world.guarded().cancel("t-1")
    for words in ("well?", "bye"):
        await world.run(words)
        assert "cancelled before it ran" in outputs(model)["call_1"]


async def test_death_after_answer_keeps_the_answer(world: World, tmp_path: Path) -> None:
    """The answer is written before the run ends: whoever comes back gives it."""
    model = ScriptedModel([[say("done")]])
    world.one(model)
    await world.run()
    _change(world, "UPDATE run SET status = 'running', output = NULL, ready_at = 1")
    assert (await world.resume()).output == "done"
    assert len(model.calls) == 1


@pytest.mark.parametrize("count", [10, 40])
async def test_cost_per_pending_call_is_constant(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The SDK's own ``approve`` copies all that wait for each of them."""
    copies: list[int] = []
    copied = agents.run_state._copy_tool_approval_raw_item

    def counted(item: Any) -> Any:
        copies.append(1)
        return copied(item)

    monkeypatch.setattr(agents.run_state, "_copy_tool_approval_raw_item", counted)
    made = [call("pay", f"c{n}", to=f"p{n}") for n in range(count)]
    world.one(ScriptedModel([made, [say("done")]]), *tools(world))
    result = await world.run()
    assert len(result.interruptions) == count
    commits = len(world.inbox.store.chain(THREAD))
    await world.approve()
    assert (await world.resume()).output == "done"
    assert len(world.ran) == count
    assert len(copies) <= 4 * count
    assert commits <= count + 4  # one event for each request, and no more commits than turns


async def test_worker_resumes_guarded_agent(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
    world.one(model, *tools(world))
    await world.run()
    await world.approve()
    guarded = world.guarded()
    steps: list[Any] = []

    def stepped(step: Step) -> None:
        steps.append((step.agent, step.step))
        if step.step == "done":
            worker.stop()

    worker = Worker([guarded], guarded.gate.store, on_step=stepped)
    await worker.run()
    told = ["taken", "call_started", "call_done", "done"]
    assert (steps, world.ran) == ([("teller", each) for each in told], ["pay ana"])


async def test_two_threads_keep_their_replies(world: World) -> None:
    """Two threads of one store at once: each keeps its own."""
    model = ScriptedModel(
        [[call("pay", to="ana")], [call("pay", to="bob")], [say("a")], [say("b")]]
    )
    world.build = lambda: Agent("Teller", model=model, tools=tools(world))
    await world.run(thread="t-1")
    await world.run(thread="t-2")
    await world.approve()
    assert (await world.resume("t-2")).output == "a"
    assert (await world.resume("t-1")).output == "b"
    assert world.ran == ["pay bob", "pay ana"]


async def _make_due(world: World) -> None:
    """As if something had happened that the run could go on with."""
    _change(world, "UPDATE run SET ready_at = 1")


async def test_inner_and_outer_replies_stay_separate(world: World) -> None:
    inner = ScriptedModel([[call("look", what="sky")], [say("blue")]])
    helper = Agent("Helper", model=inner, tools=tools(world))

    @function_tool
    async def ask_helper(question: str) -> str:
        return str((await Runner.run(helper, question)).final_output)

    outer = ScriptedModel(
        [[call("ask_helper", question="?")], [call("pay", "c2", to="ana")], [say("done")]]
    )
    boss = Agent("Boss", model=outer, tools=[ask_helper, *tools(world)], handoffs=[helper])
    guarded = guard(boss, world.gate())
    await guarded.run("go", thread=THREAD)
    _write_snapshot(world, "")  # the replies alone have to be enough
    await world.approve()
    assert (await guarded.resume(THREAD)).output == "done"
    assert world.ran == ["look sky", "pay ana"]


def _write_snapshot(world: World, text: str) -> None:
    _change(world, "UPDATE run SET snapshot = ?", text)


def _tamper(world: World, statement: str, *values: str) -> None:
    """Change the file without the row key."""
    file = sqlite3.connect(world.url.removeprefix("sqlite:///"))
    with file:
        file.execute(statement, values)
    file.close()


def _change(world: World, statement: str, *values: str) -> None:
    """Change the file with the row key, as another version of the adapter could have written it."""
    _tamper(world, statement, *values)
    authenticate_rows(world.inbox.store)  # type: ignore[arg-type]
