"""The capability: every tool of the agent, whoever brings it, goes through the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.toolsets import AbstractToolset

from assent.adapters.pydantic_ai.talk import tidy
from assent.adapters.pydantic_ai.toolset import GatedToolset, thread_of
from assent.gate import Gate
from assent.gate.foreign import ForeignThread
from assent.policy import Policy
from assent.twin import look

D = TypeVar("D")


@dataclass
class Gated(AbstractCapability[D], Generic[D]):
    """Ask before tools run: functions, toolsets, MCP servers, and tools of other capabilities.

    The policy says which calls; where no rule does, the tool itself (``requires_approval=True``, or
    ``ApprovalRequired`` raised in it). A call that waits for people is deferred in the framework's
    way, with the id of its request in the metadata under ``assent``. The conversation's id is the
    thread: give ``conversation_id=``, or go on with ``conversation=``.

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
            await tidy(thread, ctx.messages)
        return request_context

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(toolset, self.gate, self.policy)
