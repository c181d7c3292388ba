"""A decision from anywhere takes the run further; a restart and the clock do as well."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from served import Serve, mailer
from waiting import until

from sayso import Inbox
from sayso.agent.agent import lend_store
from sayso.stores import open_store
from sayso.testing import call, say


def test_decision_in_another_process_resumes_the_run(serve: Serve, url: str) -> None:
    sent: list[str] = []
    agent = mailer(sent=sent)
    server = serve(agents=[agent], auth=False)
    result = asyncio.run(agent.run("Welcome ana", thread="t-1"))
    assert result.status == "paused"
    with Inbox(url) as inbox:  # another connection, as the command line has
        (request,) = inbox.pending_sync().items
        inbox.decide_sync(request.id, request.approve(), by="ben", channel="cli")
    run = until(lambda: _ended(server.client(), result.run))
    assert (run["status"], sent) == ("done", ["ana@example.com: Hello"])
    steps = server.client().get("/metrics").text
    assert 'sayso_worker_step_seconds_count{agent="mailer",status="done"} 1.0' in steps
    for step in ("taken", "resumed", "call_started", "call_done", "done"):
        assert f'sayso_worker_steps_total{{agent="mailer",step="{step}"}} 1.0' in steps


def _ended(client: Any, run: str) -> Any:
    found = client.get(f"/api/runs/{run}").json()
    return found if found["status"] in ("done", "failed", "cancelled") else None


def test_two_servers_run_a_call_once(serve: Serve, url: str) -> None:
    sent: list[str] = []
    agents = [mailer(sent=sent) for _ in range(2)]
    servers = [serve(agents=[agent], auth=False) for agent in agents]
    store = open_store(url)
    runs = []
    for n in range(5):
        asking = mailer(call("send_email", {"to": f"{n}"}))
        lend_store(asking, store)
        runs.append(asyncio.run(asking.run(f"{n}", thread=f"t-{n}")).run)
    for agent in agents:
        agent.model = mailer(*[say("Done.")] * 5).model
    client = servers[0].client()
    for item in client.get("/api/requests").json()["items"]:
        body = {"type": "approve", "seen_digest": item["digest"]}
        assert client.post(f"/api/requests/{item['id']}/decision", json=body).status_code == 200
    for run in runs:
        assert until(lambda run=run: _ended(client, run))["status"] == "done"
    assert sorted(sent) == [f"{n}: Hello" for n in range(5)]
    store.close()


def test_restart_resumes_due_runs(serve: Serve, url: str) -> None:
    store = open_store(url)
    agent = mailer()
    lend_store(agent, store)
    result = asyncio.run(agent.run("Welcome ana", thread="t-1"))
    request = result.interruptions[0]
    with Inbox(store) as inbox:
        inbox.decide_sync(request.id, request.approve(), by="ben")
    sent: list[str] = []
    server = serve(agents=[mailer(say("Done."), sent=sent)], auth=False)
    assert until(lambda: _ended(server.client(), result.run))["status"] == "done"
    assert sent == ["ana@example.com: Hello"]


def test_expiry_happens_on_time_and_after_a_sleep(serve: Serve, url: str) -> None:
    store = open_store(url)
    agent = mailer(expires_in=0.3)
    lend_store(agent, store)
    asleep = asyncio.run(agent.run("Welcome ana", thread="t-1"))
    store.close()
    time.sleep(0.4)  # it expires while nobody is up
    sent: list[str] = []
    turns = (say("Nobody decided."), call("send_email", {"to": "ben"}), say("Again nobody."))
    awake = mailer(*turns, sent=sent, expires_in=0.5)
    server = serve(agents=[awake], auth=False)
    client = server.client()
    assert until(lambda: _ended(client, asleep.run))["status"] == "done"
    later = asyncio.run(awake.run("Welcome ben", thread="t-2"))
    began = time.monotonic()
    assert until(lambda: _ended(client, later.run))["status"] == "done"
    assert time.monotonic() - began < 10
    (request,) = [r for r in client.get("/api/requests?status=expired").json()["items"]][:1]
    assert request["status"] == "expired"
    assert sent == []
    steps = client.get("/metrics").text
    assert 'sayso_worker_steps_total{agent="mailer",step="expired"} 2.0' in steps
