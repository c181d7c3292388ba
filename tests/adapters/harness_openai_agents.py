"""The story on the OpenAI Agents SDK: its own agent and runner, a scripted model."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, function_tool, set_tracing_disabled
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sayso.adapters.openai_agents import Guarded, guard
from sayso.testing import AdapterHarness, ScriptedCall
from sayso_testing.adapter_harness import ModelScript

set_tracing_disabled(True)


class ScriptModel(Model):
    """The SDK's interface of a model, in front of the play's script."""

    def __init__(self, script: ModelScript) -> None:
        self.script = script

    async def get_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> ModelResponse:
        items = input if isinstance(input, list) else []
        # All calls of one reply stand together; their outputs, or new words, come after.
        kinds = [
            item.get("type") == "function_call" or item.get("role") == "assistant" for item in items
        ]
        replies = sum(now and not before for before, now in pairwise([False, *kinds]))
        heard = [
            (item["call_id"], item["output"])
            for item in items
            if item.get("type") == "function_call_output"
        ]
        turn = self.script.reply(replies, heard)
        output: list[Any] = (
            [said(turn)] if isinstance(turn, str) else [called(made) for made in turn]
        )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("the story does not stream")


def said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="msg_1", type="message", role="assistant", status="completed", content=[content]
    )


def called(made: ScriptedCall) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc_{made.id}",
        call_id=made.id,
        type="function_call",
        name=made.name,
        arguments=json.dumps(made.args),
        status="completed",
    )


class OpenAIAgentsHarness(AdapterHarness):
    # Contexts in which the port refuses unguarded agents too.
    def agent(self) -> Guarded:
        context = self.context
        return guard(self.build_clerk(context.tools, context.script), context.gate)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        functions: list[Any] = [function_tool(function) for function in tools]
        return Agent("Teller", model=ScriptModel(script), tools=functions)

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await Runner.run(clerk, task)

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        file = sqlite3.connect(folder.parent / "sayso.db")
        with file:
            state = file.execute(
                "UPDATE run SET snapshot = replace(snapshot, ?, ?) WHERE instr(snapshot, ?)",
                (old, new, old),
            )
        file.close()
        return state.rowcount > 0
