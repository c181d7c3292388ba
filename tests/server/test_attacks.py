"""Hostile input of agents and pages stays text."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served, opened

HOSTILE = [
    "\x1b[2K\x1b[1A approved",
    "a\rb\x08c\x07",
    "\x9b31m",
    "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07",
    "safe\u202egnp.exe",
    "zero\u200bwidth",
    "tag\U000e0041\U000e0042",
    "filler\u3164\u2800\u00a0",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "<!channel> {{7*7}} ${7*7} [@click=app.approve]yes[/]",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_agent_text_is_made_visible_in_every_field(open_server: Served, words: str) -> None:
    client = open_server.client()
    made = opened(client, args={"x": words, "y": [{words: words}]}, note=words, description=words)
    whole = client.get(f"/api/requests/{made['id']}").json()
    assert whole["args"]["x"] == words  # what runs is what was sent
    shown = json.dumps(whole["shown"], ensure_ascii=False)
    hidden = [c for c in words if not c.isprintable() or c in "\u3164\u2800\u00a0"]
    assert not any(char in shown for char in hidden)
    assert (whole["shown"]["hidden"] > 0) == bool(hidden)
    assert bool(whole["shown"]["warnings"]) >= bool(hidden)


def test_lookalike_characters_cause_a_warning(open_server: Served) -> None:
    made = opened(open_server.client(), args={"to": "аna@example.com"})  # noqa: RUF001
    warnings = made["shown"]["warnings"]
    assert any("U+0430" in warning for warning in warnings), warnings


def test_large_arguments_are_complete_or_refused(open_server: Served) -> None:
    client = open_server.client()
    big = "x" * 200_000 + "; rm -rf /"
    made = opened(client, args={"body": big})
    assert made["args"]["body"] == big
    assert made["size"] > 200_000
    assert made["shown"]["args"]["body"].endswith("rm -rf /")
    deep: Any = {}
    for _ in range(1000):
        deep = {"a": deep}
    for body in (
        {"tool": "t", "args": {"x": "y" * 5_000_000}},
        {"tool": "t", "args": {"x": list(range(200_000))}},
    ):
        answer = client.post("/api/requests", json=body)
        assert answer.status_code in (400, 413, 422), answer.status_code
        assert "more than" in answer.json()["message"]
    answer = client.post(
        "/api/requests",
        content='{"tool":"t","args":' + '{"a":' * 1000 + "1" + "}" * 1001,
    )
    assert answer.status_code == 400
    huge = client.post("/api/requests", content=b" " * 10_000_000)
    assert huge.status_code == 413

    def chunks() -> Any:
        for _ in range(20):
            yield b" " * 1_000_000

    assert client.post("/api/requests", content=chunks()).status_code == 413
    assert len(client.get("/api/requests").json()["items"]) == 1


def test_arguments_changed_in_the_database_do_not_run(open_server: Served, tmp_path: Path) -> None:
    client = open_server.client()
    made = opened(client)
    yes = {"type": "approve", "seen_digest": made["digest"]}
    assert client.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 200
    with closing(sqlite3.connect(tmp_path / "sayso.db", timeout=30)) as database, database:
        database.execute("UPDATE call SET args = ?", ('{"amount":5000}',))
    refused = client.post(f"/api/requests/{made['id']}/claim")
    assert refused.status_code == 409
    assert refused.json()["error"] == "Tampered"
    assert client.post("/api/audit/verify").json()["ok"] is False


def test_decision_on_unknown_id_is_recorded_as_refused(
    open_server: Served,
) -> None:
    client = open_server.client()
    opened(client)
    before = len(client.get("/api/audit").json()["items"])
    for name in ("req_0000000000000000", "../x", "%00", "a" * 5000, "req_%F0%9F%98%80"):
        body = {"type": "approve", "seen_digest": "0" * 64}
        answer = client.post(f"/api/requests/{name}/decision", json=body)
        assert answer.status_code in (404, 405, 422), name
    facts = client.get("/api/audit").json()["items"][before:]
    assert {fact["type"] for fact in facts} == {"refused"}
    assert facts[0]["body"]["request"] == "req_0000000000000000"
    assert max(len(fact["body"]["request"]) for fact in facts) == 200
    assert client.post("/api/audit/verify").json()["ok"] is True


def test_decision_attempt_by_an_agent_is_recorded(serve: Serve) -> None:
    server = serve()
    bot = server.client(server.token("bot", "agent"))
    made = opened(bot)
    yes = {"type": "approve", "seen_digest": made["digest"]}
    tries = [
        ("POST", f"/api/requests/{made['id']}/decision", yes),
        ("POST", "/api/decisions", [{"id": made["id"], **yes}]),
        ("DELETE", "/api/grants/grt_x", None),
    ]
    for method, path, body in tries:
        assert bot.request(method, path, json=body).status_code == 403
    boss = server.client(server.token("boss", "admin"))
    facts = [f for f in boss.get("/api/audit").json()["items"] if f["type"] == "refused"]
    assert [fact["body"]["tried"] for fact in facts] == [f"{m} {path}" for m, path, _ in tries]
    assert {fact["actor"] for fact in facts} == {"agent:bot"}
    assert boss.get(f"/api/requests/{made['id']}").json()["status"] == "pending"


def test_expired_is_expired_by_a_millisecond(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client, expires_in=0.05)
    until = open_server.store.now() + 100_000
    while open_server.store.now() < until:
        pass
    yes = {"type": "approve", "seen_digest": made["digest"]}
    late = client.post(f"/api/requests/{made['id']}/decision", json=yes)
    assert late.status_code == 409
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "expired"
    assert client.post(f"/api/requests/{made['id']}/claim").status_code == 409


def test_slow_schema_pattern_does_not_block(open_server: Served) -> None:
    client = open_server.client()
    schema = {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    body = {"tool": "t", "args": {"a": "a" * 60 + "!"}, "schema": schema}
    refused = client.post("/api/requests", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "args.a")
    schema["properties"]["a"]["pattern"] = r"^(?!\.)[^@]+@[^@]+$"
    made = client.post("/api/requests", json={**body, "args": {"a": "x@y.example"}}).json()
    assert made["schema"]["properties"] == {"a": {"type": "string"}}
    question = {"text": "Which?", "schema": {"type": "string", "pattern": "^(?=a)"}}
    asked = client.post("/api/requests", json={"question": question}).json()
    assert asked["question"]["schema"] == {"type": "string"}


def test_body_errors_are_plain_sentences(open_server: Served) -> None:
    client = open_server.client()
    made = opened(client)
    path = f"/api/requests/{made['id']}/decision"
    for body, said in (
        ([], "body: must be a JSON object"),
        ({}, "type: this field is required"),
        ({"type": "approve", "grant": True}, "grant: must be a JSON object"),
        ({"type": "edit", "args": []}, "args: must be a JSON object"),
    ):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["message"]) == (422, said)
    assert client.post("/api/decisions", json={}).json()["message"] == "body: must be a list"
    claimed = client.post(f"/api/requests/{made['id']}/claim")
    assert (claimed.status_code, "is waiting for a decision" in claimed.text) == (409, True)
