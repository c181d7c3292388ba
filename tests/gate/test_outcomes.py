"""How a call ends: with a result, an error, a doubt, or a question of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from cases import RUN, Case, person

from sayso import (
    CallFailed,
    Cancelled,
    InDoubt,
    InvalidDecision,
    Paused,
    Rejected,
    ResultNotKept,
    SaysoError,
    Superseded,
    codec,
)
from sayso.audit import verify
from sayso.gate.guard import this_call
from sayso.rows import CallStatus, RunStatus
from sayso.stores.base import Store
from sayso.testing import FakeClock
from sayso.types import Execution

# -- errors and results


def test_first_error_is_raised_and_later_reported(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def fetch(name: str) -> str:
        case.ran.append(name)
        raise FileNotFoundError(f"no file {name}")

    with pytest.raises(FileNotFoundError, match="no file notes"):
        case.enter(lambda: fetch("notes"))
    for _ in range(2):
        with pytest.raises(CallFailed, match="FileNotFoundError: no file notes"):
            case.enter(lambda: fetch("notes"))
    assert case.ran == ["notes"]
    run = case.store.run(RUN)
    assert run is not None
    assert run.status is RunStatus.FAILED


class NoFunds(Exception):
    """An exception that one text makes."""


class Declined(Exception):
    """An exception that needs more than its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


@pytest.mark.parametrize(
    ("error", "text"), [(NoFunds("no euros"), "no euros"), (Declined(5, "card"), "5: card")]
)
def test_declared_error_is_raised_again(case: Case, error: Exception, text: str) -> None:
    @case.gate.guard(needs_approval=False, raises=(NoFunds, Declined))
    def pay() -> None:
        case.ran.append("pay")
        raise error

    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            case.enter(pay)
        assert str(caught.value) == text
    assert isinstance(caught.value.__cause__, CallFailed)
    assert case.ran == ["pay"]


@pytest.mark.parametrize("message", ["caf\udce9", "\x00\x1b[31m", "x" * 100_000, ""])
def test_error_with_any_text_is_recorded(case: Case, message: str) -> None:
    @case.gate.guard(needs_approval=False)
    def fetch() -> str:
        case.ran.append("fetch")
        raise OSError(message)

    with pytest.raises(OSError):  # noqa: PT011
        case.enter(fetch)
    with pytest.raises(CallFailed, match="OSError"):
        case.enter(fetch)
    assert case.ran == ["fetch"]


def test_unprintable_error_is_recorded(case: Case) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("I have no words")

    @case.gate.guard(needs_approval=False)
    def fetch() -> str:
        case.ran.append("fetch")
        raise Mute

    with pytest.raises(Mute):
        case.enter(fetch)
    with pytest.raises(CallFailed, match="Mute"):
        case.enter(fetch)
    assert case.ran == ["fetch"]


@pytest.mark.parametrize("value", [object(), "half a pair: \ud800"])
def test_unstorable_result_is_no_failure(case: Case, value: object) -> None:
    """It ran, and that is what the record says: the call is done, its result was not kept."""

    @case.gate.guard(needs_approval=False)
    def connect() -> Any:
        case.ran.append("connect")
        return value

    with pytest.raises(ResultNotKept, match="ran, but its result could not be stored") as first:
        case.enter(connect)
    assert first.value.value is value
    with pytest.raises(ResultNotKept, match="ran, but its result could not be stored"):
        case.enter(connect)
    assert case.ran == ["connect"]
    (call,) = case.store.calls_of(RUN)
    assert (call.status, call.result) == (CallStatus.DONE, None)
    recorded = [e for e in case.store.chain(call.thread) if e.type == "recorded"]
    assert [codec.loads(e.body or "")["ok"] for e in recorded] == [True]
    assert "not_kept" in (recorded[0].body or "")


