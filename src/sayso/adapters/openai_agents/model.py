"""The agent's model, with a memory: a reply is kept before its calls are made."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from agents import (
    Agent,
    FunctionTool,
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

from sayso.adapters.openai_agents import hosted, settling
from sayso.adapters.openai_agents.drive import Drive, the_drive
from sayso.adapters.openai_agents.naming import Names
from sayso.adapters.openai_agents.reach import behind, check_tool, late, late_tool
from sayso.adapters.openai_agents.tools import Gated, gated_of
from sayso.errors import InvalidCall, Paused
from sayso.gate.foreign import ForeignCall
from sayso.gate.options import MAX_WORDS


class Remembered(Model):
    """Stands in front of the model of one agent."""

    def __init__(self, agent: Agent[Any], model: str | Model | None) -> None:
        self.agent = agent
        self.wrapped = model
        #: The real one, once it was needed: a run that only replays needs none.
        self._used: Model | None = None

    # -- what the runner calls

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
        drive = the_drive(self.agent.name)
        reply = await self._before(drive, input)
        if reply is None:
            reply = await self._real(drive.run_config).get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                **more,
            )
            reply = await Names(drive, input).of_all(reply)
            await self._keep(drive, reply)
        await self._ask(drive, reply.output, tools, handoffs)
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
        drive = the_drive(self.agent.name)
        reply = await self._before(drive, input)
        if reply is not None:
            await self._ask(drive, reply.output, tools, handoffs)
            yield _completed(reply)
            return
        done: list[Any] = []
        names = Names(drive, input)
        async for event in self._real(drive.run_config).stream_response(
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
                event = event.model_copy(update={"item": await names.of(event.item)})
            if event.type == "response.output_item.done":
                done.append(event.item)
            if event.type == "response.completed":
                reply = await names.of_all(_reply(event.response, done))
                whole = event.response.model_copy(update={"output": reply.output})
                event = event.model_copy(update={"response": whole})
                await self._keep(drive, reply)
                await self._ask(drive, reply.output, tools, handoffs)
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
        """The real one, found the way the runner finds it."""
        chosen = self.wrapped if config.model is None else config.model
        if not isinstance(chosen, Model):
            chosen = config.model_provider.get_model(chosen)
        self._used = chosen
        return chosen

    async def _before(self, drive: Drive, input: Any) -> ModelResponse | None:
        """The reply that is kept already, if there is one."""
        if drive.stopped:
            raise Paused(drive.calls.run, ())
        with drive.watched():
            await settling.settle(drive, input)
        return None if drive.log is None else drive.log.next_response(drive.path)

    async def _keep(self, drive: Drive, reply: ModelResponse) -> None:
        if drive.log is not None:
            with drive.watched():
                await drive.log.add_response(drive.path, reply)

    async def _ask(
        self,
        drive: Drive,
        output: Sequence[Any],
        tools: Sequence[Tool],
        handoffs: Sequence[Handoff[Any, Any]],
    ) -> None:
        """Put the calls of a reply to people in one commit, before the runner comes to them."""
        drive.notes[drive.path] = _said(output)
        with drive.watched():
            named = self._guarded(tools)
            for to in map(behind, handoffs):
                check_guarded(to)
            elsewhere = {handoff.tool_name for handoff in handoffs}
            asked: list[ForeignCall | None] = []
            for item in output:
                if item.type == "mcp_approval_request":
                    with suppress(InvalidCall):  # the provider is told no
                        asked.append(hosted.call(drive.key(self.agent, item.id), item))
                elif item.type == "function_call" and item.name not in elsewhere:
                    key, made = drive.key(self.agent, item.call_id), named.get(item.name)
                    if made is None:
                        await drive.calls.gone(key, item.name)
                    else:
                        asked.append(made.simply(drive, key, item.arguments))
            await drive.calls.ask([call for call in asked if call is not None])

    def _guarded(self, tools: Sequence[Tool]) -> dict[str, Gated]:
        """The function tools by name; one that is not behind the gate ends the run."""
        found = {}
        for tool in tools:
            check_tool(tool, self.agent)
            made = gated_of(tool)
            if made is not None:
                found[tool.name] = made
            elif isinstance(tool, FunctionTool):
                raise late_tool(tool)
        return found


def check_guarded(agent: Agent[Any]) -> None:
    """Refuse an agent whose calls do not come to a gate."""
    if not isinstance(agent.model, Remembered):
        raise late(agent)


def _said(output: Sequence[Any]) -> str:
    """What stands beside the calls of a reply: the agent's own words, which nobody has checked."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    return "".join(getattr(part, "text", None) or "" for part in parts)[:MAX_WORDS]


def _reply(response: Response, done: list[Any]) -> ModelResponse:
    """A streamed reply; some servers leave the items out of its last event."""
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
    """A kept reply as a stream of one event."""
    response = Response(
        id=reply.response_id or "kept",
        created_at=time.time(),
        model="kept",
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")
