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
from sayso.adapters.pydantic_ai.messages import MessageLog, cancel_answered
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
            log = MessageLog(self.gate, thread)
            await log.load()
            decisions = decisions_of(decisions, lambda id: self._request(log, id))
        return await super().resume(where, decisions=decisions, by=by, wait=wait)

    def _request(self, log: MessageLog, id: str) -> Request | None:
        row = log.calls.row(log.key(id))
        if row is None or row.status is CallStatus.READY:
            return None
        return request_in(self.gate.store, row)

    async def begin(self, input: Any, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        history = await log.closed()
        await log.say_prompt(input)
        return await self._run(log, input, history)

    async def go_on(self, thread: str) -> Any:
        log = MessageLog(self.gate, thread)
        await log.load()
        if log.answer is not None:
            return log.answer["output"]
        # Unanswered calls are made again by the framework, and every one of them has its row.
        history = await log.closed() if log.prompt is not None else log.messages
        return await self._run(log, log.prompt, history)

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
        log = MessageLog(self.gate, thread)
        await log.load()
        return [log.key(call.tool_call_id) for call in log.open_calls]

    async def _run(self, log: MessageLog, words: Any, history: Any) -> Any:
        result: AgentRunResult[Any] = await self.agent.run(
            words,
            message_history=history or None,
            conversation_id=log.thread,
            **{**self.kept, "output_type": self._output_type(), "capabilities": self._around(log)},
        )
        if isinstance(result.output, DeferredToolRequests):
            raise Paused(log.calls.run, ())
        output = to_jsonable_python(result.output, by_alias=True, fallback=str)
        await cancel_answered(log.calls, result.all_messages(), log.key)
        await log.end_with(result.all_messages(), output)
        return output

    def _output_type(self) -> list[Any]:
        wanted = self.kept.get("output_type", self.agent.output_type)
        return [*(wanted if isinstance(wanted, list | tuple) else [wanted]), DeferredToolRequests]

    def _around(self, log: MessageLog) -> list[Any]:
        given = self.kept.get("capabilities") or ()
        return [*given, _Kept(log), Inside(self.gate, self.policy, log=log)]


@dataclass
class _Kept(Outside[Any]):
    """Stores each reply that makes calls, before they are made."""

    log: MessageLog

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        await cancel_answered(self.log.calls, ctx.messages, self.log.key)
        response: ModelResponse = await handler(request_context)
        if response.tool_calls:
            await self.log.reply(ctx.messages, response)
        return response
