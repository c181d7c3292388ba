"""The record over HTTP: both ends of it, and no more of a long thread than is shown."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, mailer, opened

from sayso.agent.agent import lend_store
from sayso.audit import verify
from sayso.inbox.directory import Identified, sign_in_as
from sayso.stores import open_store
from sayso.testing import call, say


def test_record_is_read_from_either_end(open_server: Served) -> None:
    client = open_server.client()
    for n in range(5):
        opened(client, key=f"k{n}")

    def pages(**query: Any) -> list[Any]:
        found: list[Any] = []
        after = None
        while True:
            given = query | ({} if after is None else {"after": after})
            page = client.get("/api/audit", params=given).json()
            assert len(page["items"]) <= query["limit"]
            found += page["items"]
            after = page["next"]
            if after is None:
                return found

    forward = pages(limit=2)
    backward = pages(limit=2, order="newest")
    assert len(forward) == 5
    assert backward == forward[::-1]
    assert pages(limit=100, order="oldest") == forward
    for bad in ({"order": "sideways"}, {"order": "newest", "after": "nowhere"}):
        assert client.get("/api/audit", params=bad).status_code == 422


def test_record_names_request_and_tool(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, args={"password": "hunter2"})
    client.post(f"/api/requests/{made['id']}/reveal")
    facts = client.get("/api/audit").json()["items"]
    assert {fact["type"] for fact in facts} >= {"asked", "revealed"}
    assert {(fact["request"], fact["tool"]) for fact in facts} == {(made["id"], "refund")}


def test_record_names_tokens_by_id(serve: Serve) -> None:
    server = serve()
    secret = server.token("root", "admin")
    facts = server.client(secret).get("/api/audit").json()["items"]
    (made,) = [fact["body"]["token"] for fact in facts if fact["type"] == "token_created"]
    assert made.startswith("tok_")
    assert secret not in str(facts)


def test_request_details_read_end_of_thread(
    serve: Serve, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation of many turns and calls: what is read for one request stays the same."""
    store = open_store(url)
    agent = mailer(*[say("Well.")] * 60, call("send_email", {"to": "ana"}))
    lend_store(agent, store)
    for _ in range(60):
        asyncio.run(agent.run("And now?", thread="long"))
    result = asyncio.run(agent.run("Welcome ana", thread="long"))
    (request,) = result.interruptions
    client = serve(store=store, auth=False, workers=0).client()
    rows: list[int] = []
    for name in ("messages", "chain"):
        _count(monkeypatch, store, name, rows)
    about = client.get(f"/api/requests/{request.id}").json()
    said = about["conversation"]
    assert len(said) == 30
    assert (said[-1]["role"], said[-1]["current"]) == ("assistant", True)
    assert [turn["seq"] for turn in said] == list(range(93, 123))
    assert [event["type"] for event in about["events"]] == ["asked"]
    assert sum(rows) <= 30 + 20 + 8  # the end of both, and some halving


