"""Waiting for a decision at the door for people: no polling, and an end to it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import Case, aside
from waiting import until

from sayso import Approve, Inbox, InvalidCall, NotFound, Request
from sayso.stores.base import Store
from sayso.testing import FakeClock, person


async def _asked(case: Case, **options: Any) -> Request:
    return await asyncio.to_thread(case.paused, lambda: case.paying(**options)("bo"))


async def test_wait_returns_the_decided_request(case: Case) -> None:
    request = await _asked(case)
    waiting = asyncio.create_task(case.inbox.wait(request))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await case.inbox.decide(request.id, request.reject("no"), by="ana")
    done = await asyncio.wait_for(waiting, 10)
    assert (done.id, done.status) == (request.id, "rejected")
    assert await case.inbox.wait(request.id) == done  # what is decided is not waited for


def test_wait_sync_returns_the_decided_request(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    got: list[Request] = []
    thread = aside(lambda: got.append(case.inbox.wait_sync(request.id)))
    time.sleep(0.05)
    assert not got
    case.decide(request.approve())
    thread.join(10)
    assert [done.status for done in got] == ["approved"]


@pytest.mark.parametrize("timeout", [0, 0.05])
async def test_wait_raises_after_its_timeout(case: Case, timeout: float) -> None:
    request = await _asked(case)
    with pytest.raises(TimeoutError, match=f"{request.id} is still pending"):
        await case.inbox.wait(request, timeout)
    assert (await case.inbox.get(request.id)).status == "pending"


def test_wait_sync_raises_after_its_timeout(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(TimeoutError, match="still pending"):
        case.inbox.wait_sync(request, timeout=0.05)


async def test_vote_is_not_the_outcome(case: Case) -> None:
    request = await _asked(case, quorum=2)
    waiting = asyncio.create_task(case.inbox.wait(request))
    for name in ("ana", "bea"):
        assert not waiting.done()
        by = await asyncio.to_thread(person, case.store, name)
        await case.inbox.decide(request.id, request.approve(), by=by)
        await asyncio.sleep(0.05)
    assert (await asyncio.wait_for(waiting, 10)).status == "approved"


async def test_wait_continues_after_an_edit_without_quorum(case: Case) -> None:
    request = await _asked(case, quorum=2)
    waiting = asyncio.create_task(case.inbox.wait(request))
    ana, bea = [await asyncio.to_thread(person, case.store, name) for name in ("ana", "bea")]
    edited = await case.inbox.decide(request.id, request.edit({"amount": 1}), by=ana)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await case.inbox.decide(request.id, edited.approve(), by=bea)
    assert (await asyncio.wait_for(waiting, 10)).args["amount"] == 1


async def test_wait_ends_when_the_request_is_cancelled(case: Case) -> None:
    request = await _asked(case)
    waiting = asyncio.create_task(case.inbox.wait(request))
    await asyncio.sleep(0.02)
    await case.inbox.cancel(request.id, by="ana")
    assert (await asyncio.wait_for(waiting, 10)).status == "cancelled"


async def test_wait_ends_when_the_request_expires(case: Case) -> None:
    request = await _asked(case, expires_in=0.3)
    began = time.monotonic()
    assert (await asyncio.wait_for(case.inbox.wait(request), 10)).status == "expired"
    assert time.monotonic() - began < 5


def test_wait_covers_a_doubt(timed: Case, clock: FakeClock) -> None:
    @timed.gate.guard(needs_approval=False)
    def pay() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed.enter(pay)
    request = timed.pending()
    assert request.kind == "in_doubt"
    got: list[Request] = []
    thread = aside(lambda: got.append(timed.inbox.wait_sync(request)))
    timed.decide(request.reject("let it be"))
    thread.join(10)
    assert got[0].execution.status == "failed"


async def test_wait_reads_the_store_rarely(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await _asked(case)
    looks: list[str] = []
    real = case.store.call
    monkeypatch.setattr(case.store, "call", lambda id: looks.append(id) or real(id))
    with pytest.raises(TimeoutError):
        await case.inbox.wait(request, 0.5)
    assert len(looks) <= 4


def _decides(url: str, request: str, digest: str) -> None:
    with Inbox(url) as inbox:
        inbox.decide_sync(request, Approve(), by="ana", seen_digest=digest)


@pytest.mark.long
def test_wait_ends_with_a_decision_of_another_process(tmp_path: Path) -> None:
    from sayso.stores import open_store

    url = f"sqlite:///{tmp_path / 'sayso.db'}"
    case = Case(open_store(url))
    request = case.paused(lambda: case.paying()("bo"))
    got: list[Request] = []
    thread = aside(lambda: got.append(case.inbox.wait_sync(request, timeout=60)))
    child = multiprocessing.get_context("spawn").Process(
        target=_decides, args=(url, request.id, request.digest)
    )
    child.start()
    child.join(60)
    thread.join(10)
    assert got[0].status == "approved"
    case.store.close()


async def test_many_waiters_share_one_request(case: Case) -> None:
    request = await _asked(case)
    waiting = [asyncio.create_task(case.inbox.wait(request)) for _ in range(20)]
    await asyncio.sleep(0.02)
    await case.inbox.decide(request.id, request.approve(), by="ana")
    done = await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert {one.status for one in done} == {"approved"}


async def test_cancelled_wait_leaves_no_os_threads(case: Case) -> None:
    request = await _asked(case)
    before = threading.active_count()
    waiting = asyncio.create_task(case.inbox.wait(request))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert until(lambda: threading.active_count() <= before + 2)
    assert (await case.inbox.get(request.id)).status == "pending"


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), float("inf"), True])
async def test_invalid_timeout_is_refused(case: Case, timeout: Any) -> None:
    request = await _asked(case)
    with pytest.raises(InvalidCall, match="timeout"):
        await case.inbox.wait(request, timeout)


async def test_wait_for_unknown_request_is_not_found(case: Case) -> None:
    with pytest.raises(NotFound, match="no request 'req_x'"):
        await case.inbox.wait("req_x")


# -- a request or its id


def test_every_method_accepts_request_or_id(case: Case, make_store: Callable[..., Store]) -> None:
    for number, whole in enumerate((True, False)):
        run = f"run {number}"
        request = case.paused(lambda: case.paying()("bo"), run)
        what = request if whole else request.id
        assert case.inbox.get_sync(what) == request
        assert case.inbox.events_sync(what)
        case.inbox.decide_sync(what, request.approve(), by="ana")
        assert case.inbox.wait_sync(what).status == "approved"
        other = case.paused(lambda: case.paying()("cy"), run)
        case.inbox.cancel_sync(other if whole else other.id, by="ana")


def test_request_object_carries_its_seen_digest(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    assert case.inbox.decide_sync(request, Approve(), by="ana").status == "approved"


async def test_short_forms(case: Case) -> None:
    request = await _asked(case)
    assert (await case.inbox.approve(request, by="ana")).status == "approved"
    for number, (answer, status) in enumerate(
        [
            (lambda r: case.inbox.edit_sync(r, {"amount": 9}, by="ana"), "edited"),
            (lambda r: case.inbox.reject_sync(r, "no", by="ana"), "rejected"),
            (lambda r: case.inbox.respond_sync(r.id, "done by hand", by="ana"), "responded"),
            (lambda r: case.inbox.approve_sync(r.id, by="ana"), "approved"),
            (lambda r: case.inbox.edit_sync(r.id, {"amount": 9}, by="ana"), "edited"),
        ]
    ):

        def story(answer: Any = answer, number: int = number) -> Request:
            request = case.paused(lambda: case.paying()("bo"), f"run {number}")
            decided: Request = answer(request)
            return decided

        decided = await asyncio.to_thread(story)
        assert decided.status == status
        assert decided.args["amount"] == (9 if status == "edited" else 3)


def test_page_is_a_list_of_requests(case: Case) -> None:
    assert (len(case.inbox.pending_sync()), list(case.inbox.pending_sync())) == (0, [])
    request = case.paused(lambda: case.paying()("bo"))
    assert [one.id for one in case.inbox.pending_sync()] == [request.id]
