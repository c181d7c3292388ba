"""Settling a call in doubt: it ran, it did not run, or no one knows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import shop
from cases import RUN, Case
from waiting import until_async

import sayso
from sayso import AlreadyDecided, DidNotRun, InDoubt, Paused, Ran, SaysoError
from sayso.audit import verify
from sayso.channels.card import card
from sayso.client import RemoteGate
from sayso.gate import plan as plans
from sayso.rows import CallStatus, RunStatus
from sayso.stores.base import Store
from sayso.testing import FakeClock
from sayso.worker import Worker


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "SETTLE_SECONDS", 0.3)


def never(order: str) -> str:
    raise AssertionError("the refund ran again")


def the_call(store: Store) -> Any:
    run = store.run(shop.RUN) or store.last_run("t")
    assert run is not None
    (call,) = store.calls_of(run.id)
    return call


def hangs(key: str) -> None:
    time.sleep(30)


async def hangs_async(key: str) -> None:
    await asyncio.sleep(30)


def raises(key: str) -> None:
    raise ConnectionError("the bank does not answer")


UNKNOWN: dict[str, tuple[Callable[..., Any], str]] = {
    "none": (lambda key: None, ""),
    "raises": (raises, "ConnectionError: the bank does not answer"),
    "hangs": (hangs, "no answer within 0.3 seconds"),
    "hangs async": (hangs_async, "no answer within 0.3 seconds"),
    "rubbish": (lambda key: "it ran", "TypeError: settle= returned str"),
    "true": (lambda key: True, "TypeError: settle= returned bool"),
    "the class": (lambda key: Ran, "TypeError: settle= returned type"),
    "bad result": (lambda key: Ran(object()), "InvalidCall"),
    "wrong type": (lambda key: Ran(["paid"]), "InvalidDecision"),
    "too big": (lambda key: Ran("x" * 5_000_000), "InvalidDecision"),
    "exits": (lambda key: (_ for _ in ()).throw(SystemExit(1)), ""),
}


# -- a process dies in the middle


@pytest.mark.long
def test_settled_call_returns_the_first_result(url: str) -> None:
    shop.kill_in_body(url)
    time.sleep(shop.LEASE)
    asked: list[tuple[str, str]] = []

    def settle(key: str, order: str) -> Ran:
        asked.append((key, order))
        return Ran("receipt 1")

    gate, refund = shop.guarded(url, never, settle=settle)
    with gate.run(shop.RUN):
        assert refund("17") == "receipt 1"
    with gate.run(shop.RUN):
        assert refund("17") == "receipt 1"
    assert asked == [("refund:17", "17")]
    call = the_call(gate.store)
    assert (call.status, call.attempt) == (CallStatus.DONE, 1)
    types = [event.type for event in gate.store.chain(shop.RUN) if event.call == call.id]
    assert types == ["allowed", "started", "in_doubt", "settled", "recorded"]
    actors = {e.actor for e in gate.store.chain(shop.RUN) if e.type in ("settled", "recorded")}
    assert actors == {"tool:refund"}
    assert verify(gate.store).ok
    gate.store.close()


@pytest.mark.long
def test_did_not_run_evidence_waits_for_a_decision(url: str) -> None:
    shop.kill_in_body(url)
    time.sleep(shop.LEASE)
    asked: list[str] = []
    ran: list[str] = []

    async def settle(key: str, **args: Any) -> DidNotRun:
        asked.append(key)
        return DidNotRun("no refund for order 17\u202e")

    def body(order: str) -> str:
        ran.append(order)
        return "receipt 2"

    gate, refund = shop.guarded(url, body, settle=settle)
    for _ in range(2):
        with pytest.raises(Paused) as paused, gate.run(shop.RUN):
            refund("17")
    assert asked == ["refund:17"]
    (request,) = paused.value.requests
    assert request.kind == "in_doubt"
    assert request.evidence is not None
    assert request.evidence.answer == "did_not_run"
    assert request.evidence.text == "no refund for order 17\u202e"
    drawn = "\n".join(line.text for line in card(request, request.created_at))
    assert "the call did not run" in drawn
    assert "no refund for order 17⟨U+202E⟩" in drawn
    inbox = sayso.Inbox(gate.store)
    shown = inbox.get_sync(request.id)
    assert shown.evidence == request.evidence
    assert ran == []
    inbox.decide_sync(request.id, request.approve(), by="ana")
    with gate.run(shop.RUN):
        assert refund("17") == "receipt 2"
    assert ran == ["17"]
    assert verify(gate.store).ok
    gate.store.close()


@pytest.mark.long
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("how", ["none", "raises", "hangs", "hangs async", "rubbish"])
def test_no_answer_leaves_the_doubt_to_people(url: str, how: str) -> None:
    shop.kill_in_body(url)
    time.sleep(shop.LEASE)
    settle, said = UNKNOWN[how]
    gate, refund = shop.guarded(url, never, settle=settle)
    with pytest.raises(Paused) as paused, gate.run(shop.RUN):
        refund("17")
    (request,) = paused.value.requests
    assert request.kind == "in_doubt"
    assert request.evidence is not None
    assert request.evidence.answer == "unknown"
    assert request.evidence.text.startswith(said)
    assert verify(gate.store).ok
    gate.store.close()


@pytest.mark.long
@pytest.mark.parametrize("says", ["ran", "did_not_run", "unknown"])
async def test_resumed_agent_settles_the_doubt(url: str, says: str) -> None:
    shop.kill_in_body(url, "agent")
    answers = {"ran": Ran("receipt 1"), "did_not_run": DidNotRun("none"), "unknown": None}
    agent = shop.agent(url, never, settle=lambda key: answers[says])
    await asyncio.sleep(shop.LEASE)
    result = await agent.resume("t")
    call = the_call(agent.gate.store)
    if says == "ran":
        assert (result.status, result.output) == ("done", "Refunded.")
        assert (call.status, call.result) == (CallStatus.DONE, '"receipt 1"')
    else:
        assert result.status == "paused"
        (request,) = result.interruptions
        assert request.evidence is not None
        assert (request.kind, request.evidence.answer) == ("in_doubt", says)
        again = await agent.resume("t")
        assert again.status == "paused"
    assert verify(agent.gate.store).ok
    agent.gate.store.close()


@pytest.mark.long
@pytest.mark.parametrize("says", ["ran", "did_not_run"])
async def test_worker_settles_a_doubt_found_by_a_sweep(url: str, says: str) -> None:
    shop.kill_in_body(url, "agent")
    await asyncio.sleep(shop.LEASE)
    store = shop.opened(url)
    Worker([], store).sweep()  # a server that does not know the agent finds it first
    assert the_call(store).status is CallStatus.IN_DOUBT
    asked: list[str] = []

    def settle(key: str) -> Ran | DidNotRun:
        asked.append(key)
        return Ran("receipt 1") if says == "ran" else DidNotRun("none")

    agent = shop.agent(store, never, settle=settle)
    worker = Worker([agent], store)
    task = asyncio.create_task(worker.run())

    def over() -> bool:
        run = store.last_run("t")
        assert run is not None
        over = run.status is (RunStatus.DONE if says == "ran" else RunStatus.PAUSED)
        return over and run.ready_at is None and bool(asked)

    await until_async(over)
    worker.stop()
    await task
    assert asked == ["refund:17"]
    assert verify(store).ok
    store.close()


# -- what a settle function may say


def doubted(case: Case, clock: FakeClock, **options: Any) -> Callable[..., Any]:
    """A guarded function whose first call was interrupted, and whose lease has ended since."""

    @case.gate.guard(needs_approval=False, **options)
    def pay(to: str, amount: int = 3) -> str:
        case.ran.append(to)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return f"paid {to}"

    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: pay("bo"))
    clock.advance(31)
    return pay


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("how", UNKNOWN)
def test_invalid_settle_result_leaves_the_doubt(timed: Case, clock: FakeClock, how: str) -> None:
    settle, said = UNKNOWN[how]
    pay = doubted(timed, clock, settle=settle)
    request = timed.paused(lambda: pay("bo"))
    assert request.kind == "in_doubt"
    assert request.evidence is not None
    assert request.evidence.answer == "unknown"
    assert request.evidence.text.startswith(said)
    assert timed.ran == ["bo"]


def test_settle_receives_the_idempotency_key(timed: Case, clock: FakeClock) -> None:
    asked: list[Any] = []

    def settle(key: str, amount: int, **rest: Any) -> Ran:
        asked.append((key, amount, rest))
        return Ran("paid by now")

    pay = doubted(timed, clock, settle=settle)
    (call,) = timed.store.calls_of(RUN)
    assert timed.enter(lambda: pay("bo")) == "paid by now"
    assert asked == [(call.id, 3, {"to": "bo"})]


def test_settle_waits_for_the_lease_to_end(timed: Case, clock: FakeClock) -> None:
    asked: list[str] = []

    @timed.gate.guard(needs_approval=False, settle=lambda key: asked.append(key))
    def pay(to: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed.enter(lambda: pay("bo"))
    request = timed.paused(lambda: pay("bo"))
    assert (asked, request.evidence) == ([], None)
    clock.advance(31)
    timed.paused(lambda: pay("bo"))
    assert len(asked) == 1


def test_evidence_is_bounded_and_any_object_is_text(timed: Case, clock: FakeClock) -> None:
    pay = doubted(timed, clock, settle=lambda key: DidNotRun("\ud800\0" + "x" * 5000))
    request = timed.paused(lambda: pay("bo"))
    assert request.evidence is not None
    assert len(request.evidence.text) == plans.MAX_EVIDENCE
    assert request.evidence.text.startswith("?\ufffdxxx")


def test_settle_function_cannot_call_or_ask(timed: Case, clock: FakeClock) -> None:
    wrong: list[str] = []

    def settle(key: str) -> Ran:
        for act in (lambda: again("bo"), lambda: timed.gate.confirm_sync("May I?")):
            try:
                act()
            except SaysoError as error:
                wrong.append(str(error))
        return Ran("1")

    again = timed.gate.guard(name="other", needs_approval=False)(lambda to: timed.ran.append(to))
    pay = doubted(timed, clock, settle=settle)
    assert timed.enter(lambda: pay("bo")) == "1"
    assert len(wrong) == 2
    assert all("only finds out" in words for words in wrong)
    assert timed.ran == ["bo"]


def test_decision_during_settlement_wins(timed: Case, clock: FakeClock) -> None:
    def settle(key: str) -> Ran:
        (request,) = timed.inbox.pending_sync().items
        timed.decide(request.reject("leave it"))
        return Ran("receipt 1")

    pay = doubted(timed, clock, settle=settle)
    with pytest.raises(InDoubt, match="leave it"):
        timed.enter(lambda: pay("bo"))
    assert "settled" not in timed.types()


def test_decision_after_settlement_is_refused(timed: Case, clock: FakeClock) -> None:
    pay = doubted(timed, clock, settle=lambda key: Ran("receipt 1"))
    (call,) = timed.store.calls_of(RUN)
    request = timed.inbox.get_sync(call.id)
    assert timed.enter(lambda: pay("bo")) == "receipt 1"
    with pytest.raises(AlreadyDecided):
        timed.decide(request.approve())
    assert timed.ran == ["bo"]


def test_concurrent_settlements_record_once(timed: Case, clock: FakeClock) -> None:
    both = threading.Barrier(2)

    def settle(key: str) -> Ran:
        return Ran(f"receipt {both.wait(20) + 1}")

    pay = doubted(timed, clock, settle=settle)
    given: list[str] = []

    def call() -> None:
        given.append(timed.enter(lambda: pay("bo")))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(given) == 2
    assert len(set(given)) == 1
    assert timed.types().count("settled") == timed.types().count("recorded") == 1


def test_rejected_unexecuted_call_frees_its_key(timed: Case, clock: FakeClock) -> None:
    pay = doubted(timed, clock, settle=lambda key: DidNotRun("none"), effect_key="pay:{to}")
    with pytest.raises(sayso.DuplicateEffect):
        timed.enter(lambda: pay("bo"), run="order-18")
    timed.decide(timed.paused(lambda: pay("bo")).reject())
    assert timed.enter(lambda: pay("bo"), run="order-19") == "paid bo"
    assert verify(timed.store).ok


def test_settle_function_may_be_added_after_the_crash(timed: Case, clock: FakeClock) -> None:
    doubted(timed, clock)
    (call,) = timed.store.calls_of(RUN)
    assert not call.settles

    @timed.gate.guard(needs_approval=False, settle=lambda key: Ran("receipt 1"))
    def pay(to: str, amount: int = 3) -> str:
        raise AssertionError

    assert timed.enter(lambda: pay("bo")) == "receipt 1"


# -- declaring one


@pytest.mark.parametrize(
    ("settle", "said"),
    [
        ("look it up", "pass a function"),
        (lambda: None, "first parameter is the key"),
        (lambda *, key: None, "first parameter is the key"),
        (lambda **args: None, "first parameter is the key"),
        (lambda key, order: None, "order is not an argument of the function, which has to, amount"),
    ],
)
def test_unusable_settle_function_is_refused(case: Case, settle: Any, said: str) -> None:
    def pay(to: str, amount: int = 3) -> None: ...

    with pytest.raises(TypeError, match=said):
        case.gate.guard(settle=settle)(pay)
    with pytest.raises(TypeError, match=said):
        sayso.tool(settle=settle)(pay)


def test_read_is_never_in_doubt(case: Case) -> None:
    def look() -> None: ...

    with pytest.raises(TypeError, match="a read is never in doubt"):
        case.gate.guard(effect="read", settle=lambda key: None)(look)


def test_remote_gate_refuses_settle() -> None:
    gate = RemoteGate("http://localhost:1", token="x")
    with pytest.raises(TypeError, match="settle: only for a gate with its own store"):
        gate.guard(settle=lambda key: None)  # type: ignore[call-overload]
