"""Whatever stays open ends with the access of its reader, on every server of the store."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import Serve, Served, opened
from waiting import until

import sayso
from sayso.testing import ScriptedModel, call, say

TEXT = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Wait"}]}
CHAT = {"id": "c1", "messages": [TEXT]}
AG_UI = {"threadId": "c1", "runId": "r1", "tools": [], "context": [], "state": {}}
AG_UI |= {"forwardedProps": {}, "messages": [{"id": "m", "role": "user", "content": "Wait"}]}
#: The role of the reader, and what they open; "" stands for the id of a pending request.
OPEN: dict[str, tuple[str, str, str, Any]] = {
    "feed": ("reviewer", "GET", "/api/events", None),
    "long poll": ("agent", "GET", "/api/requests//wait?timeout=100", None),
    "chat": ("chat", "POST", "/api/chat", CHAT),
    "recipe": ("chat", "POST", "/api/chat-recipe", CHAT),
    "resumed chat": ("chat", "GET", "/api/chat/c1/stream", None),
    "ag-ui": ("chat", "POST", "/api/ag-ui", AG_UI),
}


class Waiting:
    """An agent whose answer comes when the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = threading.Event()

        @sayso.tool
        def wait() -> str:
            """Wait."""
            self.begun.set()
            self.over.wait(100)
            return "done"

        model = ScriptedModel([call("wait", {}), say("Done.")])
        self.agent = sayso.Agent("waiting", model=model, tools=[wait])


class Opened:
    """Something that one person has open, read by an OS thread until it ends."""

    def __init__(self, client: httpx.Client, method: str, path: str, body: Any) -> None:
        self.ended_at = 0.0
        self.status = 0
        self.text = ""
        self._asked = (client, method, path, body)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        client, method, path, body = self._asked
        try:
            with client.stream(method, path, json=body) as answer:
                self.status = answer.status_code
                for text in answer.iter_text():
                    self.text += text
        finally:
            self.ended_at = time.monotonic()

    def seconds_after(self, began: float) -> float:
        self._thread.join(60)
        assert self.ended_at
        return self.ended_at - began


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    waiting = Waiting()
    yield waiting
    waiting.over.set()


def open_at(server: Served, waiting: Waiting, kind: str, token: str) -> Opened:
    """Open something with a token, and return once it waits."""
    role, method, path, body = OPEN[kind]
    client = server.client(token)
    if kind == "resumed chat":
        open_at(server, waiting, "chat", token)
    if role == "agent":
        path = path.replace("//", f"/{opened(client)['id']}/")
    reader = Opened(client, method, path, body)
    if role == "chat":
        assert waiting.begun.wait(60)
        until(lambda: reader.status == 200)
    else:
        feed = server.app.state.sayso.feed
        until(lambda: feed.readers or feed._on_close)
    assert not reader.ended_at
    return reader


@pytest.mark.parametrize("kind", OPEN)
def test_access_ends_on_every_server(
    each_url: str, serve: Serve, waiting: Waiting, kind: str
) -> None:
    first = serve(store=each_url, agents=[waiting.agent], workers=0)
    other = serve(store=each_url, workers=0)
    admin = other.client(other.token("boss", "admin"))
    reader = open_at(first, waiting, kind, first.token("ana", OPEN[kind][0]))
    (token,) = (row["id"] for row in admin.get("/api/people/ana").json()["credentials"])
    began = time.monotonic()
    assert admin.delete(f"/api/tokens/{token}").status_code == 200
    assert reader.seconds_after(began) < 2
    if kind == "long poll":
        assert reader.status == 401
    assert "Done." not in reader.text


def test_forged_person_ends_access(serve: Serve, waiting: Waiting, tmp_path: Path) -> None:
    server = serve(workers=0)
    reader = open_at(server, waiting, "feed", server.token("ana"))
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as thief, thief:
        thief.execute("UPDATE person SET role = 'admin' WHERE name = 'ana'")
    began = time.monotonic()
    server.token("bea")  # any change of rights
    assert reader.seconds_after(began) < 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["chat", "ag-ui"])
def test_answer_ends_with_its_token(serve: Serve, waiting: Waiting, kind: str) -> None:
    server = serve(agents=[waiting.agent], workers=0)
    admin = server.client(server.token("boss", "admin"))
    assert admin.post("/api/people", json={"name": "ana", "role": "chat"}).is_success
    made = admin.post("/api/tokens", json={"name": "ana", "ends_in": 5}).json()
    ends = time.monotonic() + 5
    reader = open_at(server, waiting, kind, made["token"])
    assert -0.5 < reader.seconds_after(ends) < 2
    assert "Done." not in reader.text
