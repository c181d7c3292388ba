"""Capabilities that put every tool of an agent behind a gate, whichever toolset brings it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset

from sayso.adapters.pydantic_ai.messages import MessageLog, cancel_answered, key_in
from sayso.adapters.pydantic_ai.reach import DelegateWalk
from sayso.adapters.pydantic_ai.tools import GatedToolset, StopSignal, thread_of
from sayso.errors import Paused
from sayso.gate import Gate
from sayso.gate.framework import FrameworkThread, Within, kept, within
from sayso.policy import Policy
from sayso.sync import read
from sayso.types import Json

D = TypeVar("D")


@dataclass
class Gated(AbstractCapability[D], Generic[D]):
    """Ask before tools run: functions, toolsets, MCP servers, and tools of other capabilities.

    The policy decides which calls need approval. Where no rule matches, the tool does: with
    ``requires_approval=True``, or by raising ``ApprovalRequired``. A call that needs approval is
    deferred in the framework's way, with the id of its request in the metadata under ``sayso``. The
    conversation's id is the thread: pass ``conversation_id=``, or continue with ``conversation=``.

    An approval in ``DeferredToolResults`` only makes the framework call the tool again. What counts
    is the decision on the request, made by someone who may make it. If you deny a call there, or
    give it a result, it does not run and its request is closed.

    An agent that runs inside a tool of a guarded one, without ``DeferredToolRequests`` among its
    output types, pauses the call of that tool, and starts from its top when the call is made again.
    """

    gate: Gate
    #: Used instead of the gate's own policy.
    policy: Policy | None = None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        """Cancel requests whose calls got a result in the framework's own way."""
        thread = await FrameworkThread(self.gate, thread_of(ctx), policy=self.policy).open()
        run = await read(thread.store, thread.store.run, thread.run)
        if run is not None and (run.asked or run.ready):
            await cancel_answered(thread, ctx.messages, lambda id: key_in(ctx.messages, id))
        return request_context

    async def for_run(self, ctx: RunContext[D]) -> AbstractCapability[D]:
        """Inside a call, and without a way to defer, make the agent's run part of that call."""
        place = None if _can_defer(ctx) else within(self.gate)
        return self if place is None else SubAgentGated(self.gate, self.policy, place)

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(toolset, self.gate, self.policy)


@dataclass
class Outermost(AbstractCapability[D], Generic[D]):
    """Convert ``StopSignal`` back outside all other capabilities, so that none handles a pause as
    an error."""

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
        except StopSignal as stopping:
            raise stopping.cause from None


@dataclass
class ThreadGated(Gated[D], Generic[D]):
    """The gate of an agent that ``guard`` runs: keys come from the log, and ``Outermost`` is
    outside."""

    log: MessageLog = field(kw_only=True)
    walk: DelegateWalk = field(kw_only=True)

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        offered = request_context.model_request_parameters.native_tools
        self.walk.check_native(offered, self.gate.agent)
        return request_context  # _LogReplies cancels what was answered

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(
            toolset, self.gate, self.policy, self._locate, stop_signals=True, walk=self.walk
        )

    def _locate(self, id: str) -> tuple[str, str]:
        return self.log.thread, self.log.key(id)


@dataclass
class DelegateGated(Gated[D], Generic[D]):
    """The gate of an agent that a tool of a guarded agent delegates to."""

    walk: DelegateWalk = field(kw_only=True)

    async def for_run(self, ctx: RunContext[D]) -> AbstractCapability[D]:
        place = within(self.gate)
        if place is None:
            return self
        return SubAgentGated(self.gate, self.policy, place, walk=self.walk)


@dataclass
class SubAgentGated(AbstractCapability[D], Generic[D]):
    """The gate of an agent that runs inside a call. Its model's replies are stored with that
    call."""

    gate: Gate
    policy: Policy | None
    place: Within
    #: Raise pauses as ``StopSignal``, because ``Outermost`` is there to catch it.
    stop_signals: bool = False
    #: Guards the agents that its tools delegate to, if the agent around it is guarded.
    walk: DelegateWalk | None = None
    replies: int = 0

    def __post_init__(self) -> None:
        self._calls = FrameworkThread(self.gate, self.place.thread, policy=self.policy)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def wrap_model_request(
        self, ctx: RunContext[D], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        """Return the stored reply, or call the model and store its reply before any call is
        made."""
        if self.walk is not None:
            offered = request_context.model_request_parameters.native_tools
            self.walk.check_native(offered, self.gate.agent)
        await cancel_answered(self._calls, ctx.messages, lambda id: f"{self._prefix}{id}")

        async def ask() -> Json:
            return ModelMessagesTypeAdapter.dump_python(
                [await handler(request_context)], mode="json"
            )

        self.replies += 1
        stored = await kept(self._calls, f"{self._prefix}reply", ask)
        (reply,) = ModelMessagesTypeAdapter.validate_python(stored)
        assert isinstance(reply, ModelResponse)
        return reply

    async def handle_deferred_tool_calls(self, ctx: RunContext[D], *, requests: Any) -> None:
        """Pause the outer call, once everything else in the reply has run."""
        raise Paused(self.place.run, ())

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(
            toolset,
            self.gate,
            self.policy,
            lambda id: (self.place.thread, f"{self._prefix}{id}"),
            stop_signals=self.stop_signals,
            walk=self.walk,
        )

    @property
    def _prefix(self) -> str:
        """The prefix of the keys of the last reply's calls."""
        return f"{self.place.key}/{self.replies}/"


def _can_defer(ctx: RunContext[Any]) -> bool:
    wanted = None if ctx.agent is None else ctx.agent.output_type
    return DeferredToolRequests in (wanted if isinstance(wanted, list | tuple) else [wanted])
