"""The story on an agent of pydantic-ai."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sayso.adapters.pydantic_ai import guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript


def _told(part: ToolReturnPart | RetryPromptPart) -> str:
    """What the model is told; older versions send a retry for a tool that is gone."""
    return part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()


class PydanticAIHarness(AdapterHarness):
    def agent(self) -> Any:
        context = self.context
        return guard(self.build_clerk(context.tools, context.script), context.gate)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return _reply(script, messages)

        return Agent(FunctionModel(reply), tools=list(tools))

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await clerk.run(task)


def _reply(script: ModelScript, messages: list[ModelMessage]) -> ModelResponse:
    replies = sum(isinstance(message, ModelResponse) for message in messages)
    heard = [
        (part.tool_call_id, _told(part), getattr(part, "outcome", "failed") != "success")
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    turn = script.reply(replies, heard)
    if isinstance(turn, str):
        return ModelResponse(parts=[TextPart(turn)])
    return ModelResponse(parts=[ToolCallPart(made.name, made.args, made.id) for made in turn])
