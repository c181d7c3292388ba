"""Repeated work: workflows that are reset or continued, tools that may run again."""

from __future__ import annotations

import signal
from uuid import uuid4

import pytest
from desk_world import Desk
from dev_server import DevServer
from waiting import until


def new_id() -> str:
    return f"again:{uuid4().hex[:8]}"


def asked(desk: Desk) -> int:
    """How many requests there ever were."""
    return len(desk.inbox.history_sync().items) + len(desk.inbox.pending_sync().items)


@pytest.mark.long
def test_reset_during_pause_finds_request(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    server.sleeps(id)
    server.reset(id)
    until(lambda: "TIMER_STARTED" in server.events(id))
    assert desk.waiting() == [request]
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert server.result(id) == "refunded 900"
    assert (desk.effects(), asked(desk)) == (["A-17 900 none given"], 1)


def test_reset_after_the_end_finds_the_results(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert server.result(id) == "refunded 900"
    server.reset(id)
    assert server.result(id) == "refunded 900"
    assert "WORKFLOW_TASK_FAILED" in server.events(id)  # which is how a reset begins
    assert (desk.effects(), asked(desk)) == (["A-17 900 none given"], 1)


def test_reset_during_tool_waits_for_it(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "slow_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    until(desk.effects, otherwise=desk.said)
    server.reset(id)
    until(lambda: "ACTIVITY_TASK_SCHEDULED" in server.events(id))
    (desk.folder / "go").touch()
    assert server.result(id) == "late"
    assert (desk.effects(), asked(desk)) == (["A-17 900"], 1)


@pytest.mark.long
def test_idempotent_tool_runs_again(desk: Desk, server: DevServer) -> None:
    worker = desk.worker()
    desk.begin("Refund", id := new_id(), "safe_refund", "A-17", 900, 2)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert worker.wait(60) == -signal.SIGKILL
    desk.worker()
    assert server.result(id) == "second time"  # and nobody was asked
    assert desk.effects() == ["A-17 900"] * 2
    types = [event.type for event in desk.inbox.events_sync(request.id)]
    assert types.count("in_doubt") == types.count("retried") == 1
    assert types.count("decided") == 1
    assert asked(desk) == 1


@pytest.mark.long
def test_continued_workflow_asks_again(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Rounds", id := new_id(), 2)
    (first,) = desk.waiting()
    desk.inbox.decide_sync(first.id, first.approve(), by="ana")
    (second,) = desk.waiting()
    assert second.id != first.id
    assert second.run != first.run
    server.sleeps(id)
    desk.inbox.decide_sync(second.id, second.approve(), by="ana")
    assert server.result(id) == "refunded 900"
    assert "WORKFLOW_EXECUTION_SIGNALED" in server.events(id)  # news reach the last execution
    assert desk.effects() == ["A-17 900 none given"] * 2
