"""Requests over HTTP: list, read, decide, try out, bulk, cancel, grants."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from served import Serve, Served, opened

from sayso import DidNotRun, Gate, Paused, Policy, Rule

NOT_DECISIONS: list[Any] = [
    {},
    {"type": None},
    {"type": True},
    {"type": "APPROVE "},
    {"type": "approved"},
    {"type": "approve", "extra": 1},
    {"type": "edit"},
    {"type": "edit", "args": None},
    {"type": "edit", "args": [1]},
    {"type": "respond"},
    {"type": "approve", "args": {"amount": 1}},
    {"type": "reject", "message": 5},
    [],
    "approve",
    None,
]


def test_request_is_listed_read_and_decided(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, note="please", thread="t-1")
    (listed,) = client.get("/api/requests").json()["items"]
    assert listed["id"] == made["id"]
    assert listed["status"] == "pending"
    whole = client.get(f"/api/requests/{made['id']}").json()
    assert whole["args"] == {"amount": 5}
    assert whole["thread"] == "t-1"
    assert whole["shown"]["note"] == "please"
    assert [event["type"] for event in whole["events"]] == ["asked"]
    decided = client.post(
        f"/api/requests/{made['id']}/decision",
        json={"type": "approve", "seen_digest": whole["digest"]},
    )
    assert decided.status_code == 200
    assert decided.json()["decision"]["type"] == "approve"
    assert client.get("/api/requests").json() == {"items": [], "next": None}
    (closed,) = client.get("/api/requests", params={"status": "closed"}).json()["items"]
    assert closed["status"] == "approved"


@pytest.mark.parametrize(
    "decision",
    [{"type": "approve"}, {"type": "edit", "args": {"amount": 6}}, {"type": "respond", "value": 6}],
    ids=lambda decision: str(decision["type"]),
)
def test_decision_keeps_its_note(open_server: Served, decision: dict[str, Any]) -> None:
    client = open_server.client()
    made = opened(client)
    body = {**decision, "message": "Checked with Ana.", "seen_digest": made["digest"]}
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.json()["decision"]["message"] == "Checked with Ana."
    again = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert again.status_code == 200  # the same answer by the same person


@pytest.mark.parametrize("body", NOT_DECISIONS)
def test_malformed_decision_leaves_request_pending(open_server: Served, body: Any) -> None:
    client = open_server.client()
    made = opened(client)
    path = f"/api/requests/{made['id']}/decision"
    if isinstance(body, dict):
        body = {**body, "seen_digest": made["digest"]}
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["message"]
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "pending"


@pytest.mark.parametrize(
    "raw",
    [b"{", b"nope", b'{"type": NaN}', b'{"type":"approve","type":"reject"}', b"\xff", b'"\\ud800"'],
)
def test_bad_json_is_refused_with_one_sentence(open_server: Served, raw: bytes) -> None:
    client = open_server.client()
    made = opened(client)
    answer = client.post(f"/api/requests/{made['id']}/decision", content=raw)
    assert answer.status_code in (400, 422)
    assert len(answer.json()["message"].splitlines()) == 1
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "pending"


def test_unknown_request_is_not_found(open_server: Served) -> None:
    client = open_server.client()
    body = {"type": "approve", "seen_digest": "0" * 64}
    answer = client.post("/api/requests/req_nope/decision", json=body)
    assert answer.status_code == 404
    assert answer.json()["error"] == "NotFound"


def test_second_decision_names_the_first(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    ana, ben = (server.client(server.token(name)) for name in ("ana", "ben"))
    made = opened(agent)
    path = f"/api/requests/{made['id']}/decision"
    assert ben.post(path, json={"type": "reject", "message": "No."}).status_code == 200
    lost = ana.post(path, json={"type": "approve", "seen_digest": made["digest"]})
    assert lost.status_code == 409
    assert lost.json()["error"] == "AlreadyDecided"
    assert lost.json()["decision"]["by"] == "ben"
    assert lost.json()["decision"]["message"] == "No."
    again = ben.post(path, json={"type": "reject", "message": "No."})
    assert again.status_code == 200  # the same decision by the same person is an echo


def test_one_of_a_hundred_decisions_wins(serve: Serve) -> None:
    server = serve()
    made = opened(server.client(server.token("bot", "agent")))
    clients = [server.client(server.token(f"p{n}")) for n in range(20)]
    path = f"/api/requests/{made['id']}/decision"

    def decide(n: int) -> httpx.Response:
        message = {"type": "reject", "message": f"{n}"}
        return clients[n % 20].post(path, json=message)

    with ThreadPoolExecutor(20) as pool:
        codes = [answer.status_code for answer in pool.map(decide, range(100))]
    assert sorted(set(codes)) == [200, 409]
    assert codes.count(200) == 1


def test_stale_digest_is_a_conflict(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, quorum=1)
    answer = client.post(
        f"/api/requests/{made['id']}/decision", json={"type": "approve", "seen_digest": "0" * 64}
    )
    assert answer.status_code == 409
    assert "read it again" in answer.json()["message"]


def test_edit_is_checked_and_bound(open_server: Served) -> None:
    client = open_server.client()
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "integer", "maximum": 10}},
        "required": ["amount"],
        "additionalProperties": False,
    }
    made = opened(client, schema=schema)
    path = f"/api/requests/{made['id']}"
    tried = client.post(f"{path}/check", json={"args": {"amount": 11, "to": "me"}}).json()
    assert tried["ok"] is False
    assert [error["field"] for error in tried["errors"]] == ["to", "amount"]
    edits: list[dict[str, Any]] = [
        {"args": {"amount": 11}},
        {"args": {"amount": 1, "to": "me"}},
        {"args": {"amount": "1"}},
        {"unset": ["amount"]},
        {},
    ]
    for edit in edits:
        body = {"type": "edit", **edit, "seen_digest": made["digest"]}
        refused = client.post(f"{path}/decision", json=body)
        assert refused.status_code == 422, edit
        assert refused.json()["field"].startswith("args")
    unknown = {"type": "edit", "unset": ["to"], "seen_digest": made["digest"]}
    refused = client.post(f"{path}/decision", json=unknown)
    assert (refused.status_code, refused.json()["field"]) == (422, "unset")
    assert client.post(f"{path}/check", json={"unset": ["amount"]}).json()["ok"] is False
    fine = client.post(f"{path}/check", json={"args": {"amount": 7}}).json()
    assert fine["ok"] is True
    assert fine["diff"] == [{"path": "amount", "before": "5", "after": "7"}]
    body = {"type": "edit", "args": {"amount": 7}, "seen_digest": made["digest"]}
    edited = client.post(f"{path}/decision", json=body).json()
    assert (edited["status"], edited["args"], edited["original"]) == (
        "edited",
        {"amount": 7},
        {"amount": 5},
    )


def test_slow_edit_check_does_not_block_others(serve: Serve) -> None:
    checking, answered = threading.Event(), threading.Event()

    def slow(args: dict[str, Any]) -> bool:
        if args["amount"] == 7:
            checking.set()
            answered.wait(4)
        return True

    server = serve(auth=False, policy=Policy([Rule("refund", when=slow)]))
    made, other = opened(server.client()), server.client()
    path = f"/api/requests/{made['id']}"
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(server.client().post, f"{path}/check", json={"args": {"amount": 7}})
        assert checking.wait(30)
        assert other.get(path).json()["status"] == "pending"
        held_up = trial.done()
        answered.set()
        assert trial.result().json()["rule"] == "rule 1"
    assert not held_up


def test_questions_are_answered_within_their_options(open_server: Served) -> None:
    client = open_server.client()
    question = {"text": "Which?", "options": ["red", "blue"], "multiple": True}
    made = opened(client, tool=None, args={}, question=question)
    path = f"/api/requests/{made['id']}/decision"
    for value in ("red", ["green"], [], ["red", "red"], None, 1):
        answer = client.post(path, json={"type": "respond", "value": value})
        assert answer.status_code == 422, value
        assert answer.json()["field"].startswith("value")
    assert client.post(path, json={"type": "respond", "value": ["blue"]}).status_code == 200


def test_confirmation_text_precedes_details(open_server: Served) -> None:
    client = open_server.client()
    asked = {"tool": None, "args": {}, "text": "Publish?", "details": {"version": "2.0"}}
    shown = client.get(f"/api/requests/{opened(client, **asked)['id']}").json()["shown"]
    assert list(shown["args"]) == ["text", "details"]
    assert shown["lines"][0].split() == ["text:", "Publish?"]


def test_batch_decides_only_similar_requests(open_server: Served) -> None:
    client = open_server.client()
    alike = [opened(client, key=f"k{n}") for n in range(3)]
    other = opened(client, key="other", tool="erase")
    one = {"type": "approve"}
    mixed = [{"id": r["id"], "seen_digest": r["digest"], **one} for r in (*alike, other)]
    assert client.post("/api/decisions", json=mixed).status_code == 422
    assert len(client.get("/api/requests").json()["items"]) == 4
    stale = {"id": alike[0]["id"], "seen_digest": "0" * 64, **one}
    answer = client.post("/api/decisions", json=[stale, *mixed[1:3]])
    items = answer.json()["items"]
    assert [("request" in item, "error" in item) for item in items] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert client.post("/api/decisions", json=[]).status_code == 422


def test_missing_request_does_not_block_batch(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("erase", reviewers="ben"), Rule()]))
    bot = server.client(server.token("bot", "agent"))
    ana = server.client(server.token("ana", "reviewer"))
    made = [opened(bot, key=f"k{n}") for n in range(2)]
    unseen = opened(bot, key="other", tool="erase")
    gone = {"id": "req_0000000000000000", "digest": "0" * 64}
    order = [made[0], gone, unseen, made[1]]
    body = [{"id": r["id"], "type": "approve", "seen_digest": r["digest"]} for r in order]
    answer = ana.post("/api/decisions", json=body)
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert [item["id"] for item in items] == [r["id"] for r in order]
    told = [
        item["error"]["error"] if "error" in item else item["request"]["status"] for item in items
    ]
    assert told == ["approved", "NotFound", "NotFound", "approved"]
    assert ana.post("/api/decisions", json=body[1:3]).status_code == 404
    assert bot.get(f"/api/requests/{unseen['id']}").json()["status"] == "pending"


def test_high_risk_is_not_decided_in_bulk(open_server: Served) -> None:
    client = open_server.client()
    risky = [opened(client, key=f"k{n}", risk={"level": "high"}) for n in range(2)]
    body = [{"id": r["id"], "type": "approve", "seen_digest": r["digest"]} for r in risky]
    answer = client.post("/api/decisions", json=body)
    assert answer.status_code == 422
    assert answer.json()["field"] == "risk"


def test_request_can_be_cancelled(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    off = client.post(f"/api/requests/{made['id']}/cancel", json={"message": "not needed"})
    assert (off.status_code, off.json()["status"]) == (200, "cancelled")
    assert client.post(f"/api/requests/{made['id']}/cancel").status_code == 409


def test_approved_request_can_be_cancelled_until_start(open_server: Served) -> None:
    client = open_server.client()
    for key in ("k1", "k2"):
        made = opened(client, key)
        path = f"/api/requests/{made['id']}"
        yes = {"type": "approve", "seen_digest": made["digest"]}
        assert client.post(f"{path}/decision", json=yes).status_code == 200
        if key == "k1":
            off = client.post(f"{path}/cancel", json={"message": "a slip"})
            assert (off.status_code, off.json()["status"]) == (200, "cancelled")
            assert client.post(f"{path}/claim").status_code == 409
    assert client.post(f"{path}/claim").status_code == 200
    late = client.post(f"{path}/cancel")
    assert (late.status_code, late.json()["decision"]["type"]) == (409, "approve")
    assert "is running" in late.json()["message"]


def test_request_in_doubt_cannot_be_cancelled(open_server: Served) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    guarded = Gate(open_server.store, wait=0).guard(needs_approval=False)(dies)
    with pytest.raises(KeyboardInterrupt):
        guarded()
    client = open_server.client()
    (doubt,) = client.get("/api/requests").json()["items"]
    off = client.post(f"/api/requests/{doubt['id']}/cancel")
    assert off.status_code == 409
    assert "respond with its result" in off.json()["message"]
    assert client.get(f"/api/requests/{doubt['id']}").json()["status"] == "pending"


def test_grant_is_given_listed_and_revoked(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, key="first")
    body = {
        "type": "approve",
        "seen_digest": made["digest"],
        "grant": {"scope": "any", "uses": 1, "ends_in": 60},
    }
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.status_code == 200
    (grant,) = client.get("/api/grants").json()["items"]
    assert (grant["tool"], grant["uses_left"], grant["live"]) == ("refund", 1, True)
    # It says yes to the next call of that tool, and nobody is asked.
    assert opened(client, key="second", args={"amount": 9})["status"] == "approved"
    ended = client.delete(f"/api/grants/{grant['id']}")
    assert (ended.status_code, ended.json()["live"]) == (200, False)
    assert client.get("/api/grants").json()["items"] == []
    assert client.delete("/api/grants/grt_nope").status_code == 404
    assert opened(client, key="third")["status"] == "pending"


def test_grants_are_listed_with_limits_of_rules(open_server: Served) -> None:
    limits = ["sum(amount) <= 10 per 1h", "calls <= 3 per 1d"]
    policy = Policy([Rule("pay", agent="desk", verdict="allow", limits=limits)])
    gate = Gate(open_server.store, agent="desk", policy=policy)

    @gate.guard(needs_approval=False)
    def pay(amount: int) -> None: ...

    with gate.run("r1"):
        pay(4)
        pay(6)
    answer = open_server.client().get("/api/grants").json()
    assert answer["items"] == []
    budgets = {budget["limit"]: budget for budget in answer["budgets"]}
    used = {limit: (budget["used"], budget["most"]) for limit, budget in budgets.items()}
    assert used == {limits[0]: (10, 10), limits[1]: (2, 3)}
    assert {budget["tools"] for budget in budgets.values()} == {"pay by desk"}
    first_frees_at, second_frees_at = (budgets[limit]["frees_at"] for limit in limits)
    assert first_frees_at < second_frees_at


def test_lists_are_paged_filtered_and_searched(open_server: Served) -> None:
    client = open_server.client()
    for n in range(7):
        opened(client, key=f"k{n}", tool="refund" if n % 2 else "erase", thread=f"t-{n}")
    seen: list[str] = []
    after: str | None = None
    while True:
        page = client.get(
            "/api/requests", params={"limit": 3, **({"after": after} if after else {})}
        )
        body = page.json()
        seen += [item["thread"] for item in body["items"]]
        after = body["next"]
        if after is None:
            break
    assert seen == [f"t-{n}" for n in range(7)]

    def threads(**params: str) -> list[str]:
        items = client.get("/api/requests", params=params).json()["items"]
        return [item["thread"] for item in items]

    assert threads(tool="erase") == ["t-0", "t-2", "t-4", "t-6"]
    assert threads(q="refu") == ["t-1", "t-3", "t-5"]
    assert threads(q="nothing") == []
    assert threads(thread="t-4") == ["t-4"]
    assert threads(sort="newest")[0] == "t-6"
    assert threads(status="", kind="", q="", sort="", after="") == seen  # as forms send them
    bad_ones = ({"status": "nope"}, {"sort": "nope"}, {"limit": "0"}, {"after": "x"})
    for bad in (*bad_ones, {"kind": "nope"}, {"risk": "nope"}):
        answer = client.get("/api/requests", params=bad)
        assert answer.status_code == 422, bad
        assert answer.json()["field"] in bad


def test_listed_actions_match_permissions(serve: Serve) -> None:
    rules = [Rule("own", requester_decides=False), Rule("sure", assurance="session"), Rule("*")]
    server = serve(policy=Policy(rules))
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    for tool, status, why in (
        ("own", 403, "you asked"),
        ("sure", 403, "session"),
        ("any", 200, ""),
    ):
        made = opened(bot, key=tool, tool=tool, requester="ana")
        listed = ana.get("/api/requests", params={"tool": tool}).json()["items"]
        for seen in (ana.get(f"/api/requests/{made['id']}").json(), *listed):
            assert bool(seen["can"]) == (status == 200)
            assert why in seen["why_not"]
        yes = {"type": "approve", "seen_digest": made["digest"]}
        answer = ana.post(f"/api/requests/{made['id']}/decision", json=yes)
        assert answer.status_code == status, answer.text


def test_settlement_evidence_is_shown_masked(open_server: Served) -> None:
    store, client = open_server.app.state.sayso.store, open_server.client()
    gate = Gate(store, wait=0, lease=0.5)
    secret = "sk-proj-" + "a1B2" * 12

    @gate.guard(needs_approval=False, settle=lambda key: DidNotRun(f"no\u202e payment {secret}"))
    def pay(to: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), gate.run("order-17"):
        pay("bo")
    (listed,) = client.get("/api/requests", params={"kind": "in_doubt"}).json()["items"]
    assert (listed["evidence"], listed["shown"]["evidence"]) == (None, None)
    time.sleep(0.51)
    with pytest.raises(Paused), gate.run("order-17"):
        pay("bo")
    whole = client.get(f"/api/requests/{listed['id']}").json()
    assert whole["evidence"]["answer"] == "did_not_run"
    assert whole["shown"]["evidence"]["text"].startswith("no⟨U+202E⟩ payment")
    assert whole["masked"]
    assert secret not in client.get(f"/api/requests/{listed['id']}").text
    assert [event["type"] for event in whole["events"]][-2:] == ["in_doubt", "settled"]


def test_request_says_how_it_differs(open_server: Served) -> None:
    client = open_server.client()
    usual = {"to": "Hooli", "euros": 300, "note": ""}
    for n in range(4):
        made = opened(client, key=f"k{n}", args={**usual, "note": f"invoice {n}"})
        yes = {"type": "approve", "seen_digest": made["digest"]}
        answer = client.post(f"/api/requests/{made['id']}/decision", json=yes)
        assert answer.status_code == 200
    other = {**usual, "to": "Initech", "euros": 1200, "note": "new"}
    asked = opened(client, key="k9", args=other)
    like = client.get(f"/api/requests/{asked['id']}").json()["like"]
    assert like["approved"] == 4
    assert like["facts"] == ["euros is 4 times the usual 300", "First time with to Initech"]
    same = opened(client, key="k10", args=usual)
    assert client.get(f"/api/requests/{same['id']}").json()["like"]["facts"] == []


def test_replayed_policy_is_recorded(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    policy = '[[rule]]\nname = "all"\ntool = "*"\nverdict = "allow"'
    replay = client.post("/api/policy/replay", json={"policy": policy}).json()
    assert [change["count"] for change in replay["changes"]] == [1]
    assert [call["id"] for call in replay["differences"]] == [made["id"]]
    (event,) = [event for _, event in open_server.store.newest() if event.type == "policy_replayed"]
    assert json.loads(event.body or "")["policy"] == policy
    wrong = client.post("/api/policy/replay", json={"policy": "[[rule]]\nx = 1"})
    assert wrong.status_code == 422, wrong.text
    assert "unknown key 'x'" in wrong.json()["message"]


def test_second_policy_of_the_server_is_reported(serve: Serve) -> None:
    second = Policy([Rule("*", verdict="allow", name="all")])
    server = serve(observe=second)
    admin = server.client(server.token("root", "admin"))
    made = opened(server.client(server.token("bot", "agent")))
    report = admin.get("/api/policy/observed").json()
    assert [call["id"] for call in report["differences"]] == [made["id"]]
    assert report["rules"][0]["rule"] == "all"
    assert admin.get("/api/policy/observed?since=soon").status_code == 422
    reviewer = server.client(server.token("ana"))
    assert reviewer.get("/api/policy/observed").status_code == 403


def approved_for(client: httpx.Client, seconds: float, **more: Any) -> dict[str, Any]:
    """Open a request, and approve it so that it can be undone for some seconds."""
    made = opened(client)
    body = {"type": "approve", "seen_digest": made["digest"], "undo_seconds": seconds, **more}
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text
    decided: dict[str, Any] = answer.json()
    return decided


def test_decision_is_undone_by_its_author(serve: Serve) -> None:
    server = serve()
    ana, bo, bot = (
        server.client(server.token(name, role))
        for name, role in (("ana", "reviewer"), ("bo", "reviewer"), ("bot", "agent"))
    )
    made = opened(bot)
    path = f"/api/requests/{made['id']}"
    digest = ana.get(path).json()["digest"]
    approval = {"type": "approve", "seen_digest": digest, "undo_seconds": 20}
    decided = ana.post(f"{path}/decision", json=approval).json()
    assert decided["status"] == "approved"
    assert decided["decision"]["undo_until"] > decided["decision"]["at"]
    assert ana.get("/api/requests").json()["items"] == []
    for_agent = bot.get(path).json()
    assert (for_agent["status"], for_agent["decision"]) == ("pending", None)
    assert bot.post(f"{path}/claim", json={}).status_code == 409
    assert bo.post(f"{path}/undo").status_code == 403
    assert bot.post(f"{path}/undo").status_code == 403
    undone = ana.post(f"{path}/undo")
    assert undone.status_code == 200
    assert (undone.json()["status"], undone.json()["revision"]) == ("pending", 2)
    assert undone.json()["digest"] != digest
    assert ana.post(f"{path}/undo").status_code == 409
    assert ana.post(f"{path}/decision", json=approval).status_code == 409  # a delayed copy
    types = [event["type"] for event in ana.get(path).json()["events"]]
    assert types == ["asked", "held", "undone"]


def test_held_decision_takes_effect_without_its_author(open_server: Served) -> None:
    client = open_server.client()
    decided = approved_for(client, 0.3)
    path = f"/api/requests/{decided['id']}"
    assert client.get(f"{path}/wait", params={"timeout": 20}).json()["status"] == "approved"
    assert "undo_until" not in client.get(path).json()["decision"]
    late = client.post(f"{path}/undo")
    assert (late.status_code, "too late" in late.json()["message"]) == (409, True)
    assert client.post(f"{path}/claim", json={}).status_code == 200


@pytest.mark.parametrize("seconds", [-1, 30.5, "5", True, None])
def test_undo_seconds_out_of_range_decide_nothing(open_server: Served, seconds: Any) -> None:
    client = open_server.client()
    made = opened(client)
    body = {"type": "approve", "seen_digest": made["digest"], "undo_seconds": seconds}
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "undo_seconds")
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "pending"
