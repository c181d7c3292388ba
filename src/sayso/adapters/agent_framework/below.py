"""Agents that are tools: ``agent.as_tool()`` runs an agent inside a call of another one.

The agent below has calls of its own. They come by the same gate, under the key of the call that it
runs in, and its model's replies are kept the same way: when the call is made again after a pause,
the agent starts at its top, and what it said and did comes from the store.
"""

from __future__ import annotations

import contextvars
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent_framework import (
    AgentMiddlewareLayer,
    BaseAgent,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    RawAgent,
    ResponseStream,
)

from sayso import codec
from sayso.adapters.agent_framework.messages import answers_to, calls_of
from sayso.adapters.agent_framework.tools import open_tools
from sayso.adapters.agent_framework.waiting import Waiting
from sayso.adapters.conversation import cancel_skipped
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.foreign import ForeignThread
from sayso.types import Json


@dataclass
class Below:
    """The run of an agent inside one call of it."""

    calls: ForeignThread
    #: The key of that call: those of the agent's own calls begin with it.
    key: str
    #: What stands around the agent's functions.
    gated: FunctionMiddleware
    #: Something in it waits for people.
    waits: bool = False
    #: What broke at the gate, and has to end the whole run.
    error: SaysoError | None = None
    replies: int = 0
    #: The calls of the last reply.
    made: list[Content] = field(default_factory=list)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The agent runs in here."""
        token = _below.set(self)
        try:
            yield
        finally:
            _below.reset(token)


_below: contextvars.ContextVar[Below | None] = contextvars.ContextVar(
    "sayso_agent_framework_below", default=None
)


def around(gate: Gate) -> Below | None:
    """The call of an agent that we are in, if any, where a gate on the same store made it."""
    inside = _below.get()
    same = inside is not None and inside.calls.store.incarnation == gate.store.incarnation
    return inside if same else None


@contextmanager
def alone() -> Iterator[None]:
    """A function runs in here: an agent that it runs by itself is not the one around it."""
    token = _below.set(None)
    try:
        yield
    finally:
        _below.reset(token)


def agent_of(tool: FunctionTool) -> BaseAgent | None:
    """The agent that a tool was made of with ``as_tool()``."""
    function = inspect.unwrap(tool.func) if tool.func is not None else None
    if getattr(function, "__qualname__", "") != "BaseAgent.as_tool.<locals>._agent_wrapper":
        return None
    assert function is not None
    found = inspect.getclosurevars(function).nonlocals.get("self")
    return found if isinstance(found, BaseAgent) else None


def wire(agent: BaseAgent) -> None:
    """Put the gate into an agent that is a tool; without a call of it around, it does nothing."""
    if isinstance(agent, Waiting):
        raise SaysoError(
            f"agent {agent.name!r} is guarded already, and its requests would not come out of the "
            "call: give as_tool() of the agent itself, which the gate around it guards as well"
        )
    if not isinstance(agent, RawAgent):
        return  # an agent of one's own asks at the gate itself
    check_layers(agent)
    middleware = list(agent.middleware or ())
    if not any(isinstance(one, _Gate) for one in middleware):
        agent.middleware = [*middleware, _Replies(), _Gate()]


def check_layers(agent: RawAgent[Any]) -> None:
    """Refuse an agent in which a gate has no place."""
    client = agent.client
    layers = isinstance(client, ChatMiddlewareLayer) and isinstance(client, FunctionInvocationLayer)
    if not isinstance(agent, AgentMiddlewareLayer) or not layers:
        raise SaysoError(
            "this agent or its client calls no middleware, so that a gate has no place in it: use "
            "agent_framework.Agent with a client that has FunctionInvocationLayer and "
            "ChatMiddlewareLayer"
        )


class _Gate(FunctionMiddleware):
    """The gate of whoever calls the agent, around the agent's functions."""

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        inside = _below.get()
        if inside is None:
            await call_next()
        else:
            await inside.gated.process(context, call_next)


class _Replies(ChatMiddleware):
    """Keeps each reply of the agent's model before its calls are made, and gives it again."""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        inside = _below.get()
        if inside is None:
            await call_next()
            return
        open_tools(context.options)
        try:
            await self._reply(inside, context, call_next)
        except SaysoError as error:
            inside.error = inside.error or error
            raise

    async def _reply(
        self, inside: Below, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if inside.waits:  # other middleware has made a result of what is only a request
            raise Paused(inside.calls.run, ())
        results = answers_to(inside.made, context.messages)
        answered = [f"{inside.key}/{c.id or ''}" for message in results for c in message.contents]
        await cancel_skipped(inside.calls, answered)

        async def step() -> Json:
            await call_next()
            said = context.result
            reply = await said.get_final_response() if isinstance(said, ResponseStream) else said
            assert isinstance(reply, ChatResponse)
            for call in calls_of(reply.messages):
                call.id = call.id or f"af-call-{secrets.token_hex(16)}"
            return codec.dumps(reply.to_dict())

        inside.replies += 1
        kept = await inside.calls.once(f"{inside.key}/reply/{inside.replies}", step)
        reply: ChatResponse[Any] = ChatResponse.from_dict(codec.loads(kept))
        inside.made = calls_of(reply.messages)
        context.result = _streamed(reply) if context.stream else reply


def _streamed(reply: ChatResponse[Any]) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        for update in reply.to_updates():
            yield update

    return ResponseStream(updates(), finalizer=lambda _: reply)
