"""Run and resume a pydantic-ai agent by its thread."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, TextOutput, ToolOutput
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolReturn
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_core import PydanticSerializationError

from sayso.adapters.agents import Stream, StreamingAgent, listener
from sayso.adapters.conversation import OutputTypes
from sayso.adapters.pydantic_ai.coverage import list_agent
from sayso.adapters.pydantic_ai.messages import MessageLog, cancel_answered
from sayso.adapters.pydantic_ai.tools import (
    CatchStopSignal,
    SubAgentGated,
    ThreadGated,
    dump_result,
    install,
    known_tools,
)
from sayso.errors import InvalidDecision, Paused
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import CallPlace, FrameworkTool, check_gate, place_in_call
from sayso.gate.options import check_taken
from sayso.gate.run_result import decision_from
from sayso.policy import Policy
from sayso.rows import CallStatus, Run
from sayso.stores.row_checks import request_in
from sayso.sync import to_thread
from sayso.types import Decision, Request

#: Options of ``Agent.run`` that the thread decides.
_OURS = ("conversation", "message_history", "deferred_tool_results", "conversation_id")


def guard(
    agent: Agent[Any, Any],
    gate: Gate,
    policy: Policy | None = None,
    *,
    ungated: Iterable[str] = (),
    **options: Any,
) -> Guarded:
    """Make an agent, and the agents that its tools run, ask through the gate.

    Pass ``options`` for ``Agent.run`` (``deps``, ``usage_limits``, ``toolsets``, …) here: every run
    and resume gets them. ``agent`` itself is not changed. Raises ``TypeError`` for anything that is
    not an agent of pydantic-ai, and ``InvalidCall`` with a list of what the gate cannot reach, such
    as native tools, unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"guard(...) takes an Agent of pydantic-ai, not {type(agent).__name__}")
    check_taken(options, agent.run, *_OURS)
    return Guarded(agent, gate, policy, ungated=ungated, **options)