def test_first_and_later_entries_return_equal_results(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def pair() -> tuple[int, list[int]]:
        return (1, [2])

    @case.gate.guard(needs_approval=False)
    def loose() -> Any:
        return (1, [2])

    assert case.enter(pair) == case.enter(pair) == (1, [2])
    assert case.enter(loose) == case.enter(loose) == [1, [2]]


def test_this_call_describes_the_running_call(case: Case) -> None:
    seen = []

    @case.gate.guard(needs_approval=True)
    def pay(to: str) -> None:
        seen.append(this_call())

    request = case.paused(lambda: pay("bo"))
    case.decide(request.edit({"to": "cy"}))
    case.enter(lambda: pay("bo"))
    (call,) = seen
    assert (call.run, call.id, call.key, call.attempt) == (RUN, request.id, request.id, 1)
    assert call.decision is not None
    assert (call.decision.by, call.decision.type) == ("ana", "edit")
    assert call.original == {"to": "bo"}
    with pytest.raises(SaysoError, match="only inside a guarded function"):
        this_call()


# -- cut short


async def test_timeout_after_the_start_is_in_doubt(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    async def pay(to: str) -> str:
        case.ran.append(to)
        await asyncio.sleep(0 if len(case.ran) > 1 else 60)
        return "paid"

    with pytest.raises(TimeoutError):
        async with case.gate.run(RUN), asyncio.timeout(0.1):
            await pay("bo")
    (request,) = (await case.inbox.pending()).items
    assert (request.kind, request.execution.status) == ("in_doubt", "in_doubt")
    assert request.allowed == ("approve", "respond", "reject")
    with pytest.raises(Paused):
        async with case.gate.run(RUN):
            await pay("bo")
    assert case.ran == ["bo"]
    await case.inbox.decide(request.id, request.approve(), by="ana")
    async with case.gate.run(RUN):
        assert await pay("bo") == "paid"
    assert case.ran == ["bo", "bo"]


async def test_timeout_while_waiting_leaves_request_pending(case: Case) -> None:
    @case.gate.guard(needs_approval=True, wait=None)
    async def pay(to: str) -> str:
        case.ran.append(to)
        return "paid"

    with pytest.raises(TimeoutError):
        async with case.gate.run(RUN), asyncio.timeout(0.1):
            await pay("bo")
    (request,) = (await case.inbox.pending()).items
    assert (request.kind, request.status) == ("approval", "pending")
    await case.inbox.decide(request.id, request.approve(), by="ana")
    async with case.gate.run(RUN):
        assert await pay("bo") == "paid"
    assert case.ran == ["bo"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_after_the_start_is_in_doubt(case: Case, error: type[BaseException]) -> None:
    @case.gate.guard(needs_approval=True)
    def pay(to: str) -> str:
        case.ran.append(to)
        raise error

    case.approved(lambda: pay("bo"))
    with pytest.raises(error):
        case.enter(lambda: pay("bo"))
    request = case.pending(kind="in_doubt")
    assert request.tool == "pay"
    assert case.paused(lambda: pay("bo")).id == request.id
    assert case.ran == ["bo"]


def doubted(case: Case, **options: Any) -> Callable[[], str]:
    """A call that was interrupted once, and would work the next time."""

    @case.gate.guard(needs_approval=True, **options)
    def pay(to: str) -> str:
        case.ran.append(to)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return "paid"

    case.approved(lambda: pay("bo"))
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: pay("bo"))
    return lambda: case.enter(lambda: pay("bo"))


def test_approved_doubt_runs_again(case: Case) -> None:
    enter = doubted(case)
    case.decide(case.pending().approve())
    assert enter() == enter() == "paid"
    assert case.ran == ["bo", "bo"]


def test_doubt_outlives_the_request_expiry(timed: Case, clock: FakeClock) -> None:
    enter = doubted(timed, expires_in=60)
    clock.advance(86_400)
    request = timed.pending(kind="in_doubt")
    assert request.expires_at is None
    timed.decide(request.approve())
    assert enter() == "paid"


def test_idempotent_call_runs_again_after_its_expiry(timed: Case, clock: FakeClock) -> None:
    enter = doubted(timed, expires_in=60, effect="idempotent")
    clock.advance(3_600)
    assert enter() == "paid"
    assert timed.ran == ["bo", "bo"]


def test_idempotent_call_with_quorum_runs_again(case: Case) -> None:
    @case.gate.guard(needs_approval=True, quorum=2, effect="idempotent")
    def sync(what: str) -> str:
        case.ran.append(this_call().attempt)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return "in sync"

    request = case.paused(lambda: sync("notes"))
    for name in ("ana", "bea"):
        case.decide(request.approve(), person(name))
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: sync("notes"))
    assert case.enter(lambda: sync("notes")) == "in sync"
    assert case.ran == [1, 2]
    assert verify(case.store).ok


def test_answered_doubt_returns_the_answer(case: Case) -> None:
    enter = doubted(case)
    case.decide(case.pending().respond("it went through"))
    assert enter() == enter() == "it went through"
    assert case.ran == ["bo"]


def test_rejected_doubt_raises_in_doubt(case: Case) -> None:
    enter = doubted(case)
    case.decide(case.pending().reject("nobody will ever know"))
    for _ in range(2):
        with pytest.raises(InDoubt, match="given up by ana: nobody will ever know"):
            enter()
    assert case.ran == ["bo"]


def test_old_approval_does_not_settle_a_doubt(case: Case) -> None:
    doubted(case)
    request = case.pending()
    (old,) = [e for e in case.inbox.events_sync(request.id) if e.type == "asked"]
    with pytest.raises(SaysoError, match="is not what you saw"):
        case.inbox.decide_sync(
            request.id, request.approve(), by="ana", seen_digest=str(old.body)[:64]
        )
    with pytest.raises(InvalidDecision, match="'edit' is not allowed"):
        case.decide(request.edit({"to": "cy"}))
    assert case.pending().kind == "in_doubt"


def test_idempotent_calls_run_again_unasked(case: Case) -> None:
    @case.gate.guard(needs_approval=False, effect="idempotent")
    def sync(what: str) -> str:
        case.ran.append(this_call().attempt)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return "in sync"

    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: sync("notes"))
    assert case.inbox.pending_sync().items == ()
    assert case.enter(lambda: sync("notes")) == "in sync"
    assert case.ran == [1, 2]


