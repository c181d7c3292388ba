"""Runs: starting, streaming, waiting for each other, cancelling, failing and answering."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_world import World, asked, error_in

import sayso
from sayso.agent import (
    Agent,
    Ended,
    Requested,
    Resumable,
    RunResult,
    Text,
    ToolCalled,
    ToolEnded,
    ToolStarted,
)
from sayso.agent.agent import lend_store
from sayso.agent.events import AgentEvent
from sayso.agent.models import ModelError
from sayso.rows import RunStatus
from sayso.stores.base import Store
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

PAY = call("pay", {"amount": 3, "to": None})
LOOK = call("look", {"what": "x"})


def conversation(store: Store, thread: str = "t") -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in store.messages(thread)]


# -- plain runs


async def test_run_ends_with_one_reply(world: World) -> None:
    agent = world.agent(say("Hello."), instructions="Be kind.")
    result = await agent.run("hi", thread="t")
    assert (result.status, result.output, result.error) == ("done", "Hello.", "")
    (request,) = asked(agent)
    assert (request.instructions, request.tool_choice) == ("Be kind.", "auto")
    assert [tool.name for tool in request.tools] == ["pay", "look"]
    assert [m["role"] for m in conversation(world.store)] == ["user", "assistant"]


async def test_thread_keeps_its_history(world: World) -> None:
    agent = world.agent(LOOK, say("One."), say("Two."))
    await agent.run("first", thread="t")
    await agent.run("second", thread="t")
    roles = [m["role"] for m in asked(agent)[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_runs_without_thread_get_new_threads(world: World) -> None:
    agent = world.agent(say("One."), say("Two."))
    first, second = await agent.run("a"), await agent.run("b")
    assert first.thread != second.thread
    assert (await agent.resume(first.thread)).output == "One."


def test_sync_methods_run_the_agent(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = agent.run_sync("pay ana", thread="t")
    result.state.approve(result.interruptions[0])
    assert agent.resume_sync(result.state).output == "Done."
    agent.cancel_sync("t")


def test_stream_sync_needs_no_loop(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    *_, asked, ended = agent.stream_sync("pay ana", thread="t")
    assert isinstance(asked, Requested)
    assert isinstance(ended, Ended)
    assert ended.result.status == "paused"
    again = agent.stream_resume_sync("t", decisions=[asked.request.approve()])
    *_, last = again
    assert isinstance(last, Ended)
    assert last.result.output == "Done."
    assert list(again) == []


def test_unread_stream_runs_to_its_end(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = agent.run_sync("pay ana", thread="t")
    result.state.approve(result.interruptions[0])
    events = agent.stream_resume_sync(result.state)
    assert not isinstance(next(events), Ended)
    events.close()
    assert agent.resume_sync("t").output == "Done."
    with pytest.raises(ValueError, match="the input is empty"):
        list(agent.stream_sync(""))


async def test_sync_method_on_loop_is_refused(world: World) -> None:
    agent = world.agent(say("Hello."))
    with pytest.raises(sayso.SaysoError, match="await the method without _sync"):
        agent.run_sync("hi")
    with pytest.raises(sayso.SaysoError, match="await the method without _sync"):
        agent.stream_sync("hi")


@pytest.mark.parametrize("text", ["", "  ", None, 7])
async def test_empty_input_is_refused(world: World, text: Any) -> None:
    with pytest.raises(ValueError, match="the input is empty"):
        await world.agent(say("Hello.")).run(text)


@pytest.mark.parametrize("thread", ["", " ", "@system", "x" * 201, 7, "\ud800"])
async def test_invalid_thread_name_is_refused(world: World, thread: Any) -> None:
    with pytest.raises(sayso.InvalidCall, match=r"thread|names"):
        await world.agent(say("Hello.")).run("hi", thread=thread)


@pytest.mark.parametrize("requester", ["x" * 201, "\ud800", 7])
async def test_invalid_requester_is_refused(world: World, requester: Any) -> None:
    with pytest.raises(sayso.InvalidCall, match="requester"):
        await world.agent(say("Hello.")).run("hi", requester=requester)


async def test_unknown_runs_are_not_found(world: World) -> None:
    with pytest.raises(sayso.NotFound, match="nobody"):
        await world.agent().resume("nobody")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"on_change": "panic"}, "on_change"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": True}, "max_turns"),
        ({"name": " "}, "name"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": None}, "tool_choice"),
        ({"tool_choice": ""}, "tool_choice"),
        ({"tool_choice": {}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": 5}}, "tool_choice"),
    ],
)
def test_invalid_option_is_named(world: World, options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        world.agent(**options)


@pytest.mark.parametrize("listeners", [5, ["log"], [asyncio.sleep]])
def test_listener_is_a_plain_function(world: World, listeners: Any) -> None:
    with pytest.raises(TypeError, match="listener"):
        Agent("a", model=ScriptedModel([]), listeners=listeners)


def test_agent_is_resumable(world: World) -> None:
    assert isinstance(world.agent(), Resumable)


async def test_surrogate_of_model_does_not_stop_run(world: World) -> None:
    agent = world.agent(say("\ud83d Hello"), say("Again."))
    result = await agent.run("hi", thread="t")
    assert result.status == "done"
    assert (await agent.run("hi", thread="t")).output == "Again."


# -- streams


async def drained(events: Any) -> list[AgentEvent]:
    return [event async for event in events]


async def test_stream_ends_with_the_result(world: World) -> None:
    agent = world.agent(calls(PAY, LOOK), say("All done."))
    events = await drained(agent.stream("go", thread="t"))
    names = [type(event).__name__ for event in events]
    assert names[:3] == ["Started", "ModelAsked", "ModelReplied"]
    assert [e.tool for e in events if isinstance(e, ToolCalled)] == ["pay", "look"]
    assert [e.tool for e in events if isinstance(e, ToolStarted)] == ["look"]
    assert [e.content for e in events if isinstance(e, ToolEnded)] == ['{"found":"x"}']
    (requested,) = [e for e in events if isinstance(e, Requested)]
    assert isinstance(events[-1], Ended)
    paused = events[-1].result
    assert (paused.status, paused.interruptions) == ("paused", (requested.request,))
    assert {e.run for e in events} == {paused.run}

    yes = requested.request.approve()
    events = await drained(agent.stream_resume("t", decisions=[yes]))
    assert "".join(e.text for e in events if isinstance(e, Text)) == "All done."
    assert len([e for e in events if isinstance(e, Text)]) > 1
    assert isinstance(events[-1], Ended)
    assert events[-1].result.output == "All done."


@pytest.mark.parametrize("first", ["whole", "streamed"])
@pytest.mark.parametrize("second", ["whole", "streamed"])
async def test_streamed_run_has_the_same_outcome(world: World, first: str, second: str) -> None:
    agent = world.agent(calls(PAY, LOOK), say("All done."))
    if first == "whole":
        paused = await agent.run("go", thread="t")
    else:
        paused = _result(await drained(agent.stream("go", thread="t")))
    yes = [paused.interruptions[0].approve()]
    if second == "whole":
        done = await agent.resume("t", decisions=yes)
    else:
        done = _result(await drained(agent.stream_resume("t", decisions=yes)))
    assert (done.status, done.output) == ("done", "All done.")
    assert sorted(world.ran) == [("look", "x"), ("pay", (3, "ana"))]
    roles = [m["role"] for m in conversation(world.store)]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


def _result(events: list[AgentEvent]) -> RunResult:
    last = events[-1]
    assert isinstance(last, Ended)
    return last.result


async def test_closed_stream_does_not_stop_run(world: World) -> None:
    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(call("slow"), say("Done."), tools=[slow])
    async for event in agent.stream("go", thread="t"):
        if isinstance(event, ToolStarted):
            break
    result = await agent.resume("t")
    assert (result.output, world.ran) == ("Done.", [("slow", None)])


async def test_stream_raises_what_the_run_raises(world: World) -> None:
    agent = world.agent(ModelError("no key"))
    with pytest.raises(ModelError, match="no key"):
        await drained(agent.stream("go", thread="t"))
    assert world.happened()[-1] == "Errored"


async def test_stream_without_a_reply_is_an_error(world: World) -> None:
    class Mute(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            return
            yield

    agent = world.agent(model=Mute([say("x")]))
    with pytest.raises(ModelError, match="without a reply"):
        await drained(agent.stream("go", thread="t"))


# -- one after the other


async def test_new_input_supersedes_paused_run(
    world: World,
) -> None:
    agent = world.agent(calls(PAY, LOOK), say("Cancelled it."))
    first = await agent.run("pay ana", thread="t")
    second = await agent.run("no, wait", thread="t", requester="cy")
    assert (second.status, world.effects("pay")) == ("done", [])
    roles = [m["role"] for m in asked(agent)[-1].messages]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    contents = [m["content"] for m in asked(agent)[-1].messages if m["role"] == "tool"]
    assert "wrote something new" in error_in(contents[0])
    assert contents[1] == '{"found":"x"}'
    stale = await world.inbox.get(first.interruptions[0].id)
    assert stale.status == "superseded"
    with pytest.raises(sayso.AlreadyDecided, match="superseded"):
        await agent.resume("t", decisions=[first.interruptions[0].approve()])
    # The old state neither runs anything nor speaks into the newer turn.
    old = await agent.resume(first.state)
    assert (old.status, world.effects("pay")) == ("cancelled", [])
    assert len(conversation(world.store)) == 6


async def test_new_input_is_delivered_once_after_failure(world: World) -> None:
    agent = world.agent(PAY, ModelError("gone"), say("Then not."))
    await agent.run("pay ana", thread="t")
    with pytest.raises(ModelError):
        await agent.run("no, wait", thread="t")
    assert (await agent.run("no, wait", thread="t")).output == "Then not."
    roles = [m["role"] for m in conversation(world.store)]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


async def test_new_input_waits_for_running_run(world: World) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        begun.set()
        await end.wait()
        return "slow"

    agent = world.agent(call("slow"), say("First."), say("Second."), tools=[slow])
    first = asyncio.create_task(agent.run("one", thread="t"))
    await begun.wait()
    second = asyncio.create_task(agent.run("two", thread="t"))
    await asyncio.sleep(0.05)
    assert len(asked(agent)) == 1
    end.set()
    assert ((await first).output, (await second).output) == ("First.", "Second.")
    said = [m["content"] for m in conversation(world.store) if m["role"] == "user"]
    assert said == ["one", "two"]


async def test_overtaken_input_is_asked_again(world: World) -> None:
    """Two runs start at once on one thread: the second model sees the first conversation."""
    asking, go = asyncio.Event(), asyncio.Event()

    async def second_model(messages: Any) -> str:
        asking.set()
        await go.wait()
        return "Second."

    slow = world.agent(model=ScriptedModel(second_model))
    fast = world.agent(say("First."))
    waiting = asyncio.create_task(slow.run("two", thread="t"))
    await asking.wait()
    await fast.run("one", thread="t")
    go.set()
    assert (await waiting).output == "Second."
    assert [len(request.messages) for request in asked(slow)] == [1, 3]
    roles = [m["role"] for m in conversation(world.store)]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_new_input_continues_after_model_failure(world: World) -> None:
    agent = world.agent(LOOK, ModelError("gone"), say("Hello again."))
    with pytest.raises(ModelError):
        await agent.run("one", thread="t")
    result = await agent.run("two", thread="t")
    assert result.output == "Hello again."
    roles = [m["role"] for m in asked(agent)[-1].messages]
    assert roles == ["user", "assistant", "tool", "user"]
    assert world.effects("look") == ["x"]


async def test_failed_first_model_call_stores_nothing(world: World) -> None:
    agent = world.agent(ModelError("gone"), say("Hello."))
    with pytest.raises(ModelError):
        await agent.run("hi", thread="t")
    assert conversation(world.store) == []
    assert (await agent.run("hi", thread="t")).output == "Hello."


# -- calling off


async def test_paused_run_is_cancelled(world: World) -> None:
    agent = world.agent(PAY, say("Never."))
    result = await agent.run("pay ana", thread="t")
    await agent.cancel(result.state, by="ana", reason="changed my mind")
    again = await agent.resume("t")
    assert (again.status, again.error) == ("cancelled", "cancelled: changed my mind")
    with pytest.raises(sayso.AlreadyDecided):
        await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (world.ran, len(asked(agent))) == ([], 1)


async def test_running_call_finishes_when_its_run_is_cancelled(world: World) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @sayso.tool
    async def slow() -> str:
        """Take a while."""
        begun.set()
        await end.wait()
        world.ran.append(("slow", None))
        return "slow"

    agent = world.agent(call("slow"), say("Never."), tools=[slow])
    running = asyncio.create_task(agent.run("go", thread="t"))
    await begun.wait()
    await agent.cancel("t")
    end.set()
    result = await running
    assert (result.status, world.ran, len(asked(agent))) == ("cancelled", [("slow", None)], 1)
    run = world.store.run(result.run)
    assert run is not None
    assert run.status is RunStatus.CANCELLED
    (done,) = world.store.calls_of(result.run)
    assert str(done.status) == "done"


async def test_run_is_cancelled_while_its_model_thinks(world: World) -> None:
    asking = asyncio.Event()
    end = asyncio.Event()

    async def second(messages: Any) -> str:
        asking.set()
        await end.wait()
        return "Never."

    agent = world.agent(LOOK, second)
    running = asyncio.create_task(agent.run("go", thread="t"))
    await asking.wait()
    await agent.cancel("t", reason="enough")
    end.set()
    result = await running
    assert (result.status, result.error) == ("cancelled", "cancelled: enough")
    assert conversation(world.store)[-1]["role"] == "assistant"
    world.script(agent, say("Hello."))
    assert (await agent.run("hi", thread="t")).output == "Hello."
    assert [m["role"] for m in asked(agent)[-1].messages] == ["user", "assistant", "tool", "user"]


async def test_agent_without_store_borrows_one(store: Store) -> None:
    agent = Agent("a", model=ScriptedModel([say("Hello.")]))
    lend_store(agent, store)
    assert agent.store is store
    lend_store(agent, "memory://")
    assert agent.store is store
