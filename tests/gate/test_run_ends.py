"""A run that waits for nobody is not paused, and ends if nobody comes back to end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
from cases import Case

from sayso import Paused, Refused, Request
from sayso.audit import verify
from sayso.rows import Run
from sayso.stores import open_store
from sayso.stores.nested_runs import expire

CLOSED = ["reject", "respond", "cancel", "expire", "stop"]


@pytest.fixture
def case(url: str) -> Iterator[Case]:
    """A gate and an inbox on each database."""
    store = open_store(url)
    yield Case(store)
    store.close()


def refunding(case: Case, expires_in: float = 60) -> Callable[[int], str]:
    @case.gate.guard(needs_approval=True, expires_in=expires_in)
    def refund(euros: int) -> str:
        return f"{euros} euros refunded"

    return refund


def asked(case: Case, run: str | None = None, expires_in: float = 60) -> Request:
    """Let a guarded call pause, whose process forgets it; return its request."""
    refund = refunding(case, expires_in)
    scope = nullcontext() if run is None else case.gate.run(run)
    with pytest.raises(Paused) as paused, scope:
        refund(5)
    return paused.value.requests[0]


def state(case: Case, run: str) -> Run:
    row = case.store.run(run)
    assert row is not None
    return row


def close(case: Case, request: Request, how: str) -> None:
    if how == "expire":
        time.sleep(0.25)
        call = case.store.call(request.id)
        assert call is not None
        expire(case.store, call)
    elif how == "cancel":
        case.inbox.cancel_sync(request.id, by="ana")
    elif how == "respond":
        case.inbox.respond_sync(request, "paid by hand", by="ana")
    else:
        case.inbox.reject_sync(request, "not owed", by="ana", stop=how == "stop")


@pytest.mark.parametrize("how", CLOSED)
def test_single_call_ends_its_run(case: Case, how: str) -> None:
    request = asked(case, expires_in=0.2 if how == "expire" else 60)
    assert state(case, request.run).status == "paused"
    close(case, request, how)
    run = state(case, request.run)
    expected = {"respond": "done", "stop": "cancelled"}.get(how, "failed")
    assert (run.status, run.ready_at) == (expected, None)
    assert verify(case.store).ok


@pytest.mark.parametrize("how", ["reject", "respond"])
def test_named_run_is_not_paused_once_decided(case: Case, how: str) -> None:
    """Its code may come back, so it stays open; but it waits for nobody."""
    request = asked(case, "order-17")
    close(case, request, how)
    run = state(case, "order-17")
    assert run.status == "running"
    assert run.due(case.store.now())


def test_named_run_waits_for_its_last_request(case: Case) -> None:
    requests = [asked(case, "order-17")]
    with case.gate.run("order-17"), pytest.raises(Paused) as paused:
        case.gate.confirm_sync("Publish?")
    requests += paused.value.requests
    close(case, requests[0], "reject")
    assert state(case, "order-17").status == "paused"
    close(case, requests[1], "reject")
    assert state(case, "order-17").status == "running"


def test_rejected_call_still_gets_its_answer(case: Case) -> None:
    request = asked(case)
    close(case, request, "reject")
    with pytest.raises(Refused, match="not owed"), case.gate.run(request.run):
        refunding(case)(5)
    assert state(case, request.run).status == "failed"
