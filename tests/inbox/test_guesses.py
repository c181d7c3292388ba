"""Calls that a Python developer guesses at an inbox without its documentation."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cases import Case

from sayso import Gate, Inbox, InvalidDecision, NotFound, Question, Reject, RunState
from sayso.rows import Event


def test_page_is_iterated_and_counted(case: Case) -> None:
    asked = [case.paused(lambda: case.paying()("bo"), f"run {n}") for n in range(3)]
    page = case.inbox.pending_sync()
    assert [request.id for request in page] == [request.id for request in asked]
    assert len(page) == 3
    assert len(case.inbox.history_sync()) == 0


@pytest.mark.parametrize("by_id", [True, False])
def test_short_forms_accept_request_or_id(case: Case, by_id: bool) -> None:
    one, two, three = (case.paused(lambda: case.paying()("bo"), f"run {n}") for n in range(3))
    question = case.paused(lambda: case.gate.ask_sync(Question("Why?")), "run 4")

    def given(request: object) -> object:
        return request.id if by_id else request

    assert case.inbox.approve_sync(given(one), by="ana").status == "approved"
    edited = case.inbox.edit_sync(given(two), {"to": "cy"}, by="ana")
    assert (edited.status, edited.args["to"]) == ("edited", "cy")
    assert case.inbox.reject_sync(given(three), "no", by="ana").decision.message == "no"
    assert case.inbox.respond_sync(given(question), "because", by="ana").decision.value == "because"
    with pytest.raises(InvalidDecision, match="say who decides"):
        case.inbox.approve_sync(given(one))


async def test_short_forms_exist_as_async(case: Case) -> None:
    request = await asyncio.to_thread(case.paused, lambda: case.paying()("bo"))
    assert [found.id for found in await case.inbox.pending()] == [request.id]
    assert (await case.inbox.approve(request, by="ana")).status == "approved"
    with pytest.raises(NotFound):
        await case.inbox.approve("req_none", by="ana")


@pytest.mark.parametrize(
    ("verb", "wrong", "right"),
    [
        ("reject", "reason", "message"),
        ("reject", "why", "message"),
        ("respond", "answer", "value"),
        ("respond", "result", "value"),
        ("edit", "arguments", "args"),
        ("edit", "remove", "unset"),
    ],
)
def test_likely_wrong_keyword_names_right_one(
    case: Case, verb: str, wrong: str, right: str
) -> None:
    request: Any = case.paused(lambda: case.paying()("bo"))
    state: Any = RunState(run=request.run, thread=request.thread, agent="x")
    for call in (
        lambda: getattr(case.inbox, f"{verb}_sync")(request, by="ana", **{wrong: "no"}),
        lambda: getattr(case.inbox, verb)(request, by="ana", **{wrong: "no"}),
        lambda: getattr(request, verb)(**{wrong: "no"}),
        lambda: getattr(state, verb)(request, **{wrong: "no"}),
    ):
        with pytest.raises(TypeError, match=f"has no argument '{wrong}': pass {right}="):
            call()
    assert case.inbox.get_sync(request).status == "pending"


def test_decide_accepts_the_request(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    assert case.inbox.decide_sync(request, Reject("no"), by="ana").status == "rejected"


def test_gate_and_inbox_share_cancel(case: Case) -> None:
    for door in (Gate.cancel, Inbox.cancel, Gate.cancel_sync, Inbox.cancel_sync):
        assert {"by", "reason"} <= set(inspect.signature(door).parameters)
    request = case.paused(lambda: case.paying()("bo"))
    case.inbox.cancel_sync(request, by="ana", reason="not needed")
    assert case.inbox.get_sync(request).execution.result == "not needed"


def test_listed_grant_can_be_revoked(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    case.inbox.approve_sync(request, by="ana", grant={"scope": "any"})
    (grant,) = case.inbox.grants_sync()
    assert case.inbox.revoke_sync(grant, by="ana").revoked is not None
    assert case.inbox.grants_sync() == []


def test_every_public_method_has_its_sync_twin() -> None:
    methods = {
        name: method
        for name, method in inspect.getmembers(Inbox, inspect.isfunction)
        if not name.startswith("_") and not name.endswith("_sync") and name != "close"
    }
    assert {"pending", "decide", "approve", "cancel", "watch", "reveal"} <= set(methods)
    for name, method in methods.items():
        twin = getattr(Inbox, f"{name}_sync")
        assert inspect.signature(twin).parameters == inspect.signature(method).parameters, name


def test_face_of_an_inbox_holds_no_internals(case: Case) -> None:
    public = {name for name in dir(case.inbox) if not name.startswith("_")}
    assert not public & {"rows", "events_of", "request_of", "judge"}
    gate = {name for name in dir(case.gate) if not name.startswith("_")}
    assert not gate & {"judge", "tell"}


def test_events_are_watched_without_a_loop(case: Case) -> None:
    events = case.inbox.watch_sync()
    seen: list[Event] = []
    watching = threading.Thread(target=lambda: seen.append(next(events)), daemon=True)
    watching.start()
    request = case.paused(lambda: case.paying()("bo"))
    watching.join(20)
    assert [event.run for event in seen] == [request.run]
    replayed = case.inbox.watch_sync(after=str(seen[0].pos - 1))
    assert next(replayed) == seen[0]
    case.decide(request.approve())
    assert [next(one).type for one in (events, replayed)] == ["decided", "decided"]


async def test_watching_is_an_async_iterator(case: Case) -> None:
    assert isinstance(case.inbox.watch(), AsyncIterator)
