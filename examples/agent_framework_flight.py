"""Microsoft Agent Framework: its own approval flow, stored, with an edit.

Scripted. To use a real model, pass your client to `main`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from typing import Any

import agent_framework as af

import sayso
from sayso.adapters.agent_framework import edited, guard


@af.tool(approval_mode="always_require")
async def book_flight(destination: str, day: str, seat: str = "aisle") -> str:
    """Book a flight."""
    print(f"  booked: {destination} on {day}, {seat}")
    return f"booked, {seat} seat"


class Scripted(
    af.FunctionInvocationLayer[Any], af.ChatMiddlewareLayer[Any], af.BaseChatClient[Any]
):
    def _inner_get_response(self, *, messages: Sequence[af.Message], **options: Any) -> Any:
        async def reply() -> af.ChatResponse[Any]:
            said: list[Any] = ["Your flight to Paris is booked."]
            if all(message.role != "tool" for message in messages):
                trip = {"destination": "Paris", "day": "Friday"}
                said = [af.Content.from_function_call("call_1", "book_flight", arguments=trip)]
            return af.ChatResponse(messages=[af.Message("assistant", said)])

        return reply()


def travel(client: Any, store: str) -> Any:
    """Build the agent, as each process does."""
    gate = sayso.Gate(store, agent="travel", wait=0)
    return guard(af.Agent(client, tools=[book_flight]), gate).as_agent(by="ana")


async def main(client: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, session = f"sqlite:///{folder}/sayso.db", af.AgentSession(session_id="trip")
        words = "Please book me a flight for Friday to Paris."
        response = await travel(client, store).run(words, session=session)
        while response.user_input_requests:
            for request in response.user_input_requests:
                print(f"wants: {request.function_call.name} {request.function_call.arguments}")
            trip = {"destination": "Paris", "day": "Friday", "seat": "window"}
            said = af.Message("user", [edited(r, trip) for r in response.user_input_requests])
            response = await travel(client, store).run(said, session=session)
        print(response.text)


if __name__ == "__main__":
    asyncio.run(main(Scripted()))