def test_run_is_visible_with_its_requests(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    ours = opened(bot, key="open", args={"amount": 1})
    theirs = opened(bot, key="closed", args=FINANCE_ONLY)
    ana, fin, boss = (
        server.client(server.token(name, role, *groups))
        for name, role, groups in (
            ("ana", "reviewer", ()),
            ("fin", "reviewer", ("finance",)),
            ("boss", "admin", ()),
        )
    )
    both = {ours["run"], theirs["run"]}
    for client, seen in ((ana, {ours["run"]}), (fin, both), (boss, both)):
        assert {run["id"] for run in client.get("/api/runs").json()["items"]} == seen
        for run in both:
            assert (client.get(f"/api/runs/{run}").status_code == 200) == (run in seen)
    yes = {"type": "approve", "seen_digest": theirs["digest"]}
    assert fin.post(f"/api/requests/{theirs['id']}/decision", json=yes).status_code == 200
    like = ana.get(f"/api/requests/{ours['id']}").json()["like"]
    assert (like["approved"], like["recent"]) == (0, [])


def test_run_without_requests_is_visible_with_its_thread(serve: Serve) -> None:
    turns = (call("send_email", {"to": "payee"}), say("Paid."), say("It was payee."))
    agent = mailer(*turns, reviewers=["group:finance"])
    server = serve(agents=[agent])
    cleo, ana, fin = (
        server.client(server.token(name, role, *groups))
        for name, role, groups in (
            ("cleo", "chat", ()),
            ("ana", "reviewer", ()),
            ("fin", "reviewer", ("finance",)),
        )
    )
    for n, words in enumerate(("Pay", "Whom?")):
        said = {"id": f"m{n}", "role": "user", "parts": [{"type": "text", "text": words}]}
        assert cleo.post("/api/chat", json={"id": "c1", "messages": [said]}).status_code == 200
    runs = [run["id"] for run in fin.get("/api/runs").json()["items"]]
    assert len(runs) == 2
    assert ana.get("/api/runs").json()["items"] == []
    for run in runs:
        assert fin.get(f"/api/runs/{run}").status_code == 200
        assert ana.get(f"/api/runs/{run}").status_code == 404


def test_hidden_events_name_no_request_or_actor(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    theirs = opened(bot, key="a", run="r1", args=FINANCE_ONLY)
    opened(bot, key="b", run="r1")
    ana, fin = server.client(server.token("ana")), server.client(server.token("fin", "admin"))
    fin.post(f"/api/requests/{theirs['id']}/cancel", json={"message": "between us"})
    for place, items in (("/api/audit", "items"), ("/api/runs/bot/r1", "timeline")):
        assert "between us" in fin.get(place).text
        assert theirs["id"] not in ana.get(place).text
        facts = [
            e
            for e in ana.get(place).json()[items]
            if e["body"] is None and e["type"] in ("asked", "cancelled")
        ]
        assert [fact["type"] for fact in facts] == ["asked", "cancelled"]
        assert {(fact["request"], fact["actor"]) for fact in facts} == {("", "")}
    (hers,) = [e for e in ana.get("/api/audit").json()["items"] if e["tool"] is not None]
    assert hers["request"] != theirs["id"]


def _count(monkeypatch: pytest.MonkeyPatch, store: Any, name: str, rows: list[int]) -> None:
    read = getattr(store, name)

    def counted(*args: Any, **more: Any) -> Any:
        found = read(*args, **more)
        rows.append(len(found))
        return found

    monkeypatch.setattr(store, name, counted)


def test_run_is_trusted_by_a_session_and_stopped(serve: Serve) -> None:
    server = serve()
    made = opened(server.client(server.token("bot", "agent")))
    by_token = server.client(server.token("ana"))
    page = server.client(Origin=server.url)
    bea = Identified(("https://login.example.com", "17"), "bea", role="reviewer")
    session = sign_in_as(server.store, bea, signed_in=server.store.now())
    page.cookies.set("sayso_session", session)
    run = page.get(f"/api/requests/{made['id']}").json()["run"]
    body = {"run": run, "max_risk": "low", "ends_in": 60}
    refused = by_token.post("/api/windows", json=body)
    assert refused.status_code == 403
    assert "session" in refused.json()["message"]
    assert page.post("/api/windows", json={**body, "run": "other"}).status_code == 404
    opened_window = page.post("/api/windows", json=body).json()
    (window,) = page.get(f"/api/runs/{run}").json()["windows"]
    assert window == opened_window
    assert (window["by"], window["max_risk"], window["live"]) == ("bea", "low", True)
    assert (window["calls"], window["ended_at"]) == ([], None)
    assert page.delete(f"/api/grants/{window['id']}").status_code == 200
    (window,) = page.get(f"/api/runs/{run}").json()["windows"]
    assert (window["live"], window["ended_at"] is None) == (False, False)


def test_list_of_runs_tells_nothing_of_hidden_runs(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    agent = server.client(server.token("bot", "agent"))
    ana = server.client(server.token("ana"))
    visible = [opened(agent, key=f"visible {n}")["run"] for n in range(2)]
    hidden = [opened(agent, key=f"k{n}", thread="merger", args=FINANCE_ONLY) for n in range(2)]
    first = ana.get("/api/runs", params={"limit": 1}).json()
    assert [run["id"] for run in first["items"]] == visible[1:]
    assert hidden[0]["run"] not in str(first["next"])
    second = ana.get("/api/runs", params={"limit": 1, "after": first["next"]}).json()
    assert [run["id"] for run in second["items"]] == visible[:1]
    assert second["next"] is None
    for thread in ("merger", "no such thread"):
        page = ana.get("/api/runs", params={"thread": thread, "limit": 1}).json()
        assert page == {"items": [], "next": None}


def test_list_of_runs_leaves_out_tampered_ones(serve: Serve, tmp_path: Path) -> None:
    client = serve(auth=False).client()
    opened(client, key="k1", tool="pay")
    kept = opened(client, key="k2", tool="refund")
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as database, database:
        database.execute("UPDATE tool SET schema = '{}' WHERE name = 'pay'")
    page = serve(auth=False).client().get("/api/runs").json()  # of a server that has no tool cached
    assert [run["id"] for run in page["items"]] == [kept["run"]]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", 2**62),
        ("at", "x"),
        ("body", "x"),
        ("body", "[1]"),
        ("body", 1.5),
        ("call", b"\xff"),
        ("digest", b"\xff"),
        ("seq", b"\xff"),
    ],
)
def test_forged_event_hides_no_other(serve: Serve, tmp_path: Path, column: str, value: Any) -> None:
    server = serve(auth=False)
    client = server.client()
    made, other = opened(client, key="k1"), opened(client, key="k2")
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as database, database:
        database.execute(f"UPDATE event SET {column} = ? WHERE call = ?", (value, made["id"]))
    for order in ("oldest", "newest"):
        facts = client.get("/api/audit", params={"order": order}).json()["items"]
        assert "unreadable" in [fact["type"] for fact in facts]
        assert other["id"] in [fact["request"] for fact in facts]
    assert client.get(f"/api/runs/{made['run']}").status_code == 200
    assert client.get(f"/api/requests/{made['id']}").status_code == 200
    assert client.get("/metrics").status_code == 200
    items = server.app.state.sayso.feed._read("")
    assert [item.type for item in items].count("unreadable") == 1
    assert not verify(server.store).ok
