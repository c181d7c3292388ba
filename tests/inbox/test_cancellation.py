"""Cancelling a request, and requests that can no longer be cancelled."""

from __future__ import annotations

import pytest
from cases import Case

from sayso import Conflict, InvalidDecision, NotFound


def test_cancel_needs_a_person_and_a_target(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(NotFound, match="no request and no run"):
        case.inbox.cancel_sync("req_none", by="ana")
    for by in ("", "  ", None, 5, "\ud800"):
        with pytest.raises(InvalidDecision):
            case.inbox.cancel_sync(request.id, by=by)
    assert case.pending() == request
    case.inbox.cancel_sync(request.run, by="ana", reason="whole run", superseded=True)
    assert case.inbox.get_sync(request.id).status == "superseded"
    case.inbox.cancel_sync(request.id, by="ana")
    assert case.inbox.get_sync(request.id).status == "superseded"


def test_started_call_cannot_be_cancelled(case: Case) -> None:
    @case.gate.guard(needs_approval=True)
    def pay(to: str) -> str:
        with pytest.raises(Conflict, match="is running: it finishes"):
            case.inbox.cancel_sync(request.id, by="ana")
        case.ran.append(to)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return "paid"

    request = case.approved(lambda: pay("bo"))
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: pay("bo"))
    doubt = case.pending(kind="in_doubt")
    with pytest.raises(Conflict, match=r"in doubt.*respond with .*approve.*reject"):
        case.inbox.cancel_sync(request.id, by="ana")
    assert case.pending() == doubt
    case.decide(doubt.approve())
    assert case.enter(lambda: pay("bo")) == "paid"
    with pytest.raises(Conflict, match="nothing to cancel"):
        case.inbox.cancel_sync(request.id, by="ana")
