"""The stored conversation of a pydantic-ai agent, and the part that the model sees."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.messages import BinaryContent, SystemPromptPart, UserPromptPart
from pydantic_ai.tools import Tool
from pydantic_ai_world import World, call
from store_world import pay_of

from sayso import Approve, Policy, Rule
from sayso.adapters.pydantic_ai import guard
from sayso.errors import Conflict

POLICY = Policy([Rule("pay")])


async def test_new_input_supersedes_pending_call(world: World) -> None:
    turns = [call("pay", to="ana"), call("look", "c2")], "Never mind.", "Still here."
    agent = world.agent(*turns, tools=[pay_of(world), looking], instructions="Be kind.")
    await guard(agent, world.gate).run("pay ana", thread="t")
    first = await world.waits()
    result = await guard(agent, world.gate).run("forget it", thread="t")
    assert (result.status, result.output) == ("done", "Never mind.")
    assert (await world.inbox.get(first.id)).status == "superseded"
    assert world.prompts == ["pay ana", "forget it"]
    assert "wrote something new" in world.returns["c1"].content
    assert world.returns["c2"].content == "seen"
    with pytest.raises(Conflict):
        await world.inbox.decide(first.id, Approve(seen_digest=first.digest), by="ana")
    result = await guard(agent, world.gate).run("and now?", thread="t")
    assert (result.output, world.ran) == ("Still here.", [])
    assert world.prompts == ["pay ana", "forget it", "and now?"]


def looking() -> str:
    """Look."""
    return "seen"


looking.__name__ = "look"


async def test_store_shows_the_conversation(world: World) -> None:
    calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
    guarded = guard(world.agent(calls, "Done.", tools=[pay_of(world)]), world.gate)
    result = await guarded.run("go", thread="t")
    for request in result.interruptions:
        await world.inbox.decide(request.id, request.approve(), by="ana")
    await guarded.resume("t")
    rows = [json.loads(body) for _, body in world.store.messages("t")]
    said = [(row["role"], row["content"]) for row in rows]
    results = [("tool", "paid 1 to ana"), ("tool", "paid 1 to bob")]
    assert said == [("user", "go"), ("assistant", ""), *results, ("assistant", "Done.")]
    assert [made["name"] for made in rows[1]["calls"]] == ["pay", "pay"]


async def test_next_run_shows_cancelled_call(world: World) -> None:
    turns = [call("pay", to="ana"), call("look", "c2")], "I see."
    agent = world.agent(*turns, tools=[pay_of(world), looking])
    await guard(agent, world.gate).run("pay ana", thread="t")
    await guard(agent, world.gate).cancel("t")
    assert (await guard(agent, world.gate).run("well?", thread="t")).output == "I see."
    assert "cancelled before it ran" in world.returns["c1"].content
    assert world.returns["c2"].content == "seen"


async def test_new_input_keeps_the_doubt_open(world: World) -> None:
    async def pay(to: str) -> str:
        world.ran.append(to)
        await asyncio.sleep(60)
        return "never"

    tools = [Tool(pay, timeout=0.01)]
    agent = world.agent([call("pay", to="ana")], "I see.", tools=tools)
    await guard(agent, world.gate).run("pay ana", thread="t")
    await world.decide(lambda request: request.approve())
    assert (await guard(agent, world.gate).resume("t")).status == "paused"
    result = await guard(agent, world.gate).run("what happened?", thread="t")
    assert (result.output, world.ran) == ("I see.", ["ana"])
    assert "it is unknown whether it took effect" in world.returns["c1"].content
    assert (await world.waits()).kind == "in_doubt"  # people are asked all the same


async def test_failed_model_gets_same_input_again(world: World) -> None:
    words = ["What is this?", BinaryContent(b"\x89PNG", media_type="image/png")]
    with pytest.raises(IndexError):
        await guard(world.agent(), world.gate).run(words, thread="t")
    agent = world.agent("A picture.", system_prompt="Be kind.")
    assert (await guard(agent, world.gate).resume("t")).output == "A picture."
    (shown,) = world.prompts
    assert (shown[0], shown[1].data) == (words[0], b"\x89PNG")
    first = world.shown[-1][0].parts[0]
    assert isinstance(first, SystemPromptPart)
    assert json.loads(world.store.messages("t")[0][1])["content"] == "What is this?"


@dataclass
class Forgets(AbstractCapability[Any]):
    """Cuts the history for good, as capabilities that compact it do."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        if len(ctx.messages) == 5:
            del ctx.messages[1:3]  # the first call and its result
        return request_context


async def test_trimmed_history_stays_trimmed(world: World) -> None:
    calls = [call("look", "c1")], [call("look", "c2")]
    agent = world.agent(*calls, "Done.", tools=[looking], capabilities=[Forgets()])
    assert (await guard(agent, world.gate).run("one", thread="t")).status == "done"
    again = guard(world.agent("", "", "Again."), world.gate)
    assert (await again.run("two", thread="t")).output == "Again."
    assert list(world.returns) == ["c2"]
    assert world.prompts == ["one", "two"]


async def test_repeated_id_after_trimmed_reply_asks(world: World) -> None:
    def last_words(messages: list[Any]) -> list[Any]:
        said = [n for n, m in enumerate(messages) if isinstance(m.parts[0], UserPromptPart)]
        return messages[said[-1] :]

    for said in range(3):
        agent = world.agent(
            [call("pay", "c0", to="ana")],
            "Done.",
            tools=[pay_of(world)],
            capabilities=[ProcessHistory(last_words)],
        )
        guarded = guard(agent, world.gate)
        assert (await guarded.run("pay", thread="t")).status == "paused"
        await world.decide(lambda request: request.approve())
        assert (await guarded.resume("t")).output == "Done."
        assert len(world.ran) == said + 1


async def test_conversation_grows_linearly(world: World) -> None:
    agent = world.agent(*["word " * 50] * 12)
    sizes = []
    for n in range(12):
        await guard(agent, world.gate).run(f"turn {n}", thread="t")
        sizes.append(sum(len(body) for _, body in world.store.messages("t")))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) < 1.1 * min(steps)
