"""A key belongs to one kind of call and one function: nothing else answers under it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cases import RUN, Case

from sayso import Gate, Paused, Question, Respond


def _told(case: Case, **options: Any) -> Any:
    """A guarded function that takes what ``confirm`` asks about."""

    @case.gate.guard(needs_approval=False, **options)
    def pay(text: str, details: dict[str, int]) -> bool:
        case.ran.append(text)
        return True

    return pay


def test_guarded_call_named_confirm_answers_no_confirmation(case: Case) -> None:
    pay = _told(case, key=lambda args: 1)
    case.enter(lambda: pay("Delete production?", {}))
    request = case.paused(lambda: case.gate.confirm_sync("Delete production?", key="pay:1"))
    assert request.tool is None
    case.decide(request.reject("no"))
    assert case.enter(lambda: case.gate.confirm_sync("Delete production?", key="pay:1")) is False


def test_no_key_reaches_a_guarded_call(case: Case) -> None:
    """Whatever the text of a key, it cannot be that of a call made by another door."""
    pay = _told(case)
    case.enter(lambda: pay("Sure?", {}))
    (row,) = case.store.calls_of(RUN)
    forms = {row.key, row.key.partition(":")[2], row.key.rpartition("#")[0], row.key + "/"}
    for key in forms:
        for ask in (case.gate.confirm_sync, case.gate.ask_sync):
            case.paused(lambda ask=ask, key=key: ask("Sure?", key=key))
    assert len(case.store.calls_of(RUN)) == 1 + 2 * len(forms)


def test_confirm_ask_and_once_share_no_keys(case: Case) -> None:
    question = case.paused(lambda: case.gate.ask_sync("Sure?", key="k"))
    case.decide(question.respond("yes"))
    assert case.enter(lambda: case.gate.once_sync("k", lambda: "once")) == "once"
    asked = case.paused(lambda: case.gate.confirm_sync("Sure?", key="k"))
    assert asked.id != question.id
    assert case.enter(lambda: case.gate.ask_sync("Sure?", key="k")) == "yes"
    assert case.enter(lambda: case.gate.once_sync("k", lambda: "again")) == "once"


@pytest.mark.parametrize("name", ["once", "ask", "confirm", "approval", "question", "call"])
def test_function_may_be_called_like_a_kind(case: Case, name: str) -> None:
    @case.gate.guard(needs_approval=False, name=name, key=lambda args: "k")
    def step(key: str) -> str:
        return f"the function {name}"

    assert case.enter(lambda: case.gate.once_sync("k", lambda: "the step")) == "the step"
    assert case.enter(lambda: step("k")) == f"the function {name}"
    assert case.enter(lambda: case.gate.once_sync("k", lambda: "the step")) == "the step"


def test_two_functions_may_use_one_key(case: Case) -> None:
    @case.gate.guard(needs_approval=False, key=lambda args: args["order"])
    def reserve(order: str) -> str:
        return "reserved"

    @case.gate.guard(needs_approval=False, key=lambda args: args["order"])
    def ship(order: str) -> str:
        return "shipped"

    assert case.enter(lambda: (reserve("17"), ship("17"))) == ("reserved", "shipped")


def test_second_function_of_a_name_is_refused(case: Case) -> None:
    def billing() -> Any:
        def pay(to: str) -> str:
            return f"billed {to}"

        return pay

    def payroll() -> Any:
        def pay(to: str) -> str:
            return f"paid {to}"

        pay.__module__ = "payroll"
        return pay

    case.gate.guard(needs_approval=False)(billing())
    with pytest.raises(TypeError, match="name="):
        case.gate.guard(needs_approval=False)(payroll())
    case.gate.guard(needs_approval=False)(billing())  # the same function, defined again
    other = case.gate.guard(needs_approval=False, name="pay_salary")(payroll())
    assert case.enter(lambda: other("bo")) == "paid bo"


def test_questions_of_two_bodies_are_separate(case: Case) -> None:
    """The body of a finished call is not run again, so its questions are not counted again."""

    @case.gate.guard(needs_approval=False)
    def pay(order: int) -> str:
        return f"{order} from {case.gate.ask_sync('Which account?')}"

    def both() -> list[str]:
        return [pay(1), pay(2)]

    case.decide(case.paused(both).respond("A"))
    case.decide(case.paused(both).respond("B"))
    assert case.enter(both) == ["1 from A", "2 from B"]


async def test_questions_of_concurrent_bodies_keep_their_answers(case: Case) -> None:
    late = 1

    @case.gate.guard(needs_approval=False)
    async def pay(order: int) -> str:
        if order == late:
            await asyncio.sleep(0.02)
        return f"{order} from {await case.gate.ask('Which account?')}"

    async def both() -> list[Any]:
        async with case.gate.run(RUN):
            return await asyncio.gather(pay(1), pay(2), return_exceptions=True)

    await both()
    asked = {call.id: call for call in case.store.calls_of(RUN)}
    for call in list(asked.values()):
        if call.kind == "question":
            order = next(c.args for c in asked.values() if call.key.startswith(f"{c.key}/"))
            await case.inbox.decide(call.id, Respond(order), by="ana")
    late = 2
    assert await both() == ['1 from {"order":1}', '2 from {"order":2}']


def test_named_step_in_bodies_runs_once_per_run(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def pay(order: int) -> Any:
        return case.gate.once_sync("log in", lambda: case.ran.append("log in"))

    case.enter(lambda: [pay(1), pay(2)])
    assert case.ran == ["log in"]


def test_slash_in_key_matches_no_inner_key(case: Case) -> None:
    @case.gate.guard(needs_approval=False, key=lambda args: args["key"])
    def pay(key: str) -> Any:
        return case.gate.ask_sync("Sure?")

    case.decide(case.paused(lambda: pay("a")).respond("inner"))
    inner = next(call for call in case.store.calls_of(RUN) if call.kind == "question")
    forged = inner.key.partition("=")[2]
    request = case.paused(lambda: pay(forged))
    assert request.id != inner.id
    assert len([call for call in case.store.calls_of(RUN) if call.tool == "pay"]) == 2


def test_equal_keys_of_two_gates_are_separate(case: Case) -> None:
    other = Gate(case.store, agent="bot", wait=0)
    question = Question("Sure?", ["yes", "no"])
    first = case.paused(lambda: case.gate.ask_sync(question, key="k"))
    with pytest.raises(Paused) as caught, other.run(RUN):
        other.confirm_sync("Sure?", key="k")
    assert caught.value.requests[0].id != first.id
