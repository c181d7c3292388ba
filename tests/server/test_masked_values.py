"""A masked value leaves the server through no route, and nothing confirms a guess of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import pytest
from served import Serve, Served, mailer, opened
from waiting import until

import sayso
from sayso.server.webhooks import Endpoint, message_of
from sayso.testing import ScriptedModel, call, say

PASSWORD = "hunter2-Zebra"
PIN = "q9Zk7"
CODE = "tiger-lily-7"
SCHEMA = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "password": {"type": "string", "enum": [PASSWORD, "other"], "default": PASSWORD},
        "pin": {"type": "string", "examples": [PIN]},
        "code": {"type": "string", "writeOnly": True, "default": CODE},
        "memo": {"type": "string", "description": f"like {PASSWORD}"},
        "count": {"type": "integer"},
    },
}
ARGS = {
    "user": "ana",
    "password": PASSWORD,
    "pin": PIN,
    "code": CODE,
    "memo": f"as {PASSWORD.upper()} said",
    "count": 3,
}
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
WORDS = f"Signs in with {PASSWORD}, then {CODE}"


def leaking(agent: httpx.Client, key: str = "k1", **body: Any) -> dict[str, Any]:
    """Open a request that repeats its secrets in every text that an agent may send."""
    texts: dict[str, Any] = {
        "title": f"Enter {PIN} for ana",
        "description": WORDS,
        "note": f"{WORDS} and {PIN}",
        "preview": {"line": f"login -p {PASSWORD}", "list": [PASSWORD, PIN]},
        "effect_key": f"login:{PASSWORD}:{CODE}",
        "risk": {"level": "high", "reasons": [f"uses {PASSWORD}", f"and {CODE}"]},
    }
    return opened(agent, key, **{"tool": "login", "args": ARGS, "schema": SCHEMA, **texts, **body})


def assert_no_secret(text: str) -> None:
    lowered = text.lower()
    assert [each for each in (PASSWORD, PIN, CODE) if each.lower() in lowered] == []


@pytest.fixture
def server(serve: Serve) -> Served:
    return serve()


@pytest.fixture
def agent(server: Served) -> httpx.Client:
    return server.client(server.token("bot", "agent"))


@pytest.fixture
def reviewer(server: Served) -> httpx.Client:
    return server.client(server.token("ana"))


def places(made: dict[str, Any]) -> Iterator[str]:
    """Yield every address at which a reviewer may read about a request."""
    yield from ("/api/requests?status=any", "/api/requests?status=pending", "/api/requests/groups")
    yield from ("/api/runs", "/api/audit", "/api/audit?order=newest", "/api/stats", "/api/me")
    yield from ("/api/grants?all=true", "/api/refusals?all=true", "/api/agents", "/metrics")
    for sort in ("newest", "oldest", "expiry"):
        yield f"/api/requests?status=any&sort={sort}"
    yield f"/api/requests/{made['id']}"
    yield f"/api/runs/{made['run']}"


def test_pending_request_shows_no_secret_anywhere(
    agent: httpx.Client, reviewer: httpx.Client
) -> None:
    made = leaking(agent)
    assert made["args"] == ARGS  # its own agent knows them
    for place in places(made):
        answer = reviewer.get(place)
        assert answer.status_code < 500
        assert_no_secret(answer.text)
    view = reviewer.get(f"/api/requests/{made['id']}").json()
    assert (view["masked"], view["digest"]) == (True, None)
    assert set(view["schema"]["properties"]) == set(SCHEMA["properties"])  # type: ignore[arg-type]
    assert set(view["args"]) == set(ARGS)
    assert reviewer.post(f"/api/requests/{made['id']}/reveal").json()["args"] == ARGS


def test_decided_request_shows_no_secret_anywhere(
    server: Served, agent: httpx.Client, reviewer: httpx.Client
) -> None:
    made = leaking(agent)
    path = f"/api/requests/{made['id']}"
    digest = reviewer.post(f"{path}/reveal").json()["digest"]
    edit = {"args": {"user": "ben"}, "message": f"not {PASSWORD}", "seen_digest": digest}
    grant = {"scope": "exact"}
    assert_no_secret(reviewer.post(f"{path}/decision", json={"type": "edit", **edit}).text)
    claim = agent.post(f"{path}/claim").json()
    result = {"echo": PASSWORD, "text": f"{CODE} worked, {PIN}"}
    done = {"token": claim["token"], "ok": True, "result": result}
    assert agent.post(f"{path}/result", json=done).status_code == 200
    second = leaking(agent, "k2", effect_key=None)
    yes = {"type": "approve", "grant": grant}
    digest = reviewer.post(f"/api/requests/{second['id']}/reveal").json()["digest"]
    approved = reviewer.post(
        f"/api/requests/{second['id']}/decision", json={**yes, "seen_digest": digest}
    )
    assert approved.status_code == 200
    assert_no_secret(approved.text)
    third = leaking(agent, "k3", effect_key=None, run="r", args=ARGS | {"count": 4})
    no = {"type": "reject", "message": f"never {PASSWORD} nor {CODE}"}
    assert_no_secret(reviewer.post(f"/api/requests/{third['id']}/decision", json=no).text)
    lost = reviewer.post(f"/api/requests/{third['id']}/decision", json={"type": "approve"})
    assert lost.status_code == 409
    assert_no_secret(lost.text)
    fourth = leaking(agent, "k4", effect_key=None, run="r", args=ARGS | {"count": 4})
    assert [fourth["status"], len(fourth["refusals"])] in (["rejected", 1], ["pending", 1])
    for each in (made, second, third, fourth):
        for place in places(each):
            assert_no_secret(reviewer.get(place).text)


def test_no_search_confirms_a_masked_value(agent: httpx.Client, reviewer: httpx.Client) -> None:
    leaking(agent)
    secrets = (PASSWORD, PIN, CODE)
    prefixes = {secret[:size] for secret in secrets for size in range(1, len(secret) + 1)}
    for text in prefixes | {"zebra", "lily"}:
        if not "ana bot login signs in with then chars char 13 12 fingerprint".find(text) >= 0:
            found = reviewer.get("/api/requests", params={"q": text, "status": "any"}).json()
            groups = reviewer.get("/api/requests/groups", params={"q": text}).json()
            assert (found["items"], groups["count"]) == ([], 0), text


@pytest.mark.parametrize("name", ["password", "pin", "code"])
def test_checking_an_edit_confirms_no_guess(
    agent: httpx.Client, reviewer: httpx.Client, name: str
) -> None:
    path = f"/api/requests/{leaking(agent)['id']}/check"
    right = ARGS[name]
    assert isinstance(right, str)
    wrong = right[::-1]
    shapes = [{name: "?"}, {"user": "?"}, {"memo": "is it ?"}, {"user": "ben", name: "?"}]
    for shape in shapes:
        bodies = [
            reviewer.post(path, json=json.loads(json.dumps({"args": shape}).replace("?", guess)))
            for guess in (right, wrong)
        ]
        assert bodies[0].status_code == 200
        texts = [body.text.replace(right, "GUESS").replace(wrong, "GUESS") for body in bodies]
        if name == "password" and shape.get(name):  # the schema's choices say which are valid
            continue
        assert texts[0] == texts[1]
        assert [name in json.dumps(body.json()["diff"]) for body in bodies] == [
            name in shape,
            name in shape,
        ]


def test_errors_of_an_edit_name_no_value(agent: httpx.Client, reviewer: httpx.Client) -> None:
    made = leaking(agent)
    path = f"/api/requests/{made['id']}"
    assert_no_secret(reviewer.post(f"{path}/check", json={"args": {"password": "x"}}).text)
    digest = reviewer.post(f"{path}/reveal").json()["digest"]
    for args in ({"password": "x"}, {"count": "many"}, {"code": 7}):
        edit = {"type": "edit", "args": args, "seen_digest": digest}
        refused = reviewer.post(f"{path}/decision", json=edit)
        assert refused.status_code == 422
        assert_no_secret(refused.text)


def test_checks_of_masked_requests_are_limited_and_recorded(
    agent: httpx.Client, reviewer: httpx.Client
) -> None:
    path = f"/api/requests/{leaking(agent)['id']}/check"
    statuses = [
        reviewer.post(path, json={"args": {"user": f"u{n}"}}).status_code for n in range(40)
    ]
    assert statuses.count(200) <= 25
    assert statuses[-1] == 429
    events = reviewer.get("/api/audit?order=newest").json()["items"]
    checked = [event for event in events if event["type"] == "checked"]
    assert len(checked) == statuses.count(200)
    assert {event["actor"] for event in checked} == {"ana"}


def test_checks_of_open_requests_are_not_recorded(
    agent: httpx.Client, reviewer: httpx.Client
) -> None:
    path = f"/api/requests/{opened(agent)['id']}/check"
    statuses = {reviewer.post(path, json={"args": {"amount": n}}).status_code for n in range(40)}
    assert statuses == {200}
    assert "checked" not in reviewer.get("/api/audit").text


def test_grant_preview_confirms_no_guess(agent: httpx.Client, reviewer: httpx.Client) -> None:
    made = leaking(agent)
    plain = opened(agent, "k2", tool="login", args={"user": "eve"}, schema=SCHEMA)
    for name, value in (("password", PASSWORD), ("code", CODE)):
        answers = []
        for guess in (value, value[::-1]):
            scope = {"properties": {name: {"const": guess}}}
            for request in (made, plain):
                body = {"scope": scope}
                preview = reviewer.post(f"/api/requests/{request['id']}/grant-preview", json=body)
                answers.append(preview.text.replace(guess, "GUESS"))
        assert answers[:2] == answers[2:]
        assert made["id"] not in answers[1]


@pytest.mark.parametrize("type", ["request.opened", "request.decided", "request.closed"])
def test_webhooks_carry_no_secret(
    server: Served, agent: httpx.Client, reviewer: httpx.Client, type: str
) -> None:
    made = leaking(agent)
    no = {"type": "reject", "message": f"never {PASSWORD}, {CODE} nor {PIN}"}
    assert reviewer.post(f"/api/requests/{made['id']}/decision", json=no).status_code == 200
    endpoint = Endpoint("https://hooks.example.com/sayso", SECRET, events=(type,))
    for _, event in server.store.events("", 100):
        message = message_of(server.store, event, endpoint)
        if message is not None:
            assert_no_secret(message.body)


def test_question_with_secret_choices_lists_none(
    agent: httpx.Client, reviewer: httpx.Client
) -> None:
    question = {"text": f"password: {PASSWORD}1 or the other?", "options": [f"{PASSWORD}1", "no"]}
    made = opened(agent, tool=None, args={}, question=question)
    path = f"/api/requests/{made['id']}"
    assert_no_secret(reviewer.get(path).text)
    answer = reviewer.post(f"{path}/decision", json={"type": "respond", "value": "maybe"})
    assert answer.status_code == 422
    assert_no_secret(answer.text)


def test_conversation_shows_no_declared_secret(serve: Serve) -> None:
    turns = (
        call("send_email", {"to": "ana", "body": CODE}),
        say(f"I sent {CODE}."),
    )
    agent = mailer(*turns)
    tool = agent.tools["send_email"]
    schema = json.loads(tool.stored.schema)
    schema["parameters"]["properties"]["body"]["writeOnly"] = True
    stored = tool.stored._replace(schema=json.dumps(schema)).redigested()
    object.__setattr__(tool, "stored", stored)
    server = serve(agents=[agent])
    rita, sam = server.client(server.token("rita", "chat")), server.client(server.token("sam"))
    parts = [{"type": "text", "text": "Send it"}]
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    assert CODE in rita.post("/api/chat", json=body).text
    (listed,) = sam.get("/api/requests").json()["items"]
    yes = {"type": "approve", "seen_digest": listed["digest"]}
    assert sam.post(f"/api/requests/{listed['id']}/decision", json=yes).status_code == 200
    for place in places(listed):
        assert_no_secret(sam.get(place).text)


def test_chat_shows_no_secret_to_other_readers(serve: Serve) -> None:
    @sayso.tool(needs_approval=True)
    def login(user: str, password: str) -> str:
        """Sign in."""
        return f"signed in {user} with {password}"

    model = ScriptedModel(
        [call("login", {"user": "ana", "password": PASSWORD}), say(f"I used {PASSWORD}.")]
    )
    server = serve(agents=[sayso.Agent("mailer", model=model, tools=[login])])
    rita = server.client(server.token("rita", "chat"))
    others = [server.client(server.token(*one)) for one in (("ana", "reviewer"), ("root", "admin"))]
    words = {"type": "text", "text": f"Sign in with {PASSWORD}"}
    body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": [words]}]}
    assert rita.post("/api/chat", json=body).status_code == 200

    def look() -> None:
        for client, wire in product(others, ("chat", "chat-recipe")):
            for part in ("messages", "stream"):
                answer = client.get(f"/api/{wire}/c1/{part}")
                assert answer.status_code == 200
                assert_no_secret(answer.text)

    look()
    (made,) = others[1].get("/api/requests").json()["items"]
    path = f"/api/requests/{made['id']}"
    digest = others[1].post(f"{path}/reveal").json()["digest"]
    yes = {"type": "approve", "seen_digest": digest}
    assert others[1].post(f"{path}/decision", json=yes).status_code == 200
    until(lambda: "I used" in rita.get("/api/chat/c1/messages").text)
    look()
