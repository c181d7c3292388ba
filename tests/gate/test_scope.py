"""Questions inside a guarded function, and steps that run once whatever comes between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, aside
from waiting import until

from sayso import InvalidCall, Paused
from sayso.stores import open_store
from sayso.testing import FakeClock


def test_asking_function_restarts_from_the_top(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def order() -> str:
        case.ran.append("top")
        case.gate.once_sync("oven", lambda: case.ran.append("oven on"))
        size = case.gate.ask_sync("Which size?")
        topping = case.gate.ask_sync("Which topping?")
        case.ran.append("order")
        return f"{size} with {topping}"

    assert case.paused(order).question.text == "Which size?"
    assert [request.kind for request in case.inbox.pending_sync().items] == ["question"]
    case.decide(case.pending().respond("large"))
    assert case.paused(order).question.text == "Which topping?"
    case.decide(case.pending().respond("olives"))
    assert case.enter(order) == case.enter(order) == "large with olives"
    assert case.ran == ["top", "oven on", "top", "top", "order"]
    assert case.types().count("in_doubt") == 0


def test_security_page_describes_asking_bodies(case: Case) -> None:
    """SECURITY.md, "Once": each of its sentences, in a call that a person has approved."""
    page = Path(__file__).parents[2] / "SECURITY.md"
    words = " ".join(page.read_text("utf-8").split())
    assert "asks a person in its body and pauses there starts again from the top" in words
    assert "Everything else above the question runs again, once for each pause." in words
    assert "Once a call has ended, its body does not start again." in words

    @case.gate.guard(needs_approval=False)
    def charge() -> None:
        case.ran.append("guarded")

    @case.gate.guard(needs_approval=True)
    def order() -> str:
        case.ran.append("above")
        case.gate.once_sync("step", lambda: case.ran.append("once"))
        charge()
        size = case.gate.ask_sync("Which size?")
        sure = case.gate.confirm_sync("Sure?")
        case.ran.append("below")
        return f"{size} {sure}"

    case.decide(case.paused(order).approve())
    case.decide(case.paused(order).respond("large"))
    case.decide(case.paused(order).approve())
    assert case.enter(order) == case.enter(order) == "large True"
    assert [case.ran.count(what) for what in ("above", "once", "guarded", "below")] == [3, 1, 1, 1]
    assert "in_doubt" not in case.types()


def test_waiting_body_continues_in_place(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def order() -> str:
        case.ran.append("above")
        return str(case.gate.ask_sync("Which size?", wait=None))

    got: list[str] = []
    thread = aside(lambda: got.append(case.enter(order)))
    question = until(lambda: case.inbox.pending_sync().items)[0]
    case.decide(question.respond("large"))
    thread.join(20)
    assert (got, case.ran) == (["large"], ["above"])


def test_asking_function_without_a_run_gets_one(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def order() -> Any:
        return case.gate.ask_sync("Which size?")

    with pytest.raises(Paused) as caught:
        order()
    case.decide(case.pending().respond("large"))
    assert case.enter(order, caught.value.run) == "large"


def test_late_answers_cause_no_extra_requests(timed: Case, clock: FakeClock) -> None:
    gate = timed.gate

    @gate.guard(needs_approval=False)
    def weigh() -> str:
        return str(gate.once_sync("scales", lambda: gate.ask_sync("How heavy?")))

    @gate.guard(needs_approval=False)
    def ship() -> str:
        return f"{weigh()} by {gate.ask_sync('By whom?')}"

    for question, answer in (("How heavy?", "5 kg"), ("By whom?", "bike")):
        assert timed.paused(ship).question.text == question
        clock.advance(3 * 86_400)
        timed.decide(timed.pending().respond(answer))
    assert timed.enter(ship) == "5 kg by bike"


async def test_async_function_may_ask(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    async def order() -> str:
        case.ran.append("top")
        return f"a {await case.gate.ask('Which size?')} one"

    for _ in range(2):
        with pytest.raises(Paused):
            async with case.gate.run(RUN):
                await order()
    request = (await case.inbox.pending()).items[0]
    await case.inbox.decide(request.id, request.respond("large"), by="ana")
    async with case.gate.run(RUN):
        assert await order() == "a large one"
    assert case.ran == ["top", "top", "top"]


def test_guarded_function_may_call_another(case: Case) -> None:
    pay = case.paying()

    @case.gate.guard(needs_approval=False)
    def order() -> str:
        return f"ordered and {pay('bo')}"

    case.approved(order)
    assert case.enter(order) == "ordered and paid bo 3"
    assert case.ran == [("bo", 3)]


def test_answer_arrives_while_the_function_waits(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def order() -> Any:
        case.ran.append("top")
        return case.gate.ask_sync("Which size?", wait=None)

    def body() -> None:
        until(lambda: case.inbox.pending_sync().items)
        case.decide(case.pending().respond("large"))

    aside(body)
    assert case.enter(order) == "large"
    assert case.ran == ["top"]


# -- once


def test_once_runs_a_step_once_per_run(case: Case) -> None:
    def step(name: str, *, more: int) -> list[Any]:
        case.ran.append(name)
        return [name, more]

    for run in ("a", "a", "b"):
        assert case.enter(lambda: case.gate.once_sync("s", step, "x", more=2), run) == ["x", 2]
    assert case.ran == ["x", "x"]
    with pytest.raises(InvalidCall, match="named run"):
        case.gate.once_sync("s", step, "x", more=2)


async def test_once_takes_coroutines(case: Case) -> None:
    async def step() -> str:
        case.ran.append("step")
        return "done"

    for _ in range(2):
        async with case.gate.run(RUN):
            assert await case.gate.once("s", step) == "done"
    assert case.ran == ["step"]


async def test_once_refuses_a_call_instead_of_a_function(case: Case) -> None:
    async def step() -> str:
        case.ran.append("step")
        return "done"

    async with case.gate.run(RUN):
        for wrong in (step(), "done", None):
            with pytest.raises(InvalidCall, match="pass a function"):
                await case.gate.once("s", wrong)  # type: ignore[arg-type]
        assert await case.gate.once("s", step) == "done"
    assert case.ran == ["step"]


def test_once_in_doubt_asks(case: Case) -> None:
    def step() -> str:
        case.ran.append("step")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: case.gate.once_sync("charge", step))
    request = case.paused(lambda: case.gate.once_sync("charge", step))
    assert (request.kind, request.tool, request.args) == ("in_doubt", "once", {"key": "charge"})
    case.decide(request.respond("charged"))
    assert case.enter(lambda: case.gate.once_sync("charge", step)) == "charged"
    assert case.ran == ["step"]


def test_inner_call_of_another_gate_joins_the_run(case: Case) -> None:
    other = Case(case.store, agent="other")

    @case.gate.guard(needs_approval=False)
    def outer() -> str:
        return other.paying()("bo")

    request = case.paused(outer)
    assert (request.run, request.agent) == (RUN, "other")
    case.decide(request.approve())
    assert case.enter(outer) == case.enter(outer) == "paid bo 3"
    assert other.ran == [("bo", 3)]


def test_gate_on_another_store_starts_its_own_run(case: Case) -> None:
    elsewhere = Case(open_store("memory://"))
    with case.gate.run(RUN), pytest.raises(Paused) as caught:
        elsewhere.paying()("bo")
    assert caught.value.run != RUN
