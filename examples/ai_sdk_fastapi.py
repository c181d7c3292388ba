"""A back end for `useChat`: run `app` with uvicorn. Here, a small client plays the browser."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

import sayso
from sayso.adapters import ai_sdk
from sayso.testing import ScriptedModel, call, say


@sayso.tool(needs_approval=True)
def send_email(to: str, subject: str) -> str:
    """Send an email."""
    print(f"  sent {subject!r} to {to}")
    return "sent"


SCRIPT: list[Any] = [call("send_email", {"to": "bob", "subject": "WELCOME!"}), say("Bob knows.")]
agent = sayso.Agent("mailer", model=ScriptedModel(SCRIPT), tools=[send_email])
app = FastAPI()


@app.post("/api/chat")
async def post(request: Request) -> Response:
    try:  # replace "ana" by your signed-in user
        frames = await ai_sdk.stream(await request.body(), agent, by="ana")
    except sayso.SaysoError as error:
        return PlainTextResponse(str(error), 404 if isinstance(error, sayso.NotFound) else 400)
    return StreamingResponse(frames, headers=ai_sdk.HEADERS)


@app.get("/api/chat/{chat_id}/stream")
async def resume(chat_id: str) -> Response:
    frames = await ai_sdk.follow(agent, chat_id, by="ana")
    if frames is None:
        return Response(status_code=204)
    return StreamingResponse(frames, headers=ai_sdk.HEADERS)


async def play(browser: httpx.AsyncClient) -> None:
    words = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Greet Bob"}]}
    await browser.post("/api/chat", json={"id": "c", "messages": [words]})
    (card,) = await sayso.Inbox(agent.store).pending()
    print(f"needs approval: {card.tool} {dict(card.args)}")
    shown = {"type": "tool-send_email", "toolCallId": card.id, "state": "approval-responded"}
    shown["approval"] = {"id": f"{card.id}.r1", "approved": True}  # type: ignore[assignment]
    answered = {"id": card.run, "role": "assistant", "parts": [{"type": "step-start"}, shown]}
    edits = {f"{card.id}.r1": {"subject": "Welcome"}}
    await browser.post("/api/chat", json={"id": "c", "messages": [words, answered], "edits": edits})
    print(f"the answer: {(await agent.resume('c')).output}")


if __name__ == "__main__":
    asyncio.run(play(httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app")))
