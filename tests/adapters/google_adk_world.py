"""Agents of Google ADK with scripted models, and a gate, for the tests of the adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from harness_google_adk import FakeModel

import sayso
from sayso.testing import ScriptedCall
from sayso_testing.adapter_harness import Heard, Turn


class Turns:
    """The replies of a model, and what it has heard."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = turns
        self.heard: list[Heard] = []
        self.asked = 0

    def reply(self, replies: int, heard: Sequence[Heard]) -> Turn:
        self.asked += 1
        self.heard = list(heard)
        return self.turns[replies]


def call(name: str, id: str = "call_1", **args: Any) -> ScriptedCall:
    return ScriptedCall(id, name, args)


class World:
    def __init__(self, folder: Path, policy: sayso.Policy | None) -> None:
        self.gate = sayso.Gate(folder / "sayso.db", agent="boss", policy=policy, wait=0)
        #: Who was paid.
        self.ran: list[str] = []

    def pay(self, to: str) -> str:
        """Pay somebody."""
        self.ran.append(to)
        return f"paid {to}"

    def model(self, *turns: Turn) -> FakeModel:
        return FakeModel(script=Turns(turns))

    def agent(
        self, *turns: Turn, name: str = "boss", tools: Sequence[Any] = (), **options: Any
    ) -> LlmAgent:
        return LlmAgent(name=name, model=self.model(*turns), tools=list(tools), **options)

    def clerk(self, name: str = "clerk", to: str = "ana", **options: Any) -> LlmAgent:
        """Return an agent that pays, and that nobody guarded."""
        turns = [call("pay", to=to)], f"{to} has it"
        return self.agent(*turns, name=name, tools=[self.pay], **options)

    def boss(self, tool: Callable[..., Any], **options: Any) -> LlmAgent:
        """Return an agent that calls one tool."""
        turns = [call(tool.__name__, "o1", task="pay ana")], "Done."
        return self.agent(*turns, tools=[tool], **options)
