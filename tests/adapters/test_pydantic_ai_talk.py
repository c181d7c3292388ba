"""The conversation of a pydantic-ai agent in the store, and what the model is shown of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from bench import pay_of
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.messages import BinaryContent, SystemPromptPart, UserPromptPart
from pydantic_ai.tools import Tool
from pydantic_ai_bench import Bench, call

from sayso import Approve, Policy, Rule
from sayso.adapters.pydantic_ai import guard
from sayso.errors import Conflict

POLICY = Policy([Rule("pay")])


async def test_new_words_over_what_waits(bench: Bench) -> None:
    turns = [call("pay", to="ana"), call("look", "c2")], "Never mind.", "Still here."
    agent = bench.agent(*turns, tools=[pay_of(bench), looking], instructions="Be kind.")
    await guard(agent, bench.gate).run("pay ana", thread="t")
    first = await bench.waits()
    stands = await guard(agent, bench.gate).run("forget it", thread="t")
    assert (stands.status, stands.output) == ("done", "Never mind.")
    assert (await bench.inbox.get(first.id)).status == "superseded"
    assert bench.prompts == ["pay ana", "forget it"]
    assert "wrote something new" in bench.returns["c1"].content
    assert bench.returns["c2"].content == "seen"
    with pytest.raises(Conflict):
        await bench.inbox.decide(first.id, Approve(seen_digest=first.digest), by="ana")
    stands = await guard(agent, bench.gate).run("and now?", thread="t")
    assert (stands.output, bench.ran) == ("Still here.", [])
    assert bench.prompts == ["pay ana", "forget it", "and now?"]


def looking() -> str:
    """Look."""
    return "seen"


looking.__name__ = "look"


async def test_the_conversation_can_be_read_in_the_store(bench: Bench) -> None:
    calls = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")]
    guarded = guard(bench.agent(calls, "Done.", tools=[pay_of(bench)]), bench.gate)
    stands = await guarded.run("go", thread="t")
    for request in stands.interruptions:
        await bench.inbox.decide(request.id, request.approve(), by="ana")
    await guarded.resume("t")
    rows = [json.loads(body) for _, body in bench.store.messages("t")]
    said = [(row["role"], row["content"]) for row in rows]
    results = [("tool", "paid 1 to ana"), ("tool", "paid 1 to bob")]
    assert said == [("user", "go"), ("assistant", ""), *results, ("assistant", "Done.")]
    assert [made["name"] for made in rows[1]["calls"]] == ["pay", "pay"]


async def test_words_after_a_run_that_was_called_off_know_what_ran(bench: Bench) -> None:
    turns = [call("pay", to="ana"), call("look", "c2")], "I see."
    agent = bench.agent(*turns, tools=[pay_of(bench), looking])
    await guard(agent, bench.gate).run("pay ana", thread="t")
    await guard(agent, bench.gate).cancel("t")
    assert (await guard(agent, bench.gate).run("well?", thread="t")).output == "I see."
    assert "cancelled before it ran" in bench.returns["c1"].content
    assert bench.returns["c2"].content == "seen"


async def test_new_words_over_a_call_in_doubt(bench: Bench) -> None:
    async def pay(to: str) -> str:
        bench.ran.append(to)
        await asyncio.sleep(60)
        return "never"

    tools = [Tool(pay, timeout=0.01)]
    agent = bench.agent([call("pay", to="ana")], "I see.", tools=tools)
    await guard(agent, bench.gate).run("pay ana", thread="t")
    await bench.decide(lambda request: request.approve())
    assert (await guard(agent, bench.gate).resume("t")).status == "paused"
    stands = await guard(agent, bench.gate).run("what happened?", thread="t")
    assert (stands.output, bench.ran) == ("I see.", ["ana"])
    assert "it is unknown whether it took effect" in bench.returns["c1"].content
    assert (await bench.waits()).kind == "in_doubt"  # people are asked all the same


async def test_a_model_that_was_away_is_asked_with_the_same_words(bench: Bench) -> None:
    words = ["What is this?", BinaryContent(b"\x89PNG", media_type="image/png")]
    with pytest.raises(IndexError):
        await guard(bench.agent(), bench.gate).run(words, thread="t")
    agent = bench.agent("A picture.", system_prompt="Be kind.")
    assert (await guard(agent, bench.gate).resume("t")).output == "A picture."
    (shown,) = bench.prompts
    assert (shown[0], shown[1].data) == (words[0], b"\x89PNG")
    first = bench.shown[-1][0].parts[0]
    assert isinstance(first, SystemPromptPart)
    assert json.loads(bench.store.messages("t")[0][1])["content"] == "What is this?"


@dataclass
class Forgets(AbstractCapability[Any]):
    """Cuts the history for good, as capabilities that compact it do."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        if len(ctx.messages) == 5:
            del ctx.messages[1:3]  # the first call and its result
        return request_context


async def test_a_history_that_was_cut_stays_cut(bench: Bench) -> None:
    calls = [call("look", "c1")], [call("look", "c2")]
    agent = bench.agent(*calls, "Done.", tools=[looking], capabilities=[Forgets()])
    assert (await guard(agent, bench.gate).run("one", thread="t")).status == "done"
    again = guard(bench.agent("", "", "Again."), bench.gate)
    assert (await again.run("two", thread="t")).output == "Again."
    assert list(bench.returns) == ["c2"]
    assert bench.prompts == ["one", "two"]


async def test_a_call_id_is_known_also_where_its_reply_was_cut_off(bench: Bench) -> None:
    def last_words(messages: list[Any]) -> list[Any]:
        said = [n for n, m in enumerate(messages) if isinstance(m.parts[0], UserPromptPart)]
        return messages[said[-1] :]

    for said in range(3):
        agent = bench.agent(
            [call("pay", "c0", to="ana")],
            "Done.",
            tools=[pay_of(bench)],
            capabilities=[ProcessHistory(last_words)],
        )
        guarded = guard(agent, bench.gate)
        assert (await guarded.run("pay", thread="t")).status == "paused"
        await bench.decide(lambda request: request.approve())
        assert (await guarded.resume("t")).output == "Done."
        assert len(bench.ran) == said + 1


async def test_a_conversation_grows_by_what_was_said_and_nothing_else(bench: Bench) -> None:
    agent = bench.agent(*["word " * 50] * 12)
    sizes = []
    for n in range(12):
        await guard(agent, bench.gate).run(f"turn {n}", thread="t")
        sizes.append(sum(len(body) for _, body in bench.store.messages("t")))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) < 1.1 * min(steps)
