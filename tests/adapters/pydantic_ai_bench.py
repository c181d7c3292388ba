"""What the tests of the pydantic-ai adapter share: a scripted model, a store, and people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sayso
from sayso.stores.sqlite import SqliteStore
from sayso.types import Request


def call(name: str, id: str = "c1", /, **args: Any) -> ToolCallPart:
    return ToolCallPart(name, args, id)


class Bench:
    """One store, and as many agents over it as a test likes: each ``agent()`` knows nothing of the
    others, like a process of its own."""

    def __init__(self, folder: Path, policy: sayso.Policy | None = None) -> None:
        self.file = folder / "sayso.db"
        self.store = SqliteStore(self.file)
        self.gate = sayso.Gate(self.store, policy=policy, agent="teller", wait=0)
        self.inbox = sayso.Inbox(self.store)
        self.ran: list[Any] = []
        #: What the model was shown each time.
        self.shown: list[list[ModelMessage]] = []

    def later(self) -> sayso.Gate:
        """The gate of another process, when every lease of today is over."""
        store = SqliteStore(self.file, clock=lambda: time.time_ns() // 1000 + 3_600_000_000)
        return sayso.Gate(store, agent="teller", wait=0)

    def agent(self, *turns: Sequence[ToolCallPart] | str, **options: Any) -> Agent[Any, Any]:
        def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.shown.append(list(messages))
            turn = turns[sum(isinstance(message, ModelResponse) for message in messages)]
            parts = [TextPart(turn)] if isinstance(turn, str) else list(turn)
            return ModelResponse(parts=parts)

        return Agent(FunctionModel(reply), **options)

    @property
    def returns(self) -> dict[str, ToolReturnPart]:
        """The tool results that the model was shown last, by the id of the call."""
        parts = [part for message in self.shown[-1] for part in message.parts]
        return {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}

    @property
    def prompts(self) -> list[Any]:
        """The user's words that the model was shown last."""
        parts = [part for message in self.shown[-1] for part in message.parts]
        return [part.content for part in parts if isinstance(part, UserPromptPart)]

    def pending(self) -> list[Request]:
        return list(self.inbox.pending_sync().items)

    async def waits(self) -> Request:
        (request,) = (await self.inbox.pending()).items
        return request

    async def decide(self, make: Callable[[Request], Any], by: str = "ana") -> Request:
        """Somebody decides the only thing that waits."""
        request = await self.waits()
        return await self.inbox.decide(request.id, make(request), by=by)

    def close(self) -> None:
        self.gate.close()
