"""An agent proposes: it chooses no reviewer, hides nothing, and removes no rejection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, mailer, opened

import sayso
from sayso import Agent, Conflict, Gate, Inbox, NotAllowed, Paused
from sayso.inbox import create_token
from sayso.stores import open_store
from sayso.testing import ScriptedModel, call, say


@pytest.mark.parametrize("reviewers", [["ben"], ["nobody"], ["group:ops"]])
@pytest.mark.parametrize(
    "what", [{}, {"tool": None, "args": {}, "text": "Pay?"}, {"args": FINANCE_ONLY}]
)
def test_suggested_reviewers_do_not_hide_the_request(
    serve: Serve, reviewers: list[str], what: dict[str, Any]
) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    ana = server.client(server.token("ana", "reviewer", "finance"))
    made = opened(bot, reviewers=reviewers, **what)
    policy_reviewers = ["group:finance"] if what.get("args") else []
    assert (made["reviewers"], made["notify"]) == (policy_reviewers, reviewers)
    assert ana.get(f"/api/requests/{made['id']}").status_code == 200
    yes = {"type": "approve", "seen_digest": made["digest"]}
    decided = ana.post(f"/api/requests/{made['id']}/decision", json=yes)
    assert decided.json()["status"] == "approved"


def test_suggested_reviewers_gain_no_access(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot, ben = server.client(server.token("bot", "agent")), server.client(server.token("ben"))
    made = opened(bot, args=FINANCE_ONLY, reviewers=["ben"])
    assert ben.get(f"/api/requests/{made['id']}").status_code == 404


@pytest.mark.parametrize("allowed", [["approve"], ["edit"], ["respond"], ["approve", "respond"]])
def test_agent_cannot_remove_rejection(serve: Serve, allowed: list[str]) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot, allowed=allowed)
    path = f"/api/requests/{made['id']}"
    view = ana.get(path).json()
    assert view["allowed"] == view["can"] == [*allowed, "reject"]
    no = {"type": "reject", "message": "never", "seen_digest": made["digest"]}
    assert ana.post(f"{path}/decision", json=no).json()["status"] == "rejected"


@pytest.mark.parametrize("allowed", [["approve"], ["edit"], ["respond"]])
def test_code_cannot_remove_rejection(tmp_path: Path, allowed: list[Any]) -> None:
    gate = Gate(f"sqlite:///{tmp_path / 'sayso.db'}", wait=0)

    @gate.guard(needs_approval=True, allowed=allowed)
    def pay(amount: int) -> str:
        return "paid"

    with gate.run("r"), pytest.raises(Paused) as paused:
        pay(5)
    (request,) = paused.value.requests
    assert request.allowed == (*allowed, "reject")
    decided = Inbox(gate.store).reject_sync(request, "no", by="ana")
    assert decided.status == "rejected"


def test_chat_user_may_always_reject(serve: Serve) -> None:
    server = serve(agents=[mailer(allowed=("approve",))])
    rita = server.client(server.token("rita", "chat"))
    parts = [{"type": "text", "text": "Send it"}]
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    assert rita.post("/api/chat", json=body).status_code == 200
    run = server.store.last_run("c1")
    assert run is not None
    (row,) = server.store.calls_of(run.id)
    no = {"type": "reject", "message": "no"}
    assert rita.post(f"/api/requests/{row.id}/decision", json=no).json()["status"] == "rejected"


def test_claimed_requester_gains_no_access(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot, args=FINANCE_ONLY, requester="ben", run="r")
    assert made["requester"] == "ben"
    ben = server.client(server.token("ben"))
    assert ben.get(f"/api/requests/{made['id']}").status_code == 404
    assert ben.get(f"/api/runs/{made['run']}").status_code in (403, 404)
    chats = ben.get("/api/chats").json()["items"]
    assert chats == []
    listed = ben.get("/api/requests?status=any&mine=true").json()
    assert listed["items"] == []
    counted = ben.get("/api/requests/groups").json()
    assert counted["count"] == 0


def test_claimed_requester_hides_no_run(serve: Serve) -> None:
    server = serve(policy=sayso.Policy([sayso.Rule("*", verdict="allow")]))
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot, requester="ben")
    assert made["status"] == "approved"
    assert made["run"] in [run["id"] for run in ana.get("/api/runs").json()["items"]]


def test_agent_token_named_like_served_agent_is_refused(serve: Serve) -> None:
    server = serve(agents=[mailer()])
    bot = server.client(server.token("mailer", "agent"))
    for method, path in (("POST", "/api/requests"), ("GET", "/api/me")):
        answer = bot.request(method, path, json={"tool": "refund"} if method == "POST" else None)
        assert answer.status_code == 403
        assert "another name" in answer.json()["message"]


@pytest.mark.parametrize("role", ["reviewer", "agent", "admin", "chat"])
@pytest.mark.parametrize(
    "name",
    [
        *("server", "Server", "local", "LOCAL", "policy", "agent:x", "@System"),
        *("\u0430na", "an\u0430", "\u0410na", "Ana", "b\u0435n", "g\u0433oup"),
    ],
)
def test_reserved_and_lookalike_names_get_no_token(tmp_path: Path, name: str, role: str) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    for known in ("ana", "ben"):
        create_token(store, known, by="test")
    known_people = [store.person("ana"), store.person("ben")]
    with pytest.raises((NotAllowed, Conflict)):
        create_token(store, name, by="test", role=role)
    assert store.person(name) is None or store.person(name) in known_people


@pytest.mark.parametrize("name", ["\u0421\u043e\u0440\u0443", "\u0440\u0430\u0443"])
def test_lookalike_name_of_another_script_is_refused(tmp_path: Path, name: str) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    for known in ("copy", "pay", "\u0410\u043d\u043d\u0430"):
        create_token(store, known, by="test")
    with pytest.raises((NotAllowed, Conflict), match="looks like"):
        create_token(store, name, by="test")


@pytest.mark.parametrize("requester", ["", "ben"])
def test_thread_of_person_refuses_other_requesters(tmp_path: Path, requester: str) -> None:
    model = ScriptedModel([say("Hello.")] * 4)
    agent = Agent("helper", model=model, store=f"sqlite:///{tmp_path / 'sayso.db'}")
    assert agent.run_sync("hi", thread="c1", requester="ana").status == "done"
    with pytest.raises(NotAllowed, match="belongs to ana"):
        agent.run_sync("what did ana say?", thread="c1", requester=requester)
    assert agent.run_sync("more", thread="c1", requester="ana").status == "done"
    messages = [body for _, body in agent.store.messages("c1")]
    assert not any("what did ana say" in body for body in messages)


def test_chat_belongs_to_its_person_from_the_start(serve: Serve) -> None:
    agent = mailer(call("send_email", {"to": "ana"}), say("Done."))
    server = serve(agents=[agent], workers=0)
    rita = server.client(server.token("rita", "chat"))
    parts = [{"type": "text", "text": "Send it"}]
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    assert rita.post("/api/chat", json=body).status_code == 200
    thread = server.store.thread("c1")
    assert thread is not None
    assert thread.owner == "rita"
    with pytest.raises(NotAllowed, match="belongs to rita"):
        agent.run_sync("read it", thread="c1")
