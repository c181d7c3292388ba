"""A pizza agent: it asks until the order is complete, and returns it as structured data.

Scripted by default. To use a real model: python pizza_agent.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from typing_extensions import TypedDict

import sayso
from sayso.agent.models import Model
from sayso.testing import ScriptedModel, call, say


class Pizza(TypedDict):
    size: str
    toppings: list[str]
    special_instructions: str | None


def asks(question: str) -> Any:
    return call("ask_user_question", {"question": question, "free_text": True})


RULES = "Ask about a pizza order until it is clear. There may be several pizzas."
ORDER = '{"size": "small", "toppings": ["meatballs"], "special_instructions": "crumbled"}'
SCRIPT: list[Any] = [
    asks("We offer no rocks as a topping. What do you mean by them?"),
    asks("Whole meatballs, or crumbled ones?"),
    say(f'{{"value": [{ORDER}]}}'),
]
ANSWERS = iter(["do you have meatballs?", "crumbled, to resemble rocks"])


def answer(question: sayso.Question) -> str:
    print(f"agent: {question.text}")
    said = input("> ") if sys.stdin.isatty() else next(ANSWERS, "as you like")
    print(f"you: {said}")
    return said


async def main(model: str | Model) -> None:
    tools, wanted = [sayso.ask_user], list[Pizza]
    agent = sayso.Agent("pizza", model=model, instructions=RULES, tools=tools, output_type=wanted)
    result = await agent.run("I need a small pizza with rocks on it", thread="order-1")
    while result.status == "paused":
        replies = [r.respond(answer(r.question)) for r in result.interruptions if r.question]
        result = await agent.resume("order-1", decisions=replies, by="guest")
    print(f"order: {result.output or result.error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
