"""Shared by the tests of the pydantic-ai adapter: a scripted model, a store, and people."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from store_world import StoreWorld

import sayso
from sayso.stores.sqlite import SqliteStore
from sayso.types import Request


def call(name: str, id: str = "c1", /, **args: Any) -> ToolCallPart:
    return ToolCallPart(name, args, id)


class World(StoreWorld):
    def __init__(self, folder: Path, policy: sayso.Policy | None = None) -> None:
        super().__init__(folder, policy)
        #: What the model was shown each time.
        self.shown: list[list[ModelMessage]] = []

    def later(self) -> sayso.Gate:
        """Return a gate of another process, after all leases have expired."""
        store = SqliteStore(
            self.folder / "sayso.db", clock=lambda: time.time_ns() // 1000 + 3_600_000_000
        )
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
        """Return the tool results in the model's last prompt, by the id of the call."""
        parts = [part for message in self.shown[-1] for part in message.parts]
        return {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}

    @property
    def prompts(self) -> list[Any]:
        """Return the user's messages in the model's last prompt."""
        parts = [part for message in self.shown[-1] for part in message.parts]
        return [part.content for part in parts if isinstance(part, UserPromptPart)]

    def pending(self) -> list[Request]:
        return list(self.inbox.pending_sync().items)
