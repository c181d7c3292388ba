"""Secrets in arguments are masked until a person reveals them, which is recorded."""

from __future__ import annotations

import json
import re
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
from served import Serve, Served, mailer, opened

from sayso.redaction import (
    _formats,
    may_have_secrets,
    redact,
    redact_declared,
    render_title,
    secrets_in,
)
from sayso.schema import check_schema
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
KEYS_ARE_SECRET = {"properties": {"key": {"items": {"writeOnly": True}}}}
PLAIN: list[Any] = [
    {"to": "ana@example.com", "body": "The password is in the safe."},
    {"tokens_used": 5, "keyboard": "qwerty", "secretary": "Ana", "pin": 5},
    {"url": "https://example.com:8080/a", "path": "a/b:c@d"},
    {"password": ""},
]


@pytest.mark.parametrize("args", SECRETS)
def test_secret_formats_are_masked(args: dict[str, Any]) -> None:
    view = redact(args)
    assert view.masked
    assert "••••" in str(view.value)
    for secret in ("hunter2", "a" * 36, "b" * 40, "AKIAAAAA", "eyJzdWIi", "Basic abc", "471147"):
        assert secret not in str(view.value)


@pytest.mark.parametrize("args", SECRETS)
def test_quick_look_finds_what_is_masked(args: dict[str, Any]) -> None:
    assert may_have_secrets(json.dumps(args), "")


@pytest.mark.parametrize(
    "name", ["PASSWORD", "pa\u017fsword", "TO\u212aEN", "P\u0130N", "p\u0131n"]
)
def test_quick_look_finds_names_in_any_case(name: str) -> None:
    assert may_have_secrets(f"{name}\nhunter2", "")
    assert redact({name: "hunter2"}).masked <= may_have_secrets(name, "")


def test_quick_look_finds_every_keyword() -> None:
    assert not may_have_secrets("abcdf hijl 1234", "")
    for word in _formats():
        assert may_have_secrets(f"ab {word.upper()} cd", ""), word


@pytest.mark.parametrize("args", PLAIN)
def test_ordinary_values_are_not_masked(args: dict[str, Any]) -> None:
    assert redact(args) == (args, False)


def test_declared_secret_is_shown_as_fingerprint() -> None:
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
        {"type": "object", "patternProperties": {"^a": SECRET}},
        {"type": "object", "unevaluatedProperties": SECRET},
        {"type": "object", "dependentSchemas": {"a": {"properties": {"a": SECRET}}}},
        {"type": "array", "contains": SECRET},
        {"type": "array", "unevaluatedItems": SECRET},
        {"if": {"minLength": 1}, "then": SECRET},
        {"if": {"minLength": 9}, "else": SECRET},
        {"$ref": "#code"},
        {"$dynamicRef": "#/$defs/Code"},
        {"$ref": "#/%24defs/Code"},
        {"$ref": "#/$defs/All/allOf/0"},
    ],
)
def test_declared_secret_is_masked_for_any_schema_form(said: dict[str, Any]) -> None:
    plain: dict[str | None, Any] = {"object": {"a": "hush"}, "array": ["hush"], "integer": 4711}
    args = {"code": plain.get(said.get("type"), "hush")}
    defined = {"Code": {**SECRET, "$anchor": "code"}, "All": {"allOf": [SECRET]}}
    schema = {"properties": {"code": said}, "$defs": defined}
    check_schema(schema)
    shown, masked = redact(args, schema)
    assert ("••••" in str(shown), masked) == (True, False)
    assert "hush" not in str(shown)
    assert "4711" not in str(shown)


def test_pattern_declares_only_what_it_matches() -> None:
    """A declared mask counts as shown, so nothing else may have one."""
    schema = {"patternProperties": {"^key_": SECRET}, "additionalProperties": {"type": "string"}}
    assert redact_declared({"key_1": "hush", "to": "bo"}, schema)["to"] == "bo"


def test_empty_declared_secret_is_shown_as_empty() -> None:
    schema = {"properties": {"pin": {"writeOnly": True}, "key": {"writeOnly": True}}}
    view = redact({"pin": None, "key": ""}, schema)
    assert (view.value, view.masked) == ({"pin": None, "key": ""}, False)


def test_text_with_too_much_to_compare_is_masked_whole() -> None:
    secrets = secrets_in(({"key": [f"{n:0100}" for n in range(200)]}, KEYS_ARE_SECRET))
    text = "nothing of it " * 40_000
    assert redact(text, None, secrets).value != text
    assert redact(text[:1000], None, secrets).value == text[:1000]


def test_title_that_no_longer_fits_is_left_out() -> None:
    assert render_title("Pay {to}", {"to": "bo"}, None) == "Pay bo"
    assert render_title("Pay {to}", {"payee": "bo"}, None) == ""


