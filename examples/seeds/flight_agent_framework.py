"""The flight booking of the Microsoft Agent Framework's decision record on user approvals.

The three marked lines put it behind a gate. Without them it is a program of the bare framework.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import agent_framework as af

import sayso  # added
from sayso.adapters.agent_framework import guard  # added


@af.tool(approval_mode="always_require")
async def book_flight(destination: str, day: str) -> str:
    """Book a flight."""
    print(f"  booked: {destination} on {day}")
    return "booked"


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


async def main() -> None:
    agent: Any = af.Agent(Scripted(), tools=[book_flight])
    agent = guard(agent, sayso.Gate("sayso.db", agent="travel", wait=0)).as_agent(by="ana")  # added
    thread = af.AgentSession()
    response = await agent.run("Please book me a flight for Friday to Paris.", session=thread)
    while response.user_input_requests:
        messages = []
        for request in response.user_input_requests:
            call = request.function_call
            print(f"approve? {call.name} {call.parse_arguments()}")
            messages.append(af.Message("user", [request.to_function_approval_response(True)]))
        response = await agent.run(messages, session=thread)
    print(response.text)


if __name__ == "__main__":
    asyncio.run(main())
