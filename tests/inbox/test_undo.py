"""A decision that can be undone for some seconds: nothing starts meanwhile.

The store is checked after each test, so every event was possible and every row follows from them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from cases import Case, person

from sayso import InvalidDecision, NotAllowed, Paused, Question
from sayso.audit import verify
from sayso.engine.commands import Complete, Expire, Release, Start
from sayso.errors import AlreadyDecided, Conflict, Rejected
from sayso.inbox import directory
from sayso.rows import CallStatus
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.testing import FakeClock, check_store
from sayso.types import Request

ANA = person("ana")
BO = person("bo")


Opener = Callable[..., Store]


@pytest.fixture
def opened(url: str, clock: FakeClock) -> Iterator[Opener]:
    """Yield a function that opens the store once more, as another process would."""
    stores: list[Store] = []

    def opener(**options: Any) -> Store:
        stores.append(open_store(url, **{"clock": clock, **options}))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


@pytest.fixture
def case(opened: Opener) -> Iterator[Case]:
    store = opened()
    yield Case(store)
    runs = {event.run for _, event in store.events("", 10**6) if event.run}
    check_store(store, [run for run in runs if store.run(run) is not None])
    assert verify(store).problems == []


def held(case: Case, by: Any = ANA, **more: Any) -> Request:
    """Approve a call of ``pay``, so that it can be undone for five seconds."""
    request = case.paused(lambda: case.paying()("bo", 3))
    return case.decide(request.approve(), by=by, undo_seconds=5, **more)


def enter(case: Case) -> Any:
    return case.enter(lambda: case.paying()("bo", 3))


def test_held_approval_starts_nothing(case: Case, clock: FakeClock) -> None:
    request = held(case)
    assert (request.status, request.decision and request.decision.by) == ("approved", "ana")
    assert case.inbox.pending_sync().items == ()
    assert [r.id for r in case.inbox.history_sync(status="approved")] == [request.id]
    with pytest.raises(Paused) as paused:
        enter(case)
    assert [r.status for r in paused.value.requests] == ["pending"]  # for its agent
    call = case.store.call(request.id)
    assert call is not None
    run = {"thread": call.thread, "run": call.run}
    start = {"owner": "thief", "lease": 10**6}
    case.store.transact(Start(**run, **start, calls=(call.id,), seen=(call.mac,)))
    case.store.transact(Complete(**run, **start, call=call.id, seen=call.mac, result="1"))
    case.store.transact(Release(**run, call=call.id, seen=call.mac, caller="thief"))
    case.store.transact(Expire(**run, call=call.id))
    still = case.store.call(request.id)
    assert still is not None
    assert (still.status, still.attempt, case.ran) == (CallStatus.ASKED, 0, [])
    clock.advance(5)
    assert enter(case) == "paid bo 3"
    assert case.ran == [("bo", 3)]


def test_undone_approval_asks_again(case: Case, clock: FakeClock) -> None:
    request = held(case)
    again = case.inbox.undo_sync(request.id, by=ANA.at(case.store))
    assert (again.status, again.revision, again.decision) == ("pending", 2, None)
    assert again.digest != request.digest
    clock.advance(60)
    with pytest.raises(Paused):
        enter(case)
    with pytest.raises(Conflict):  # a copy of the first approval that was delayed
        case.inbox.decide_sync(
            request.id, request.approve(), by=ANA.at(case.store), seen_digest=request.digest
        )
    case.decide(again.approve())
    assert enter(case) == "paid bo 3"


def test_held_rejection_refuses_nothing(case: Case, clock: FakeClock) -> None:
    request = case.paused(lambda: case.paying()("bo", 3))
    decided = case.decide(request.reject("fraud"), undo_seconds=5)
    assert (decided.status, case.inbox.refusals_sync()) == ("rejected", [])
    with pytest.raises(Paused):
        enter(case)
    again = case.inbox.undo_sync(request.id, by="ana")
    case.decide(again.reject("fraud after all"), undo_seconds=5)
    clock.advance(5)
    with pytest.raises(Rejected, match="fraud after all"):
        enter(case)
    assert len(case.inbox.refusals_sync()) == 1


def test_held_answer_reaches_agent_later(case: Case, clock: FakeClock) -> None:
    def ask() -> Any:
        return case.gate.ask_sync(Question("Which colour?"))

    request = case.paused(ask)
    case.decide(request.respond("red"), undo_seconds=5)
    with pytest.raises(Paused):
        case.enter(ask)
    again = case.inbox.undo_sync(request.id, by="ana")
    case.decide(again.respond("green"), undo_seconds=5)
    clock.advance(5)
    assert case.enter(ask) == "green"


def test_only_the_decider_undoes(case: Case) -> None:
    request = held(case)
    with pytest.raises(NotAllowed, match="ana decided"):
        case.inbox.undo_sync(request.id, by=BO.at(case.store))
    with pytest.raises(AlreadyDecided, match="ana"):
        case.decide(request.reject("no"), by=BO)
    assert case.inbox.get_sync(request.id).status == "approved"


def test_undo_comes_too_late(case: Case, clock: FakeClock) -> None:
    request = held(case)
    clock.advance(5)
    for _ in range(2):  # before and after a process has noticed
        with pytest.raises(Conflict, match="too late"):
            case.inbox.undo_sync(request.id, by=ANA.at(case.store))
        case.inbox.get_sync(request.id)
    assert case.inbox.get_sync(request.id).status == "approved"


def test_plain_decision_cannot_be_undone(case: Case) -> None:
    request = case.approved(lambda: case.paying()("bo", 3))
    with pytest.raises(Conflict, match="too late"):
        case.inbox.undo_sync(request.id, by="ana")
    other = case.paused(lambda: case.paying()("cy", 3), "other")
    with pytest.raises(Conflict, match="nothing to undo"):
        case.inbox.undo_sync(other.id, by="ana")


@pytest.mark.parametrize("seconds", [-1, 31, True, "5", None, float("nan"), float("inf")])
def test_undo_seconds_are_bounded(clock: FakeClock, seconds: Any) -> None:
    case = Case(open_store("memory://", clock=clock))
    request = case.paused(lambda: case.paying()("bo", 3))
    with pytest.raises(InvalidDecision) as refused:
        case.decide(request.approve(), undo_seconds=seconds)
    assert refused.value.path == "undo_seconds"
    assert case.inbox.get_sync(request.id).status == "pending"


def test_two_undos_at_once_have_one_winner(case: Case) -> None:
    request = held(case)
    by = ANA.at(case.store)
    outcomes: list[str] = []

    def undo() -> None:
        try:
            outcomes.append(case.inbox.undo_sync(request.id, by=by).status)
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=undo) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict", "conflict", "conflict", "pending"]
    assert case.inbox.get_sync(request.id).revision == 2


def test_undo_and_start_have_one_winner(case: Case, clock: FakeClock) -> None:
    for number in range(6):
        run = f"race-{number}"
        pay = case.paying()
        request = case.paused(lambda: pay("bo", number), run)  # noqa: B023
        case.decide(request.approve(), undo_seconds=5)
        before = len(case.ran)
        undone: list[bool] = []

        def undo() -> None:
            try:
                case.inbox.undo_sync(request.id, by="ana")  # noqa: B023
                undone.append(True)  # noqa: B023
            except Conflict:
                undone.append(False)  # noqa: B023

        thread = threading.Thread(target=undo)
        thread.start()
        clock.advance(5)
        with suppress(Paused):
            case.enter(lambda: pay("bo", number), run)  # noqa: B023
        thread.join()
        assert undone == [len(case.ran) == before]


def test_stale_process_respects_undo(opened: Opener, case: Case, clock: FakeClock) -> None:
    request = held(case)
    stale = Case(opened())
    seen = stale.store.call(request.id)
    case.inbox.undo_sync(request.id, by=ANA.at(case.store))
    clock.advance(60)
    assert seen is not None
    stale.store.transact(Expire(thread=seen.thread, run=seen.run, call=seen.id))
    with pytest.raises(Paused):
        stale.enter(lambda: stale.paying()("bo", 3))
    assert stale.inbox.get_sync(request.id).status == "pending"


def test_author_need_not_stay(opened: Opener, case: Case, clock: FakeClock) -> None:
    request = case.paused(lambda: case.paying()("bo", 3))
    case.decide(request.reject("no", stop=True), undo_seconds=5)
    clock.advance(5)
    other = Case(opened())
    other.inbox.pending_sync()  # the first process that looks
    row = other.store.call(request.id)
    run = other.store.run(request.run)
    assert row is not None
    assert run is not None
    assert (row.status, run.status) == (CallStatus.REJECTED, "cancelled")


def test_read_only_store_shows_what_took_effect(
    opened: Opener, case: Case, clock: FakeClock
) -> None:
    request = held(case)
    assert opened(read_only=True).call(request.id).status == "asked"  # type: ignore[union-attr]
    clock.advance(5)
    assert opened(read_only=True).call(request.id).status == "ready"  # type: ignore[union-attr]


def test_undo_of_stopping_rejection_keeps_the_run(case: Case, clock: FakeClock) -> None:
    request = case.paused(lambda: case.paying()("bo", 3))
    case.decide(request.reject("no", stop=True), undo_seconds=5)
    again = case.inbox.undo_sync(request.id, by="ana")
    clock.advance(60)
    case.decide(again.approve())
    assert enter(case) == "paid bo 3"


def test_cancelled_run_drops_held_decision(case: Case, clock: FakeClock) -> None:
    request = held(case)
    case.inbox.cancel_sync(request.run)
    clock.advance(5)
    assert case.inbox.get_sync(request.id).status == "cancelled"
    with pytest.raises(Conflict):
        case.inbox.undo_sync(request.id, by=ANA.at(case.store))


def test_undo_restores_edited_arguments(case: Case, clock: FakeClock) -> None:
    request = case.paused(lambda: case.paying(title="Pay {to} {amount} euros")("bo", 3))
    edited = case.decide(request.edit({"amount": 900}), undo_seconds=5)
    assert (edited.status, edited.args["amount"]) == ("edited", 900)
    again = case.inbox.undo_sync(request.id, by="ana")
    assert (again.args, again.original, again.title) == (request.args, None, request.title)
    assert again.revision == 3
    case.decide(again.edit({"amount": 4}), undo_seconds=5)
    clock.advance(5)
    case.enter(lambda: case.paying(title="Pay {to} {amount} euros")("bo", 3))
    assert case.ran == [("bo", 4)]


def test_grant_begins_with_its_approval(case: Case, clock: FakeClock) -> None:
    request = held(case, grant={"scope": "any"})
    with pytest.raises(Paused):
        case.enter(lambda: case.paying()("cy", 9), "other")
    again = case.inbox.undo_sync(request.id, by=ANA.at(case.store))
    assert case.inbox.grants_sync() == []
    clock.advance(60)
    with pytest.raises(Paused):
        case.enter(lambda: case.paying()("dan", 9), "third")
    case.decide(again.approve(), by=ANA, undo_seconds=5, grant={"scope": "any"})
    clock.advance(5)
    assert case.enter(lambda: case.paying()("eve", 9), "fourth") == "paid eve 9"


def quorum_entry(case: Case) -> Any:
    return case.enter(lambda: case.paying(quorum=2)("bo", 3))


def quorum_request(case: Case) -> Request:
    with pytest.raises(Paused) as paused:
        quorum_entry(case)
    return paused.value.requests[0]


def test_vote_is_undone_before_quorum(case: Case) -> None:
    request = quorum_request(case)
    voted = case.decide(request.approve(), by=ANA, undo_seconds=5)
    assert (voted.status, len(voted.votes)) == ("pending", 1)
    again = case.inbox.undo_sync(request.id, by=ANA.at(case.store))
    assert (again.votes, again.digest) == ((), request.digest)
    case.decide(request.approve(), by=BO)
    assert case.inbox.get_sync(request.id).status == "pending"


def test_quorum_waits_for_every_voter(case: Case, clock: FakeClock) -> None:
    request = quorum_request(case)
    case.decide(request.approve(), by=ANA, undo_seconds=5)
    clock.advance(1)
    approved = case.decide(request.approve(), by=BO)
    assert approved.status == "approved"
    with pytest.raises(Paused):
        quorum_entry(case)
    again = case.inbox.undo_sync(request.id, by=ANA.at(case.store))
    assert (again.status, again.votes, again.revision) == ("pending", (), 2)
    for by in (BO, ANA):
        case.decide(again.approve(), by=by, undo_seconds=2)
    clock.advance(2)
    assert quorum_entry(case) == "paid bo 3"


def test_removed_person_approves_nothing(case: Case, clock: FakeClock) -> None:
    request = held(case)
    directory.remove_person(case.store, "ana", by="code")
    clock.advance(5)
    with pytest.raises(Paused):
        enter(case)
    assert case.inbox.get_sync(request.id).status == "pending"


def test_rejection_of_equal_call_reopens_held_approval(case: Case, clock: FakeClock) -> None:
    @case.gate.guard(needs_approval=True)
    async def pay(to: str) -> None:
        case.ran.append(to)

    async def twice() -> None:
        async with case.gate.run("equal"):
            await asyncio.gather(pay("bo"), pay("bo"), return_exceptions=True)

    with suppress(Paused):
        asyncio.run(twice())
    first, second = case.inbox.pending_sync()
    case.decide(first.approve(), by=ANA, undo_seconds=5)
    case.decide(second.reject("fraud"), by=BO)
    again = case.inbox.get_sync(first.id)
    assert (again.status, [r.message for r in again.refusals]) == ("pending", ["fraud"])
    clock.advance(5)
    assert case.ran == []


def test_doubt_is_decided_at_once(case: Case, clock: FakeClock) -> None:
    call = held(case)
    clock.advance(5)
    row = case.store.call(call.id)
    assert row is not None
    case.inbox.pending_sync()
    ready = case.store.call(call.id)
    assert ready is not None
    run = {"thread": row.thread, "run": row.run}
    case.store.transact(
        Start(**run, calls=(row.id,), seen=(ready.mac,), owner="gone", lease=1_000_000)
    )
    clock.advance(2)
    doubt = case.pending(kind="in_doubt")
    with pytest.raises(InvalidDecision, match="in doubt"):
        case.decide(doubt.approve(), undo_seconds=5)


def test_wait_returns_once_it_takes_effect(case: Case, clock: FakeClock) -> None:
    request = held(case)
    with pytest.raises(TimeoutError):
        case.inbox.wait_sync(request.id, timeout=0.01)
    clock.advance(5)
    assert case.inbox.wait_sync(request.id, timeout=5).status == "approved"


def test_caller_in_process_waits_for_undo(opened: Opener) -> None:
    case = Case(opened(clock=lambda: time.time_ns() // 1000), wait=20)
    pay = case.paying()
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(case.enter(lambda: pay("bo", 3))))
    thread.start()
    request = first_pending(case)
    case.decide(request.approve(), undo_seconds=0.4)
    again = case.inbox.undo_sync(request.id, by="ana")
    case.decide(again.approve(), undo_seconds=0.3)
    assert case.ran == []
    thread.join()
    assert results == ["paid bo 3"]
    assert verify(case.store).problems == []


def first_pending(case: Case) -> Request:
    for _ in range(1000):
        if items := case.inbox.pending_sync().items:
            return items[0]
        threading.Event().wait(0.01)
    raise AssertionError("nothing was asked")
