"""Waiting for people: without limit, for a while, or not at all, and re-entry."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from cases import RUN, Case, aside
from waiting import until, until_async

from sayso import (
    Conflict,
    Gate,
    InvalidCall,
    Paused,
    Rejected,
    Request,
    SaysoError,
    StoreError,
)
from sayso.testing import ScriptedReviewer


def answer_soon(case: Case, decide: Any = Request.approve) -> None:
    """Somebody decides the next request from another thread."""

    def body() -> None:
        until(lambda: case.inbox.pending_sync().items)
        case.decide(decide(case.pending()))

    aside(body)


# -- how long


def test_call_without_wait_raises_at_once(case: Case) -> None:
    began = time.monotonic()
    request = case.paused(lambda: case.paying(wait=0)("bo"))
    assert time.monotonic() - began < 2
    assert case.pending() == request
    assert case.ran == []


def test_waiting_for_a_while_then_raises(case: Case) -> None:
    pay = case.paying(wait=0.2)
    began = time.monotonic()
    case.paused(lambda: pay("bo"))
    assert 0.2 <= time.monotonic() - began < 5


def test_wait_returns_when_a_person_decides(case: Case) -> None:
    answer_soon(case)
    assert case.enter(lambda: case.paying(wait=20)("bo")) == "paid bo 3"


def test_unlimited_wait_ends_with_the_decision(case: Case) -> None:
    answer_soon(case, lambda request: request.reject("too much"))
    with pytest.raises(Rejected, match="ana rejected it: too much"):
        case.enter(lambda: case.paying(wait=None)("bo"))
    assert case.ran == []


async def test_waiting_on_a_loop(case: Case) -> None:
    answer_soon(case, lambda request: request.respond("green"))
    async with case.gate.run(RUN):
        assert await case.gate.ask("Which colour?", wait=None) == "green"


@pytest.mark.parametrize("wait", [-1, "soon", True])
def test_invalid_wait_is_refused(case: Case, wait: Any) -> None:
    with pytest.raises(InvalidCall, match="wait="):
        case.gate.ask_sync("Which colour?", wait=wait)
    with pytest.raises(InvalidCall, match="wait="):
        Gate(case.store, wait=wait)


@pytest.mark.long
async def test_thousand_waiters_cost_no_thread_each(case: Case) -> None:
    async def wait_for(number: int) -> Any:
        async with case.gate.run(f"run {number}"):
            return await case.gate.ask(f"What is {number}?", wait=None)

    before = threading.active_count()  # of earlier tests
    waiters = [asyncio.create_task(wait_for(number)) for number in range(1000)]
    await until_async(lambda: case.store.waiting()["asked"] == 1000)
    requests: dict[str, Request] = {}
    page = await case.inbox.pending(limit=500)
    while page.items:
        requests |= {request.run: request for request in page.items}
        page = await case.inbox.pending(limit=500, after=page.next or "1000000")
    assert len(requests) == 1000
    assert threading.active_count() - before < 50
    assert not any(waiter.done() for waiter in waiters)
    for run, request in requests.items():
        await case.inbox.decide(request.id, request.respond(f"{run}!"), by="ana")
    answers = await asyncio.wait_for(asyncio.gather(*waiters), 30)
    assert answers == [f"run {number}!" for number in range(1000)]


# -- colours


async def test_sync_call_on_loop_is_refused(case: Case) -> None:
    pay = case.paying()
    with pytest.raises(SaysoError, match=r"await asyncio\.to_thread\(pay, \.\.\.\)"):
        pay("bo")
    with pytest.raises(SaysoError, match="await the method without _sync"):
        case.gate.ask_sync("Which colour?")
    with pytest.raises(SaysoError, match=r"async with gate\.run"), case.gate.run(RUN):
        pass
    assert case.inbox.store.events() == []
    answer_soon(case)
    async with case.gate.run(RUN):
        assert await asyncio.to_thread(case.paying(wait=None), "bo") == "paid bo 3"


async def test_async_functions_side_by_side(case: Case) -> None:
    @case.gate.guard(needs_approval=True, wait=None)
    async def pay(to: str) -> str:
        await asyncio.sleep(0)
        case.ran.append(to)
        return f"paid {to}"

    async def decide_last_first() -> None:
        async def three() -> list[Request]:
            items = (await case.inbox.pending()).items
            return list(items) if len(items) == 3 else []

        for request in reversed(await until_async(three)):
            await case.inbox.decide(request.id, request.approve(), by="ana")

    async with case.gate.run(RUN):
        *paid, _ = await asyncio.gather(pay("bo"), pay("cy"), pay("di"), decide_last_first())
    assert paid == ["paid bo", "paid cy", "paid di"]
    assert sorted(case.ran) == ["bo", "cy", "di"]


def test_sync_function_may_run_an_event_loop(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    def plan() -> list[str]:
        async def both() -> list[str]:
            asked = (case.gate.ask(f"{n}?", wait=None) for n in ("one", "two"))
            return await asyncio.gather(*asked)

        return asyncio.run(both())

    def decide_both_at_once() -> None:
        until(lambda: len(case.inbox.pending_sync().items) == 2)
        for request in case.inbox.pending_sync().items:
            assert request.question is not None
            case.decide(request.respond(request.question.text))

    aside(decide_both_at_once)
    assert case.enter(plan) == ["one?", "two?"]


# -- Paused


def test_paused_is_no_exception_subclass(case: Case) -> None:
    def framework() -> str:
        try:
            return case.paying()("bo")
        except Exception as error:
            return f"the tool said {error}"

    assert not issubclass(Paused, Exception)
    request = case.paused(framework)
    assert request.tool == "pay"


def test_paused_names_the_run_and_request(case: Case) -> None:
    with pytest.raises(Paused, match=r"gate\.run\('order-17'\)") as caught:
        case.enter(lambda: case.paying()("bo"))
    assert caught.value.run == RUN
    assert caught.value.requests[0].id in str(caught.value)


def test_run_without_a_name_gets_one(case: Case) -> None:
    pay = case.paying()
    with pytest.raises(Paused) as caught:
        pay("bo")
    request = case.pending()
    assert request.run == caught.value.run != ""
    case.decide(request.approve())
    assert case.enter(lambda: pay("bo"), caught.value.run) == "paid bo 3"
    with pytest.raises(Paused) as caught:
        pay("bo")
    assert caught.value.requests[0].id != request.id


@pytest.mark.parametrize("name", ["", "  ", "@system", "x" * 201, 5, None])
def test_invalid_run_name_is_refused(case: Case, name: Any) -> None:
    with pytest.raises(InvalidCall):
        case.gate.run(name)


# -- which call is which


def test_equal_call_in_run_is_one_request(case: Case) -> None:
    pay = case.paying()
    first = case.paused(lambda: pay("bo"))
    assert case.paused(lambda: pay("bo")).id == first.id
    assert case.paused(lambda: pay(to="bo")).id == first.id
    assert case.paused(lambda: pay("cy")).id != first.id
    assert case.paused(lambda: pay("bo"), "order-18").id != first.id


def test_repeated_equal_call_makes_a_new_request(case: Case) -> None:
    pay = case.paying()

    def twice() -> list[str]:
        return [pay("bo"), pay("bo")]

    first = case.approved(twice)
    second = case.approved(twice)
    assert second.id != first.id
    assert second.digest != first.digest
    assert case.enter(twice) == ["paid bo 3", "paid bo 3"]
    assert case.ran == [("bo", 3), ("bo", 3)]
    assert case.enter(twice) == ["paid bo 3", "paid bo 3"]
    assert len(case.ran) == 2


def test_question_is_identified_by_content_or_key(case: Case) -> None:
    ask = case.gate.ask_sync
    first = case.paused(lambda: ask("Which colour?"))
    assert case.paused(lambda: ask("Which colour?")).id == first.id
    assert case.paused(lambda: ask("Which size?")).id != first.id
    named = case.paused(lambda: ask("Which colour?", key="colour"))
    assert named.id != first.id
    with pytest.raises(Conflict, match="made before with other content"):
        case.enter(lambda: ask("Which shade?", key="colour"))


def test_changed_default_keeps_the_request(case: Case) -> None:
    first = case.paused(lambda: case.paying()("bo"))
    next_release = Case(case.store)

    @next_release.gate.guard(needs_approval=True)
    def pay(to: str, amount: int = 4) -> str:
        return f"paid {to} {amount}"

    case.decide(first.approve())
    changed = case.paused(lambda: pay("bo"))
    assert (changed.id, changed.revision) == (first.id, 2)
    assert changed.args == {"to": "bo", "amount": 3}
    assert changed.digest != first.digest


def test_many_threads_run_one_call_once(case: Case) -> None:
    case.approved(lambda: case.paying()("bo"))
    got: list[str] = []
    barrier = threading.Barrier(16)

    def body() -> None:
        pay = case.paying()
        barrier.wait()
        got.append(case.enter(lambda: pay("bo")))

    threads = [aside(body) for _ in range(16)]
    for thread in threads:
        thread.join(30)
    assert got == ["paid bo 3"] * 16
    assert case.ran == [("bo", 3)]


# -- channels


def test_deciding_channel_avoids_the_pause(case: Case) -> None:
    reviewer = ScriptedReviewer(case.store, [Request.approve, lambda r: r.respond("red")])
    told = Case(case.store, channels=[reviewer])
    assert told.enter(lambda: told.paying()("bo")) == "paid bo 3"
    assert told.enter(lambda: told.gate.ask_sync("Which?")) == "red"
    assert [request.status for request in reviewer.decided] == ["approved", "responded"]


def test_failing_channel_leaves_the_request_pending(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Request) -> None:
        raise OSError("no line to the chat")

    told = Case(case.store, channels=[broken])
    request = told.paused(lambda: told.paying()("bo"))
    assert case.pending().id == request.id
    assert "no line to the chat" in caplog.text


# -- again, in the same entry


def test_repeated_paused_call_is_the_same_request(case: Case) -> None:
    pay = case.paying(wait=0)
    with case.gate.run(RUN):
        first = _paused(pay, "bo")
        assert _paused(pay, "bo") == first
        case.decide(first.approve())
        assert pay("bo") == "paid bo 3"
        again = _paused(pay, "bo")  # it has run: this is once more, on purpose
        assert again.id != first.id
    assert case.ran == [("bo", 3)]


def _paused(function: Any, *args: Any) -> Request:
    with pytest.raises(Paused) as paused:
        function(*args)
    (request,) = paused.value.requests
    return request


def test_repeated_wait_asks_the_question_once(case: Case) -> None:
    with case.gate.run(RUN):
        for _ in range(3):
            with pytest.raises(Paused):
                case.gate.ask_sync("Which colour?", wait=0.05)
        case.decide(case.pending().respond("green"))
        assert case.gate.ask_sync("Which colour?", wait=0) == "green"
    assert len(case.inbox.history_sync().items) == 1


async def test_concurrent_equal_questions_stay_separate(case: Case) -> None:
    async def once() -> str:
        with pytest.raises(Paused) as paused:
            await case.gate.confirm("Ship it?", wait=0)
        return paused.value.requests[0].id

    async with case.gate.run(RUN):
        first = set(await asyncio.gather(once(), once()))
        assert len(first) == 2
        assert set(await asyncio.gather(once(), once())) == first


def test_unavailable_store_fails_after_one_attempt(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    tried = []

    def away(*asked: Any, **more: Any) -> Any:
        tried.append(asked)
        raise StoreError("cannot connect")

    with monkeypatch.context() as patch:
        patch.setattr(case.store, "transact", away)
        with pytest.raises(StoreError, match="cannot connect"):
            case.enter(lambda: case.paying()("cy"))
        assert len(tried) == 1
    assert case.store.run(RUN).status == "paused"  # type: ignore[union-attr]
    case.decide(request.approve())
    assert case.enter(lambda: case.paying()("bo")) == "paid bo 3"


def test_paused_message_explains_how_to_continue() -> None:
    bare = str(Paused("r-1"))
    assert bare.startswith("run 'r-1' waits for a decision. ")
    assert "sayso inbox" in bare
    assert "resume the run" in bare
    assert Paused("r-1").requests == ()
