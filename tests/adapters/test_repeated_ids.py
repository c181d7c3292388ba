"""Providers that count the calls of each reply anew: an id alone does not say which call it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness_agent import AgentHarness
from harness_agent_framework import AgentFrameworkHarness
from harness_dspy import DspyHarness
from harness_langchain import LangChainHarness, SyncLangChainHarness
from harness_openai_agents import OpenAIAgentsHarness
from harness_pydantic_ai import PydanticAIHarness

import sayso
from sayso import Policy, Rule
from sayso.testing.adapter_harness import (
    HarnessContext,
    KillSwitch,
    ModelScript,
    ScriptedCall,
    lines,
    tools,
)

HARNESSES: Any = [
    AgentHarness,
    AgentFrameworkHarness,
    DspyHarness,
    LangChainHarness,
    SyncLangChainHarness,
    OpenAIAgentsHarness,
    PydanticAIHarness,
]


class Play:
    """One agent, built anew for each step."""

    def __init__(self, harness: Any, folder: Path, *turns: Any) -> None:
        self.harness, self.folder, self.turns = harness, folder, turns
        self.inbox = sayso.Inbox(f"sqlite:///{folder}/sayso.db")

    async def step(self, go: Any) -> Any:
        rules = Policy([Rule("look", verdict="allow"), Rule("pay")])
        gate = sayso.Gate(self.inbox.store, policy=rules, agent="teller", wait=0)
        context = HarnessContext(
            gate=gate,
            tools=tools("plain", self.harness.colour, gate, KillSwitch(self.folder)),
            script=ModelScript(self.turns, self.folder / "diary"),
            folder=self.folder,
        )
        harness = self.harness(context)
        await harness.open()
        try:
            return await go(harness.agent())
        finally:
            await harness.close()

    async def run(self, words: str = "go") -> Any:
        return await self.step(lambda agent: agent.run(words, thread="t"))

    async def decided(self, result: Any, how: Any) -> Any:
        (request,) = result.interruptions
        await self.inbox.decide(request.id, how(request), by="ana")
        return await self.step(lambda agent: agent.resume("t"))

    @property
    def ran(self) -> list[Any]:
        return lines(self.folder / "effects")


def pay(to: str = "ana") -> list[ScriptedCall]:
    return [ScriptedCall("call_0", "pay", {"to": to, "amount": 5})]


@pytest.fixture(params=HARNESSES, ids=lambda harness: harness.__name__)
def harness(request: Any) -> Any:
    return request.param


@pytest.mark.parametrize("other", ["ana", "bob"])
async def test_a_later_reply_is_asked_about_anew(harness: Any, tmp_path: Path, other: str) -> None:
    play = Play(harness, tmp_path, pay(), pay(other), "Done.")
    equal = other == "ana"  # an equal call is asked about again only if it was not rejected
    first = (lambda r: r.approve()) if equal else (lambda r: r.reject("not yet"))
    result = await play.decided(await play.run(), first)
    assert result.status == "paused"
    result = await play.decided(result, lambda r: r.approve())
    expected = ["ana", "ana"] if equal else [other]
    assert (result.status, [args["to"] for _, args in play.ran]) == ("done", expected)
    play.inbox.close()


async def test_calls_that_need_nobody_run_each_time(harness: Any, tmp_path: Path) -> None:
    look = [ScriptedCall("call_0", "look", {"what": "sky"})]
    play = Play(harness, tmp_path, look, look, "Done.")
    assert ((await play.run()).status, len(play.ran)) == ("done", 2)
    play.inbox.close()


#: A ReAct has no earlier turns.
remembers = pytest.mark.parametrize("harness", [s for s in HARNESSES if s is not DspyHarness])


@remembers
async def test_later_words_are_asked_about_anew(harness: Any, tmp_path: Path) -> None:
    play = Play(harness, tmp_path, pay(), "Done.", pay(), pay(), "Once more.")
    result = await play.decided(await play.run(), lambda r: r.approve())
    result = await play.run("again")
    for _ in range(2):
        assert result.status == "paused"
        result = await play.decided(result, lambda r: r.approve())
    assert (result.status, len(play.ran)) == ("done", 3)
    play.inbox.close()


@remembers
async def test_new_words_over_a_repeated_id_leave_no_call_unanswered(
    harness: Any, tmp_path: Path
) -> None:
    play = Play(harness, tmp_path, pay(), pay(), "Never mind.")
    await play.decided(await play.run(), lambda r: r.approve())
    assert (await play.run("stop")).output == "Never mind."
    heard = lines(tmp_path / "diary")[-1][1]
    assert len(heard) == 2
    assert len(play.ran) == 1
    play.inbox.close()
