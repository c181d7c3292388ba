"""The chat's routes over HTTP: picked and refused like any other, and left by their readers."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest
from served import Serve, Served, mailer
from waiting import until

import sayso
from sayso.adapters.chat.views import RunView
from sayso.errors import StoreError
from sayso.server.service import Limits
from sayso.testing import ScriptedModel, call, say

WORDS = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Welcome ana"}]}


def test_routes_answer_to_their_methods_and_names(serve: Serve) -> None:
    client = serve(agents=[mailer(*[say("Hello.")] * 3)], auth=False).client()
    wrong = client.put("/api/chat", json={})
    assert (wrong.status_code, wrong.json()["error"]) == (405, "MethodNotAllowed")
    body = {"id": "c1", "messages": [WORDS]}
    for place in ("/api/chat/nobody", "/api/chat?agent=nobody"):
        unknown = client.post(place, json=body)
        assert unknown.status_code == 404
        assert unknown.text.startswith("no agent 'nobody' here")
    for n, place in enumerate(("/api/chat", "/api/chat/mailer", "/api/chat?agent=mailer")):
        said = client.post(place, json={**body, "id": f"c{n}"})
        assert said.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert said.headers["cache-control"] == "no-cache"  # the wire's own word, not the API's
        assert said.headers["x-content-type-options"] == "nosniff"
        assert "Hello." in said.text
        assert said.text.endswith("data: [DONE]\n\n")
    counted = client.get("/metrics").text
    assert 'method="POST",route="/api/chat",status="200"' in counted
    assert 'method="POST",route="/api/chat/{agent}",status="200"' in counted


def test_chat_without_agents_explains_itself(open_server: Served) -> None:
    said = open_server.client().post("/api/chat", json={"id": "c1", "messages": [WORDS]})
    assert said.status_code == 404
    assert said.text == "this server has no agents: start it with one, as module:agent"


@pytest.mark.parametrize("nth", [1, 2])
def test_lost_store_ends_the_stream_with_an_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    client = serve(agents=[mailer(say("Hello."))], auth=False).client()
    read, looks = RunView.refresh, count(1)

    def refresh(view: RunView, run: Any = None) -> None:
        if next(looks) >= nth:
            raise StoreError("the database is away: try again")
        read(view, run)

    monkeypatch.setattr(RunView, "refresh", refresh)
    said = client.post("/api/chat", json={"id": "c1", "messages": [WORDS]})
    assert said.status_code == 200
    assert '"errorText":"the database is away: try again"' in said.text
    assert said.text.endswith("data: [DONE]\n\n")


def test_reader_who_leaves_frees_the_stream(serve: Serve) -> None:
    asked, answered = threading.Event(), threading.Event()

    @sayso.tool
    def look() -> str:
        asked.set()
        answered.wait(60)
        return "nothing"

    model = ScriptedModel([call("look", {}), *[say("Hello.")] * 3])
    agent = sayso.Agent("watcher", model=model, tools=[look])
    server = serve(agents=[agent], limits=Limits(streams=1))
    ana = server.client(server.token("ana"))
    with ana.stream("POST", "/api/chat", json={"id": "c1", "messages": [WORDS]}) as answer:
        assert answer.status_code == 200
        assert asked.wait(60)
        assert ana.post("/api/chat", json={"id": "c2", "messages": [WORDS]}).status_code == 429
    try:
        until(
            lambda: ana.post("/api/chat", json={"id": "c2", "messages": [WORDS]}).status_code == 200
        )
    finally:
        answered.set()
