"""Shared by the tests of the OpenAI Agents SDK: a scripted model, and new agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import sayso
from sayso.adapters.openai_agents import Guarded, guard
from sayso.gate.run_result import RunResult
from sayso.types import Request

set_tracing_disabled(True)

say = assistant_message
THREAD = "t-1"


def call(name: str, id: str = "call_1", **args: Any) -> Any:
    """Return a tool call of the model."""
    return function_call(name, args, call_id=id)


class World:
    """A store, and agents that are built again for each resume.

    ``build`` gives the agent with all its tools; the scripts of its models go on where they were,
    because a reply is asked for once, whichever process asks.
    """

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/sayso.db"
        self.ran: list[Any] = []
        self.policy: sayso.Policy | None = None
        self.build: Callable[[], Agent[Any]] = lambda: Agent("Teller")
        self.options: dict[str, Any] = {}
        self._gates: list[sayso.Gate] = []
        self.inbox = sayso.Inbox(self.url)

    def gate(self) -> sayso.Gate:
        gate = sayso.Gate(self.url, agent="teller", wait=0)
        self._gates.append(gate)
        return gate

    def guarded(self) -> Guarded:
        """Return a newly built, guarded agent."""
        return guard(self.build(), self.gate(), self.policy, **self.options)

    async def run(self, input: Any = "go", thread: str = THREAD) -> RunResult:
        return await self.guarded().run(input, thread=thread)

    async def resume(self, thread: str = THREAD) -> RunResult:
        return await self.guarded().resume(thread)

    async def the_request(self) -> Request:
        (request,) = await self.pending()
        return request

    async def pending(self) -> tuple[Request, ...]:
        return (await self.inbox.pending(sort="oldest")).items

    async def approve(self) -> None:
        """Approve all pending requests."""
        for request in await self.pending():
            await self.inbox.decide(request.id, request.approve(), by="ana")

    def one(self, model: ScriptedModel, *tools: Any, **more: Any) -> None:
        """Return a world with an agent that has these tools."""
        self.build = lambda: Agent("Teller", model=model, tools=list(tools), **more)

    def close(self) -> None:
        self.inbox.close()
        for gate in self._gates:
            gate.close()


def outputs(model: ScriptedModel) -> dict[str, Any]:
    """Return the last result of each call that the model was shown."""
    last = model.last_call
    assert last is not None
    return {
        item["call_id"]: item["output"]
        for item in last.input
        if item.get("type") == "function_call_output"
    }


def pay_of(world: World, **options: Any) -> Any:
    """Return a tool that records who was paid."""

    async def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(to)
        return f"paid {to}"

    return function_tool(pay, **options)


def asking_pay_of(world: World) -> Any:
    """Return that tool with the SDK's ``needs_approval``."""
    return pay_of(world, needs_approval=True)
