"""Temporal's server is killed and restarted; no run is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_world import Desk
from dev_server import DevServer
from sayso_process import PythonForks
from test_worker_temporal import asked, ended, started, url_of
from waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
def killable_desk(
    tmp_path: Path, killable_server: DevServer, python: PythonForks
) -> Iterator[Desk]:
    desk = Desk(tmp_path, killable_server, python)
    yield desk
    desk.close()


def test_decision_survives_outage_of_everything(killable_desk: Desk) -> None:
    desk, server = killable_desk, killable_desk.server
    stays = desk.worker()
    desk.begin("Refund", "with-worker", "refund", "A-17", 900)
    (request,) = desk.waiting()
    server.sleeps("with-worker")
    server.kill()
    # The worker is still there, and learns of the decision when nobody can be told of it.
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    server.start()
    assert server.result("with-worker") == "refunded 900"
    assert "WORKFLOW_EXECUTION_SIGNALED" in server.events("with-worker")

    desk.begin("Refund", "without-worker", "refund", "B-4", 20)
    (request,) = desk.waiting()
    server.sleeps("without-worker")
    stays.kill()
    stays.wait()
    server.kill()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    server.start()
    desk.worker()
    assert server.result("without-worker") == "refunded 20"
    assert desk.effects() == ["A-17 900 none given", "B-4 20 none given"]


def test_dispatched_worker_survives_server_kill(killable_desk: Desk) -> None:
    desk, server = killable_desk, killable_desk.server
    before = asked(desk, "pay", {"euros": 5})
    worker = started(desk, url_of(server))
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    ended(desk, before)

    meanwhile = asked(desk, "pay", {"euros": 6})
    server.kill()
    (request,) = desk.waiting()
    desk.inbox.decide_sync(request.id, request.approve(), by="ana")
    until(lambda: "is not available, trying again" in desk.log.read_text(), otherwise=desk.said)
    server.start()
    ended(desk, meanwhile)
    assert desk.effects() == ["5 euros", "6 euros"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, desk.said()
    first, *lines = desk.log.read_text().splitlines()
    assert first.startswith("Resuming runs of clerk")
    assert [line for line in lines if " sayso." not in line] == []
