"""The audit log as lines of JSON that a client can take up where it stopped."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from served import Serve, Served, opened
from test_masked_values import assert_no_secret, leaking

from sayso.inbox import remove_person
from sayso.server.routes import runs

EXPORT = "/api/audit/export"


@pytest.fixture
def server(each_url: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(runs, "_EXPORT_PAGE", 7)
    return serve(store=each_url, workers=0)


@pytest.fixture
def admin(server: Served) -> httpx.Client:
    return server.client(server.token("root", "admin"))


def ask(agent: httpx.Client, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        opened(agent, f"k{number}", args={"number": number})


def listed(admin: httpx.Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = admin.get("/api/audit", params={"limit": 500}).json()["items"]
    return items


def test_export_contains_every_listed_event(server: Served, admin: httpx.Client) -> None:
    ask(server.client(server.token("bot", "agent")), 20)
    answer = admin.get(EXPORT)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len(lines) == 24
    assert lines == listed(admin)
    assert answer.text.endswith("}\n")
    rest = admin.get(EXPORT, params={"after": lines[11]["cursor"]}).text
    assert [json.loads(line) for line in rest.splitlines()] == lines[12:]
    assert admin.get(EXPORT, params={"after": lines[-1]["cursor"]}).text == ""
    assert admin.get(EXPORT, params={"after": "nowhere"}).status_code == 422


@pytest.mark.long
def test_export_continues_after_dropped_connections(server: Served, admin: httpx.Client) -> None:
    agent = server.client(server.token("bot", "agent"))
    ask(agent, 30)
    writer = threading.Thread(target=ask, args=(agent, 60, 30))
    writer.start()
    cursors: list[str] = []
    drops = 0
    while True:
        after = {"after": cursors[-1]} if cursors else {}
        with admin.stream("GET", EXPORT, params=after) as answer:
            lines = answer.iter_lines()
            whole = [json.loads(line)["cursor"] for line, _ in zip(lines, range(9), strict=False)]
        cursors += whole
        drops += len(whole) == 9
        if not whole and not writer.is_alive():
            break
    writer.join()
    assert drops >= 3
    assert cursors == [event["cursor"] for event in listed(admin)]


def test_export_reads_only_what_is_sent(
    server: Served, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(server.client(server.token("bot", "agent")), 30)
    read = server.store.events
    sizes: list[int] = []

    def events(cursor: str, limit: int) -> Any:
        page = read(cursor, limit)
        sizes.append(len(page))
        return page

    monkeypatch.setattr(server.store, "events", events)
    assert len(admin.get(EXPORT).text.splitlines()) == 34
    assert sizes == [7, 7, 7, 7, 6, 0]


def test_export_shows_no_masked_value(server: Served, admin: httpx.Client) -> None:
    agent = server.client(server.token("bot", "agent"))
    made = leaking(agent)
    path = f"/api/requests/{made['id']}"
    digest = admin.post(f"{path}/reveal").json()["digest"]
    yes = {"type": "approve", "seen_digest": digest, "grant": {"scope": "exact"}}
    assert admin.post(f"{path}/decision", json=yes).status_code == 200
    claim = agent.post(f"{path}/claim").json()
    done = {"token": claim["token"], "ok": True, "result": made["args"]}
    assert agent.post(f"{path}/result", json=done).status_code == 200
    text = admin.get(EXPORT).text
    types = {json.loads(line)["type"] for line in text.splitlines()}
    assert types >= {"asked", "granted", "recorded"}
    assert_no_secret(text)


def test_export_ends_with_the_access_of_its_reader(
    server: Served, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(server.client(server.token("bot", "agent")), 30)
    views = runs._audit_views
    removed = threading.Event()

    def slow_views(*args: Any) -> Any:
        if not removed.is_set():
            removed.set()
            remove_person(server.store, "root", by="ops")
        threading.Event().wait(0.5)
        return views(*args)

    monkeypatch.setattr(runs, "_audit_views", slow_views)
    *lines, last = admin.get(EXPORT).text.splitlines()
    assert len(lines) < 34
    assert json.loads(last)["error"] == "Unauthenticated"
    assert admin.get(EXPORT).status_code == 401


@pytest.mark.parametrize("role", ["agent", "chat", "reviewer"])
def test_only_admins_export(server: Served, role: str) -> None:
    assert server.client(server.token("eve", role)).get(EXPORT).status_code == 403
