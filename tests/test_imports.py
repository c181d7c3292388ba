"""`import sayso` is light and exports exactly its names, in a new interpreter."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import sayso
from sayso import channels, errors
from sayso.channels.terminal import TerminalChannel

NOUNS = {
    "Agent",
    "Approve",
    "Context",
    "Decision",
    "DidNotRun",
    "Edit",
    "Effect",
    "Gate",
    "Grant",
    "Inbox",
    "Option",
    "Paused",
    "Policy",
    "Question",
    "Ran",
    "Refusal",
    "Reject",
    "Request",
    "Respond",
    "Reviewer",
    "Risk",
    "Rule",
    "RunState",
    "ToolCall",
    "Verdict",
    "ask_user",
    "ask_user_for",
    "catch_paused",
    "tool",
    "Client",
    "Event",
    "Page",
    "RemoteGate",
    "RunResult",
    "Worker",
    "create_app",
    "open_store",
    "plan",
    "this_call",
}
ERRORS = {
    "AlreadyDecided",
    "SaysoError",
    "CallFailed",
    "Cancelled",
    "Conflict",
    "Denied",
    "DuplicateEffect",
    "Expired",
    "InDoubt",
    "InvalidCall",
    "InvalidDecision",
    "InvalidPolicy",
    "KeyMissing",
    "Leased",
    "NotAllowed",
    "NotExecuted",
    "NotFound",
    "Refused",
    "Rejected",
    "ResultNotKept",
    "StoreClosed",
    "StoreError",
    "StoreVersion",
    "Superseded",
    "Tampered",
    "TooMany",
    "Unauthenticated",
    "UnknownKey",
}
EXPORTS = NOUNS | ERRORS | {"ModelError"}  # the one error that lives with what raises it

WEB = {"fastapi", "starlette", "uvicorn"}
MODELS = {"agent_framework", "agents", "dspy", "langchain", "langgraph", "openai", "pydantic_ai"}
OUTER = {"sayso.adapters", "sayso.agent", "sayso.cli", "sayso.demo", "sayso.server"}
HEAVY = {"asyncio", "cryptography", "jsonschema", "pydantic", "rich", "sqlite3", "typer"}


def modules_loaded_by(code: str) -> set[str]:
    """The modules that `code` adds to a fresh interpreter, each with the packages it is in."""
    script = f"""
import json, sys
before = set(sys.modules)
{code}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    command = [sys.executable, "-I", "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    return {".".join(name.split(".")[:n]) for name in names for n in (1, 2)}


def test_import_sayso_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import sayso")
    assert loaded & (WEB | MODELS | OUTER | HEAVY) == set()


def test_exports_load_no_framework() -> None:
    loaded = modules_loaded_by("""
import sayso
for name in set(sayso.__all__) - {"create_app"}: getattr(sayso, name)
""")
    assert loaded & (WEB | MODELS | OUTER) == {"sayso.agent"}


@pytest.mark.long
def test_server_starts_without_late_imports() -> None:
    loaded = modules_loaded_by("""
import sayso.cli.load_agents, sayso.cli.entry, sayso.cli.serve, sayso.server.serving
from sayso.server import create_app
from sayso.server.schemas import OpenBody, RequestView
create_app(store="memory://")
assert not OpenBody.__pydantic_complete__ and not RequestView.__pydantic_complete__
""")
    assert loaded & ({"sayso.audit", "rich"} | MODELS) == set()


def test_worker_loads_no_web_framework() -> None:
    loaded = modules_loaded_by("""
import sayso.cli.load_agents, sayso.cli.entry, sayso.cli.serve
import sayso.server.logs, sayso.server.monitoring, sayso.worker
""")
    assert loaded & (WEB | MODELS | {"rich"}) == set()


def test_exports_are_exactly_these() -> None:
    assert sorted(sayso.__all__) == sorted(EXPORTS)
    assert set(sayso.__all__) <= set(dir(sayso))


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_every_export_can_be_imported(name: str) -> None:
    assert getattr(sayso, name) is not None


def test_every_error_is_exported() -> None:
    classes = inspect.getmembers(errors, inspect.isclass)
    assert {name for name, cls in classes if issubclass(cls, errors.SaysoError)} == ERRORS


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        sayso.no_such_name  # noqa: B018


def test_channels_export_the_terminal() -> None:
    assert channels.TerminalChannel is TerminalChannel
    with pytest.raises(AttributeError, match="no_such_name"):
        channels.no_such_name  # noqa: B018


def test_version_loads_no_command() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "sayso", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"sayso {sayso.__version__}\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"typer", "pydantic", "asyncio", "sqlite3", "sayso.gate"}
