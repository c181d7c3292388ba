"""DSPy's pizza agent, with rocks: it asks until the order is complete, and survives restarts.

    python examples/dspy_pizza.py              # both sides scripted
    python examples/dspy_pizza.py --ask        # you answer in the terminal
    python examples/dspy_pizza.py --browser    # you answer on http://127.0.0.1:8321/inbox

The model is scripted, so no key is needed. To use a real one, pass it to `guard` as `lm=`.
"""

import asyncio
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
import dspy  # noqa: E402
from dspy.utils import DummyLM  # noqa: E402
from typing_extensions import TypedDict  # noqa: E402

import sayso  # noqa: E402
from sayso.adapters.dspy import (  # noqa: E402
    GuardedReAct,
    console_requester,
    guard,
    human_in_the_loop,
    inbox_requester,
)

GUEST = ["rocks like you'd find on a hill", "meatballs, crumbled to look like rocks"]
ASKS = ["We have no rocks. What do you mean by them?", "Something else instead?"]
ORDER = '[{"size": "small", "toppings": ["meatballs"], "special_instructions": "crumbled"}]'


class Pizza(TypedDict):
    size: str
    toppings: list[str]
    special_instructions: str | None


class OrderPizza(dspy.Signature):  # type: ignore[misc]
    """An agent that can ask clarifying questions about a pizza order."""

    customer_request = dspy.InputField()
    pizzas: list[Pizza] = dspy.OutputField()


def scripted() -> DummyLM:
    steps = [("ask_human", f'{{"question": "{text}"}}') for text in ASKS] + [("finish", "{}")]
    replies = [
        {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": args}
        for name, args in steps
    ]
    return DummyLM([*replies, {"reasoning": "It is complete.", "pizzas": ORDER}])


async def in_the_terminal() -> None:
    cook = dspy.ReAct(OrderPizza, tools=[human_in_the_loop(console_requester)], max_iters=6)
    with dspy.context(lm=scripted()):
        print((await cook.acall(customer_request="a small pizza with rocks")).pizzas)


def guarded(url: str, lm: DummyLM) -> GuardedReAct:
    gate = sayso.Gate(url, agent="cook", wait=0)
    tools = [human_in_the_loop(inbox_requester(gate))]
    return guard(dspy.ReAct(OrderPizza, tools=tools, max_iters=6), gate, lm=lm)


async def in_the_inbox(url: str) -> None:
    lm = scripted()
    result = await guarded(url, lm).run("a small pizza with rocks", thread="table-7")
    for answer in GUEST:
        (request,) = result.interruptions
        print("asked:", request.question and request.question.text)
        print("  answered:", answer)
        await sayso.Inbox(url).decide(request.id, request.respond(answer), by="guest")
        result = await guarded(url, lm).resume("table-7")  # or another process, next week
    print("the order:", result.output)


def in_the_browser(url: str) -> None:
    import uvicorn

    from sayso.server import create_app

    cook = guarded(url, scripted())
    asyncio.run(cook.run("a small pizza with rocks", thread="table-7"))
    uvicorn.run(create_app([cook], store=url, auth=False), port=8321)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/sayso.db"
        if "--ask" in sys.argv:
            asyncio.run(in_the_terminal())
        elif "--browser" in sys.argv:
            in_the_browser(store)
        else:
            asyncio.run(in_the_inbox(store))
