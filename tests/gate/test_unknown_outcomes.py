"""A call that raised may have had its effect: it is in doubt and keeps its key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from cases import RUN, Case
from tenacity import RetryError, retry, stop_after_attempt

import sayso
from sayso import CallFailed, DidNotRun, DuplicateEffect, InDoubt, NotExecuted, Paused, Ran
from sayso.audit import verify
from sayso.channels.card import card
from sayso.rows import CallStatus
from sayso.types import moment


class CardDeclined(Exception):
    """Nothing was paid."""


class Bank:
    """Pays, and then raises."""

    def __init__(self, case: Case, error: BaseException, **options: Any) -> None:
        self.case = case
        self.error: BaseException | None = error

        @case.gate.guard(**{"needs_approval": False, **options})
        def pay(order: str) -> str:
            case.ran.append(order)
            if self.error is not None:
                raise self.error
            return f"paid {order}"

        self.pay = pay

    def call(self, run: str = RUN) -> Any:
        with self.case.gate.run(run):
            return self.pay("17")

    def raised(self, run: str = RUN) -> BaseException:
        with pytest.raises(BaseException) as caught:  # noqa: PT011
            self.call(run)
        return caught.value

    def row(self, run: str = RUN) -> Any:
        (call,) = self.case.store.calls_of(run)
        return call


def check_in_doubt(bank: Bank, reason: str) -> sayso.Request:
    """Check that the call is in doubt, and return its request."""
    raised = bank.raised()
    assert isinstance(raised, Paused)
    (request,) = raised.requests
    assert (request.kind, request.execution.status) == ("in_doubt", "in_doubt")
    assert request.execution.result == reason
    assert bank.row().doubt.ended is True
    assert bank.case.ran == ["17"]
    return request


# -- an effect that is unique, or can be looked up


KEYED: list[dict[str, Any]] = [
    {"effect_key": "pay:{order}"},
    {"effect_key": lambda args: f"pay:{args['order']}"},
    {"settle": lambda key: None},
    {"effect_key": "pay:{order}", "effect": "idempotent"},
]


@pytest.mark.parametrize("options", KEYED)
@pytest.mark.parametrize("error", [TimeoutError("no reply"), ValueError("odd"), InDoubt("?")])
def test_any_exception_leaves_keyed_call_in_doubt(
    case: Case, options: dict[str, Any], error: Exception
) -> None:
    bank = Bank(case, error, **options)
    raised = bank.raised()
    assert isinstance(raised, Paused)
    assert raised.__cause__ is error
    request = check_in_doubt(bank, f"{type(error).__name__}: {error}")
    case.decide(request.respond("paid by hand"))
    assert bank.call() == "paid by hand"
    assert verify(case.store).ok


def test_second_call_after_a_timeout_does_not_pay(case: Case) -> None:
    bank = Bank(case, TimeoutError("no reply"), effect_key="pay:{order}")
    bank.raised()
    with pytest.raises(DuplicateEffect, match="in_doubt"):
        bank.call("another run")
    assert case.ran == ["17"]


@pytest.mark.parametrize("error", [NotExecuted("no funds"), CardDeclined("no funds")])
def test_certain_exception_frees_the_key(case: Case, error: Exception) -> None:
    bank = Bank(case, error, effect_key="pay:{order}", not_executed=(CardDeclined,))
    assert bank.raised() is error
    assert bank.row().status is CallStatus.FAILED
    with pytest.raises(CallFailed, match="no funds"):
        bank.call()
    bank.error = None
    assert bank.call("another run") == "paid 17"
    assert verify(case.store).ok


def test_settle_is_asked_at_once(case: Case) -> None:
    asked: list[str] = []

    def settle(key: str) -> Ran:
        asked.append(key)
        return Ran("receipt 1")

    bank = Bank(case, TimeoutError("no reply"), effect_key="pay:{order}", settle=settle)
    assert bank.call() == "receipt 1"
    assert (case.ran, asked) == (["17"], ["pay:17"])
    assert bank.row().status is CallStatus.DONE
    assert verify(case.store).ok


def test_did_not_run_is_only_evidence(case: Case) -> None:
    def settle(key: str) -> DidNotRun:
        return DidNotRun("no payment yet")

    bank = Bank(case, TimeoutError("no reply"), effect_key="pay:{order}", settle=settle)
    bank.raised()
    request = check_in_doubt(bank, "TimeoutError: no reply")
    assert request.evidence is not None
    assert (request.evidence.answer, request.evidence.text) == ("did_not_run", "no payment yet")
    with pytest.raises(DuplicateEffect):
        bank.call("another run")
    case.decide(request.reject("it did not arrive"))
    bank.error = None
    assert bank.call("another one") == "paid 17"


def test_settle_is_not_asked_if_nothing_happened(case: Case) -> None:
    asked: list[str] = []
    bank = Bank(case, NotExecuted("no funds"), settle=asked.append)
    assert isinstance(bank.raised(), NotExecuted)
    assert asked == []


# -- an effect that was approved, or declared


def approved(case: Case, error: BaseException) -> Bank:
    bank = Bank(case, error, needs_approval=True)
    case.approved(bank.call)
    return bank


def granted(case: Case, error: BaseException) -> Bank:
    bank = Bank(case, error, needs_approval=True)
    request = case.paused(bank.call, "an earlier run")
    case.decide(request.reject("not now"))
    case.inbox.grant_sync(request, by="ana", uses=3)
    return bank


def declared(case: Case, error: BaseException) -> Bank:
    return Bank(case, error, effect="once")


def ruled(case: Case, error: BaseException) -> Bank:
    rule = sayso.Rule("pay", verdict="allow", effect="once")
    case.gate = sayso.Gate(case.store, wait=0, agent="bot", policy=sayso.Policy([rule]))
    return Bank(case, error, needs_approval=True)


MATTERS = [approved, declared, ruled]


@pytest.mark.parametrize("made", MATTERS)
@pytest.mark.parametrize(
    "error", [TimeoutError("no reply"), ConnectionResetError("reset"), InDoubt("?")]
)
def test_lost_reply_leaves_call_in_doubt(
    case: Case, error: Exception, made: Callable[[Case, BaseException], Bank]
) -> None:
    bank = made(case, error)
    raised = bank.raised()
    assert isinstance(raised, Paused)
    assert raised.__cause__ is error
    request = check_in_doubt(bank, f"{type(error).__name__}: {error}")
    case.decide(request.reject("called the bank"))
    with pytest.raises(InDoubt, match="called the bank"):
        bank.call()
    assert case.ran == ["17"]
    assert verify(case.store).ok


@pytest.mark.parametrize("made", MATTERS)
@pytest.mark.parametrize("error", [ValueError("odd"), json.JSONDecodeError("odd", "", 0)])
def test_other_exception_is_a_failure(
    case: Case, error: Exception, made: Callable[[Case, BaseException], Bank]
) -> None:
    bank = made(case, error)
    assert bank.raised() is error
    assert bank.row().status is CallStatus.FAILED
    with pytest.raises(CallFailed):
        bank.call()


def test_allowed_call_without_declaration_fails(case: Case) -> None:
    bank = Bank(case, TimeoutError("no reply"))
    assert isinstance(bank.raised(), TimeoutError)
    assert bank.row().status is CallStatus.FAILED


@pytest.mark.parametrize("effect", ["idempotent", "read"])
def test_repeatable_call_fails_after_a_timeout(case: Case, effect: str) -> None:
    bank = Bank(case, TimeoutError("no reply"), effect=effect, needs_approval=True)
    case.approved(bank.call)
    assert isinstance(bank.raised(), TimeoutError)
    assert bank.row().status in (CallStatus.FAILED, CallStatus.READY)


def test_tool_that_does_not_know_is_in_doubt(case: Case) -> None:
    bank = Bank(case, InDoubt("the bank sent half a reply"))
    bank.raised()
    check_in_doubt(bank, "InDoubt: the bank sent half a reply")


def test_cause_of_the_exception_counts(case: Case) -> None:
    class PaymentError(Exception):
        pass

    error = PaymentError("no reply")
    error.__cause__ = TimeoutError()
    bank = approved(case, error)
    bank.raised()
    check_in_doubt(bank, "PaymentError: no reply")


def test_exception_handled_by_the_caller_is_ignored(case: Case) -> None:
    bank = declared(case, ValueError("odd"))
    try:
        raise TimeoutError
    except TimeoutError:
        assert isinstance(bank.raised(), ValueError)
    assert bank.row().status is CallStatus.FAILED


# -- callers


def test_waiting_caller_receives_the_persons_result(case: Case) -> None:
    case.gate = sayso.Gate(case.store, wait=10, agent="bot", channels=[_settle_by(case)])
    bank = Bank(case, TimeoutError("no reply"), effect="once")
    assert bank.call() == "paid by hand"
    assert case.ran == ["17"]


def _settle_by(case: Case) -> Any:
    async def settle(request: sayso.Request) -> None:
        await case.inbox.decide(request, request.respond("paid by hand"), by="ana")

    return settle


def test_retrying_caller_does_not_pay_again(case: Case) -> None:
    bank = Bank(case, TimeoutError("no reply"), effect="once")

    @retry(stop=stop_after_attempt(3))
    def insist() -> Any:
        return bank.pay("17")

    with pytest.raises((Paused, RetryError)), case.gate.run(RUN):
        insist()
    with case.gate.run(RUN):
        for _ in range(2):
            with pytest.raises(Paused):
                bank.pay("17")
    assert case.ran == ["17"]


def test_call_outside_a_run_is_in_doubt(case: Case) -> None:
    bank = Bank(case, TimeoutError("no reply"), effect="once")
    with pytest.raises(Paused) as paused:
        bank.pay("17")
    (request,) = paused.value.requests
    case.decide(request.approve())
    bank.error = None
    with case.gate.run(paused.value.run):
        assert bank.pay("17") == "paid 17"
    assert case.ran == ["17", "17"]


def test_cancelled_running_call_is_in_doubt(case: Case) -> None:
    begun = asyncio.Event()

    @case.gate.guard(needs_approval=False, effect="once")
    async def pay(order: str) -> str:
        case.ran.append(order)
        begun.set()
        await asyncio.sleep(30)
        return "paid"

    async def run() -> None:
        async with case.gate.run(RUN):
            task = asyncio.create_task(pay("17"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    (call,) = case.store.calls_of(RUN)
    assert call.status is CallStatus.IN_DOUBT
    assert call.doubt is not None
    assert (call.doubt.ended, call.doubt.reason) == (False, "interrupted by CancelledError")


def test_step_with_a_lost_reply_is_in_doubt(case: Case) -> None:
    def step() -> str:
        case.ran.append("step")
        raise TimeoutError("no reply")

    for _ in range(2):
        with pytest.raises(Paused), case.gate.run(RUN):
            case.gate.once_sync("pay", step)
    assert case.ran == ["step"]


def test_failure_of_an_inner_call_is_its_own(case: Case) -> None:
    inner = Bank(case, NotExecuted("no funds"), effect_key="pay:{order}")

    @case.gate.guard(needs_approval=False, effect_key="settle:{order}")
    def settle(order: str) -> str:
        case.ran.append("fee")
        return str(inner.pay(order))

    with pytest.raises(Paused) as paused, case.gate.run(RUN):
        settle("17")
    (request,) = paused.value.requests
    assert request.tool == "settle"
    holders = {effect.key for effect in case.store.effects()}
    assert holders == {"/settle:17"}


def test_given_up_inner_call_leaves_no_second_doubt(case: Case) -> None:
    inner = Bank(case, TimeoutError("no reply"), effect="once")

    @case.gate.guard(needs_approval=False, effect="once")
    def settle(order: str) -> str:
        return str(inner.pay(order))

    request = case.paused(lambda: settle("17"))
    assert request.tool == "pay"
    case.decide(request.reject("gave up"))
    with pytest.raises(InDoubt):
        case.enter(lambda: settle("17"))
    assert case.inbox.pending_sync().items == ()


def test_person_sees_why_the_outcome_is_unknown(case: Case) -> None:
    bank = Bank(case, TimeoutError("no reply\u202e"), effect="once")
    request = case.paused(bank.call)
    shown = "\n".join(line.text for line in card(request, moment(case.store.now())))
    assert "Why its outcome is unknown" in shown
    assert "TimeoutError: no reply" in shown
    assert "\u202e" not in shown


# -- the option


@pytest.mark.parametrize(
    "wrong", [Exception, BaseException, InDoubt, "CardDeclined", CardDeclined("x"), 3]
)
def test_not_executed_takes_exact_classes(case: Case, wrong: Any) -> None:
    for given in (wrong, (CardDeclined, wrong)):
        with pytest.raises(TypeError, match="not_executed"):
            case.gate.guard(not_executed=given)(_pay)
        with pytest.raises(TypeError, match="not_executed"):
            sayso.tool(not_executed=given)(_pay)


def _pay(order: str) -> str:
    return order


def test_not_executed_takes_one_class(case: Case) -> None:
    bank = Bank(case, CardDeclined(), effect_key="pay:{order}", not_executed=CardDeclined)
    assert isinstance(bank.raised(), CardDeclined)
    assert case.store.effects() == []
