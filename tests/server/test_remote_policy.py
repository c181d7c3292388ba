"""The server's policy applies to remote agents when they ask and before they claim."""

from __future__ import annotations

import time
from typing import Any

import pytest
from served import Serve, opened

from sayso import Approve, Edit, Inbox, NotAllowed, Policy, Rule


def test_server_policy_judges_remote_requests(serve: Serve) -> None:
    rules = [
        Rule(tool="erase", verdict="deny", description="never"),
        Rule(tool="look", verdict="allow"),
        Rule(tool="refund", verdict="ask", risk="medium", quorum=2, reviewers=["ana", "ben"]),
    ]
    server = serve(policy=Policy(rules))
    agent = server.client(server.token("bot", "agent"))
    assert opened(agent, key="1", tool="erase")["status"] == "rejected"
    free = opened(agent, key="2", tool="look")
    assert free["status"] == "approved"
    assert agent.post(f"/api/requests/{free['id']}/claim").status_code == 200
    # What the agent says of itself can only make it stricter.
    lower = opened(agent, key="3", risk={"level": "low"}, quorum=1, reviewers=["ana", "eve"])
    assert (lower["risk"]["level"], lower["quorum"]) == ("medium", 2)
    assert (lower["reviewers"], lower["notify"]) == (["ana", "ben"], ["ana", "eve"])
    higher = opened(agent, key="4", risk={"level": "critical"}, quorum=3)
    assert (higher["risk"]["level"], higher["quorum"]) == ("critical", 3)


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        (None, "pending"),
        (Policy([Rule("erase", risk="critical")]), "pending"),
        (Policy(default="ask"), "pending"),
        (Policy(default="deny"), "rejected"),
        (Policy([Rule("erase")], default="allow"), "approved"),
    ],
)
def test_unmatched_call_follows_default_only(
    serve: Serve, policy: Policy | None, status: str
) -> None:
    server = serve(policy=policy)
    agent = server.client(server.token("bot", "agent"))
    assert opened(agent, key="1")["status"] == status
    declared = opened(agent, key="2", needs_approval=True)
    assert declared["status"] == ("rejected" if status == "rejected" else "pending")


def test_agent_cannot_declare_needless_approval(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("erase")]))
    agent = server.client(server.token("bot", "agent"))
    body = {"tool": "refund", "args": {}, "needs_approval": False}
    assert agent.post("/api/requests", json=body).status_code == 422


@pytest.mark.parametrize(
    ("by_rule", "said", "effect"),
    [
        (None, None, "once"),
        (None, "read", "once"),
        (None, "idempotent", "once"),
        ("read", None, "read"),
        ("read", "read", "read"),
        ("read", "idempotent", "idempotent"),
        ("read", "once", "once"),
        ("idempotent", "read", "idempotent"),
        ("once", "read", "once"),
    ],
)
@pytest.mark.parametrize("verdict", ["ask", "allow"])
def test_agent_can_only_raise_the_effect(
    serve: Serve, by_rule: Any, said: str | None, effect: str, verdict: str
) -> None:
    server = serve(policy=Policy([Rule("refund", verdict=verdict, effect=by_rule)]))
    agent = server.client(server.token("bot", "agent"))
    body = {} if said is None else {"effect": said}
    assert opened(agent, **body)["effect"] == effect


def test_claimed_read_has_no_lease_and_may_repeat(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("refund", verdict="allow", effect="read")]))
    agent = server.client(server.token("bot", "agent"))
    path = f"/api/requests/{opened(agent)['id']}"
    first = agent.post(f"{path}/claim", json={"lease": 0.01}).json()
    time.sleep(0.05)
    assert agent.post(f"{path}/renew", json={"token": first["token"]}).json() == {"ours": True}
    failed = {"token": first["token"], "attempt": 1, "ok": False, "result": "no answer"}
    told = agent.post(f"{path}/result", json=failed).json()["execution"]
    assert (told["status"], told["result"]) == ("ready", "no answer")
    second, third = (agent.post(f"{path}/claim").json() for _ in range(2))
    assert (second["attempt"], third["attempt"]) == (2, 3)
    done = {"token": second["token"], "attempt": 2, "result": "sunny"}
    told = agent.post(f"{path}/result", json=done).json()["execution"]
    assert (told["status"], told["result"]) == ("done", "sunny")
    late = {"token": third["token"], "attempt": 3, "result": "rain"}
    assert agent.post(f"{path}/result", json=late).status_code == 409
    assert agent.post(f"{path}/claim").status_code == 409


