"""The OpenAPI document: enough for a script that knows nothing else, and true."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.configuration import storage_directory
from schemathesis.python import asgi
from served import Serve, Served, mailer

from sayso import types
from sayso.server import create_app
from sayso.server.service import Limits
from sayso.stores import open_store
from sayso.testing import call
from sayso.types import Request


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document, which takes a second to make."""
    return create_app(store="memory://").openapi()


class Script:
    """Finds each operation by its summary, and its path and parameters in the document."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.document = client.get("/api/openapi.json").json()
        self.operations = {
            operation["summary"]: (method, path, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }

    def do(self, summary: str, body: Any = None, **given: Any) -> Any:
        method, path, operation = self.operations[summary]
        query, headers = {}, {}
        for parameter in operation.get("parameters", ()):
            name, place = parameter["name"], parameter["in"]
            value = given.pop(name.replace("-", "_"), None)
            if place == "path":
                path = path.replace("{" + name + "}", value)
            elif value is not None:
                (query if place == "query" else headers)[name] = str(value)
        assert not given, f"{summary} has no parameter {given}"
        assert (body is not None) <= ("requestBody" in operation)
        answer = self.client.request(method.upper(), path, params=query, headers=headers, json=body)
        assert str(answer.status_code) in operation["responses"], answer.text
        return answer.json()


def test_document_describes_every_operation_fully(document: dict[str, Any]) -> None:
    shapes = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), (where, parameter["name"])
            for code, response in operation["responses"].items():
                assert response["description"], (where, code)
                kinds = response.get("content", {})
                assert bool(kinds) == (code != "204"), (where, code)
                assert all(kind.get("schema") is not None for kind in kinds.values())
                assert not {"text/event-stream", "application/json"} <= set(kinds), where
            if "requestBody" in operation:
                body = str(operation["requestBody"])
                named = [name for name in shapes if f"/{name}'" in body]
                assert "example" in body + "".join(str(shapes[name]) for name in named), where


def test_script_can_work_from_the_document_alone(serve: Serve) -> None:
    server = serve()
    agent = Script(server.client(server.token("bot", "agent")))
    ana = Script(server.client(server.token("ana")))
    made = agent.do("Open a request", {"tool": "refund", "args": {"n": 1}}, idempotency_key="a")
    (listed,) = ana.do("List requests", status="pending")["items"]
    whole = ana.do("Get a request", request_id=listed["id"])
    yes = {"type": "approve", "seen_digest": whole["digest"], "grant": {"scope": "any"}}
    later = threading.Timer(0.2, ana.do, ("Decide a request", yes), {"request_id": whole["id"]})
    later.start()
    decided = agent.do("Wait for a decision", request_id=made["id"], timeout=20)
    later.join()
    assert decided["status"] == "approved"
    claim = agent.do("Claim an approved call", request_id=made["id"])
    proof = {"token": claim["token"], "attempt": claim["attempt"]}
    done = agent.do("Report a result", {**proof, "result": "paid"}, request_id=made["id"])
    assert done["execution"]["result"] == "paid"
    (grant,) = ana.do("List grants")["items"]
    assert ana.do("Revoke a grant", grant_id=grant["id"])["live"] is False
    assert ana.do("Verify the audit log")["ok"] is True


def test_every_operation_is_described(serve: Serve) -> None:
    document = serve(auth=False).client().get("/api/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("description"), where
            assert any(code.startswith("2") for code in operation["responses"]), where
            if path.startswith("/api") and not path.startswith("/api/login"):
                assert "401" in operation["responses"] or "chat" in path, where
    names = {name for name in document["components"]["schemas"]}
    assert {"DecisionBody", "OpenBody", "ErrorView", "RequestView", "GrantBody"} <= names


@pytest.mark.long
def test_documented_input_causes_no_server_error(tmp_path: Path) -> None:
    """Bodies and parameters made from the document itself; whatever comes, no 5xx."""
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    app = create_app([mailer()], store=store, auth=False, workers=0)
    with closing(store), started_apps():
        check_operations(app)


@contextmanager
def started_apps() -> Iterator[None]:
    """Shut down the apps that schemathesis starts, which otherwise run until the process exits."""
    try:
        yield
    finally:
        asgi.shutdown_lifespans()


def check_operations(app: FastAPI) -> None:
    document = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    tried: Counter[int] = Counter()

    for found in document.get_all_operations():
        operation = found.ok()
        if operation.path == "/api/events":
            continue  # it never ends

        @given(case=operation.as_strategy())
        @settings(
            max_examples=15,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            if case.path.endswith("/wait"):
                case.query = {"timeout": 0}
            answer = case.call()
            tried[answer.status_code] += 1
            assert answer.status_code < 500, (case.method, case.path, answer.text)

        check()
    assert tried[200] > 50  # not everything was refused at the door
    assert tried[404] > 50


#: What the server adds to a request.
ADDED = {"masked", "size", "can", "why_not", "confirm_with", "shown", "caller"}


@pytest.mark.parametrize(
    "kind",
    [
        *(Request, types.DecisionMade, types.VoteMade, types.Execution, types.Evidence),
        *(types.EarlierRejection, types.Question, types.Option, types.Risk),
    ],
)
def test_document_has_the_fields_of_each_type(kind: type, document: dict[str, Any]) -> None:
    shapes = document["components"]["schemas"]
    documented = shapes[kind.__name__.removesuffix("Made") + "View"]["properties"]
    shown = {field.name for field in dataclasses.fields(kind) if field.repr}
    assert set(documented) - (ADDED if kind is Request else set()) == shown


def test_document_lists_chat_errors_and_open_routes(open_server: Served) -> None:
    client = open_server.client()
    paths = client.get("/api/openapi.json").json()["paths"]
    refused = client.post("/api/chat", json={})
    documented = paths["/api/chat"]["post"]["responses"][str(refused.status_code)]["content"]
    assert list(documented) == [refused.headers["content-type"].partition(";")[0]] == ["text/plain"]
    for path, method in (("/healthz", "get"), ("/metrics", "get"), ("/api/login", "post")):
        assert paths[path][method]["security"] == []
    nobody = client.post("/api/chat", json={}, headers={"Authorization": "Bearer nope"})
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")


HOOKS = """
import requests
import schemathesis

