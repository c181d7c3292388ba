"""pydantic-ai's adapter for the chat benchmark; it stores nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.responses import Response

ANSWER = "Final answer: the weather in New York is sunny."


async def instant(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
    if any(part.part_kind == "tool-return" for part in messages[-1].parts):
        for word in re.findall(r"\S+\s*", ANSWER):
            yield word
            await asyncio.sleep(0)  # one event per word, as from a network
        return
    json_args = '{"city": "New York"}'
    yield {0: DeltaToolCall(name="getWeatherInformation", json_args=json_args, tool_call_id="c1")}


agent = Agent(FunctionModel(stream_function=instant), output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
async def getWeatherInformation(city: str) -> str:
    """Show the weather in a given city to the user."""
    return f"The weather in {city} is sunny."


app = FastAPI()


@app.post("/api/chat")
async def chat(request: Request) -> Response:
    return await VercelAIAdapter.dispatch_request(request, agent=agent, sdk_version=7)


if __name__ == "__main__":
    taken = socket.create_server(("127.0.0.1", 0))
    print(taken.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([taken])