def test_invalid_effect_names_its_field(serve: Serve) -> None:
    server = serve(auth=False)
    for wrong in ("twice", True, ["read"]):
        answer = server.client().post("/api/requests", json={"tool": "refund", "effect": wrong})
        assert (answer.status_code, answer.json()["field"]) == (422, "effect")
    answer = server.client().post("/api/requests", json={"tool": "refund", "idempotent": True})
    assert (answer.status_code, answer.json()["field"]) == (422, "idempotent")


def test_edit_out_of_a_rule_resets_the_effect(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("refund", where="amount < 10", effect="read")]))
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent)
    inbox = Inbox(server.store)
    seen = made["digest"]
    inbox.decide_sync(made["id"], Edit({"amount": 50}), by="ana", seen_digest=seen)
    assert inbox.get_sync(made["id"]).effect == "read"
    claimed = agent.post(f"/api/requests/{made['id']}/claim")
    assert (claimed.status_code, inbox.get_sync(made["id"]).effect) == (409, "once")


def _refunds() -> Policy:
    return Policy(
        [
            Rule("refund", where="amount > 1000", verdict="deny"),
            Rule("refund", where="amount > 100", reviewers=["group:finance"]),
        ]
    )


def test_edit_is_judged_by_the_server_policy(serve: Serve) -> None:
    server = serve(policy=_refunds())
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot)
    path = f"/api/requests/{made['id']}"
    edit = {"type": "edit", "args": {"amount": 5000}, "seen_digest": made["digest"]}
    assert ana.post(f"{path}/decision", json=edit).status_code == 403
    edited = ana.post(f"{path}/decision", json=edit | {"args": {"amount": 500}}).json()
    assert (edited["status"], edited["reviewers"]) == ("pending", ["group:finance"])
    assert bot.post(f"{path}/claim").status_code == 409
    fin = server.client(server.token("fin", "reviewer", "finance"))
    yes = {"type": "approve", "seen_digest": fin.get(path).json()["digest"]}
    assert fin.post(f"{path}/decision", json=yes).status_code == 200
    assert bot.post(f"{path}/claim").json()["args"] == {"amount": 500}


@pytest.mark.parametrize(("amount", "ends"), [(500, "pending"), (5000, "cancelled")])
def test_edit_made_elsewhere_is_judged_before_the_claim(
    serve: Serve, amount: int, ends: str
) -> None:
    server = serve(policy=_refunds())
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot)
    inbox = Inbox(server.store)  # it knows no policy
    edit = Edit({"amount": amount})
    inbox.decide_sync(made["id"], edit, by="ana", seen_digest=made["digest"])
    refused = bot.post(f"/api/requests/{made['id']}/claim")
    assert (refused.status_code, "policy" in refused.text or "rule" in refused.text) == (409, True)
    assert bot.get(f"/api/requests/{made['id']}").json()["status"] == ends


def test_call_denied_by_newer_policy_cannot_be_claimed(serve: Serve) -> None:
    old = serve()
    bot, ana = old.client(old.token("bot", "agent")), old.client(old.token("ana"))
    made = opened(bot, args={"amount": 5000})
    path = f"/api/requests/{made['id']}"
    yes = {"type": "approve", "seen_digest": made["digest"]}
    assert ana.post(f"{path}/decision", json=yes).status_code == 200
    token = old.token("bot", "agent")
    old.stop()
    new = serve(policy=_refunds()).client(token)
    refused = new.post(f"{path}/claim")
    assert (refused.status_code, "denies" in refused.text) == (409, True)


