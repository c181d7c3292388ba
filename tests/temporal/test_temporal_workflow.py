"""People inside a user's own Temporal workflows, with the real server."""

from __future__ import annotations

import signal
from typing import Any
from uuid import uuid4

import pytest
from desk_world import Desk
from dev_server import DevServer
from waiting import until


def new_id() -> str:
    return f"order:{uuid4().hex[:8]}"  # with a colon, as people like to have them


@pytest.mark.long
def test_stored_arguments_run_once(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    assert (request.tool, request.agent) == ("refund", "desk")
    assert request.args == {"order": "A-17", "euros": 900, "reason": "none given"}
    # A signal is no decision, whoever sends it: it causes a look.
    server.sleeps(id)
    server.signal(id, "sayso.news", request.run)
    until(lambda: server.events(id).count("ACTIVITY_TASK_COMPLETED") >= 2)
    assert (desk.waiting(), desk.effects()) == ([request], [])
    desk.inbox.decide_sync(request.id, request.edit({"euros": 90}), by="ana")
    assert server.result(id) == "refunded 90"
    assert desk.effects() == ["A-17 90 none given"]
    assert desk.inbox.get_sync(request.id).execution.status == "done"


def test_results_are_always_json(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "dated_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert server.result(id) == "2026-01-02"
    assert desk.effects() == ["A-17 900"]


def test_rejection_and_failure_end_workflow(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", refused := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.reject("too much"), by="ana")
    failure = server.failure(refused)
    assert failure["applicationFailureInfo"]["type"] == "Rejected"
    assert failure["message"] == "ana rejected it: too much"

    desk.begin("Refund", broken := new_id(), "broken_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    failure = server.failure(broken)
    assert failure["applicationFailureInfo"]["type"] == "CallFailed"
    assert failure["message"] == "ValueError: the bank is closed"
    assert desk.effects() == []


@pytest.mark.long
def test_unknown_tool_ends_the_workflow(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "misspelled", "A-17", 900)
    failure = server.failure(id)
    assert failure["applicationFailureInfo"]["type"] == "NotFound"
    assert failure["message"].startswith("no worker has a tool 'misspelled': correct the name")
    assert "sayso/refund" in failure["message"]
    assert desk.inbox.pending_sync().items == ()
    assert "MARKER_RECORDED" in server.events(id)


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "timeout", "said"),
    [
        (["A-17", 900], 60, "pass args as a dict by name, not as list"),
        ({"order": "A-17", "euros": 900}, "soon", "timeout='soon': use a positive number"),
        ({"order": "A-17", "euros": 900}, None, "run_once() needs a timeout"),
    ],
)
def test_invalid_call_ends_the_workflow(
    desk: Desk, server: DevServer, args: Any, timeout: Any, said: str
) -> None:
    desk.worker()
    desk.begin("Loose", id := new_id(), args, timeout)
    failure = server.failure(id)
    assert failure["applicationFailureInfo"]["type"] == "InvalidCall"
    assert failure["message"].startswith(said)
    assert desk.inbox.pending_sync().items == ()


@pytest.mark.long
def test_timeout_may_be_a_duration_text(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900, "5m")
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert server.result(id) == "refunded 900"


@pytest.mark.long
def test_questions_run_in_turn_and_parallel(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Visit", id := new_id(), "Bob")
    (question,) = desk.waiting()
    assert question.note == "from the desk"
    desk.inbox.decide_sync(question.id, question.respond(3), by="ana")
    first, second = desk.waiting(2)
    door, key = (first, second) if "floor" in str(first.args) else (second, first)
    assert door.args["details"] == {"guest": "Bob", "floor": 3}
    assert key.requester == "ana"
    desk.inbox.decide_sync(key.id, key.reject("not today"), by="ben")
    desk.inbox.decide_sync(door.id, door.approve(), by="ben")
    assert server.result(id) == {"floor": 3, "in": True, "key": False}


@pytest.mark.long
@pytest.mark.parametrize("nobody_up", [True, False], ids=["decided meanwhile", "decided later"])
def test_worker_is_killed_while_people_think(
    desk: Desk, server: DevServer, nobody_up: bool
) -> None:
    worker = desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    server.sleeps(id)
    worker.kill()
    worker.wait()
    if not nobody_up:
        desk.worker()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    if nobody_up:
        desk.worker()
    assert server.result(id) == "refunded 900"
    assert desk.effects() == ["A-17 900 none given"]
    assert "WORKFLOW_EXECUTION_SIGNALED" in server.events(id)  # it need not look by itself


@pytest.mark.long
def test_person_settles_timed_out_tool(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "slow_refund", "A-17", 900, 1)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    until(desk.effects)
    (doubt,) = desk.waiting()
    assert (doubt.id, doubt.kind) == (request.id, "in_doubt")
    desk.inbox.decide_sync(doubt.id, doubt.respond("the bank says yes"), by="ben")
    assert server.result(id) == "the bank says yes"
    assert desk.effects() == ["A-17 900"]


@pytest.mark.long
def test_lost_reply_of_a_tool_is_in_doubt(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "lost_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    until(desk.effects)
    (doubt,) = desk.waiting()
    assert (doubt.id, doubt.kind) == (request.id, "in_doubt")
    assert doubt.execution.result == "TimeoutError: no reply from the bank"
    desk.inbox.decide_sync(doubt.id, doubt.respond("the bank says yes"), by="ben")
    assert server.result(id) == "the bank says yes"
    assert desk.effects() == ["A-17 900"]


def test_tool_that_did_nothing_fails_by_name(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "empty_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    failure = server.failure(id)
    assert failure["applicationFailureInfo"]["type"] == "NotExecuted"
    assert failure["message"] == "there is no money"


@pytest.mark.long
def test_late_result_ends_the_doubt(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "slow_refund", "A-17", 900, 1)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    (doubt,) = desk.waiting()
    assert doubt.kind == "in_doubt"
    (desk.folder / "go").touch()
    assert server.result(id) == "late"
    assert desk.effects() == ["A-17 900"]


@pytest.mark.long
def test_killed_worker_leaves_a_doubt(desk: Desk, server: DevServer) -> None:
    worker = desk.worker()
    desk.begin("Refund", id := new_id(), "deadly_refund", "A-17", 900, 2)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert worker.wait(60) == -signal.SIGKILL
    desk.worker()
    (doubt,) = desk.waiting()
    assert (doubt.id, doubt.kind) == (request.id, "in_doubt")
    assert desk.effects() == ["A-17 900"]  # nobody ran it again by himself
    desk.inbox.decide_sync(doubt.id, doubt.approve(), by="ben")
    assert server.result(id) == "second time"
    assert desk.effects() == ["A-17 900"] * 2


@pytest.mark.long
def test_stopped_worker_finishes_its_call(desk: Desk, server: DevServer) -> None:
    worker = desk.worker()
    desk.begin("Refund", id := new_id(), "slow_refund", "A-17", 900)
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    until(desk.effects, otherwise=desk.said)
    worker.send_signal(signal.SIGTERM)
    until((desk.folder / "stopping").exists, otherwise=desk.said)
    (desk.folder / "go").touch()
    worker.wait(60)
    assert desk.inbox.get_sync(request.id).execution.status == "done"
    desk.worker()
    assert server.result(id) == "late"
    assert desk.effects() == ["A-17 900"]


@pytest.mark.long
def test_nobody_answers_in_time(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Hurry", id := new_id())
    assert server.failure(id)["applicationFailureInfo"]["type"] == "Expired"
    assert desk.inbox.history_sync().items[0].status == "expired"


def test_invalid_option_ends_the_workflow(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Plain", id := new_id(), {"risk": {"level": "terrible"}})
    failure = server.failure(id)
    assert failure["applicationFailureInfo"]["type"] == "InvalidCall"
    assert "terrible" in failure["message"]
    desk.begin("Plain", id := new_id(), {"risk": {"level": "low"}})
    (request,) = desk.waiting()
    assert request.risk.level == "low"
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    assert server.result(id) is True


def test_cancelled_workflow_cancels_its_request(desk: Desk, server: DevServer) -> None:
    desk.worker()
    desk.begin("Refund", id := new_id(), "refund", "A-17", 900)
    (request,) = desk.waiting()
    server.cancel(id)
    assert server.ended(id)["status"] == "CANCELED"
    assert desk.inbox.get_sync(request.id).status == "cancelled"
    assert desk.effects() == []
