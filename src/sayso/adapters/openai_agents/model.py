"""The model of a guarded agent: each reply is stored before its calls are made.

A turn that is repeated gets the stored replies first, and the real model is called only for those
that are missing.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent

from sayso.adapters.openai_agents.messages import ActiveRun, require_run
from sayso.adapters.openai_agents.requests import list_request
from sayso.adapters.openai_agents.tools import close_answered, guarded_tool_of, requested_call
from sayso.errors import InvalidCall, Paused
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkCall
from sayso.gate.guarded_runs import current_place, note_pause
from sayso.gate.options import MAX_WORDS
from sayso.sync import read


class CheckedModel(Model):
    """Wrap the model of an agent, and check what each request lets the provider run."""

    def __init__(self, agent: Agent[Any], model: Model | None = None) -> None:
        self.agent = agent
        #: The real model, once it was needed: a run that only replays needs none.
        self._used = model

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        assert self._used is not None
        self._refuse_approvals(self._checked_request(*args, **options))
        return await self._used.get_response(*args, **options)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        assert self._used is not None
        self._refuse_approvals(self._checked_request(*args, **options))
        async for event in self._used.stream_response(*args, **options):
            yield event

    async def close(self) -> None:
        if self._used is not None:
            await self._used.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return None if self._used is None else self._used.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._used is not None:
            await self._used._cleanup_on_run_end(owner)

    def _checked_request(self, *args: Any, **options: Any) -> Mapping[str, Any]:
        """Return the arguments of a request by name; the SDK passes some of them by position.

        Raises ``InvalidCall`` for what the gate cannot reach and ``ungated`` does not name.
        """
        request = inspect.signature(Model.get_response).bind(self, *args, **options).arguments
        place = current_place()
        coverage = Coverage(() if place is None else place.ungated)
        tools, settings = request["tools"], request["model_settings"]
        list_request(self.agent.name, tools, settings, request.get("prompt"), coverage)
        coverage.check_missed()
        return request

    def _refuse_approvals(self, request: Mapping[str, Any]) -> None:
        """Raise ``InvalidCall`` if code has approved calls that the provider would make now."""
        items = request["input"] if isinstance(request["input"], list) else ()
        kind = "mcp_approval_response"
        if any(item.get("type") == kind and item.get("approve") for item in items):
            raise InvalidCall(
                f"code inside a guarded run approved a call of a hosted MCP server of "
                f"{self.agent.name!r}: guard that agent, so that people decide",
                "approve",
            )


class LoggedModel(CheckedModel):
    """The model of a guarded agent."""

    def __init__(self, agent: Agent[Any], original: Agent[Any]) -> None:
        super().__init__(agent)
        #: The agent that the user has built.
        self.original = original
        self.wrapped = original.model

    # -- called by the runner

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        request = self._checked_request(*args, **options)
        active = require_run(self.agent.name)
        reply = await self._stored_reply(active, request["input"])
        if reply is None:
            reply = await self._real_model(active.run_config).get_response(*args, **options)
            reply = await CallIds(active, request["input"]).of_all(reply)
            await self._store_reply(active, reply)
        await self._ask(active, reply.output, request)
        return reply

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        request = self._checked_request(*args, **options)
        active = require_run(self.agent.name)
        reply = await self._stored_reply(active, request["input"])
        if reply is not None:
            await self._ask(active, reply.output, request)
            yield _completed(reply)
            return
        done: list[Any] = []
        ids = CallIds(active, request["input"])
        model = self._real_model(active.run_config)
        async for event in model.stream_response(*args, **options):
            if event.type in ("response.output_item.added", "response.output_item.done"):
                item = await ids.of(event.item, event.output_index)
                event = event.model_copy(update={"item": item})
            if event.type == "response.output_item.done":
                done.append(event.item)
            if event.type == "response.completed":
                reply = await ids.of_all(_reply(event.response, done))
                response = event.response.model_copy(update={"output": reply.output})
                event = event.model_copy(update={"response": response})
                await self._store_reply(active, reply)
                await self._ask(active, reply.output, request)
            yield event

    # -- internals

    def _real_model(self, config: RunConfig) -> Model:
        """Return the real model, found as the runner finds it."""
        chosen = self.wrapped if config.model is None else config.model
        if not isinstance(chosen, Model):
            chosen = config.model_provider.get_model(chosen)
        self._used = chosen
        return chosen

    async def _stored_reply(self, active: ActiveRun, input: Any) -> ModelResponse | None:
        if active.stopped:
            raise Paused(active.calls.run)
        with active.remember_errors():
            await close_answered(active, input)
        return None if active.log is None else active.log.next_response(active.path)

    async def _store_reply(self, active: ActiveRun, reply: ModelResponse) -> None:
        if active.log is not None:
            with active.remember_errors():
                await active.log.add_response(active.path, reply)

    async def _ask(
        self, active: ActiveRun, output: Sequence[Any], request: Mapping[str, Any]
    ) -> None:
        """Ask about the calls of a reply in one commit, before the runner makes them."""
        tools, handoffs = request["tools"], request["handoffs"]
        active.notes[active.path] = _text_of(output)
        with active.remember_errors():
            made_by = {tool.name: guarded_tool_of(tool) for tool in tools}
            elsewhere = {handoff.tool_name for handoff in handoffs}
            framework_calls: list[FrameworkCall | None] = []
            for item in output:
                if item.type == "mcp_approval_request":
                    with suppress(InvalidCall):  # hosted_outcome tells the provider
                        framework_calls.append(
                            requested_call(active.key(self.agent.name, item.id), item)
                        )
                elif item.type == "function_call" and item.name not in elsewhere:
                    key, made = active.key(self.agent.name, item.call_id), made_by.get(item.name)
                    if made is None:
                        await active.calls.gone(key, item.name)
                    else:
                        framework_calls.append(made.unconditional_call(active, key, item.arguments))
            calls = [call for call in framework_calls if call is not None]
            for call in calls:
                active.note_new_call(call.id)
            if await active.calls.ask(calls):
                note_pause(Paused(active.calls.run))


def _text_of(output: Sequence[Any]) -> str:
    """Return what the model wrote beside the calls of a reply, unverified."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    return "".join(getattr(part, "text", None) or "" for part in parts)[:MAX_WORDS]


