"""Agents elsewhere: open once, wait, claim once, report by the claim's own token."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import httpx
import pytest
from served import Serve, Served, mailer, opened
from waiting import until

from sayso import Gate, Inbox, Paused, Reject
from sayso.testing import say


def approve(client: httpx.Client, made: dict[str, Any]) -> None:
    body = {"type": "approve", "seen_digest": made["digest"]}
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text


def claimed(client: httpx.Client, lease: float) -> tuple[str, dict[str, Any]]:
    """Open, approve and claim a request. Return its path and the claim."""
    made = opened(client)
    approve(client, made)
    path = f"/api/requests/{made['id']}"
    return path, client.post(f"{path}/claim", json={"lease": lease}).json()


def test_same_key_is_the_same_request(open_server: Served) -> None:
    client = open_server.client()
    first, again = opened(client, key="k"), opened(client, key="k")
    assert first["id"] == again["id"]
    headers = {"Idempotency-Key": "k"}
    for other in (
        {"tool": "refund", "args": {"amount": 6}},
        {"tool": "refund", "args": {"amount": 5}, "note": "new words"},
        {"tool": "erase", "args": {"amount": 5}},
    ):
        answer = client.post("/api/requests", json=other, headers=headers)
        assert answer.status_code == 409, other
    assert len(client.get("/api/requests").json()["items"]) == 1
    # That it is not new is said by the status, before and after somebody decided.
    body = {"tool": "refund", "args": {"amount": 5}}
    assert client.post("/api/requests", json=body, headers=headers).status_code == 200
    approve(client, first)
    assert client.post("/api/requests", json=body, headers=headers).status_code == 200
    for key, status in (("another", 201), ("", 422)):
        headers = {"Idempotency-Key": key}
        assert client.post("/api/requests", json=body, headers=headers).status_code == status


def test_changed_tool_or_facts_are_not_claimed(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, binds={"branch": "main"})
    approve(client, made)
    path = f"/api/requests/{made['id']}"
    refused = client.post(f"{path}/claim", json={"tool_digest": "0" * 64})
    assert (refused.status_code, "the tool has changed" in refused.text) == (403, True)
    refused = client.post(f"{path}/claim", json={"binds": {"branch": "other"}})
    assert (refused.status_code, "asked again" in refused.text) == (409, True)
    assert client.get(path).json()["status"] == "pending"


def test_names_of_other_agents_are_refused(serve: Serve) -> None:
    """Code of the server may have a run or a thread of any name."""
    server = serve()
    gate = Gate(server.store, agent="desk", wait=0)
    for name in ("bot/r1", "bot/t1"):
        with pytest.raises(Paused), gate.run(name):
            gate.confirm_sync("Publish?")
    client = server.client(server.token("bot", "agent"))
    headers = {"Idempotency-Key": "k"}
    for where, field in (({"run": "r1"}, "run"), ({"run": "r2", "thread": "t1"}, "thread")):
        body = {"tool": "refund", "args": {}, **where}
        refused = client.post("/api/requests", json=body, headers=headers)
        assert refused.status_code == 409
        assert f"{field} 'bot/{field[0]}1' is not this agent's" in refused.text


def test_short_forms_are_accepted(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, kind="approval", risk="high")
    assert (made["kind"], made["risk"]) == ("approval", {"level": "high", "reasons": []})
    made = opened(client, key="other", reviewers="ana", allowed="approve")
    assert (made["reviewers"], made["notify"]) == ([], ["ana"])
    assert made["allowed"] == ["approve", "reject"]
    body = {"kind": "question", "question": "Which colour?"}
    asked = client.post("/api/requests", json=body).json()
    assert (asked["kind"], asked["question"]["text"]) == ("question", "Which colour?")
    for wrong in ({"kind": "question", "tool": "refund"}, {**body, "kind": "approval"}):
        answer = client.post("/api/requests", json=wrong)
        assert (answer.status_code, answer.json()["field"]) == (422, "kind")
    answer = client.post("/api/requests", json={"tool": "refund", "risk": "terrible"})
    assert (answer.status_code, answer.json()["field"]) == (422, "risk.level")


def test_call_allowed_by_grant_is_readable(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    grant = {"scope": "exact", "ends_in": 60}
    yes = {"type": "approve", "seen_digest": made["digest"], "grant": grant}
    assert client.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 200
    again = opened(client, key="k2")
    assert (again["status"], again["decision"]["type"]) == ("approved", "grant")
    read = client.get(f"/api/requests/{again['id']}")
    assert (read.status_code, read.json()["decision"]["type"]) == (200, "grant")
    assert client.get("/api/requests/req_nope").status_code == 404


@pytest.mark.parametrize(
    "asked", [{"question": {"text": "How many?"}}, {"text": "Publish?"}, {"tool": "refund"}]
)
def test_agents_description_is_shown(open_server: Served, asked: Any) -> None:
    client = open_server.client()
    made = client.post("/api/requests", json={**asked, "description": "Mind the gap."}).json()
    read = client.get(f"/api/requests/{made['id']}").json()
    assert (read["description"], read["shown"]["description"]) == ("Mind the gap.",) * 2


def test_duration_accepts_seconds_or_text(open_server: Served) -> None:
    client = open_server.client()
    for given, seconds in ((90, 90), ("15m", 900)):
        made = opened(client, key=f"k{seconds}", expires_in=given)
        times = [datetime.fromisoformat(made[name]) for name in ("created_at", "expires_at")]
        assert (times[1] - times[0]).total_seconds() == seconds
    refused = client.post("/api/requests", json={"tool": "refund", "expires_in": "soon"})
    assert (refused.status_code, "15m" in refused.text) == (422, True)


def test_repeated_failure_report_is_an_echo(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    approve(client, made)
    path = f"/api/requests/{made['id']}"
    token = client.post(f"{path}/claim").json()["token"]
    failed = {"token": token, "ok": False, "result": "no funds"}
    for _ in range(2):
        told = client.post(f"{path}/result", json=failed)
        assert told.status_code == 200
        assert told.json()["execution"]["status"] == "failed"
    assert client.post(f"{path}/result", json={**failed, "ok": True}).status_code == 409
    assert client.post(f"{path}/result", json={**failed, "result": "else"}).status_code == 409


def test_waiting_ends_with_the_decision(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    soon = client.get(f"/api/requests/{made['id']}/wait", params={"timeout": 0})
    assert soon.json()["status"] == "pending"
    deciding = threading.Timer(0.3, approve, (open_server.client(), made))
    deciding.start()
    began = time.monotonic()
    done = client.get(f"/api/requests/{made['id']}/wait", params={"timeout": 25}).json()
    deciding.join()
    assert done["status"] == "approved"
    assert time.monotonic() - began < 20


def test_claim_returns_approved_arguments_once(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    path = f"/api/requests/{made['id']}"
    assert client.post(f"{path}/claim").status_code == 409  # not decided yet
    body = {"type": "edit", "args": {"amount": 3}, "seen_digest": made["digest"]}
    client.post(f"{path}/decision", json=body)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: client.post(f"{path}/claim"), range(10)))
    won = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(won) == 1
    (claim,) = won
    assert (claim["args"], claim["attempt"]) == ({"amount": 3}, 1)
    wrong = {"token": claim["token"] + 1, "attempt": 1, "result": "x"}
    assert client.post(f"{path}/result", json=wrong).status_code == 409
    right = {"token": claim["token"], "attempt": 1, "result": {"paid": 3}}
    done = client.post(f"{path}/result", json=right)
    assert done.json()["execution"] == {"status": "done", "attempts": 1, "result": {"paid": 3}}
    assert client.post(f"{path}/result", json=right).status_code == 200  # an echo
    other = {**right, "result": "something else"}
    assert client.post(f"{path}/result", json=other).status_code == 409
    assert client.get("/api/runs").json()["items"][0]["status"] == "done"


def test_lapsed_claim_is_in_doubt(open_server: Served) -> None:
    client = open_server.client()
    path, claim = claimed(client, lease=0.2)
    until(lambda: client.get(path).json()["kind"] == "in_doubt")
    assert client.get(path).json()["status"] == "pending"
    assert client.post(f"{path}/claim").status_code == 409
    # Its late result closes the doubt, as long as nobody has decided it.
    late = {"token": claim["token"], "attempt": 1, "result": "ok"}
    assert client.post(f"{path}/result", json=late).json()["execution"]["status"] == "done"


def test_lost_claim_keeps_its_attempt_running(open_server: Served) -> None:
    """Its agent was stalled, and is still in the call."""
    client = open_server.client()
    path, claim = claimed(client, lease=0.2)
    until(lambda: client.get(path).json()["kind"] == "in_doubt")
    lapsed = client.get(path).json()
    assert lapsed["execution"]["attempt_running"] is False
    assert client.post(f"{path}/renew", json={"token": claim["token"]}).json() == {"ours": False}
    running = client.get(path).json()
    assert running["execution"]["attempt_running"] is True
    assert running["allowed"] == ["respond", "reject"]
    again = {"type": "approve", "seen_digest": running["digest"]}
    refusal = client.post(f"{path}/decision", json=again)
    assert refusal.status_code == 422
    assert "cannot run again yet" in refusal.text
    late = {"token": claim["token"], "attempt": 1, "result": "ok"}
    assert client.post(f"{path}/result", json=late).json()["execution"]["status"] == "done"


@pytest.mark.long
def test_call_in_doubt_is_waited_for(open_server: Served) -> None:
    client = open_server.client()
    path, claim = claimed(client, lease=1)
    # That it came to be in doubt is news for whoever waits for it; then it is as good as pending.
    assert client.get(f"{path}/wait", params={"timeout": 10}).json()["kind"] == "in_doubt"
    began = time.monotonic()
    still = client.get(f"{path}/wait", params={"timeout": 0.5}).json()
    assert (still["kind"], still["status"]) == ("in_doubt", "pending")
    assert time.monotonic() - began >= 0.5
    late = {"token": claim["token"], "attempt": 1, "result": "ok"}
    reporting = threading.Timer(0.3, lambda: open_server.client().post(f"{path}/result", json=late))
    reporting.start()
    done = client.get(f"{path}/wait", params={"timeout": 25}).json()
    reporting.join()
    assert (done["execution"]["status"], done["execution"]["result"]) == ("done", "ok")
    assert time.monotonic() - began < 20


def test_renewed_claim_keeps_its_lease_length(open_server: Served) -> None:
    client = open_server.client()
    for key, lease in (("long", 1800), ("short", 45.5)):
        made = opened(client, key=key)
        approve(client, made)
        path = f"/api/requests/{made['id']}"
        claim = client.post(f"{path}/claim", json={"lease": lease}).json()
        mine = {"token": claim["token"], "attempt": claim["attempt"]}
        before = open_server.store.now()
        assert client.post(f"{path}/renew", json=mine).json() == {"ours": True}
        after = open_server.store.now()
        call = open_server.store.call(made["id"])
        assert call is not None
        run = open_server.store.run(call.run)
        assert run is not None
        assert run.ready_at is not None
        assert before <= run.ready_at - lease * 1_000_000 <= after
        result = {**mine, "result": "ok"}
        assert client.post(f"{path}/result", json=result).status_code == 200


@pytest.mark.long
def test_renewal_keeps_a_claim(open_server: Served) -> None:
    client = open_server.client()
    path, claim = claimed(client, lease=5)
    began = time.monotonic()
    mine = {"token": claim["token"], "attempt": claim["attempt"]}
    while time.monotonic() - began < 6:
        assert client.post(f"{path}/renew", json=mine).json() == {"ours": True}
        time.sleep(0.2)
    assert client.get(path).json()["kind"] == "approval"


def test_bad_calls_are_refused_with_their_field(open_server: Served) -> None:
    client = open_server.client()
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    for body, field in (
        ({}, "tool"),
        ({"tool": "a", "text": "b"}, "tool"),
        ({"tool": ""}, "tool"),
        ({"tool": "a", "args": []}, "args"),
        ({"tool": "a", "args": {"amount": "x"}, "schema": schema}, "args.amount"),
        ({"tool": "a", "quorum": "two"}, "quorum"),
        ({"tool": "a", "quorum": 0}, "quorum"),
        ({"tool": "a", "quorum": 2, "reviewers": ["ana"]}, "quorum"),
        ({"question": {"text": "How many?"}, "quorum": 2}, "quorum"),
        ({"tool": "a", "expires_in": -1}, "expires_in"),
        ({"tool": "a", "allowed": ["nope"]}, "allowed"),
        ({"tool": "a", "reviewers": 5}, "reviewers"),
        ({"tool": "a", "risk": {"level": "huge"}}, "risk.level"),
        ({"tool": "a", "nonsense": 1}, "nonsense"),
        ({"question": {"text": "Q?", "options": ["one"]}}, "options"),
        ({"text": "  "}, "text"),
    ):
        answer = client.post("/api/requests", json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["field"] == field, body
    assert client.get("/api/requests").json()["items"] == []


def test_number_of_open_requests_is_limited(serve: Serve) -> None:
    from sayso.server.service import Limits

    server = serve(auth=False, limits=Limits(open_requests=3))
    client = server.client()
    for n in range(3):
        opened(client, key=f"k{n}")
    full = client.post("/api/requests", json={"tool": "refund"})
    assert full.status_code == 429
    assert "retry-after" in full.headers
    opened(client, key="k0")  # what is open already is still found
    opened(client, key="other", agent="another")


def test_writes_are_limited_per_principal(serve: Serve) -> None:
    from sayso.server.service import Limits

    server = serve(limits=Limits(per_minute=60, burst=5))
    ana, ben = (server.client(server.token(name)) for name in ("ana", "ben"))
    answers = [ana.post("/api/requests/req_x/cancel") for _ in range(10)]
    codes = [answer.status_code for answer in answers]
    assert codes[:5] == [404] * 5
    assert 429 in codes
    assert "retry in a second" in answers[codes.index(429)].text
    assert ben.post("/api/requests/req_x/cancel").status_code == 404
    assert ana.get("/api/requests").status_code == 200


def test_agent_cannot_use_foreign_threads_or_runs(
    serve: Serve,
) -> None:
    server = serve(agents=[mailer(say("Dear diary."))])
    cleo, ana = server.client(server.token("cleo", "chat")), server.client(server.token("ana"))
    bot, other = (server.client(server.token(name, "agent")) for name in ("bot", "other"))
    said = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    assert cleo.post("/api/chat", json={"id": "c1", "messages": [said]}).status_code == 200
    opened(other, key="o", thread="theirs")
    taken = ({"thread": "c1"}, {"thread": "theirs"}, {"run": "c1"}, {"run": "theirs"})
    for n, named in enumerate(taken):
        # Each agent has names of its own, so it learns nothing of those of others.
        made = opened(server.client(server.token(f"bot{n}", "agent")), **named)
        assert made["run"].startswith(f"bot{n}/")
        assert made["thread"].startswith(f"bot{n}/")
    assert ana.get("/api/chat/c1/messages").status_code == 404
    mine = opened(bot, key="k1", thread="mine", run="r1")
    refused = bot.post("/api/requests", json={"tool": "refund", "thread": "mine"})
    assert (refused.status_code, "'bot/r1' is still active" in refused.text) == (409, True)
    assert opened(bot, key="k2", thread="mine", run="r1")["thread"] == mine["thread"]
    for named, status in (
        ({"run": "r1", "thread": "elsewhere"}, 409),
        ({"thread": "@system"}, 422),
        ({"run": "@system"}, 422),
    ):
        refused = bot.post("/api/requests", json={"tool": "refund", **named})
        assert refused.status_code == status, refused.text


@pytest.mark.parametrize("many", [False, True])
def test_absent_agents_run_ends_with_requests(serve: Serve, many: bool) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    first, second = (opened(bot, key, run="r1", thread="t") for key in ("k1", "k2"))
    for request, status in ((first, "paused"), (second, "done")):
        no = {"type": "reject", "message": "not today"}
        if many:
            ana.post("/api/decisions", json=[{"id": request["id"], **no}])
        else:
            ana.post(f"/api/requests/{request['id']}/decision", json=no)
        assert ana.get("/api/runs/bot/r1").json()["status"] == status
    assert bot.get(f"/api/requests/{first['id']}/wait").json()["decision"]["message"] == "not today"


def test_run_decided_elsewhere_does_not_block_its_thread(serve: Serve) -> None:
    server = serve()
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot, "k1", run="r1", thread="t")
    server.app.state.sayso.inbox.decide_sync(made["id"], Reject("no"), by="ana")
    assert opened(bot, "k2", run="r2", thread="t")["run"] == "bot/r2"


def test_simultaneous_equal_posts_make_one_request(serve: Serve) -> None:
    server = serve()
    bots = [server.client(server.token("bot", "agent")) for _ in range(6)]
    with ThreadPoolExecutor(len(bots)) as pool:
        made = list(pool.map(lambda bot: opened(bot, thread="t1"), bots))
    assert len({request["id"] for request in made}) == 1


@pytest.mark.parametrize("auth", [True, False])
def test_request_of_a_served_agent_cannot_be_claimed(serve: Serve, auth: bool) -> None:
    sent: list[str] = []
    agent = mailer(sent=sent)
    server = serve(agents=[agent], auth=auth, workers=0)
    namesake = server.client(server.token("mailer", "agent") if auth else None)
    (request,) = agent.run_sync("Welcome ana", thread="t").interruptions
    agent_inbox = server.app.state.sayso.inbox
    agent_inbox.decide_sync(request.id, request.approve(), by="ana")
    path = f"/api/requests/{request.id}"
    if auth:
        assert namesake.get(path).status_code == 403
        return
    assert namesake.get(path).json()["status"] == "approved"
    forged = {"token": 1, "ok": True, "result": "forged"}
    for way, body in (("claim", {}), ("renew", {"token": 1}), ("result", forged)):
        refused = namesake.post(f"{path}/{way}", json=body)
        assert (refused.status_code, refused.json()["error"]) == (409, "Conflict"), way
    assert agent.resume_sync("t").status == "done"
    assert len(sent) == 1


@pytest.mark.parametrize("ends", ["reject", "respond", "cancel"])
def test_run_decided_outside_the_server_ends_at_once(serve: Serve, ends: str) -> None:
    server = serve()
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot, run="r1")
    with Inbox(server.store.url) as inbox:
        if ends == "reject":
            inbox.reject_sync(made["id"], "no", by="ana")
        elif ends == "respond":
            inbox.respond_sync(made["id"], 5, by="ana")
        else:
            inbox.cancel_sync(made["id"], by="ana")
    run = server.store.run("bot/r1")
    assert run is not None
    assert run.status == "done"
