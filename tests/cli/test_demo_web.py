"""``sayso demo`` with its web app, and the scripts of its agent."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from demo_process import Demo
from sayso_process import run
from waiting import until

from sayso.adapters.ai_sdk import APPROVAL


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(tmp_path_factory.mktemp("demo"), "--no-auth")
    yield running
    code, errors = running.stop()
    assert (code, errors) == (0, "")


@pytest.fixture(autouse=True)
def fresh(demo: Demo) -> None:
    assert demo.http.delete("/demo/effects").status_code == 204


APPROVED: list[tuple[str, str, dict[str, Any]]] = [
    ("What is the weather in Paris?", "getWeatherInformation", {"city": "Paris"}),
    ("Weather please", "getWeatherInformation", {"city": "New York"}),
    ("Deploy version 2.1.0 to production", "deploy_to_production", {"version": "2.1.0"}),
    ("Roll back production to 1.9", "rollback", {"environment": "production", "version": "1.9"}),
    ("Delete all old records", "execute_sql", {}),
    ("Book a flight to Rome", "book_flight", {"destination": "Rome"}),
]


@pytest.mark.parametrize(("words", "tool", "args"), APPROVED)
def test_approved_call_runs_once(demo: Demo, words: str, tool: str, args: dict[str, Any]) -> None:
    chat = demo.say(words)
    (request,) = demo.open(chat)
    assert request["tool"] == tool
    assert demo.ran() == []
    demo.decide(request)
    assert demo.final(chat).startswith("Final answer:")
    ((ran, with_args),) = demo.ran()
    assert ran == tool
    assert args.items() <= with_args.items()


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("What time is it in Oslo?", "getLocalTime"),
        ("Deploy 2.1.0 to staging", "deploy_to_staging"),
        ("Rollback staging to 1.9", "rollback"),
    ],
)
def test_calls_without_approval_run_at_once(demo: Demo, words: str, tool: str) -> None:
    chat = demo.say(words)
    assert demo.final(chat).startswith("Final answer:")
    assert [name for name, _ in demo.ran()] == [tool]


def test_two_calls_are_decided_one_by_one(demo: Demo) -> None:
    chat = demo.say("two")
    first, second = demo.open(chat)
    demo.decide(first, "reject", message="Not now.")
    (left,) = demo.open(chat)
    assert left["id"] == second["id"]
    demo.decide(second)
    assert "Not now." in demo.final(chat) or demo.final(chat).startswith("Final answer:")
    assert [name for name, _ in demo.ran()] == [second["tool"]]


def test_sql_request_allows_no_edit(demo: Demo) -> None:
    chat = demo.say("Delete all old records")
    (request,) = demo.open(chat)
    assert request["allowed"] == ["approve", "reject"]
    body = {"type": "edit", "args": {"query": "SELECT 1"}, "seen_digest": request["digest"]}
    refused = demo.http.post(f"/api/requests/{request['id']}/decision", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "type")


def test_many_recipients_need_approval(demo: Demo) -> None:
    assert demo.open(demo.say("Send an email to 5 people")) == []
    (request,) = demo.open(demo.say("Send an email to 150 people"))
    assert len(request["args"]["recipients"]) > 100


def test_question_is_answered(demo: Demo) -> None:
    chat = demo.say("Ask me a question")
    (request,) = demo.open(chat)
    option = request["question"]["options"][0]["value"]
    demo.decide(request, "respond", value=option)
    assert demo.final(chat).startswith("Final answer:")


def test_recipe_route_decides_a_call(demo: Demo) -> None:
    parts = [{"type": "text", "text": "Weather in Oslo"}]
    user = {"id": "m1", "role": "user", "parts": parts}
    first = demo.http.post("/api/chat-recipe", json={"id": "recipe", "messages": [user]})
    found = [json.loads(line[6:]) for line in first.text.splitlines() if line.startswith("data: {")]
    assert not any(chunk["type"] == "tool-approval-request" for chunk in found)
    (call,) = [chunk for chunk in found if chunk["type"] == "tool-input-available"]
    part = {
        "type": f"tool-{call['toolName']}",
        "toolCallId": call["toolCallId"],
        "state": "output-available",
        "input": call["input"],
        "output": APPROVAL.YES,
    }
    assistant = {"id": found[0]["messageId"], "role": "assistant", "parts": [part]}
    body = {"id": "recipe", "messages": [user, assistant]}
    second = demo.http.post("/api/chat-recipe", json=body)
    assert "Final answer:" in demo.final("recipe")
    assert second.status_code == 200
    assert demo.ran() == [("getWeatherInformation", {"city": "Oslo"})]


@pytest.mark.long
def test_sign_in_link_works_once(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    assert time.monotonic() - demo.began < 30
    (secret,) = re.findall(r"/login#(\S+)", demo.printed)
    assert demo.http.get("/api/requests").status_code == 401
    assert demo.http.get("/demo/effects").status_code == 401
    headers = {"Origin": demo.url}
    signed = demo.http.post("/api/login", json={"token": secret}, headers=headers)
    assert signed.status_code == 204
    assert demo.http.get("/api/requests").status_code == 200
    again = httpx.post(f"{demo.url}/api/login", json={"token": secret}, headers=headers)
    assert again.status_code == 401
    assert demo.stop() == (0, "")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_taken_port_is_one_line(demo: Demo, tmp_path: Path) -> None:
    port = demo.url.rpartition(":")[2]
    done = run("demo", "--port", port, "--no-open", cwd=tmp_path, env=os.environ)
    assert done.returncode == 1
    assert "use another --port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_coding_agent_asks_through_its_hook(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--no-auth", "--data", str(tmp_path / "kept"))

    def asked(tool: str) -> Any:
        items = demo.http.get("/api/requests", params={"agent": "claude"}).json()["items"]
        return next((item for item in items if item["tool"] == tool), None)

    assert len(demo.http.get("/api/requests").json()["items"]) == 3
    said = demo.final(demo.say("Start a coding agent"))
    assert said.startswith("Final answer: A coding agent has started.")
    file_edit = until(lambda: asked("Edit"))
    assert file_edit["title"].endswith("/srv/shop/deploy/production.yaml")
    assert [tool for tool, _ in demo.ran()] == ["start_coding_agent"]
    demo.decide(file_edit, "edit", args={**file_edit["args"], "new_string": "replicas: 4\n"})
    command = until(lambda: asked("Bash"))
    assert (file_edit["risk"]["level"], command["risk"]["level"]) == ("medium", "high")
    _, (tool, ran) = demo.ran()
    assert (tool, ran["new_string"]) == ("Edit", "replicas: 4\n")
    shown = demo.until_decided(file_edit["id"])["execution"]
    assert (shown["status"], shown["result"]) == ("released", {"stdout": "done, by the demo"})
    demo.decide(command, "reject", message="not on a Friday")
    assert demo.until_decided(command["id"])["status"] == "rejected"
    assert len(demo.ran()) == 2

    demo.final(demo.say("Start a coding agent again"))
    waiting = until(lambda: asked("Edit"))
    assert demo.stop() == (0, "")
    demo = Demo(tmp_path, "--no-auth", "--data", str(tmp_path / "kept"))
    assert asked("Edit")["id"] == waiting["id"]
    assert demo.stop() == (0, "")