# -- called off


def test_cancelled_gate_run_starts_no_call(case: Case) -> None:
    pay = case.paying()
    case.approved(lambda: pay("bo"))
    waiting = case.paused(lambda: pay("cy"))
    case.gate.cancel_sync(RUN, by="ana", reason="changed my mind")
    assert case.inbox.get_sync(waiting.id).status == "cancelled"
    for to in ("bo", "cy", "di"):
        with pytest.raises(Cancelled):
            case.enter(lambda to=to: pay(to))
    assert case.ran == []
    assert case.inbox.pending_sync().items == ()


def test_call_running_during_cancellation_is_recorded(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def pay(to: str) -> str:
        case.gate.cancel_sync(RUN, reason="too late")
        return "paid"

    assert case.enter(lambda: pay("bo")) == "paid"
    assert case.enter(lambda: pay("bo")) == "paid"
    run = case.store.run(RUN)
    assert run is not None
    assert run.status is RunStatus.CANCELLED
    with pytest.raises(Cancelled, match="too late"):
        case.enter(lambda: pay("cy"))


def test_newer_input_supersedes_pending_requests(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    case.gate.supersede_sync(RUN)
    assert case.inbox.get_sync(request.id).status == "superseded"
    with pytest.raises(Superseded, match="nothing was run"):
        case.enter(lambda: case.paying()("bo"))
    with pytest.raises(SaysoError, match="superseded"):
        case.decide(request.approve())


def test_cancelling_a_request_keeps_the_run(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    case.inbox.cancel_sync(request.id, by="ana", reason="not needed")
    with pytest.raises(Cancelled, match="not needed"):
        case.enter(lambda: case.paying()("bo"))
    ended = case.inbox.get_sync(request.id)
    assert (ended.status, ended.execution) == ("cancelled", Execution("none", 0, "not needed"))
    assert verify(case.store).ok
    case.approved(lambda: case.paying()("cy"))
    assert case.enter(lambda: case.paying()("cy")) == "paid cy 3"


def test_rejected_question_raises_with_the_reason(case: Case) -> None:
    case.decide(case.paused(lambda: case.gate.ask_sync("Which size?")).reject("none of your"))
    with pytest.raises(Rejected, match="ana rejected it: none of your") as caught:
        case.enter(lambda: case.gate.ask_sync("Which size?"))
    assert caught.value.request is not None
    assert caught.value.request.status == "rejected"


# -- clocks that jump


def test_clock_jump_ahead_runs_no_call_twice(
    make_store: Callable[..., Store], clock: FakeClock
) -> None:
    case = Case(make_store(clock=clock))

    @case.gate.guard(needs_approval=False)
    def pay(to: str) -> str:
        case.ran.append(to)
        clock.advance(86_400)
        assert case.pending().kind == "in_doubt"
        return "paid"

    assert case.enter(lambda: pay("bo")) == "paid"
    assert case.enter(lambda: pay("bo")) == "paid"
    assert case.ran == ["bo"]
    assert case.inbox.pending_sync().items == ()


def test_clock_jump_back_takes_no_lease(make_store: Callable[..., Store], clock: FakeClock) -> None:
    case = Case(make_store(clock=clock))

    @case.gate.guard(needs_approval=False)
    def turn_back(to: str) -> str:
        clock.set(clock() - 86_400_000_000)
        assert case.inbox.pending_sync().items == ()
        return "paid"

    assert case.enter(lambda: turn_back("bo")) == "paid"
    case.approved(lambda: case.paying(expires_in=60)("cy"))
    assert case.enter(lambda: case.paying(expires_in=60)("cy")) == "paid cy 3"
