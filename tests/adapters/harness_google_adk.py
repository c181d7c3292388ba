"""The story on Google ADK: an ``LlmAgent`` with a scripted model, guarded."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ADK and what it imports warn while they are imported
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmRequest, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

from sayso.adapters.google_adk import Guarded, guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import Heard, ModelScript, Turn


class FakeModel(BaseLlm):
    """A model of ADK that follows a script."""

    model: str = "fake"
    script: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        contents = llm_request.contents
        replies = sum(content.role == "model" for content in contents)
        parts = [part for content in contents for part in content.parts or ()]
        heard = [_heard(part.function_response) for part in parts if part.function_response]
        yield reply_of(self.script.reply(replies, heard))


def _heard(response: types.FunctionResponse) -> Heard:
    result = response.response or {}
    failed = "error" in result
    return (response.id or "", str(result.get("error" if failed else "result", result)), failed)


def reply_of(turn: Turn) -> LlmResponse:
    if isinstance(turn, str):
        parts = [types.Part(text=turn)]
    else:
        parts = [
            types.Part(function_call=types.FunctionCall(id=made.id, name=made.name, args=made.args))
            for made in turn
        ]
    return LlmResponse(content=types.Content(role="model", parts=parts))


async def run_bare(agent: LlmAgent, task: str) -> str:
    """Run an agent with ADK alone, and return its last text."""
    runner = InMemoryRunner(agent=agent, app_name="bare")
    events = await runner.run_debug(task, quiet=True)
    texts = [part.text for event in events if event.content for part in event.content.parts or ()]
    return "".join(text for text in texts if text)


class GoogleADKHarness(AdapterHarness):
    # Contexts in which the port refuses unguarded agents too.
    def agent(self) -> Guarded:
        context = self.context
        return guard(self.build_clerk(context.tools, context.script), context.gate)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> LlmAgent:
        return LlmAgent(name="clerk", model=FakeModel(script=script), tools=list(tools))

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await run_bare(clerk, task)