def test_grant_covers_no_more_than_its_author_could(serve: Serve) -> None:
    server = serve(policy=_refunds())
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot)
    yes = {"type": "approve", "seen_digest": made["digest"], "grant": {"scope": "any"}}
    assert ana.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 200
    assert opened(bot, "k2", args={"amount": 6})["status"] == "approved"
    large = opened(bot, "k3", args={"amount": 500})
    assert (large["status"], large["reviewers"]) == ("pending", ["group:finance"])
    fin = server.client(server.token("fin", "reviewer", "finance"))
    yes |= {"seen_digest": large["digest"]}
    assert fin.post(f"/api/requests/{large['id']}/decision", json=yes).status_code == 200
    assert opened(bot, "k4", args={"amount": 501})["status"] == "approved"


FINANCE = Policy([Rule("fin_*", reviewers="group:finance", assurance="token", valid_for="1h")])


@pytest.mark.parametrize(
    ("sent", "holds"),
    [
        ({"reviewers": ["ben"]}, {"reviewers": ["group:finance"]}),
        ({"reviewers": "group:ops"}, {"reviewers": ["group:finance"]}),
        ({"reviewers": ["ben", "group:finance"]}, {"reviewers": ["group:finance"]}),
        ({"quorum": 2}, {"quorum": 2}),
        ({"assurance": "code"}, {"assurance": "token"}),
        ({"assurance": "session"}, {"assurance": "session"}),
        ({"requester_decides": False}, {"requester_decides": False}),
    ],
)
def test_agent_cannot_choose_its_approvers(
    serve: Serve, sent: dict[str, Any], holds: dict[str, Any]
) -> None:
    server = serve(policy=FINANCE)
    agent = server.client(server.token("bot", "agent"))
    ben, ana = server.token("ben", "reviewer", "ops"), server.token("ana", "reviewer", "finance")
    found = opened(agent, tool="fin_pay", **sent)
    assert {name: found[name] for name in holds} == holds
    yes = {"type": "approve", "seen_digest": found["digest"]}
    path = f"/api/requests/{found['id']}/decision"
    assert server.client(ben).post(path, json=yes).status_code == 404
    approved = server.client(ana).post(path, json=yes)
    assert approved.status_code == (403 if sent.get("assurance") == "session" else 200)


def test_claim_cannot_choose_its_approvers(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    found = opened(agent, reviewers=["ana"])
    ana = server.client(server.token("ana"))
    path = f"/api/requests/{found['id']}"
    assert ana.post(f"{path}/decision", json={"type": "approve", "seen_digest": found["digest"]})
    claimed = agent.post(f"{path}/claim", json={"terms": {"reviewers": ["ben"]}})
    assert claimed.status_code == 200
    assert agent.get(path).json()["reviewers"] == []


def test_agent_cannot_extend_valid_for(serve: Serve) -> None:
    server = serve(policy=FINANCE)
    agent = server.client(server.token("bot", "agent"))
    for n, tool in enumerate(("fin_pay", "refund")):
        found = opened(agent, key=str(n), tool=tool, valid_for="365d")
        stored = server.store.call(found["id"])
        assert stored is not None
        assert stored.terms.valid_for == (3600 if tool == "fin_pay" else 86_400)


@pytest.mark.parametrize("reviewers", [None, ["chatty"]])
@pytest.mark.parametrize("tool", ["fin_pay", "refund", None])
def test_claimed_requester_cannot_decide(
    serve: Serve, reviewers: list[str] | None, tool: str | None
) -> None:
    server = serve(policy=FINANCE)
    agent = server.client(server.token("bot", "agent"))
    what = {"text": "Pay?", "tool": None, "args": {}} if tool is None else {"tool": tool}
    sent = {"requester": "chatty", "reviewers": reviewers}
    body = {name: value for name, value in {**what, **sent}.items() if value is not None}
    found = agent.post("/api/requests", json=body).json()
    assert (found["requester"], found["remote"]) == ("chatty", True)
    token = server.token("chatty", "chat")
    yes = {"type": "approve", "seen_digest": found["digest"]}
    path = f"/api/requests/{found['id']}"
    assert server.client(token).get(path).status_code == 404
    assert server.client(token).post(f"{path}/decision", json=yes).status_code == 404
    with pytest.raises(NotAllowed):
        Inbox(server.store).decide_sync(
            found["id"], Approve(), token=token, seen_digest=found["digest"]
        )
    assert agent.get(path).json()["status"] == "pending"
