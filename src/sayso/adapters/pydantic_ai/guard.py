"""Run and resume a pydantic-ai agent by its thread.

The conversation is stored as the framework's own messages. A stored reply holds all messages since
the one before it. It is stored before any of its calls is made, so that a process that resumes the
thread finds the calls, and their rows.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import UnionType
from typing import Any, Generic, Union, get_args, get_origin, get_type_hints

from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, TextOutput, ToolOutput
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import PydanticSerializationError

from sayso.adapters.agents import Stream, StreamingAgent, listener
from sayso.adapters.conversation import Body, ConversationLog, OutputTypes, shown
from sayso.adapters.pydantic_ai.choke_points import native_tools, settings_of, unlisted_settings
from sayso.adapters.pydantic_ai.tools import (
    CatchStopSignal,
    D,
    Gated,
    GatedToolset,
    SubAgentGated,
    cancel_answered,
    declared,
    dump_result,
    numbered,
)
from sayso.errors import InvalidDecision, Paused
from sayso.gate import Gate, outcomes
from sayso.gate.coverage import Coverage
from sayso.gate.framework import CallPlace, FrameworkTool, check_gate
from sayso.gate.options import check_taken
from sayso.gate.run_result import decision_from
from sayso.policy import Policy
from sayso.rows import CallStatus, Run
from sayso.stores.row_checks import request_in
from sayso.sync import to_thread
from sayso.types import Decision, Json, Request

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
    return Guarded(agent, gate, policy, Coverage(ungated), options)


class MessageLog(ConversationLog):
    """What was said in one thread, in pydantic-ai's messages."""

    format = "pydantic-ai"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        self.messages: list[ModelMessage] = []
        #: What the user said, while there is no reply to it.
        self.prompt: Any = None
        self._raw: list[Json] = []
        #: How many replies have a call with this id, including replies that were removed since.
        self._replies_with: Counter[str] = Counter()

    def _load(self) -> None:
        super()._load()
        self.messages = ModelMessagesTypeAdapter.validate_python(self._raw)
        if self.prompt is not None:
            (request,) = ModelMessagesTypeAdapter.validate_python(self.prompt)
            (part,) = request.parts
            assert isinstance(part, UserPromptPart)
            self.prompt = part.content

    def replay(self, body: Body) -> None:
        if "prompt" in body:
            self.prompt = body["prompt"]
        if "messages" in body:
            self._raw = [*(() if body.get("anew") else self._raw), *body["messages"]]
            self._replies_with.update({call["id"] for call in body.get("calls", ())})
            self.prompt = None

    async def say_prompt(self, prompt: Any) -> None:
        """Store what the user said: text, or a sequence of the framework's content parts."""
        request = ModelRequest(parts=[UserPromptPart(prompt)])
        texts = [prompt] if isinstance(prompt, str) else [p for p in prompt if isinstance(p, str)]
        await self.say("".join(texts), prompt=_dump([request]))

    async def reply(self, messages: Sequence[ModelMessage], response: ModelResponse) -> None:
        """Store a reply that makes calls, and everything that led to it."""
        conversation = [*messages, response]
        results, data = self._unsaved(conversation)
        await self.append(*results, {"role": "assistant", **_shown(response), **data})
        self.messages = conversation
        self._replies_with.update({call.tool_call_id for call in response.tool_calls})

    async def end_with(self, messages: Sequence[ModelMessage], output: Json, type: str) -> None:
        """Store the last reply, and the output that the framework made of it."""
        results, data = self._unsaved(messages)
        await self.end(output, *results, type=type, **{**_shown(messages[-1]), **data})
        self.messages = list(messages)

    def _unsaved(self, messages: Sequence[ModelMessage]) -> tuple[list[Body], Body]:
        """Return the tool results for people to read, and the messages that are not stored yet."""
        count = len(self.messages)
        grown = len(messages) > count and (not count or messages[count - 1] is self.messages[-1])
        # Another capability may have cut or rewritten the history: then store all of it again.
        new = list(messages[count:] if grown else messages)
        results = [
            {
                "role": "tool",
                "call_id": part.tool_call_id,
                "name": part.tool_name,
                "content": part.model_response_str(),
            }
            for message in new
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return results, {"messages": _dump(new), **({} if grown else {"anew": True})}

    def key(self, id: str) -> str:
        """Return the key of a call in the last reply."""
        return numbered(id, self._replies_with[id])

    @property
    def open_calls(self) -> list[ToolCallPart]:
        """The calls of the last reply, if nothing was said after it."""
        last = self.messages[-1] if self.messages else None
        return list(last.tool_calls) if isinstance(last, ModelResponse) else []

    @property
    def open_keys(self) -> list[str]:
        return [self.key(call.tool_call_id) for call in self.open_calls]

    async def closed_messages(self) -> list[ModelMessage]:
        """Return the messages with a result for every call, so that the user can speak next."""
        calls = self.open_calls
        if not calls:
            return list(self.messages)
        texts = await self.closing_texts()
        parts = [
            ToolReturnPart(
                tool_name=call.tool_name,
                content=text,
                tool_call_id=call.tool_call_id,
                outcome="success" if row is not None and outcomes.has_result(row) else "denied",
            )
            for call, (row, text) in zip(calls, texts, strict=True)
        ]
        return [*self.messages, ModelRequest(parts=parts)]


def _dump(messages: list[ModelMessage]) -> Json:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def _shown(message: ModelMessage) -> Body:
    if not isinstance(message, ModelResponse):
        return {"content": ""}
    calls = [(c.tool_call_id, c.tool_name, c.args_as_json_str()) for c in message.tool_calls]
    return shown(message.text or "", calls)


class Guarded(StreamingAgent[MessageLog, Stream]):
    """An agent that servers and workers can run and resume; ``guard`` returns one."""

    channel = "pydantic-ai"
    log_type = MessageLog

    def __init__(
        self,
        agent: Agent[Any, Any],
        gate: Gate,
        policy: Policy | None,
        coverage: Coverage,
        options: dict[str, Any],
    ) -> None:
        super().__init__(gate, policy, coverage)
        self._agent = agent
        self.options = options
        self._list(coverage, agent.name or gate.agent)
        coverage.check()

    def _list(self, coverage: Coverage, where: str) -> None:
        """Add what the agent declares to the table."""
        coverage.gated(where, "agent", where)
        for part in self._declared():
            if isinstance(part, FrameworkTool):
                coverage.gated(where, "tool", part.name)
            else:
                note = "its tools are gated whenever they are listed"
                coverage.gated(where, type(part).__name__, part.id or part.label, note)
        agent, options = self._agent, self.options
        for capability in (agent.root_capability, *(options.get("capabilities") or ())):
            # A function makes its capability in each run: requests are checked then.
            if isinstance(capability, AbstractCapability):
                for missed in native_tools(capability.get_native_tools()):
                    coverage.missed(where, *missed)
        models = (agent.model, options.get("model"))
        settings = [getattr(agent, "model_settings", None), options.get("model_settings")]
        for each in settings + [found for model in models for found in settings_of(model)]:
            for missed in unlisted_settings(each):
                coverage.missed(where, *missed)

    def _declared(self) -> Iterator[FrameworkTool | AbstractToolset[Any]]:
        for toolset in (*self._agent.toolsets, *(self.options.get("toolsets") or ())):
            yield from declared(toolset)

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

    async def part(self, input: Any, place: CallPlace) -> Any:
        gated: SubAgentGated[Any] = SubAgentGated(self.gate, self.policy, place, stop_signals=True)
        capabilities = [*(self.options.get("capabilities") or ()), CatchStopSignal(), gated]
        result = await self._agent.run(input, **{**self.options, "capabilities": capabilities})
        return result.output

    def known_tools(self) -> Iterable[FrameworkTool]:
        return [part for part in self._declared() if isinstance(part, FrameworkTool)]

    async def _run(self, log: MessageLog, prompt: Any, history: Any) -> Any:
        capabilities = [
            *(self.options.get("capabilities") or ()),
            _LogReplies(log),
            _ThreadGated(self.gate, self.policy, log=log),
        ]
        if (emit := listener()) is not None:

            async def stream(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
                async for event in events:
                    emit(event)

            capabilities.append(ProcessEventStream(stream))
        result: AgentRunResult[Any] = await self._agent.run(
            prompt,
            message_history=history or None,
            conversation_id=log.thread,
            **{
                **self.options,
                "output_type": self._output_type(),
                "capabilities": capabilities,
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

    def _output_type(self) -> list[Any]:
        output_type = self.options.get("output_type", self._agent.output_type)
        return [
            *(output_type if isinstance(output_type, list | tuple) else [output_type]),
            DeferredToolRequests,
        ]

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


@dataclass
class _ThreadGated(Gated[D], Generic[D]):
    """The gate of an agent that ``guard`` runs: the keys of calls come from the log."""

    log: MessageLog = field(kw_only=True)

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        return request_context  # _LogReplies cancels what was answered

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(
            toolset,
            self.gate,
            self.policy,
            lambda id: (self.log.thread, self.log.key(id)),
            stop_signals=True,
        )


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
    return request_in(log.store, row.as_asked)


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
    result = value.return_value if isinstance(value, ToolReturn) else value
    try:
        stored = dump_result(result)
    except PydanticSerializationError as error:
        raise InvalidDecision(f"{at}: {error}", at) from None
    return decision_from({"type": "respond", "value": stored}, request, at)


def _rejection(request: Request, message: str, at: str) -> Decision:
    return decision_from({"type": "reject", "message": message}, request, at)
