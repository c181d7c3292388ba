"""The OpenAI Agents SDK side of ``ours/scene.py``: the same tools and script."""

from __future__ import annotations

import json
import logging
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall

set_tracing_disabled(True)
logging.getLogger("openai.agents").setLevel(logging.ERROR)

WORDS = "The quick brown fox jumps over the lazy dog, then files a ticket. " * 3
MAIL = {"to": "a@example.com", "body": "hello"}


@function_tool(needs_approval=True)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


@function_tool
def look(q: str) -> str:
    """Look something up."""
    return "saw " + WORDS


def call(name: str, args: dict[str, Any], id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call",
        name=name,
        call_id=id,
        arguments=json.dumps(args),
        id=f"fc_{id}",
        status="completed",
    )


class Instant(Model):
    """Follows a script, and keeps nothing; the SDK's own scripted model copies what it is sent."""

    def __init__(self, replies: list[Any]) -> None:
        self._replies = iter(replies)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=next(self._replies), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("nothing is streamed here")


def agent_with(replies: list[Any]) -> Agent[Any]:
    return Agent(name="bench", model=Instant(replies), tools=[send_email, look])
