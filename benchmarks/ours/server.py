"""Sayso's server for the chat benchmark: durable, fsync on, a model that answers at once."""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
from collections.abc import AsyncIterator

import uvicorn

import sayso
from sayso.agent.models.base import ModelReply, ModelRequest, TextDelta
from sayso.server import create_app
from sayso.testing import call, say

ANSWER = "Final answer: the weather in New York is sunny."


@sayso.tool(needs_approval=True)
async def getWeatherInformation(city: str) -> str:
    """Show the weather in a given city to the user."""
    return f"The weather in {city} is sunny."


class Instant:
    """Asks for the weather, then tells it, word by word."""

    name = "instant"

    async def reply(self, request: ModelRequest) -> ModelReply:
        if request.messages[-1]["role"] == "user":
            return call("getWeatherInformation", {"city": "New York"})
        return say(ANSWER)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        reply = await self.reply(request)
        if request.messages[-1]["role"] != "user":
            for word in re.findall(r"\S+\s*", ANSWER):
                yield TextDelta(word)
                await asyncio.sleep(0)  # one event per word, as from a network
        yield reply


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = sayso.Agent("weather", model=Instant(), tools=[getWeatherInformation])
        app = create_app([agent], store=f"sqlite:///{folder}/sayso.db", auth=False)
        taken = socket.create_server(("127.0.0.1", 0))
        print(taken.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_config=None, access_log=False)
        uvicorn.Server(config).run([taken])


if __name__ == "__main__":
    main()
