"""An inbox that knows the policy checks edits at once, and only tightens terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import Case, person

from sayso import Inbox, NotAllowed
from sayso.types import Request, Terms, Verdict

ANA, BEA = person("ana"), person("bea")


def judged(case: Case, **terms: Any) -> Inbox:
    """An inbox whose policy says this of whatever is edited."""
    return Inbox(case.store, judge=lambda call, args: replace(call.terms, **terms))


def edit(case: Case, inbox: Inbox, **options: Any) -> Request:
    request = case.paused(lambda: case.paying(**options)("bo"))
    return inbox.decide_sync(request.id, request.edit({"amount": 9}), by=ANA.at(case.store))


def test_edit_denied_by_policy_is_refused_at_once(case: Case) -> None:
    with pytest.raises(NotAllowed, match="denies these arguments"):
        edit(case, judged(case, verdict=Verdict.DENY, rule="never"))
    assert case.pending().args == {"to": "bo", "amount": 3}


def test_edit_that_raises_the_quorum_stays_pending(case: Case) -> None:
    edited = edit(case, judged(case, quorum=2))
    assert (edited.status, edited.quorum, len(edited.votes)) == ("pending", 2, 1)
    case.decide(edited.approve(), BEA)
    assert case.enter(lambda: case.paying()("bo")) == "paid bo 9"


def test_editor_without_the_right_has_no_vote(case: Case) -> None:
    edited = edit(case, judged(case, reviewers=("bea",)))
    assert (edited.status, edited.votes) == ("pending", ())
    with pytest.raises(NotAllowed):
        case.decide(edited.approve(), ANA)
    assert case.decide(edited.approve(), BEA).status == "edited"


def test_edit_never_loosens(case: Case) -> None:
    loose = Inbox(case.store, judge=lambda call, args: Terms(verdict=Verdict.ALLOW))
    edited = edit(case, loose, quorum=2, assurance="token", risk="high")
    assert (edited.status, edited.quorum, edited.risk.level) == ("pending", 2, "high")
    assert case.ran == []