class Guarded(StreamingAgent[MessageLog, Stream]):
    """An agent that servers and workers can run and resume; ``guard`` returns one."""

    channel = "pydantic-ai"
    log_type = MessageLog

    def __init__(
        self,
        agent: Agent[Any, Any],
        gate: Gate,
        policy: Policy | None = None,
        *,
        ungated: Iterable[str] = (),
        **options: Any,
    ) -> None:
        install()
        coverage = Coverage(ungated)
        super().__init__(gate, policy, coverage)
        self._agent = agent
        self.options = options
        list_agent(coverage, agent, agent.name or gate.agent, options)
        coverage.check()

    async def read_decisions(self, run: Run, decisions: Any) -> Any:
        """Convert ``DeferredToolResults`` for all or some of the calls to decisions.

        Anything else is returned unchanged.
        """
        if not isinstance(decisions, DeferredToolResults):
            return decisions
        log = await self.open_log(run.thread)
        return await to_thread(_decisions, decisions, log)

    async def begin(self, input: Any, thread: str) -> Any:
        log = await self.open_log(thread)
        history = await log.closed_messages()
        await log.say_prompt(input)
        return await self._run(log, input, history)

    async def continue_turn(self, log: MessageLog) -> Any:
        # The framework makes unanswered calls again, and each finds its row.
        history = await log.closed_messages() if log.prompt is not None else log.messages
        return await self._run(log, log.prompt, history)

    def place(self) -> CallPlace | None:
        return place_in_call(self.gate)

    async def part(self, input: Any, place: CallPlace) -> Any:
        gated: SubAgentGated[Any] = SubAgentGated(
            self.gate, self.policy, place, coverage=self.coverage(), stop_signals=True
        )
        capabilities = [*(self.options.get("capabilities") or ()), CatchStopSignal(), gated]
        result = await self._agent.run(input, **{**self.options, "capabilities": capabilities})
        return result.output

    def known_tools(self) -> Iterable[FrameworkTool]:
        return known_tools([*self._agent.toolsets, *(self.options.get("toolsets") or ())])

    async def call_order(self, thread: str) -> list[str]:
        return (await self.open_log(thread)).open_keys

    async def _run(self, log: MessageLog, prompt: Any, history: Any) -> Any:
        result: AgentRunResult[Any] = await self._agent.run(
            prompt,
            message_history=history or None,
            conversation_id=log.thread,
            **{
                **self.options,
                "output_type": self._output_type(),
                "capabilities": [
                    *(self.options.get("capabilities") or ()),
                    _LogReplies(log),
                    ThreadGated(self.gate, self.policy, log=log, coverage=self.coverage()),
                ],
                "event_stream_handler": self._handler(),
            },
        )
        self.keep_raw(log.calls.run, result)
        if isinstance(result.output, DeferredToolRequests):
            raise Paused(log.calls.run)
        output = result.output
        await cancel_answered(log.calls, result.all_messages(), log.key)
        type_name = self.output_types.name_of(output)
        await log.end_with(result.all_messages(), self.dump_output(output), type_name)
        return output

    def _handler(self) -> Any:
        """Return the handler of the framework's events: for the stream, and the user's own."""
        emit = listener()
        own = self.options.get("event_stream_handler")
        if emit is None:
            return own

        async def handler(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
            async def emitted() -> AsyncIterator[Any]:
                async for event in events:
                    emit(event)
                    yield event

            given = own or self._agent.event_stream_handler
            if given is not None:
                await given(ctx, emitted())
            else:
                async for _ in emitted():
                    pass

        return handler

    def _output_type(self) -> list[Any]:
        wanted = self.options.get("output_type", self._agent.output_type)
        return [*(wanted if isinstance(wanted, list | tuple) else [wanted]), DeferredToolRequests]

    @cached_property
    def output_types(self) -> OutputTypes:
        return OutputTypes(_leaves(self._output_type()))


def _leaves(wanted: Any) -> Iterator[Any]:
    """Yield the types that an ``output_type`` allows, from inside lists, unions and markers."""
    if isinstance(wanted, list | tuple):
        parts: Iterable[Any] = wanted
    elif get_origin(wanted) in (Union, UnionType):
        parts = get_args(wanted)
    elif isinstance(wanted, ToolOutput):
        parts = [wanted.output]
    elif isinstance(wanted, NativeOutput | PromptedOutput):
        parts = [wanted.outputs]
    elif isinstance(wanted, TextOutput):
        parts = [wanted.output_function]
    elif inspect.isroutine(wanted):
        parts = [get_type_hints(wanted).get("return")]
    else:
        if wanted is not DeferredToolRequests:
            yield wanted
        return
    for part in parts:
        yield from _leaves(part)


@dataclass
class _LogReplies(CatchStopSignal[Any]):
    """Store each reply that makes calls, before the calls are made."""

    log: MessageLog

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        await cancel_answered(self.log.calls, ctx.messages, self.log.key)
        response: ModelResponse = await handler(request_context)
        if response.tool_calls:
            await self.log.reply(ctx.messages, response)
        return response


# -- DeferredToolResults as decisions


_DEFAULT_DENIAL = ToolDenied().message


def _decisions(given: DeferredToolResults, log: MessageLog) -> list[Decision]:
    """Return the decisions that ``DeferredToolResults`` holds.

    Raises ``InvalidDecision`` if one of them does not fit its request; then none of them counts.
    """
    approvals = [_approval(_request(log, id), yes, id) for id, yes in given.approvals.items()]
    return approvals + [_result(_request(log, id), value, id) for id, value in given.calls.items()]


def _request(log: MessageLog, id: str) -> Request:
    row = log.calls.row(log.key(id))
    if row is None or row.status is CallStatus.READY:
        raise InvalidDecision(f"no call {id!r:.60} is waiting in this conversation", "approvals")
    return request_in(log.store, row)


def _approval(request: Request, answer: Any, id: str) -> Decision:
    at = f"approvals[{id}]"
    if answer is True or (isinstance(answer, ToolApproved) and answer.override_args is None):
        return decision_from({"type": "approve"}, request, at)
    if isinstance(answer, ToolApproved):
        action = {"args": answer.override_args or {}}
        return decision_from({"type": "edit", "edited_action": action}, request, at)
    if answer is False or isinstance(answer, ToolDenied):
        message = answer.message if isinstance(answer, ToolDenied) else _DEFAULT_DENIAL
        return _rejection(request, "" if message == _DEFAULT_DENIAL else message, at)
    raise InvalidDecision(f"{at}: pass True, False, ToolApproved or ToolDenied", at)


def _result(request: Request, value: Any, id: str) -> Decision:
    at = f"calls[{id}]"
    if isinstance(value, ToolFailed | ModelRetry):
        return _rejection(request, value.message, at)
    given = value.return_value if isinstance(value, ToolReturn) else value
    try:
        stored = dump_result(given)
    except PydanticSerializationError as error:
        raise InvalidDecision(f"{at}: {error}", at) from None
    return decision_from({"type": "respond", "value": stored}, request, at)


def _rejection(request: Request, message: str, at: str) -> Decision:
    return decision_from({"type": "reject", "message": message}, request, at)
