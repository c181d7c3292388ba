"""pydantic-ai: two refunds in one turn; one is approved today, the other edited tomorrow.

Scripted by default. To use a real model: python pydantic_ai_refunds.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sayso
from sayso.adapters.pydantic_ai import Guarded, guard


def refund(order: str, euros: int, reason: str = "none given") -> str:
    """Refund a customer."""
    print(f"  refunded: {euros} euros for {order}")
    return f"refunded {euros} euros"


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if any(isinstance(message, ModelResponse) for message in messages):
        return ModelResponse(parts=[TextPart("Both customers have their money.")])
    calls = [{"order": "A-17", "euros": 20}, {"order": "B-4", "euros": 900}]
    return ModelResponse(parts=[ToolCallPart("refund", args) for args in calls])


def desk(model: Any, store: str) -> Guarded:
    """Build the agent, as each process does."""
    gate = sayso.Gate(store, policy=sayso.Policy([sayso.Rule("refund")]), agent="desk", wait=0)
    return guard(Agent(model, tools=[refund]), gate)


async def main(model: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/sayso.db"
        result = await desk(model, store).run("Refund A-17 and B-4.", thread="refunds")
        for request in result.interruptions:
            print(f"needs approval: {request.tool} {dict(request.args)}")
        inbox = sayso.Inbox(store)  # or decide in the web app or a terminal
        today, tomorrow = sorted(result.interruptions, key=lambda request: request.args["euros"])
        await inbox.decide(today.id, today.approve(), by="ana")
        result = await desk(model, store).resume("refunds")
        print(f"{result.status}: {len(result.interruptions)} left")
        await inbox.decide(tomorrow.id, tomorrow.edit({"euros": 90}), by="ben")
        result = await desk(model, store).resume("refunds")
        print(result.output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=FunctionModel(scripted))
    asyncio.run(main(parser.parse_args().model))
