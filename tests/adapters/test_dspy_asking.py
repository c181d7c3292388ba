"""The DSPy document's code with only its imports changed, and further requesters."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from harness_dspy import FakeLM, Said, dspy
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from sayso import AlreadyDecided, Expired, Gate, Inbox, Paused, Policy, Rule
from sayso.adapters.dspy import (
    HumanInputRequest,
    console_requester,
    create_queue_requester,
    guard,
    human_in_the_loop,
    inbox_requester,
    scripted_requester,
    still_open,
)


class Pizza(TypedDict):
    size: str
    toppings: list[str]
    special_instructions: str | None


class OrderPizza(dspy.Signature):  # type: ignore[misc]
    """
    An agent that can ask clarifying questions about a pizza order.
    It can handle multiple pizzas and special instructions.
    """

    customer_request = dspy.InputField()
    pizzas: list[Pizza] = dspy.OutputField()


ORDER = "I need a small pizza with rocks on it"
TALK = [
    ("You mentioned 'rocks'. Could you clarify what you mean by that?", "I want rocks on it"),
    ("What kind of 'rocks' are you looking for?", "rocks like you'd find on a hill"),
    ("We cannot put rocks on a pizza. Another topping?", 'can you use meatballs to make "rocks"'),
    ("Whole meatballs, or crumbled?", "small pizza with meatballs crumbled to resemble rocks"),
]
WHOLE = [
    {
        "size": "small",
        "toppings": ["meatballs"],
        "special_instructions": "meatballs crumbled to resemble rocks",
    }
]


class Cook:
    """A model that asks what the document's model asked, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def reply(self, messages: Sequence[Said]) -> dict[str, Any]:
        self.asked += 1
        text = "".join(text for _, text in messages)
        if "`[[ ## pizzas ## ]]`" in text:
            return {"reasoning": "It is whole.", "pizzas": WHOLE}
        step = sum(answer in text for _, answer in TALK)
        name, args = "finish", {}
        if step < len(TALK):
            name, args = "ask_human", {"question": TALK[step][0]}
        return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": args}

    def lm(self) -> FakeLM:
        return FakeLM(self.reply)


def cook(*tools: Any) -> Any:
    return dspy.ReAct(signature=OrderPizza, tools=list(tools), max_iters=6)


async def test_terminal_requester_completes_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(answer for _, answer in TALK)
    seen: list[str] = []

    def person(prompt: str = "") -> str:
        seen.append(prompt)
        return next(answers)

    monkeypatch.setattr(builtins, "input", person)
    agent = cook(human_in_the_loop(console_requester))
    with dspy.context(lm=Cook().lm()):
        done = await agent.acall(customer_request=ORDER)
    assert done.pizzas == WHOLE
    assert [prompt.strip(" >\n") for prompt in seen] == [question for question, _ in TALK]


async def test_queue_requester_completes_the_order() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    pending: dict[str, Any] = {}
    agent = cook(human_in_the_loop(create_queue_requester(queue, pending)))

    async def browser() -> None:
        for question, answer in TALK:
            item = await queue.get()
            assert (item["type"], item["question"]) == ("human_input", question)
            assert still_open(pending) == [item]  # for a page that comes late
            pending[item["id"]]["request"].set_response(answer)
            assert pending == {}  # answered, and taken out

    with dspy.context(lm=Cook().lm()):
        page = asyncio.create_task(browser())
        done = await agent.acall(customer_request=ORDER)
        await page
    assert done.pizzas == WHOLE


async def test_order_survives_new_processes(tmp_path: Any) -> None:
    """Each answer comes to another process; the model is asked once for each step."""
    model = Cook()
    url = f"sqlite:///{tmp_path / 'sayso.db'}"

    def process() -> tuple[Gate, Any]:
        gate = Gate(url, agent="cook", wait=0)
        tool = human_in_the_loop(inbox_requester(gate))
        return gate, guard(cook(tool), gate, lm=model.lm())

    gate, agent = process()
    result = await agent.run(ORDER, thread="order-1")
    for step, (question, answer) in enumerate(TALK):
        assert (result.status, model.asked) == ("paused", step + 1)
        (request,) = result.interruptions
        assert request.question is not None
        assert request.question.text == question
        await Inbox(gate.store).decide(request.id, request.respond(answer), by="guest")
        gate.close()
        gate, agent = process()
        result = await agent.resume("order-1")
    assert (result.status, result.output) == ("done", WHOLE)
    assert model.asked == len(TALK) + 2  # each question, the end, and the order
    again = await agent.resume("order-1")
    assert (again.output, model.asked) == (WHOLE, len(TALK) + 2)
    gate.close()


async def test_rule_requires_approval_of_question() -> None:
    gate = Gate("memory://", agent="cook", wait=0)
    tool = human_in_the_loop(inbox_requester(gate))
    agent = guard(cook(tool), gate, Policy([Rule("ask_human")]), lm=Cook().lm())
    (request,) = (await agent.run(ORDER, thread="order-1")).interruptions
    assert (request.kind, request.tool) == ("approval", "ask_human")
    result = await agent.resume("order-1", decisions=[request.approve()])
    assert [request.kind for request in result.interruptions] == ["question"]
    gate.close()


# -- a request by itself


async def test_early_answer_is_kept_for_readers() -> None:
    request = HumanInputRequest("Size?")
    request.set_response("small")
    assert [await request.response() for _ in range(3)] == ["small"] * 3


async def test_answer_from_os_thread_wakes_all_waiters() -> None:
    request = HumanInputRequest("Size?")
    waiting = [asyncio.create_task(request.response()) for _ in range(5)]
    await asyncio.sleep(0)
    threading.Timer(0.05, request.set_response, ("large",)).start()
    assert await asyncio.gather(*waiting) == ["large"] * 5


def test_first_of_many_answers_counts() -> None:
    request = HumanInputRequest("Size?")
    lost: list[str] = []

    def answer(n: int) -> None:
        try:
            request.set_response(str(n))
        except AlreadyDecided:
            lost.append(str(n))

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 99
    assert asyncio.run(request.response()) not in lost


async def test_unanswered_question_expires() -> None:
    request = HumanInputRequest("Size?")
    with pytest.raises(Expired, match=r"within 0\.01 seconds"):
        await request.response(0.01)
    request.set_response("late")
    assert await request.response() == "late"


async def test_answer_must_be_text() -> None:
    with pytest.raises(TypeError):
        HumanInputRequest("Size?").set_response(5)  # type: ignore[arg-type]


async def test_scripted_requester_answers_until_exhausted() -> None:
    tool = human_in_the_loop(scripted_requester(["small"]))
    assert await tool.acall(question="Size?") == "small"
    with pytest.raises(Expired, match="no answer left"):
        await tool.acall(question="Toppings?")


async def test_inbox_requester_pauses_outside_agent() -> None:
    gate = Gate("memory://", wait=0)
    tool = human_in_the_loop(inbox_requester(gate))
    with pytest.raises(Paused):
        await tool.acall(question="Size?")
    (request,) = (await Inbox(gate.store).pending()).items
    assert request.question is not None
    assert request.question.text == "Size?"
