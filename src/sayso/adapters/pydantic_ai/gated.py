"""The capability: every tool of the agent, whoever brings it, goes through the gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset

from sayso.adapters.pydantic_ai.messages import MessageLog, cancel_answered, key_in
from sayso.adapters.pydantic_ai.toolset import GatedToolset, Stopping, thread_of
from sayso.errors import Paused
from sayso.gate import Gate
from sayso.gate.foreign import ForeignThread
from sayso.gate.within import Within, kept, within
from sayso.policy import Policy
from sayso.twin import look
from sayso.types import Json

D = TypeVar("D")


@dataclass
class Gated(AbstractCapability[D], Generic[D]):
    """Ask before tools run: functions, toolsets, MCP servers, and tools of other capabilities.

    The policy says which calls; where no rule does, the tool itself (``requires_approval=True``, or
    ``ApprovalRequired`` raised in it). A call that waits for people is deferred in the framework's
    way, with the id of its request in the metadata under ``sayso``. The conversation's id is the
    thread: give ``conversation_id=``, or go on with ``conversation=``.

    An agent that is run inside a tool of a guarded one, and has no ``DeferredToolRequests`` among
    its output types, pauses the call of that tool, and starts at its top when it is made again.

    An approval in ``DeferredToolResults`` only makes the call come here again: what counts is the
    decision that was made about the request, by whoever may make it. A call that is denied there,
    or given a result, is not run, and its request is closed.
    """

    gate: Gate
    #: Instead of the gate's own.
    policy: Policy | None = None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        """What somebody has answered in the framework's way need not be decided any more."""
        thread = ForeignThread(self.gate, thread_of(ctx), policy=self.policy)
        run = await look(thread.store, thread.store.run, thread.run)
        if run is not None and (run.asked or run.ready):
            await cancel_answered(thread, ctx.messages, lambda id: key_in(ctx.messages, id))
        return request_context

    async def for_run(self, ctx: RunContext[D]) -> AbstractCapability[D]:
        """In the body of a call, and without a way to defer, an agent is part of that call."""
        place = None if _defers(ctx) else within(self.gate)
        return self if place is None else Part(self.gate, self.policy, place)

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(toolset, self.gate, self.policy)


@dataclass
class Outside(AbstractCapability[D], Generic[D]):
    """Stands outside all other capabilities: none of them takes a pause or a no for an error."""

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    async def wrap_tool_execute(
        self, ctx: RunContext[D], *, args: Any, handler: Any, **_: Any
    ) -> Any:
        try:
            return await handler(args)
        except Stopping as stopping:
            raise stopping.cause from None


@dataclass
class Inside(Gated[D], Generic[D]):
    """The same gate of an agent whose conversation is kept, where ``Outside`` stands around all."""

    log: MessageLog = field(kw_only=True)

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        return request_context  # who keeps the conversation sees to it

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(toolset, self.gate, self.policy, self._place, past_others=True)

    def _place(self, id: str) -> tuple[str, str]:
        return self.log.thread, self.log.key(id)


@dataclass
class Part(AbstractCapability[D], Generic[D]):
    """The gate of one run of an agent inside a call; its model's replies are kept as well."""

    gate: Gate
    policy: Policy | None
    place: Within
    #: Whether ``Outside`` stands around all.
    past_others: bool = False
    replies: int = 0

    def __post_init__(self) -> None:
        self._calls = ForeignThread(self.gate, self.place.thread, policy=self.policy)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def wrap_model_request(
        self, ctx: RunContext[D], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        """The reply that was given here before, or a new one, kept before its calls are made."""
        await cancel_answered(self._calls, ctx.messages, lambda id: f"{self._apart}{id}")

        async def ask() -> Json:
            return ModelMessagesTypeAdapter.dump_python(
                [await handler(request_context)], mode="json"
            )

        self.replies += 1
        stored = await kept(self._calls, f"{self._apart}reply", ask)
        (reply,) = ModelMessagesTypeAdapter.validate_python(stored)
        assert isinstance(reply, ModelResponse)
        return reply

    async def handle_deferred_tool_calls(self, ctx: RunContext[D], *, requests: Any) -> None:
        """Something waits for people, and everything else of the reply has been done."""
        raise Paused(self.place.run, ())

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(
            toolset,
            self.gate,
            self.policy,
            lambda id: (self.place.thread, f"{self._apart}{id}"),
            past_others=self.past_others,
        )

    @property
    def _apart(self) -> str:
        """What the keys of the last reply's calls begin with."""
        return f"{self.place.key}/{self.replies}/"


def _defers(ctx: RunContext[Any]) -> bool:
    wanted = None if ctx.agent is None else ctx.agent.output_type
    return DeferredToolRequests in (wanted if isinstance(wanted, list | tuple) else [wanted])
