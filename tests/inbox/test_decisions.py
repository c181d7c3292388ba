"""Invalid decisions are refused with a sentence, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cases import Case

from sayso import (
    Approve,
    Decision,
    Edit,
    InvalidDecision,
    Reject,
    Respond,
    SaysoError,
)
from sayso.types import Request

HUGE = "x" * 5_000_000
HALF = "\ud800"
DEEP: Any = "bottom"
for _ in range(500):
    DEEP = [DEEP]

#: What is wrong, and how it is sent: the decision first, then how ``decide`` is called.
MALFORMED: dict[str, Callable[[Request], tuple[Any, dict[str, Any]]]] = {
    "nothing": lambda r: (None, {}),
    "a dict": lambda r: ({"type": "approve"}, {}),
    "a text": lambda r: ("approve", {}),
    "true": lambda r: (True, {}),
    "the class": lambda r: (Approve, {}),
    "the base class": lambda r: (Decision(request=r.id, seen_digest=r.digest), {}),
    "the request itself": lambda r: (r, {}),
    "no digest": lambda r: (Approve(), {}),
    "another digest": lambda r: (Approve(), {"seen_digest": "0" * 64}),
    "two digests": lambda r: (Approve(seen_digest="0" * 64), {"seen_digest": r.digest}),
    "half a digest": lambda r: (Approve(), {"seen_digest": r.digest[:12]}),
    "a digest in capitals": lambda r: (Approve(), {"seen_digest": r.digest.upper()}),
    "a digest as bytes": lambda r: (Approve(), {"seen_digest": r.digest.encode()}),
    "a decision for another": lambda r: (replace(r.approve(), request="req_other"), {}),
    "by nobody": lambda r: (r.approve(), {"by": ""}),
    "by a blank": lambda r: (r.approve(), {"by": " \t"}),
    "by None": lambda r: (r.approve(), {"by": None}),
    "by a number": lambda r: (r.approve(), {"by": 5}),
    "by a list": lambda r: (r.approve(), {"by": ["ana"]}),
    "by half a character": lambda r: (r.approve(), {"by": HALF}),
    "by too much": lambda r: (r.approve(), {"by": HUGE}),
    "by a token that is none": lambda r: (r.approve(), {"token": "sayso_none"}),
    "by an empty token": lambda r: (r.approve(), {"token": ""}),
    "a message that is none": lambda r: (r.reject(None), {}),
    "a message of numbers": lambda r: (r.reject(5), {}),
    "a message too long": lambda r: (r.reject(HUGE), {}),
    "half a message": lambda r: (r.reject(HALF), {}),
    "no arguments": lambda r: (Edit(None, seen_digest=r.digest), {}),
    "arguments in a list": lambda r: (Edit([1], seen_digest=r.digest), {}),
    "arguments in a text": lambda r: (Edit("{}", seen_digest=r.digest), {}),
    "a required argument removed": lambda r: (Edit(unset=["to"], seen_digest=r.digest), {}),
    "an unknown argument removed": lambda r: (Edit(unset=["too"], seen_digest=r.digest), {}),
    "an argument changed and removed": lambda r: (
        Edit({"to": "cy"}, unset=["to"], seen_digest=r.digest),
        {},
    ),
    "names of removed arguments in a text": lambda r: (Edit(unset="to", seen_digest=r.digest), {}),
    "removed arguments that are none": lambda r: (Edit(unset=None, seen_digest=r.digest), {}),
    "removed arguments of numbers": lambda r: (Edit(unset=[1, [2]], seen_digest=r.digest), {}),
    "unknown arguments": lambda r: (r.edit({"too": "eve"}), {}),
    "arguments of another type": lambda r: (r.edit({"amount": "many"}), {}),
    "arguments too many": lambda r: (r.edit({f"k{n}": n for n in range(100_001)}), {}),
    "arguments too deep": lambda r: (r.edit({"to": DEEP}), {}),
    "arguments too big": lambda r: (r.edit({"to": HUGE}), {}),
    "an argument that is no number": lambda r: (r.edit({"amount": float("nan")}), {}),
    "a key that is no text": lambda r: (Edit({1: "bo"}, seen_digest=r.digest), {}),
    "a result of another type": lambda r: (r.respond(5), {}),
    "a result that is no value": lambda r: (r.respond(object()), {}),
    "a result too deep": lambda r: (r.respond(DEEP), {}),
    "a grant that is none": lambda r: (r.approve(), {"grant": "any"}),
    "a grant with a no": lambda r: (r.reject(), {"grant": {"scope": "any"}}),
    "a stop that is no boolean": lambda r: (r.reject("no", stop="yes"), {}),
    "a claim that is none": lambda r: (r.approve(), {"shown": 5}),
    "a claim without its parts": lambda r: (r.approve(), {"shown": {"seconds": 1}}),
    "a claim of no time": lambda r: (
        r.approve(),
        {"shown": {"seconds": -1, "complete": True}},
    ),
    "a claim of no whole": lambda r: (r.approve(), {"shown": {"seconds": 1, "complete": 1}}),
    "a channel that is none": lambda r: (r.approve(), {"channel": None}),
    "a channel of half a character": lambda r: (r.approve(), {"channel": HALF}),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_decision_changes_nothing(case: Case, what: str) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    events = case.store.events()
    decision, options = MALFORMED[what](request)
    with pytest.raises(SaysoError) as caught:
        case.inbox.decide_sync(request.id, decision, **{"by": "ana", **options})
    assert 0 < len(str(caught.value)) < 1_000
    assert case.pending() == request
    assert case.store.events() == events
    assert case.inbox.decide_sync(request.id, request.approve(), by="ana").status == "approved"
    assert case.enter(lambda: case.paying()("bo")) == "paid bo 3"
    assert case.ran == [("bo", 3)]


@pytest.mark.parametrize("args", [None, "to=eve", ["eve"], 5])
def test_edit_without_an_object_is_refused_at_once(case: Case, args: Any) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(InvalidDecision, match="as an object"):
        request.edit(args)


@pytest.mark.parametrize(
    "request_id", ["", "req_none", "'; DROP TABLE call; --", "%", "\x00", HALF, HUGE, None, 5, {}]
)
def test_unknown_request_is_refused_by_every_method(case: Case, request_id: Any) -> None:
    case.paused(lambda: case.paying()("bo"))
    for act in (
        lambda: case.inbox.get_sync(request_id),
        lambda: case.inbox.events_sync(request_id),
        lambda: case.inbox.decide_sync(request_id, Reject("no"), by="ana"),
        lambda: case.inbox.cancel_sync(request_id, by="ana"),
    ):
        with pytest.raises(SaysoError) as caught:
            act()
        assert len(str(caught.value)) < 1_000
    assert case.pending().status == "pending"


@pytest.mark.parametrize("value", [DEEP, HUGE, HALF, float("inf"), object(), {1: 2}, 2**60])
def test_unstorable_answer_is_refused(case: Case, value: Any) -> None:
    request = case.paused(lambda: case.gate.ask_sync("Well?"))
    with pytest.raises(SaysoError):
        case.inbox.decide_sync(request.id, Respond(value), by="ana")
    assert case.pending() == request