whole = requests.Session.request

def begun(session, method, url, **options):
    session.trust_env = False  # else every call looks for proxies and passwords
    # The live feed never ends: its first frame is read, and then the reader leaves.
    if "/api/events" not in url:
        return whole(session, method, url, **options)
    response = whole(session, method, url, **{**options, "stream": True})
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        response._content = next(response.iter_content(None))
    response.content
    response.close()
    return response

requests.Session.request = begun

@schemathesis.hook
def before_call(context, case, **kwargs):
    # A wait takes as long as it is asked to: everything else about it stays as it was made.
    if case.path.endswith("/wait") and isinstance(case.query, dict):
        try:
            if 0 <= float(case.query.get("timeout", 0)) <= 120:
                case.query["timeout"] = 0
        except (TypeError, ValueError):
            pass
"""


#: A cursor of events is opaque: each store has its own, and refuses others. The names of time zones
#: are those of the machine.
CONFIG = """
[[operations]]
include-path = "/api/events"
checks.positive_data_acceptance.enabled = false

[[operations]]
include-path = "/api/me/notices"
include-method = "PUT"
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.long
@pytest.mark.parametrize("role", ["admin", "agent"])
def test_schemathesis_coverage_finds_no_problem(serve: Serve, tmp_path: Path, role: str) -> None:
    """Every documented value, boundary and violation of each operation, with all checks."""
    server = serve(agents=[mailer()], workers=0, limits=Limits(per_minute=10**7, burst=10**7))
    paths = {
        "admin": [],
        "agent": [
            *("--include-path-regex", "^/api/requests"),
            # An agent's terms are checked like a rule's, which says more than a schema can.
            *("--exclude-checks", "positive_data_acceptance"),
        ],
    }
    (tmp_path / "st_hooks.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/api/openapi.json"]
    command += ["--phases", "coverage", "--no-color", "--request-timeout", "60", *paths[role]]
    command += ["-H", f"Authorization: Bearer {server.token('sam', role)}"]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "st_hooks",
            "PYTHONPATH": str(tmp_path),
            # Where the tables of Unicode are, which take seconds to make.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(storage_directory().path),
        },
        timeout=170,
        check=False,
    )
    assert found.returncode == 0, (
        found.stdout.partition("= FAILURES =")[2][:5000] + found.stderr[-2000:]
    )
    assert "Coverage" in found.stdout