def _reply(response: Response, done: list[Any]) -> ModelResponse:
    """Return a streamed reply; some servers leave the items out of the last event."""
    usage, used = Usage(requests=1), response.usage
    if used is not None:
        usage.input_tokens, usage.output_tokens = used.input_tokens, used.output_tokens
        usage.total_tokens = used.total_tokens
    return ModelResponse(output=response.output or done, usage=usage, response_id=response.id)


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

    Some providers restart their ids at every reply, and some leave them empty. To the SDK and to
    the gate an id means one call, so such an id gets a number before the reply is used.
    """

    def __init__(self, active: ActiveRun, input: Any) -> None:
        self._active = active
        self._path = active.path
        items = input if isinstance(input, list) else ()
        self._known_ids = {item.get("call_id") for item in items if isinstance(item, Mapping)}
        #: The new ids, by the id that the provider gave, or by the place in the reply.
        self._names: dict[str | int, str] = {}

    async def of(self, item: Any, index: int) -> Any:
        """Return an item of the reply; a call gets its own id."""
        if item.type != "function_call":
            return item
        place = item.call_id or index
        if place not in self._names:
            first = item.call_id or "call"
            name = await read(self._active.calls.store, self._unused_id, first)
            self._names[place] = name
        return item.model_copy(update={"call_id": self._names[place]})

    async def of_all(self, reply: ModelResponse) -> ModelResponse:
        reply.output = [await self.of(item, index) for index, item in enumerate(reply.output)]
        return reply

    def _unused_id(self, id: str) -> str:
        numbered = (f"{id}_{number}" for number in count(2))
        return next(name for name in chain([id], numbered) if not self._is_used(name))

    def _is_used(self, id: str) -> bool:
        """Return whether the thread has a call with this id.

        By hand, the same input may be run again, so only the conversation counts.
        """
        stored = not self._active.manual and self._active.calls.row(self._path + id) is not None
        return stored or id in self._known_ids or id in self._names.values()
