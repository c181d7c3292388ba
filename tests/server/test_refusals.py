"""Rejections over HTTP: they count for equal calls, are listed and lifted, and may stop a run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import httpx
import pytest
from served import Serve, Served, mailer, opened
from waiting import until

from sayso import Policy, Rule
from sayso.testing import call, calls


def reject(client: httpx.Client, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"type": "reject", "message": "a fraudster", **more}
    answer = client.post(f"/api/requests/{request['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text
    decided: dict[str, Any] = answer.json()
    return decided


def refusals(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/api/refusals", params=params).json()["items"]
    return items


def change_row(server: Served, statement: str, name: str) -> None:
    path = server.store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement, (name,)).rowcount == 1


def two_payments(serve: Serve) -> tuple[Served, list[dict[str, Any]], str]:
    """Return a server, and two requests of one run with its id."""
    turn = calls(call("send_email", {"to": "ana"}), call("send_email", {"to": "ben"}))
    agent = mailer(turn)
    server = serve(agents=[agent])
    result = agent.run_sync("go", thread="t")
    requests = [{"id": one.id, "digest": one.digest} for one in result.interruptions]
    assert len(requests) == 2
    return server, requests, result.run


# -- lists


def test_refusal_is_listed_and_lifted(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, "k1", run="r")
    reject(client, made)
    (refusal,) = refusals(client)
    assert (refusal["request"], refusal["tool"]) == (made["id"], "refund")
    assert (refusal["message"], refusal["overturn"]) == ("a fraudster", "anyone")
    assert (refusal["lifted_at"], refusal["lifted_by"]) == (None, None)
    again = opened(client, "k2", run="r")
    assert (again["status"], again["decision"]["message"]) == ("rejected", "a fraudster")
    lifted = client.delete(f"/api/refusals/{refusal['id']}")
    assert (lifted.status_code, lifted.json()["lifted_at"] is None) == (200, False)
    assert client.delete(f"/api/refusals/{refusal['id']}").json() == lifted.json()
    assert (refusals(client), refusals(client, all=True)) == ([], [lifted.json()])
    assert opened(client, "k3", run="r")["status"] == "pending"
    assert client.delete("/api/refusals/ref_nope").status_code == 404


def test_refusals_are_paged(open_server: Served) -> None:
    client = open_server.client()
    for number in range(5):
        reject(client, opened(client, f"k{number}", args={"amount": number}))
    seen: list[str] = []
    following: str | None = ""
    while following is not None:
        after = {"after": following} if following else {}
        page = client.get("/api/refusals", params={"limit": 2, **after}).json()
        seen += [refusal["request"] for refusal in page["items"]]
        following = page["next"]
    assert seen == [refusal["request"] for refusal in refusals(client)]
    assert len(set(seen)) == 5
    assert client.get("/api/refusals", params={"after": "ref_nope"}).status_code == 404
    for limit in (0, 1000):
        assert client.get("/api/refusals", params={"limit": limit}).status_code == 422


def test_refusal_is_for_reviewers_of_its_call(serve: Serve) -> None:
    restricted = [True]
    rule = Rule("*", when=lambda _: restricted[0], reviewers=["group:finance"])
    server = serve(policy=Policy([rule]))
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    fin = server.client(server.token("fin", "reviewer", "finance"))
    boss = server.client(server.token("boss", "admin"))
    made = opened(bot)
    restricted.clear()
    restricted.append(False)
    reject(fin, made)
    (refusal,) = refusals(fin)
    assert (refusal["by"], refusals(boss), refusals(ana)) == ("fin", [refusal], [])
    assert ana.delete(f"/api/refusals/{refusal['id']}").status_code == 404
    assert refusals(fin) == [refusal]
    # In another run, people are asked. Others learn only that there was a rejection.
    again = opened(bot, "k2", run="another")
    (hidden,) = ana.get(f"/api/requests/{again['id']}").json()["refusals"]
    assert hidden == {**dict.fromkeys(hidden), "id": refusal["id"]}
    assert {"by", "at", "message", "request"} <= set(hidden)
    (listed,) = ana.get("/api/requests").json()["items"]
    assert (listed["id"], listed["refusals"]) == (again["id"], [hidden])
    (shown,) = fin.get(f"/api/requests/{again['id']}").json()["refusals"]
    assert (shown["by"], shown["message"]) == ("fin", "a fraudster")
    assert (shown["request"], shown["at"]) == (made["id"], refusal["at"])
    assert boss.delete(f"/api/refusals/{refusal['id']}").json()["lifted_by"] == "boss"


def test_unreadable_request_hides_its_refusal(open_server: Served) -> None:
    client = open_server.client()
    for number in range(2):
        reject(client, opened(client, f"k{number}", args={"amount": number}))
    newest, oldest = refusals(client)
    change_row(open_server, "UPDATE call SET note = 'forged' WHERE id = ?", newest["request"])
    assert refusals(client) == [oldest]


def test_only_rejecter_or_admin_lifts_strict_refusal(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("refund", overturn="rejecter")]))
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    ben = server.client(server.token("ben"))
    reject(ana, opened(bot))
    (refusal,) = refusals(ben)
    answer = ben.delete(f"/api/refusals/{refusal['id']}")
    assert (answer.status_code, "ana" in answer.json()["message"]) == (403, True)
    assert ana.delete(f"/api/refusals/{refusal['id']}").json()["lifted_by"] == "ana"


# -- rejecting and stopping


def test_rejection_over_http_stops_the_run(serve: Serve) -> None:
    server, (first, second), run = two_payments(serve)
    client = server.client(server.token("ana"))
    decided = reject(client, first, stop=True)
    assert (decided["status"], decided["decision"]["stop"]) == ("rejected", True)
    until(lambda: server.store.run(run).status == "cancelled")  # type: ignore[union-attr]
    other = client.get(f"/api/requests/{second['id']}").json()
    assert (other["status"], other["decision"]) == ("cancelled", None)


def test_batch_of_rejections_stops_the_run(serve: Serve) -> None:
    server, requests, run = two_payments(serve)
    client = server.client(server.token("ana"))
    batch = [{"id": one["id"], "type": "reject", "message": "no", "stop": True} for one in requests]
    first, second = client.post("/api/decisions", json=batch).json()["items"]
    assert first["request"]["decision"]["stop"] is True
    assert "cancelled" in second["error"]["message"]
    assert server.store.run(run).status == "cancelled"  # type: ignore[union-attr]


@pytest.mark.parametrize("type", ["approve", "respond"])
def test_only_rejection_stops(open_server: Served, type: str) -> None:
    client = open_server.client()
    made = opened(client)
    body = {"type": type, "seen_digest": made["digest"], "stop": True}
    one = client.post(f"/api/requests/{made['id']}/decision", json=body)
    many = client.post("/api/decisions", json=[{"id": made["id"], **body}])
    for answer in (one, many):
        assert (answer.status_code, answer.json()["field"]) == (422, "stop")
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "pending"