def test_recursive_schema_is_redacted_once() -> None:
    loop = {"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#"}}}
    assert redact({"a": "x", "b": {"a": "y"}}, loop) == ({"a": "x", "b": {"a": "y"}}, False)


def test_secrets_in_results_are_masked(serve: Serve) -> None:
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


def test_masked_view_gives_no_digest_to_approve(serve: Serve) -> None:
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


def test_chat_user_approves_arguments_shown_in_chat(serve: Serve) -> None:
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
def test_secret_format_is_masked_inside_text(secret: str) -> None:
    for text in (secret, f"see {secret}, please", f'{{"x":"{secret}"}}'):
        view = redact(text)
        assert view.masked
        assert secret not in view.value


@pytest.mark.parametrize(
    "unit", ["eyJ-", "eyJaaaaaaaaaa.eyJ-", "-----BEGIN A", "://a:", "sk-", "a.a@"]
)
def test_long_text_is_looked_through_in_time(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    began = time.process_time()
    redact({"a": text})
    assert time.process_time() - began < 5  # it took minutes where each place was tried to the end


def test_grant_scope_hides_declared_secrets(open_server: Served) -> None:
    client = open_server.client()
    schema = {"type": "object", "properties": {"code": SECRET}}
    made = opened(client, args={"code": "hush"}, schema=schema)
    yes = {"type": "approve", "seen_digest": made["digest"], "grant": {"scope": "exact"}}
    assert client.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 200
    (grant,) = client.get("/api/grants").json()["items"]
    assert grant["scope"] == {"const": {"code": fingerprint("hush")}}
    ended = client.delete(f"/api/grants/{grant['id']}")
    assert (ended.status_code, "hush" in ended.text) == (200, False)


def test_edit_with_a_fingerprint_is_refused(open_server: Served) -> None:
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


AKEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
HOOK = "https://hooks.slack.com/services/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"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl -H 'Authorization: Bearer a1b2c3d4e5f6g7h8' https://x.example", "a1b2c3d4e5f6g7h8"),
        ("Authorization: Basic YW5hOmh1bnRlcjI=", "YW5hOmh1bnRlcjI"),
        ("authorization=Bearer a1b2c3d4e5f6g7h8", "a1b2c3d4e5f6g7h8"),
        (f"aws_secret_access_key={AKEY}", AKEY),
        (f"AWS_SECRET_ACCESS_KEY = {AKEY}", AKEY),
        ("AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4MTIzNDU2==;E=x", "Zm9vYmFyYmF6cXV4MTIzNDU2"),
        ("mysql --user=ana --password=hunter2 shop", "hunter2"),
        ("mysql --password hunter2 shop", "hunter2"),
        ("PGPASSWORD=hunter2 psql", "hunter2"),
        ("Server=db;User Id=sa;Password=hunter2;", "hunter2"),
        ("https://x.example/cb?access_token=a1b2c3d4&state=7", "a1b2c3d4"),
        ("hf_" + "aB3" * 12, "aB3aB3"),
        (HOOK, "B024BE7LH"),
        ("https://discord.com/api/webhooks/123456789/" + "aB3-" * 10, "aB3-aB3"),
        ("redis://:hunter2@cache:6379/0", "hunter2"),
        ('{"user": "ana", "password": "hunter2"}', "hunter2"),
        ('{"config": "{\\"pin\\": \\"4821\\"}"}', "4821"),
        ('log line {"password":"hunter2"} and more', "hunter2"),
        ('{"pin": "1111", "pin": "4821"}', "4821"),
        ("dop_v1_" + "a1" * 32, "a1a1"),
        ("SG." + "a" * 22 + "." + "b" * 43, "aaaa"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow, cut off here", "MIIEow"),
        ("key AKIAIOSFODNN7EXAMPLE.", "AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_secret_within_a_longer_text_is_masked(text: str, secret: str) -> None:
    assert secret in text.replace('\\"', '"')
    for value in (text, {"command": text}, {"a": [{"b": text}]}, f"Then: {text}"):
        view = redact(value)
        assert view.masked
        assert secret not in str(view.value)


@pytest.mark.parametrize(
    "args",
    [
        {"argv": ["mysql", "--password", "hunter2", "shop"]},
        {"headers": [{"name": "Cookie", "value": "hunter2"}]},
        {"body": '[{"name": "Cookie", "value": "hunter2"}]'},
        {"env": [{"key": "DB_PASSWORD", "value": "hunter2"}]},
        {"AccountKey": "hunter2"},
        {"ghp_" + "hunter2" * 6: True},
    ],
)
def test_secret_is_masked_by_its_field_name(args: dict[str, Any]) -> None:
    view = redact(args)
    assert view.masked
    assert "hunter2" not in str(view.value)


ORDINARY = """
Please send the password reset link to ana@example.com.
Password: ask Ben, he knows it.
The token of our esteem is in the post.
Authorization: required for all users above level three.
The secret = good preparation and fresh basil.
SELECT id, token_count, max_tokens FROM usage WHERE key = 'region' AND secret IS NOT NULL
UPDATE users SET password_changed_at = now() WHERE id = 4711
DELETE FROM sessions WHERE created_at < '2026-01-01'
git checkout 3f1c2d4e5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
550e8400-e29b-41d4-a716-446655440000
https://example.com/docs/authentication?page=2&sort=name#tokens
https://app.example.com:8443/orders/A-17/items?sku=SKU-2024-11
postgresql://db.internal:5432/shop?sslmode=require
s3://bucket/prefix/2026/11/16/part-00017.snappy.parquet
/var/lib/app/secrets/README.md
~/.ssh/known_hosts
arn:aws:iam::123456789012:role/deploy
docker run --rm -e TOKEN=$TOKEN -e PASSWORD=${PASSWORD} app:1.2.3
kubectl get secret db-credentials -n prod -o yaml
helm upgrade shop ./chart --set image.tag=v1.2.3 --set existingSecret=db-credentials
password = os.environ["DB_PASSWORD"]
token = get_token(user)
api_key=None, secret=required
def refresh(token: str, key: bytes) -> str: ...
Meeting moved to 14:30, room 4.12; dial-in 555-0173, PIN on the invitation.
Invoice 2026-1117 over 1.249,00 EUR to DE89370400440532013000
Order A-17: 3 x basic token ring adapters, bearer of bad news
The bearer of this letter is authorised to collect the parcel.
Mixed basic knowledge of keyboards and monkeys.
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor.
{"city": "Porto", "units": "metric", "keys": ["a", "b"]}
{"tokens": 512, "max_tokens": 4096, "temperature": 0.2}
rm -rf build/ dist/ *.egg-info
SK-II facial treatment essence, 230 ml
pattern: ^[a-z0-9_-]{3,16}$
AS-REP roasting and pass-the-hash are attacks on Kerberos.
""".strip().splitlines()


def test_ordinary_text_is_rarely_taken_for_a_secret() -> None:
    wrong = [line for line in ORDINARY if redact({"text": line}).masked]
    assert len(wrong) / len(ORDINARY) < 0.03, wrong
    # Source code and its comments speak of keys and tokens all the time.
    lines = []
    for name in ("json/decoder.py", "http/cookies.py", "email/header.py", "argparse.py", "ast.py"):
        source = Path(sysconfig.get_path("stdlib"), name).read_text("utf-8")
        lines += [line for line in source.splitlines() if line.strip()]
    masked = [line for line in lines if redact({"text": line}).masked]
    assert len(masked) / len(lines) < 0.001, masked


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "password=",
            "secret: ",
            "--password ",
            "a=a ",
            "bearer ",
            "{[",
            '{"a":',
            "ey",
            "s.",
            "sk",
        ),
        *("-----BEGIN PRIVATE KEY-----", "hooks.slack.com/services/", "token:0", "AKIA", "://:"),
    ],
)
def test_redaction_time_is_linear(unit: str) -> None:
    began = time.process_time()
    for text in (unit * (400_000 // len(unit)), unit + "a" * 400_000, unit + "1" * 400_000):
        redact({"a": text})
    assert time.process_time() - began < 5


def test_every_known_format_is_searched_in_linear_time() -> None:
    for word, patterns in _formats().items():
        for pattern in map(re.compile, patterns):
            for fill in "aA0-":
                for text in ((word + fill * 3) * 400, word.upper() + fill * 8000):
                    began = time.process_time()
                    pattern.search(text)
                    assert time.process_time() - began < 0.5, (pattern.pattern, text[:50])


def test_changed_secret_is_seen_to_have_changed(open_server: Served) -> None:
    client = open_server.client()
    schema = {"type": "object", "properties": {"user": {"type": "string"}, "code": SECRET}}
    made = opened(client, args={"user": "ana", "code": "hush"}, schema=schema, quorum=2)
    path = f"/api/requests/{made['id']}"
    shown = redact_declared({"code": "psst"}, schema, was={"code": "hush"})
    assert shown == {"code": "•••• (4 chars, changed)"}
    assert redact_declared({"code": "hush"}, schema, was={"code": "hush"}) == {
        "code": "•••• (4 chars)"
    }
    edit = {"type": "edit", "args": {"user": "ana", "code": "psst"}, "seen_digest": made["digest"]}
    single = opened(client, key="k2", args={"user": "ana", "code": "hush"}, schema=schema)
    path, edit["seen_digest"] = f"/api/requests/{single['id']}", single["digest"]
    assert client.post(f"{path}/decision", json=edit).status_code == 200
    seen = client.get(path).json()
    assert (seen["args"]["code"], seen["original"]["code"]) == (
        "•••• (4 chars, changed)",
        "•••• (4 chars)",
    )
