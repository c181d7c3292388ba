"""Secrets in arguments: hidden until somebody asks, and that is written down."""

from __future__ import annotations

from typing import Any

import pytest
from served import Serve, Served, mailer, opened

from assent.hiding import hidden
from assent.testing import call, say
from assent.text import fingerprint

SECRETS = [
    {"password": "hunter2"},
    {"apiKey": "abc"},
    {"client_secret": "abc"},
    {"headers": {"Authorization": "Basic abc"}},
    {"env": ["x", "ghp_" + "a" * 36]},
    {"note": "use sk-" + "b" * 40 + " please"},
    {"pem": "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"},
    {"url": "postgresql://ana:hunter2@db/x"},
    {"jwt": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcdefghijklmn"},
    {"aws": "AKIA" + "A" * 16},
]
PLAIN: list[Any] = [
    {"to": "ana@example.com", "body": "The password is in the safe."},
    {"tokens_used": 5, "keyboard": "qwerty", "secretary": "Ana", "pin": 5},
    {"url": "https://example.com:8080/a", "path": "a/b:c@d"},
    {"password": ""},
]


@pytest.mark.parametrize("args", SECRETS)
def test_what_looks_like_a_secret_is_hidden(args: dict[str, Any]) -> None:
    view = hidden(args)
    assert view.masked
    assert "sha256:" in str(view.value)
    for secret in ("hunter2", "a" * 36, "b" * 40, "AKIAAAAA", "eyJzdWIi", "Basic abc"):
        assert secret not in str(view.value)


@pytest.mark.parametrize("args", PLAIN)
def test_what_does_not_is_shown(args: dict[str, Any]) -> None:
    assert hidden(args) == (args, False)


def test_what_the_tool_declares_secret_counts_as_shown() -> None:
    schema = {"properties": {"code": {"type": "string", "writeOnly": True}}}
    assert hidden({"code": "1234"}, schema) == ({"code": fingerprint("1234")}, False)


def test_nothing_is_approved_from_a_view_that_hides(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent, args={"user": "ana", "password": "hunter2"})
    assert made["args"]["password"] == "hunter2"  # its own agent knows it
    ana = server.client(server.token("ana"))
    (listed,) = ana.get("/api/requests").json()["items"]
    seen = ana.get(f"/api/requests/{made['id']}")
    assert "hunter2" not in seen.text
    assert "hunter2" not in str(listed)
    assert (seen.json()["masked"], seen.json()["digest"]) == (True, None)
    assert made["digest"] not in seen.text  # nor in what happened to it
    assert made["digest"] not in ana.get(f"/api/runs/{made['run']}").text
    path = f"/api/requests/{made['id']}"
    assert ana.post(f"{path}/decision", json={"type": "approve"}).status_code == 422
    revealed = ana.post(f"{path}/reveal").json()
    assert (revealed["args"]["password"], revealed["masked"]) == ("hunter2", False)
    events = [e["type"] for e in ana.get("/api/audit").json()["items"]]
    assert "revealed" in events
    yes = {"type": "approve", "seen_digest": revealed["digest"]}
    assert ana.post(f"{path}/decision", json=yes).status_code == 200
    assert ana.post("/api/audit/verify").json()["ok"] is True


def test_who_chats_can_approve_what_the_chat_showed_them(serve: Serve) -> None:
    secret = "ghp_" + "x" * 36
    turns = (call("send_email", {"to": "ana", "body": secret}), say("Done."))
    server = serve(agents=[mailer(*turns)])
    rita = server.client(server.token("rita", "chat"))
    parts = [{"type": "text", "text": "Send it"}]
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    assert secret in rita.post("/api/chat", json=body).text
    ana = server.client(server.token("ana"))
    (listed,) = ana.get("/api/requests").json()["items"]
    assert (listed["masked"], secret in str(listed)) == (True, False)
    path = f"/api/requests/{listed['id']}"
    seen = rita.get(path).json()
    assert (seen["masked"], seen["args"]["body"]) == (False, secret)
    yes = {"type": "approve", "seen_digest": seen["digest"]}
    assert rita.post(f"{path}/decision", json=yes).status_code == 200


def test_secrets_stay_out_of_runs_history_and_logs(
    open_server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = open_server.client()
    with caplog.at_level("DEBUG"):
        secret = "ghp_" + "x" * 36
        words = f"push with {secret}"
        made = opened(client, args={"token": secret}, description=words, note=words)
        client.post(f"/api/requests/{made['id']}/decision", json={"type": "reject"})
        texts = [
            client.get(path).text
            for path in (
                "/api/requests?status=any",
                f"/api/requests/{made['id']}",
                f"/api/runs/{made['run']}",
                "/api/audit",
                "/api/stats",
            )
        ]
    assert all("xxxxxxxx" not in text for text in (*texts, caplog.text))
