"""Secrets in arguments: hidden until somebody asks, and that is written down."""

from __future__ import annotations

import time
from typing import Any

import pytest
from served import Serve, Served, mailer, opened

from sayso.redaction import redact, redact_declared
from sayso.testing import call, say
from sayso.text import fingerprint

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
    {"credentials": {"user": "ana", "key": "hunter2"}},
    {"tokens": ["x", {"prod": "hunter2"}]},
    {"SECRET_KEY": "hunter2", "db_pwd": "hunter2", "api key": "hunter2"},
    {"pin": 471_147},
]
PLAIN: list[Any] = [
    {"to": "ana@example.com", "body": "The password is in the safe."},
    {"tokens_used": 5, "keyboard": "qwerty", "secretary": "Ana", "pin": 5},
    {"url": "https://example.com:8080/a", "path": "a/b:c@d"},
    {"password": ""},
]


@pytest.mark.parametrize("args", SECRETS)
def test_what_looks_like_a_secret_is_hidden(args: dict[str, Any]) -> None:
    view = redact(args)
    assert view.masked
    assert "sha256:" in str(view.value)
    for secret in ("hunter2", "a" * 36, "b" * 40, "AKIAAAAA", "eyJzdWIi", "Basic abc", "471147"):
        assert secret not in str(view.value)


@pytest.mark.parametrize("args", PLAIN)
def test_what_does_not_is_shown(args: dict[str, Any]) -> None:
    assert redact(args) == (args, False)


def test_what_the_tool_declares_secret_counts_as_shown() -> None:
    schema = {"properties": {"code": {"type": "string", "writeOnly": True}}}
    assert redact({"code": "1234"}, schema) == ({"code": fingerprint("1234")}, False)
    args = {"code": "1234", "api_key": "sk-" + "a" * 30}
    assert redact_declared(args, schema) == {**args, "code": fingerprint("1234")}
    assert redact_declared(args, None) == args


SECRET = {"type": "string", "writeOnly": True}


@pytest.mark.parametrize(
    "said",
    [
        {"anyOf": [SECRET, {"type": "null"}]},
        {"$ref": "#/$defs/Code"},
        {"type": "object", "additionalProperties": SECRET},
        {"type": "object", "writeOnly": True},
        {"type": "array", "prefixItems": [SECRET]},
        {"type": "integer", "format": "password"},
    ],
)
def test_a_declared_secret_is_found_wherever_the_schema_declares_it(said: dict[str, Any]) -> None:
    plain: dict[str | None, Any] = {"object": {"a": "hush"}, "array": ["hush"], "integer": 4711}
    args = {"code": plain.get(said.get("type"), "hush")}
    schema = {"properties": {"code": said}, "$defs": {"Code": SECRET}}
    shown, masked = redact(args, schema)
    assert ("sha256:" in str(shown), masked) == (True, False)
    assert "hush" not in str(shown)
    assert "4711" not in str(shown)


def test_a_schema_that_refers_to_itself_is_read_once() -> None:
    loop = {"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#"}}}
    assert redact({"a": "x", "b": {"a": "y"}}, loop) == ({"a": "x", "b": {"a": "y"}}, False)


def test_secrets_in_what_came_of_it_are_hidden_as_well(serve: Serve) -> None:
    server = serve()
    bot, ana = server.client(server.token("bot", "agent")), server.client(server.token("ana"))
    made = opened(bot)
    path = f"/api/requests/{made['id']}"
    yes = {"type": "approve", "seen_digest": made["digest"]}
    assert ana.post(f"{path}/decision", json=yes).status_code == 200
    token = bot.post(f"{path}/claim").json()["token"]
    result = {"user": "ana", "password": "hunter2"}
    done = bot.post(f"{path}/result", json={"token": token, "ok": True, "result": result})
    assert done.json()["execution"]["result"] == result  # its own agent knows it
    asked = opened(bot, "k2", tool=None, args={}, question={"text": "With what?", "schema": {}})
    answer = {"type": "respond", "value": {"password": "hunter2"}, "seen_digest": asked["digest"]}
    told = ana.post(f"/api/requests/{asked['id']}/decision", json=answer)
    assert told.status_code == 200
    lists = ("/api/requests?status=any", "/api/audit", path, f"/api/runs/{made['run']}")
    for text in (told.text, *(ana.get(place).text for place in lists)):
        assert "hunter2" not in text
    assert ana.post(f"{path}/reveal").json()["execution"]["result"] == result


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


@pytest.mark.parametrize(
    "secret",
    [
        "-----BEGIN PRIVATE KEY-----",
        *(f"gh{kind}_{'a' * 36}" for kind in "pousr"),
        "github_pat_" + "a" * 30,
        "sk-" + "a" * 30,
        *(f"{kind}k_{mode}_{'a' * 24}" for kind in "sr" for mode in ("live", "test")),
        *(f"{kind}{'A' * 16}" for kind in ("AKIA", "ASIA")),
        "AIza" + "a" * 35,
        *(f"xox{kind}-{'1' * 12}" for kind in "abprs"),
        "glpat-" + "a" * 20,
        "npm_" + "a" * 36,
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcdefghijklmn",
        "sayso_" + "a" * 43,
        "https://ana:hunter2@example.com",
    ],
)
def test_a_secret_is_known_by_its_shape_in_any_text(secret: str) -> None:
    for text in (secret, f"see {secret}, please", f'{{"x":"{secret}"}}'):
        view = redact(text)
        assert view.masked
        assert secret not in view.value


@pytest.mark.parametrize(
    "unit", ["eyJ-", "eyJaaaaaaaaaa.eyJ-", "-----BEGIN A", "://a:", "sk-", "a.a@"]
)
def test_a_long_text_is_looked_through_in_time(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    began = time.process_time()
    redact({"a": text})
    assert time.process_time() - began < 5  # it took minutes where each place was tried to the end


def test_a_standing_yes_tells_no_declared_secret(open_server: Served) -> None:
    client = open_server.client()
    schema = {"type": "object", "properties": {"code": SECRET}}
    made = opened(client, args={"code": "hush"}, schema=schema)
    yes = {"type": "approve", "seen_digest": made["digest"], "grant": {"scope": "exact"}}
    assert client.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 200
    (grant,) = client.get("/api/grants").json()["items"]
    assert grant["scope"] == {"const": {"code": fingerprint("hush")}}
    ended = client.delete(f"/api/grants/{grant['id']}")
    assert (ended.status_code, "hush" in ended.text) == (200, False)


def test_an_edit_does_not_run_with_what_stands_for_a_secret(open_server: Served) -> None:
    client = open_server.client()
    schema = {"type": "object", "properties": {"user": {"type": "string"}, "code": SECRET}}
    made = opened(client, args={"user": "ana", "code": "hush"}, schema=schema)
    path = f"/api/requests/{made['id']}"
    args = {**client.get(path).json()["args"], "user": "bo"}
    edit = {"type": "edit", "args": args, "seen_digest": made["digest"]}
    refused = client.post(f"{path}/decision", json=edit)
    assert (refused.status_code, refused.json()["field"]) == (422, "args.code")
    edit["args"] = {"user": "bo", "code": "hush"}
    assert client.post(f"{path}/decision", json=edit).json()["status"] == "edited"
