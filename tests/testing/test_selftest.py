"""``sayso selftest`` proves the promises, and notices each one that is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from live_server import LiveServer
from postgres_server import shared_url
from typer.testing import CliRunner

import sayso
import sayso.gate.backend
import sayso.schema
from sayso.cli.entry import app_of
from sayso.inbox import create_token
from sayso.policy import Policy, Rule
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.testing import selftest
from sayso.testing.selftest import Place, PostgresPlace, check_tool, named, sample

POLICY = Policy(
    [
        Rule("pay", where="amount > 100", quorum=2, reviewers="group:finance", expires_in="1h"),
        Rule("mail", reviewers=["ana", "ben"], effect="idempotent"),
        Rule("drop", verdict="deny"),
        Rule("look", verdict="allow"),
    ]
)
PAY = named("desk", "pay", {"amount": 500})
MAIL = named("desk", "mail", {})


def outcomes(place: Place, declared: selftest.Declaration = PAY) -> dict[str, str]:
    return {r.check: r.outcome for r in check_tool(place, POLICY, declared)}


@pytest.mark.parametrize("declared", [PAY, MAIL], ids=["quorum", "named"])
def test_every_promise_holds_on_sqlite(declared: selftest.Declaration) -> None:
    found = outcomes(Place(), declared)
    assert len(found) == 10
    expected = {"ok"} if declared is PAY else {"ok", "skipped"}
    assert set(found.values()) == expected


def test_no_model_of_the_user_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see made-up calls, and decide them."""
    called = []
    monkeypatch.setattr(sayso.gate.backend, "ask_model", lambda *request: called.append(request))
    rule = Rule("refund", risk="low", reviewer="model:openai:small", reviewer_allows=True)
    results = list(check_tool(Place(), Policy([rule]), named("desk", "refund", {})))
    assert {result.outcome for result in results} <= {"ok", "skipped"}
    assert called == []


def test_every_promise_holds_on_postgres() -> None:
    url = shared_url()
    assert set(outcomes(PostgresPlace(url)).values()) == {"ok"}
    statement = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sayso_selftest%'"
    with psycopg.connect(url) as connection:
        assert connection.execute(statement).fetchall() == []


@pytest.mark.parametrize(("tool", "check"), [("drop", "denied"), ("look", "needs no person")])
def test_calls_that_ask_nobody_are_checked(tool: str, check: str) -> None:
    (result,) = check_tool(Place(), POLICY, named("desk", tool, {}))
    assert result.outcome == "ok"
    assert check in result.check


async def is_never_outdated(*_: Any) -> None:
    """Stand in for the re-check before the start."""


@pytest.mark.parametrize(
    ("target", "broken", "noticed"),
    [
        (
            "sayso.engine.proposing.known_refusals",
            lambda *_: [],
            {selftest.rejection_persists},
        ),
        (
            "sayso.engine.deciding.check_reviewer",
            lambda *_: "",
            {selftest.asking_agent_cannot_approve, selftest.wrong_person_cannot_approve},
        ),
        (
            "sayso.gate.backend.recheck",
            is_never_outdated,
            {selftest.stale_policy_is_judged_again, selftest.changed_tool_is_asked_again},
        ),
    ],
)
def test_broken_promise_is_noticed(
    target: str,
    broken: Callable[..., Any],
    noticed: set[selftest.Check],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target, broken)
    found = outcomes(Place())
    failed = {check for check, outcome in found.items() if outcome == "failed"}
    assert failed == {check.__doc__ for check in noticed}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "minLength": 10}, "selftestxx"),
        ({"type": "string", "format": "date"}, "2030-01-01"),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "number", "maximum": -2}, -2),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, {"x": 1}),
    ],
)
def test_sample_meets_its_schema(schema: dict[str, Any], value: Any) -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    whole = {
        "type": "object",
        "properties": {"a": schema, "optional": {}},
        "required": ["a"],
        "$defs": {"Point": point},
    }
    assert sample(whole) == {"a": value}
    assert not sayso.schema.errors(whole, sample(whole))


def test_tool_of_the_user_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bank.py").write_text(
        "import sayso\n"
        "from sayso.testing import ScriptedModel\n\n"
        "@sayso.tool(needs_approval=True, effect_key='pay:{to}')\n"
        "def pay(to: str, amount: float = 5, kind: str | None = None) -> str:\n"
        "    '''Pay.'''\n"
        "    open('ran', 'w').close()\n"
        "    return 'paid'\n\n"
        "agent = sayso.Agent('bank', model=ScriptedModel([]), tools=[pay], store='sayso.db')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = CliRunner().invoke(
        app_of("selftest"), ["selftest", "bank:agent", "--json", "--output", "report.md"]
    )
    assert found.exit_code == 0, found.output
    value = json.loads(found.output)
    assert value["failed"] == 0
    assert {result["tool"] for result in value["results"]} == {"pay"}
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "sayso.db").exists()
    report = (tmp_path / "report.md").read_text()
    assert "| `pay` | What was approved runs once" in report


def test_forbidden_operations_are_refused_by_the_server(tmp_path: Path) -> None:
    with closing(sayso.open_store(f"sqlite:///{tmp_path}/sayso.db")) as store:
        options = ["--server", "", "--json", "--tool", "look", "--policy", "p.toml"]
        policy = tmp_path / "p.toml"
        policy.write_text('[[rule]]\ntool = "look"\nverdict = "allow"\n')
        options[-1] = str(policy)
        for role in ("agent", "chat", "reviewer"):
            token, _ = create_token(store, f"{role}-1", by="test", role=role)
            (tmp_path / role).write_text(token)
            options += ["--token-file", str(tmp_path / role)]
        app = create_app(store=store)
        server = LiveServer(server_config(app, grace=2))
        server.start()
        try:
            options[1] = server.url
            found = CliRunner().invoke(app_of("selftest"), ["selftest", *options])
        finally:
            app.state.sayso.feed.close()
            server.stop()
        results = json.loads(found.output)["results"]
        assert [result for result in results if result["outcome"] == "failed"] == []
        assert found.exit_code == 0
        assert len(results) > 100


def test_open_server_fails_the_selftest(tmp_path: Path) -> None:
    app = create_app(store="memory://", auth=False)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    try:
        found = CliRunner().invoke(app_of("selftest"), ["selftest", "--server", server.url])
    finally:
        app.state.sayso.feed.close()
        server.stop()
    assert found.exit_code == 1
    assert "The server refuses list_requests to nobody: status 200" in found.output
