"""Providers that count the calls of each reply anew: an id alone does not say which call it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stage_agent import AgentStage
from stage_agent_framework import AgentFrameworkStage
from stage_dspy import DspyStage
from stage_langchain import LangChainStage, SyncLangChainStage
from stage_openai_agents import OpenAIAgentsStage
from stage_pydantic_ai import PydanticAIStage

import sayso
from sayso import Policy, Rule
from sayso.testing.story.props import Life, tools
from sayso.testing.story.stage import Called, Cast, Script, lines

STAGES: Any = [
    AgentStage,
    AgentFrameworkStage,
    DspyStage,
    LangChainStage,
    SyncLangChainStage,
    OpenAIAgentsStage,
    PydanticAIStage,
]


class Play:
    """One agent, built anew for each step."""

    def __init__(self, stage: Any, folder: Path, *turns: Any) -> None:
        self.stage, self.folder, self.turns = stage, folder, turns
        self.inbox = sayso.Inbox(f"sqlite:///{folder}/sayso.db")

    async def step(self, go: Any) -> Any:
        rules = Policy([Rule("look", verdict="allow"), Rule("pay")])
        gate = sayso.Gate(self.inbox.store, policy=rules, agent="teller", wait=0)
        cast = Cast(
            gate=gate,
            tools=tools("plain", self.stage.colour, gate, Life(self.folder)),
            script=Script(self.turns, self.folder / "diary"),
            folder=self.folder,
        )
        stage = self.stage(cast)
        await stage.open()
        try:
            return await go(stage.agent())
        finally:
            await stage.close()

    async def run(self, words: str = "go") -> Any:
        return await self.step(lambda agent: agent.run(words, thread="t"))

    async def decided(self, stands: Any, how: Any) -> Any:
        (request,) = stands.interruptions
        await self.inbox.decide(request.id, how(request), by="ana")
        return await self.step(lambda agent: agent.resume("t"))

    @property
    def ran(self) -> list[Any]:
        return lines(self.folder / "effects")


def pay(to: str = "ana") -> list[Called]:
    return [Called("call_0", "pay", {"to": to, "amount": 5})]


@pytest.fixture(params=STAGES, ids=lambda stage: stage.__name__)
def stage(request: Any) -> Any:
    return request.param


@pytest.mark.parametrize("other", ["ana", "bob"])
async def test_a_later_reply_is_asked_about_anew(stage: Any, tmp_path: Path, other: str) -> None:
    play = Play(stage, tmp_path, pay(), pay(other), "Done.")
    stands = await play.decided(await play.run(), lambda r: r.reject("not yet"))
    assert stands.status == "paused"
    stands = await play.decided(stands, lambda r: r.approve())
    assert (stands.status, [args["to"] for _, args in play.ran]) == ("done", [other])
    play.inbox.close()


async def test_calls_that_need_nobody_run_each_time(stage: Any, tmp_path: Path) -> None:
    look = [Called("call_0", "look", {"what": "sky"})]
    play = Play(stage, tmp_path, look, look, "Done.")
    assert ((await play.run()).status, len(play.ran)) == ("done", 2)
    play.inbox.close()


#: A ReAct has no earlier turns.
remembers = pytest.mark.parametrize("stage", [s for s in STAGES if s is not DspyStage])


@remembers
async def test_later_words_are_asked_about_anew(stage: Any, tmp_path: Path) -> None:
    play = Play(stage, tmp_path, pay(), "Done.", pay(), pay(), "Once more.")
    stands = await play.decided(await play.run(), lambda r: r.approve())
    stands = await play.run("again")
    for _ in range(2):
        assert stands.status == "paused"
        stands = await play.decided(stands, lambda r: r.approve())
    assert (stands.status, len(play.ran)) == ("done", 3)
    play.inbox.close()


@remembers
async def test_new_words_over_a_repeated_id_leave_no_call_unanswered(
    stage: Any, tmp_path: Path
) -> None:
    play = Play(stage, tmp_path, pay(), pay(), "Never mind.")
    await play.decided(await play.run(), lambda r: r.approve())
    assert (await play.run("stop")).output == "Never mind."
    heard = lines(tmp_path / "diary")[-1][1]
    assert len(heard) == 2
    assert len(play.ran) == 1
    play.inbox.close()
