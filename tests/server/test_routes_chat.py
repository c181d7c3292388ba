"""The chat's routes over HTTP: picked and refused like any other, and left by their readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import pytest
from served import Serve, Served, mailer

from sayso.adapters.chat.views import RunView
from sayso.errors import StoreError
from sayso.server.responses import TextStreamResponse
from sayso.testing import say

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


class Reader:
    """The two ends of a connection, as ASGI sees them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.heard = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.heard.set()


class Story:
    """Pieces that may wait for ever after the first; it is known when they are closed."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self.closed = False

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            yield "once "
            if self.waits:
                await asyncio.Event().wait()
            yield "upon a time. END"
            raise AssertionError("nothing is asked for after the end")
        finally:
            self.closed = True


async def test_last_piece_ends_the_answer() -> None:
    reader, story = Reader(), Story(waits=False)
    await TextStreamResponse(story.pieces(), {"x-a": "b"}, "END")({}, reader.receive, reader.send)
    start, *bodies = reader.sent
    assert start["headers"] == [(b"x-a", b"b")]
    assert [(m["body"], m["more_body"]) for m in bodies] == [
        (b"once ", True),
        (b"upon a time. END", False),
    ]
    assert story.closed


async def test_disconnected_reader_closes_the_stream() -> None:
    reader, story = Reader(), Story(waits=True)
    response = TextStreamResponse(story.pieces(), {}, "END")
    answering = asyncio.ensure_future(response({}, reader.receive, reader.send))
    await asyncio.wait_for(reader.heard.wait(), 60)
    reader.gone.set()
    await asyncio.wait_for(answering, 60)  # and it is no error
    assert story.closed
    assert reader.sent[-1]["more_body"]


async def test_server_stop_cancels_the_stream() -> None:
    reader, story = Reader(), Story(waits=True)
    response = TextStreamResponse(story.pieces(), {}, "END")
    answering = asyncio.ensure_future(response({}, reader.receive, reader.send))
    await asyncio.wait_for(reader.heard.wait(), 60)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answering, 60)
    assert story.closed
