"""The pizza order of "Human in the Loop as a dspy.Tool": an agent that asks until it knows enough.

The four marked lines put it behind a gate: each question and its answer are recorded, and nobody
is asked twice if the process ends in between. Without them it is a program of the bare framework.
"""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

warnings.simplefilter("ignore")
import dspy  # noqa: E402
from dspy.utils import DummyLM  # noqa: E402
from typing_extensions import TypedDict  # noqa: E402


class HumanInputRequest:
    def __init__(self, question: str) -> None:
        self.question = question
        self._response_future: asyncio.Future[str] = asyncio.Future()

    async def response(self) -> str:
        """Wait for the response to be provided."""
        return await self._response_future

    def set_response(self, response: str) -> None:
        """Provide the response, and notify waiters."""
        self._response_future.set_result(response)


def human_in_the_loop(requester: Callable[[Any], Awaitable[None]]) -> dspy.Tool:
    async def ask_human(question: str) -> str:
        request = HumanInputRequest(question)
        await requester(request)
        return await request.response()

    return dspy.Tool(ask_human)


async def guest_requester(request: Any) -> None:
    answer = "rocks like you'd find on a hill" if "mean" in request.question else "meatballs"
    print(f"{request.question}\n> {answer}")
    request.set_response(answer)


class Pizza(TypedDict):
    size: str
    toppings: list[str]
    special_instructions: str | None


class OrderPizza(dspy.Signature):  # type: ignore[misc]
    """An agent that can ask clarifying questions about a pizza order."""

    customer_request = dspy.InputField()
    pizzas: list[Pizza] = dspy.OutputField()


def scripted() -> DummyLM:
    asks = ["What do you mean by rocks?", "We have no rocks. Something else instead?"]
    steps = [("ask_human", f'{{"question": "{text}"}}') for text in asks] + [("finish", "{}")]
    replies = [
        {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": args}
        for name, args in steps
    ]
    order = '[{"size": "small", "toppings": ["meatballs"], "special_instructions": null}]'
    return DummyLM([*replies, {"reasoning": "It is complete.", "pizzas": order}])


async def main() -> None:
    import sayso  # added
    from sayso.adapters.dspy import guard, human_in_the_loop  # added

    dspy.configure(lm=scripted())
    agent: Any = dspy.ReAct(OrderPizza, tools=[human_in_the_loop(guest_requester)], max_iters=6)
    agent = guard(agent, sayso.Gate("sayso.db", agent="cook", wait=0))  # added
    wish = {"customer_request": "I need a small pizza with rocks on it"}
    pizzas = (await agent.run(wish)).output  # was:     pizzas = (await agent.acall(**wish)).pizzas
    print(f"Order: {pizzas}")


if __name__ == "__main__":
    asyncio.run(main())
