"""Temporal's own server is killed, and comes back with what it had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_world import Desk
from dev_server import DevServer


@pytest.fixture
def mortal_desk(tmp_path: Path, mortal_server: DevServer) -> Iterator[Desk]:
    desk = Desk(tmp_path, mortal_server)
    yield desk
    desk.close()


def test_a_decision_while_neither_server_nor_worker_is_up(mortal_desk: Desk) -> None:
    desk, server = mortal_desk, mortal_desk.server
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