def test_operations_have_names_and_choices_are_enums(document: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
    found = {
        (path, parameter["name"]): parameter["schema"]
        for path, methods in document["paths"].items()
        for parameter in methods.get("get", {}).get("parameters", ())
    }
    for name in ("status", "kind", "risk", "sort"):
        assert "enum" in found["/api/requests", name], name
    assert "enum" in found["/api/runs", "status"]
    shapes = document["components"]["schemas"]
    for name in ("status", "kind", "assurance", "effect"):
        assert "enum" in shapes["RequestView"]["properties"][name], name
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for code, response in operation["responses"].items():
                for kind in response.get("content", {}).values():
                    said = kind["schema"]
                    assert (
                        "$ref" in said
                        or said.get("properties")
                        or said["type"] == "string"
                        or ("additionalProperties" in said)
                    ), (method, path, code)


#: Values whose shape is not ours: an agent, a tool or the one who asks decides it.
FREE = {
    "args",
    "schema",
    "original",
    "written",
    "validated",
    "parts",
    "scope",
    "value",
    "result",
    "output",
    "preview",
    "binds",
}
FREE |= {"body"}
FREE |= {"options"}  # for the browser's own functions; only those know all of it


def test_bodies_are_typed_to_their_leaves(document: dict[str, Any]) -> None:
    shapes = document["components"]["schemas"]
    sent = [
        body["schema"]
        for methods in document["paths"].values()
        for operation in methods.values()
        for response in operation["responses"].values()
        for body in response.get("content", {}).values()
    ]
    assert [schema for schema in sent if loose(schema)] == []
    used = {name for name in shapes if f"/{name}'" in f"{sent} {shapes}"}
    found = [
        f"{name}.{field}"
        for name in used
        for field, schema in shapes[name].get("properties", {}).items()
        if name.endswith(("View", "Page", "Stats", "Message")) and field not in FREE
        if loose(schema)
    ]
    assert found == []


def loose(schema: dict[str, Any]) -> bool:
    """Whether a schema lets anything through."""
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if options or "$ref" in schema:
        return any(map(loose, options))
    if schema.get("type") == "array":
        return loose(schema["items"])
    if schema.get("type") == "object":
        return not schema.get("properties")
    return not schema.keys() & {"type", "enum", "const"}


def test_responses_match_the_document(serve: Serve) -> None:
    """With requests, decisions, runs and chats there, and not only with empty lists."""
    server = serve(agents=[mailer(*[call("send_email", {"to": "ana"})] * 2)], workers=0)
    client = server.client(server.token("sam", "admin"))
    document = client.get("/api/openapi.json").json()
    checker = jsonschema.FormatChecker()
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Mail ana"}]}

    def get(path: str, *, shape: str = "", body: Any = None) -> Any:
        method = "get" if body is None else "post"
        answer = client.request(method, path, json=body)
        said = document["paths"][shape or path][method]["responses"][str(answer.status_code)]
        schema = {**said["content"]["application/json"]["schema"], **document}
        jsonschema.validate(answer.json(), schema, format_checker=checker)
        return answer.json()

    for n in range(2):
        assert client.post("/api/chat", json={"id": f"c{n}", "messages": [message]}).is_success
    first, second = get("/api/requests")["items"]
    one = get(f"/api/requests/{first['id']}", shape="/api/requests/{request_id}")
    edited = {"args": {"to": "ben", "body": 7}}
    assert not get(
        f"/api/requests/{one['id']}/check", shape="/api/requests/{request_id}/check", body=edited
    )["ok"]
    assert get(
        f"/api/requests/{one['id']}/check",
        shape="/api/requests/{request_id}/check",
        body={"args": {"to": "ben", "body": "Hi"}},
    )["ok"]
    yes = {"type": "approve"}
    decided = get(
        "/api/decisions",
        body=[
            {"id": first["id"], "seen_digest": first["digest"], **yes},
            {"id": second["id"], "seen_digest": "0" * 64, **yes},
        ],
    )["items"]
    assert [set(each) for each in decided] == [{"id", "request"}, {"id", "error"}]
    assert len(get("/api/chats")["items"]) == 2
    assert get("/api/agents")["items"][0]["tools"]
    stats = get("/api/stats")
    assert stats["tools"]
    assert stats["reviewers"]
    assert get("/api/chat/c0/messages", shape="/api/chat/{chat_id}/messages")["messages"]
    assert get("/api/runs")["items"]
    assert get("/api/audit")["items"]
    get("/api/requests/groups")
    get("/api/me")
