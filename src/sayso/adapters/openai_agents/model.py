"""The model of an agent, with a log: each reply is stored before its calls are made."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

from agents import (
    Agent,
    Handoff,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Tool,
)
from agents.agent_output import AgentOutputSchemaBase
from agents.models.interface import ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent

from sayso.adapters.openai_agents.messages import ActiveRun, require_run
from sayso.adapters.openai_agents.tools import close_answered, guarded_tool_of, requested_call
from sayso.errors import InvalidCall, Paused
from sayso.gate.framework import FrameworkCall
from sayso.gate.options import MAX_WORDS
from sayso.sync import read


class LoggedModel(Model):
    """Wrap the model of one agent."""

    def __init__(
        self, agent: Agent[Any], model: str | Model | None, check: Callable[..., None]
    ) -> None:
        self.agent = agent
        self.wrapped = model
        #: Raises ``InvalidCall`` if a tool or a handoff would bypass the gate.
        self._check = check
        #: The real model, once it was needed: a run that only replays needs none.
        self._used: Model | None = None

    # -- called by the runner

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> ModelResponse:
        active = require_run(self.agent.name)
        reply = await self._before(active, input)
        if reply is None:
            reply = await self._real(active.run_config).get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                **more,
            )
            reply = await CallIds(active, input).of_all(reply)
            await self._keep(active, reply)
        await self._ask(active, reply.output, tools, handoffs)
        return reply

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> AsyncIterator[Any]:
        active = require_run(self.agent.name)
        reply = await self._before(active, input)
        if reply is not None:
            await self._ask(active, reply.output, tools, handoffs)
            yield _completed(reply)
            return
        done: list[Any] = []
        ids = CallIds(active, input)
        async for event in self._real(active.run_config).stream_response(
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            tracing,
            **more,
        ):
            if event.type in ("response.output_item.added", "response.output_item.done"):
                event = event.model_copy(update={"item": await ids.of(event.item)})
            if event.type == "response.output_item.done":
                done.append(event.item)
            if event.type == "response.completed":
                reply = await ids.of_all(_reply(event.response, done))
                whole = event.response.model_copy(update={"output": reply.output})
                event = event.model_copy(update={"response": whole})
                await self._keep(active, reply)
                await self._ask(active, reply.output, tools, handoffs)
            yield event

    async def close(self) -> None:
        if self._used is not None:
            await self._used.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return None if self._used is None else self._used.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._used is not None:
            await self._used._cleanup_on_run_end(owner)

    # -- inside

    def _real(self, config: RunConfig) -> Model:
        """Return the real model, found as the runner finds it."""
        chosen = self.wrapped if config.model is None else config.model
        if not isinstance(chosen, Model):
            chosen = config.model_provider.get_model(chosen)
        self._used = chosen
        return chosen

    async def _before(self, active: ActiveRun, input: Any) -> ModelResponse | None:
        """Return the stored reply, if there is one."""
        if active.stopped:
            raise Paused(active.calls.run, ())
        with active.reports_errors():
            await close_answered(active, input)
        return None if active.log is None else active.log.next_response(active.path)

    async def _keep(self, active: ActiveRun, reply: ModelResponse) -> None:
        if active.log is not None:
            with active.reports_errors():
                await active.log.add_response(active.path, reply)

    async def _ask(
        self,
        active: ActiveRun,
        output: Sequence[Any],
        tools: Sequence[Tool],
        handoffs: Sequence[Handoff[Any, Any]],
    ) -> None:
        """Ask about the calls of a reply in one commit, before the runner makes them."""
        active.notes[active.path] = _said(output)
        with active.reports_errors():
            self._check(tools, handoffs)
            made_by = {tool.name: guarded_tool_of(tool) for tool in tools}
            elsewhere = {handoff.tool_name for handoff in handoffs}
            asked: list[FrameworkCall | None] = []
            for item in output:
                if item.type == "mcp_approval_request":
                    with suppress(InvalidCall):  # hosted_outcome tells the provider
                        asked.append(requested_call(active.key(self.agent, item.id), item))
                elif item.type == "function_call" and item.name not in elsewhere:
                    key, made = active.key(self.agent, item.call_id), made_by.get(item.name)
                    if made is None:
                        await active.calls.gone(key, item.name)
                    else:
                        asked.append(made.unconditional_call(active, key, item.arguments))
            calls = [call for call in asked if call is not None]
            for call in calls:
                active.new(call.id)
            await active.calls.ask(calls)


def _said(output: Sequence[Any]) -> str:
    """Return what the model wrote beside the calls of a reply, unverified."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    return "".join(getattr(part, "text", None) or "" for part in parts)[:MAX_WORDS]


def _reply(response: Response, done: list[Any]) -> ModelResponse:
    """Return a streamed reply; some servers leave the items out of the last event."""
    return ModelResponse(
        output=response.output or done, usage=_usage(response), response_id=response.id
    )


def _usage(response: Response) -> Usage:
    usage = response.usage
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
    )


def _completed(reply: ModelResponse) -> ResponseCompletedEvent:
    """Return a stored reply as a stream of one event."""
    response = Response(
        id=reply.response_id or "stored",
        created_at=time.time(),
        model="stored",
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


# -- ids of calls


class CallIds:
    """Make the ids of the calls in a reply unique in the thread.

    Some providers count the calls of each reply anew. To the SDK and to the gate an id means one
    call, so a repeated one gets a number before the reply is used.
    """

    def __init__(self, active: ActiveRun, input: Any) -> None:
        self._active = active
        self._path = active.path
        said = input if isinstance(input, list) else ()
        self._before = {item.get("call_id") for item in said if isinstance(item, Mapping)}
        self._names: dict[str, str] = {}

    async def of(self, item: Any) -> Any:
        """Return the item; a call gets its own id."""
        if item.type != "function_call":
            return item
        id = item.call_id
        if id not in self._names:
            self._names[id] = await read(self._active.calls.store, self._free, id)
        return item.model_copy(update={"call_id": self._names[id]})

    async def of_all(self, reply: ModelResponse) -> ModelResponse:
        """Return the reply; each call gets its own id."""
        reply.output = [await self.of(item) for item in reply.output]
        return reply

    def _free(self, id: str) -> str:
        numbered = (f"{id}_{number}" for number in count(2))
        return next(name for name in chain([id], numbered) if not self._taken(name))

    def _taken(self, id: str) -> bool:
        """By hand, the same input may be run again, so only the conversation shows that an id is
        taken."""
        known = not self._active.manual and self._active.row(self._path + id) is not None
        return known or id in self._before
