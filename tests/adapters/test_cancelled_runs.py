"""A run that is cancelled while a framework works on it ends, and its thread stays usable."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness_agent import AgentHarness
from harness_agent_framework import AgentFrameworkHarness
from harness_dspy import DspyHarness
from harness_google_adk import GoogleADKHarness
from harness_langchain import LangChainHarness
from harness_openai_agents import OpenAIAgentsHarness
from harness_pydantic_ai import PydanticAIHarness

import sayso
from sayso import Policy, Rule
from sayso_testing.adapter_harness import HarnessContext, ModelScript, ScriptedCall

HARNESSES: Any = [
    AgentHarness,
    AgentFrameworkHarness,
    DspyHarness,
    GoogleADKHarness,
    LangChainHarness,
    OpenAIAgentsHarness,
    PydanticAIHarness,
]
STOP = ScriptedCall("c1", "stop", {"why": "enough"})
PAY = ScriptedCall("c2", "pay", {"to": "ana"})


class Spoken(ModelScript):
    """A model that somebody does not want to hear any more, while it thinks."""

    def __init__(self, play: Play) -> None:
        super().__init__(play.turns, play.folder / "diary")
        self.play = play

    def reply(self, replies: int, heard: Any) -> Any:
        if replies == self.play.stops_at:
            with ThreadPoolExecutor() as elsewhere:
                elsewhere.submit(self.play.call_off).result()
        return super().reply(replies, heard)


class Play:
    """One agent, built anew for each step, with a tool that calls off the run it is in."""

    def __init__(self, harness: Any, folder: Path, *turns: Any) -> None:
        self.harness, self.folder, self.turns = harness, folder, turns
        self.inbox = sayso.Inbox(f"sqlite:///{folder}/sayso.db")
        self.ran: list[str] = []
        self.stops_at: int | None = None

    def call_off(self) -> None:
        run = self.inbox.store.live_run("t")
        if run is not None:
            self.inbox.cancel_sync(run.id, by="ana", reason="enough")

    def tools(self) -> list[Any]:
        async def stop(why: str) -> str:
            """Stop."""
            run = self.inbox.store.live_run("t")
            assert run is not None
            await self.inbox.cancel(run.id, by="ana", reason=why)
            return "stopped"

        async def pay(to: str) -> str:
            """Pay."""
            self.ran.append(to)
            return "paid"

        async def look(what: str) -> str:
            """Look."""
            return "seen"

        return [stop, pay, look]

    async def step(self, go: Any) -> Any:
        rules = Policy([Rule("pay"), Rule("*", verdict="allow")])
        gate = sayso.Gate(self.inbox.store, policy=rules, agent="teller", wait=0)
        script = Spoken(self)
        harness = self.harness(
            HarnessContext(gate=gate, tools=self.tools(), script=script, folder=self.folder)
        )
        await harness.open()
        try:
            return await go(harness.agent())
        finally:
            await harness.close()


@pytest.mark.parametrize("harness", HARNESSES)
@pytest.mark.parametrize("calls", [[STOP], [STOP, PAY], [PAY, STOP]])
async def test_run_cancelled_by_tool_ends(harness: Any, calls: Any, tmp_path: Path) -> None:
    play = Play(harness, tmp_path, calls, "Done.", "Done.")
    result = await play.step(lambda agent: agent.run("go", thread="t"))
    assert result.status == "cancelled"
    assert (await play.step(lambda agent: agent.resume("t"))).status == "cancelled"
    # What the framework cut short while it ran is in doubt, and nothing else is asked.
    assert {request.kind for request in (await play.inbox.pending()).items} <= {"in_doubt"}
    assert play.ran == []
    play.turns = ("Hello.",) * 3
    result = await play.step(lambda agent: agent.run("hello", thread="t"))
    assert (result.status, result.output) == ("done", "Hello.")
    play.inbox.close()


@pytest.mark.parametrize("harness", HARNESSES[1:])
@pytest.mark.parametrize("at", [0, 1])
async def test_run_cancelled_during_model_call_ends(harness: Any, at: int, tmp_path: Path) -> None:
    look = ScriptedCall("c0", "look", {"what": "sky"})
    play = Play(harness, tmp_path, [look], [PAY], "Done.")
    play.stops_at = at
    result = await play.step(lambda agent: agent.run("go", thread="t"))
    assert (result.status, play.ran) == ("cancelled", [])
    play.turns, play.stops_at = ("Hello.",) * 4, None
    result = await play.step(lambda agent: agent.run("hello", thread="t"))
    assert (result.status, result.output) == ("done", "Hello.")
    play.inbox.close()
