"""An agent of pydantic-ai that waits for people: kept by its thread, resumed anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_core import to_jsonable_python

from sayso.adapters.pydantic_ai.answers import decisions_of
from sayso.adapters.pydantic_ai.gated import Inside, Outside, Part
from sayso.adapters.pydantic_ai.known import faces_of
from sayso.adapters.pydantic_ai.talk import Talk
from sayso.errors import Paused
from sayso.gate import Gate
from sayso.gate.driven import Driven, Stands, check_gate
from sayso.gate.foreign import ForeignTool
from sayso.gate.options import check_taken
from sayso.gate.within import Within, within
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.rows import CallStatus
from sayso.stores.row_checks import request_in
from sayso.twin import look
from sayso.types import Request, Reviewer

#: Where the framework goes on, which the thread says.
_OURS = ("conversation", "message_history", "deferred_tool_results", "conversation_id")


def guard(agent: Agent[Any, Any], gate: Gate, policy: Policy | None = None, **kept: Any) -> Guarded:
    """Make an agent ask through the gate. ``kept`` (``deps``, ``usage_limits``, ``toolsets``, …) is
    given to the framework on every run and resume."""
    check_gate(gate, policy)
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"guard an Agent of pydantic-ai, and not {type(agent).__name__}")
    check_taken(kept, agent.run, *_OURS)
    return Guarded(agent, gate, policy, **kept)


async def resume(
    guarded: Guarded, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> Stands:
    """Go on with a thread, after these decisions; calls that they leave out keep waiting."""
    return await guarded.resume(where, decisions=decisions, by=by)


class Guarded(Driven):
    """What ``guard`` gives: an agent that servers and workers can run and resume."""

    channel = "pydantic-ai"

    def __init__(
        self, agent: Agent[Any, Any], gate: Gate, policy: Policy | None = None, **kept: Any
    ) -> None:
        super().__init__(gate, Inbox(gate.store))
        self.agent = agent
        self.policy = policy
        self.kept = kept

    async def resume(
        self,
        where: str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        wait: float | None = None,
    ) -> Stands:
        """Resume a run, by its id or its thread. ``decisions`` are made first: the framework's
        ``DeferredToolResults``, whole or in part, or what every other agent takes."""
        if isinstance(decisions, DeferredToolResults):
            thread = (await look(self.gate.store, self.find, where)).thread
            talk = Talk(self.gate, thread)
            await talk.load()
            decisions = decisions_of(decisions, lambda id: self._request(talk, id))
        return await super().resume(where, decisions=decisions, by=by, wait=wait)

    def _request(self, talk: Talk, id: str) -> Request | None:
        row = talk.calls.row(talk.key(id))
        if row is None or row.status is CallStatus.READY:
            return None
        return request_in(self.gate.store, row)

    async def begin(self, input: Any, thread: str) -> Any:
        talk = Talk(self.gate, thread)
        await talk.load()
        history = await talk.closed()
        await talk.say(input)
        return await self._run(talk, input, history)

    async def go_on(self, thread: str) -> Any:
        talk = Talk(self.gate, thread)
        await talk.load()
        if talk.answer is not None:
            return talk.answer["output"]
        # Unanswered calls are made again by the framework, and every one of them has its row.
        history = await talk.closed() if talk.words is not None else talk.messages
        return await self._run(talk, talk.words, history)

    def place(self) -> Within | None:
        return within(self.gate)

    async def part(self, input: Any, place: Within) -> Any:
        part: Part[Any] = Part(self.gate, self.policy, place, past_others=True)
        around = [*(self.kept.get("capabilities") or ()), Outside(), part]
        result = await self.agent.run(input, **{**self.kept, "capabilities": around})
        return to_jsonable_python(result.output, by_alias=True, fallback=str)

    def known_tools(self) -> Iterable[ForeignTool]:
        return faces_of([*self.agent.toolsets, *(self.kept.get("toolsets") or ())])

    async def order(self, thread: str) -> list[str]:
        talk = Talk(self.gate, thread)
        await talk.load()
        return [talk.key(call.tool_call_id) for call in talk.open_calls]

    async def _run(self, talk: Talk, words: Any, history: Any) -> Any:
        result: AgentRunResult[Any] = await self.agent.run(
            words,
            message_history=history or None,
            conversation_id=talk.thread,
            **{**self.kept, "output_type": self._output_type(), "capabilities": self._around(talk)},
        )
        if isinstance(result.output, DeferredToolRequests):
            raise Paused(talk.calls.run, ())
        output = to_jsonable_python(result.output, by_alias=True, fallback=str)
        await talk.tidy(result.all_messages())
        await talk.end(result.all_messages(), output)
        return output

    def _output_type(self) -> list[Any]:
        wanted = self.kept.get("output_type", self.agent.output_type)
        return [*(wanted if isinstance(wanted, list | tuple) else [wanted]), DeferredToolRequests]

    def _around(self, talk: Talk) -> list[Any]:
        given = self.kept.get("capabilities") or ()
        return [*given, _Kept(talk), Inside(self.gate, self.policy, talk=talk)]


@dataclass
class _Kept(Outside[Any]):
    """Stores each reply that makes calls, before they are made."""

    talk: Talk

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        await self.talk.tidy(ctx.messages)
        response: ModelResponse = await handler(request_context)
        if response.tool_calls:
            await self.talk.reply(ctx.messages, response)
        return response
