"""Book a flight: the request waits in the store, and another process resumes the run.

Scripted by default. To use a real model: python flight_agent.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from typing import Any

import sayso
from sayso.agent.models import Model
from sayso.testing import ScriptedModel, call, say


@sayso.tool(needs_approval=True)
async def book_flight(destination: str, day: str) -> str:
    """Book a flight."""
    print(f"  booked: {destination} on {day}")
    return "booked, seat 12A"


FLIGHT = {"destination": "Paris", "day": "Friday"}
SCRIPT: list[Any] = [
    call("book_flight", FLIGHT, text="I found a good one."),
    say("Your flight to Paris is booked, seat 12A."),
]


def travel_agent(model: str | Model, store: str) -> sayso.Agent:
    return sayso.Agent("travel", model=model, tools=[book_flight], store=store)


async def main(model: str | Model) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/sayso.db"
        agent = travel_agent(model, store)
        response = await agent.run("Please book me a flight for Friday to Paris.", thread="trip")
        while response.interruptions:
            for request in response.interruptions:
                print(f"the agent says: {request.note}")
                print(f"it wants: {request.tool} {dict(request.args)}")
            agent.close()  # the process may exit here; the decision can come much later
            agent = travel_agent(model, store)
            decisions = [request.approve() for request in response.interruptions]
            response = await agent.resume("trip", decisions=decisions, by="ana")
        print(response.output or response.error)
        agent.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
