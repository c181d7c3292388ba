"""Runs that end early: turn limits, cut answers, forced choices, lost leases, restored stores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_world import World, asked

import sayso
from sayso.agent.models import ModelReply
from sayso.stores.base import Store
from sayso.testing.scripted_model import ScriptedModel, call, refuse, say

PAY = call("pay", {"amount": 3, "to": None})
LOOK = call("look", {"what": "x"})


def conversation(store: Store, thread: str = "t") -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in store.messages(thread)]


async def test_max_turns_fails_the_run(world: World) -> None:
    agent = world.agent(LOOK, LOOK, LOOK, max_turns=2)
    result = await agent.run("go", thread="t")
    assert (result.status, result.output) == ("failed", None)
    assert result.error == "no answer after 2 turns: raise max_turns, or ask for less at a time"
    assert (len(asked(agent)), world.effects("look")) == (2, ["x", "x"])
    # The conversation is whole, so that it can go on.
    world.script(agent, say("Sorry."))
    assert (await agent.run("and?", thread="t")).output == "Sorry."


async def test_turns_are_counted_across_resumes(world: World) -> None:
    agent = world.agent(PAY, PAY, PAY, max_turns=2)
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert result.status == "paused"
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, len(asked(agent))) == ("failed", 2)
    assert "2 turns" in result.error


async def test_limit_of_run_survives_pauses(world: World) -> None:
    agent = world.agent(PAY, PAY, PAY)
    result = await agent.run("go", thread="t", max_turns=1)
    other = world.agent(say("Never."))
    result = await other.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.status, result.error.split(":")[0]) == ("failed", "no answer after 1 turn")
    assert asked(other) == []


class Foreign:
    """A third-party model that returns whatever the test passes in."""

    name = "foreign"

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    async def reply(self, request: Any) -> Any:
        return self.gives

    async def stream(self, request: Any) -> Any:
        yield self.gives


@pytest.mark.parametrize("gives", ["Hello.", 5, {"role": "assistant", "content": "Hello."}])
async def test_model_that_returns_no_reply_is_an_error(world: World, gives: Any) -> None:
    agent = world.agent(model=Foreign(gives))
    with pytest.raises(sayso.ModelError, match=r"foreign returned a .*: a model must return"):
        await agent.run("go", thread="t")
    with pytest.raises(sayso.ModelError, match=r"foreign returned a .*: a model must return"):
        [event async for event in agent.stream("go", thread="t")]


async def test_reply_text_may_be_none(world: World) -> None:
    silent: Any = None
    reply = ModelReply(silent, calls=PAY.calls, finish="calls")
    assert (await world.agent(model=Foreign(reply)).run("go", thread="t")).status == "paused"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (say("half an ans", finish="length"), "length limit"),
        (say("", finish="filter"), "content filter"),
        (refuse("I will not."), "the model refused: I will not."),
    ],
)
async def test_unusable_answer_fails_the_run(world: World, reply: ModelReply, error: str) -> None:
    agent = world.agent(reply, say("Better."))
    result = await agent.run("go", thread="t")
    assert (result.status, result.output) == ("failed", None)
    assert error in result.error
    assert result.refusal == reply.refusal
    assert (await agent.resume("t")).refusal == reply.refusal
    assert (await agent.run("again", thread="t")).output == "Better."


async def test_truncated_call_is_not_asked(world: World) -> None:
    """Even if the model returns it."""

    class Careless(ScriptedModel):
        async def reply(self, request: Any) -> ModelReply:
            return ModelReply("Pay", calls=PAY.calls, finish="length")

    agent = world.agent(model=Careless([]))
    result = await agent.run("go", thread="t")
    assert (result.status, world.ran) == ("failed", [])
    assert (await world.inbox.pending()).items == ()
    assert conversation(world.store)[-1]["calls"] == []


async def test_forced_choice_holds_for_the_first_turn(world: World) -> None:
    for choice, later in (
        ("required", "auto"),
        ("look", "auto"),
        ({"type": "function", "function": {"name": "look"}}, "auto"),
        ("none", "none"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": ["look"]},
            {"type": "allowed_tools", "mode": "auto", "tools": ["look"]},
        ),
    ):
        agent = world.agent(LOOK, say("Done."), tool_choice=choice)
        await agent.run("go")
        assert [request.tool_choice for request in asked(agent)] == [choice, later]


async def test_usage_is_summed_over_run(world: World) -> None:
    def used(reply: ModelReply, count: int) -> ModelReply:
        from dataclasses import replace

        return replace(reply, usage={"total_tokens": count})

    agent = world.agent(used(PAY, 10), used(say("Done."), 5))
    result = await agent.run("go", thread="t")
    assert result.usage == {"total_tokens": 10}
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert result.usage == {"total_tokens": 15}


async def test_restored_store_runs_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(world.store), "restored", lambda self: True)
    with pytest.raises(sayso.StoreError, match="sayso recover"):
        await world.agent(LOOK).run("go", thread="t")


async def test_process_without_lease_returns_other_outcome(
    world: World,
) -> None:
    """One process stalls in its model call and another takes over: only one reply is written."""
    stalled, go = asyncio.Event(), asyncio.Event()

    async def late(messages: Any) -> str:
        stalled.set()
        await go.wait()
        return "I was too late."

    slow = world.agent(LOOK, late, lease=1.0)
    running = asyncio.create_task(slow.run("go", thread="t"))
    await stalled.wait()
    from sayso.gate import lease

    heart = lease.renewer_of(world.store)
    for held in list(heart._due):
        heart.drop(held)  # it has stopped
    other = world.agent(say("I took over."))
    result = await other.resume("t")
    assert result.output == "I took over."
    go.set()
    assert (await running).output == "I took over."
    assert [m["role"] for m in conversation(world.store)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert world.effects("look") == ["x"]
