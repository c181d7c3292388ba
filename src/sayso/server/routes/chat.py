"""The chat wire: the AI SDK's UI-message stream, for its built-in approvals and for the recipe."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any, TypeAlias

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from sayso import codec
from sayso.adapters import ai_sdk
from sayso.agent import Agent
from sayso.errors import NotFound, SaysoError
from sayso.server.auth import AChatter, Who, needs
from sayso.server.service import Service, service_of
from sayso.server.wire.answers import JsonAnswer, headers_of, status_of
from sayso.server.wire.docs import gives, refusals
from sayso.server.wire.plain import PlainRoute
from sayso.server.wire.shapes import Items
from sayso.server.wire.streamed import Streamed
from sayso.stores.row_checks import if_readable
from sayso.text import inline
from sayso.twin import hop
from sayso.types import Json, moment

Frames: TypeAlias = AsyncGenerator[str, None]

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "UI-message stream v1"},
    204: {"description": "Nothing is going on in this chat"},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "what `useChat` posts; only new user text and decisions count",
                    "required": ["id"],
                    "properties": {
                        "id": {"type": "string"},
                        "messages": {"type": "array", "items": {"type": "object"}},
                    },
                }
            }
        },
    }
}


def add_chat(app: FastAPI) -> None:
    """The routes of every agent, of the default one, and the same for the recipe."""
    for prefix, recipe in (("/api/chat", False), ("/api/chat-recipe", True)):
        _add(app, prefix, recipe)


def _add(app: FastAPI, prefix: str, recipe: bool) -> None:
    async def post(request: Request, agent: str | None = None) -> Response:
        """New user text, or decisions, and the answer as a stream."""
        driving = ExitStack()
        try:
            service, who = await _asked(request)
            chosen = _agent(service, agent or request.query_params.get("agent"))
            body = codec.parse(await request.body())
            # The stream takes the run further by itself: the worker leaves its thread alone.
            driving.enter_context(service.worker.leaving(_chat_of(body)))
            frames = await ai_sdk.stream(body, chosen, by=who.reviewer, recipe=recipe)
        except BaseException as error:
            driving.close()
            if isinstance(error, SaysoError):
                return _refused(error)
            raise
        told = _until_the_end(frames, driving)
        weakref.finalize(told, driving.close)  # a client may go away before the first frame
        return Streamed(told, ai_sdk.HEADERS, ai_sdk.DONE)

    async def stream(request: Request, chat_id: str, agent: str | None = None) -> Response:
        """The message that is being written, from its start, and what follows."""
        try:
            service, who = await _asked(request)
            chosen = _agent(service, agent or request.query_params.get("agent"))
            frames = await ai_sdk.follow(chosen, chat_id, by=who.reviewer, recipe=recipe)
        except SaysoError as error:
            return _refused(error)
        if frames is None:
            return Response(status_code=204)
        return Streamed(frames, ai_sdk.HEADERS, ai_sdk.DONE)

    async def messages(request: Request, chat_id: str, agent: str | None = None) -> Response:
        """The whole conversation, as the client keeps it."""
        try:
            service, who = await _asked(request)
            chosen = _agent(service, agent or request.query_params.get("agent"))
            found = await ai_sdk.messages(chosen, chat_id, by=who.reviewer, recipe=recipe)
        except SaysoError as error:
            return _refused(error)
        return JsonAnswer({"messages": found})

    bad = refusals(401, 403, 404)
    for path, name in (("", "the default agent"), ("/{agent}", "an agent")):
        add = partial(app.router.add_api_route, route_class_override=PlainRoute, tags=["chat"])
        add(
            prefix + path,
            post,
            methods=["POST"],
            summary=f"Write to {name}",
            responses={200: _STREAM[200], **refusals(400, 413, 429), **bad},
            openapi_extra=_BODY,
        )
        add(
            f"{prefix}{path}/{{chat_id}}/stream",
            stream,
            methods=["GET"],
            summary=f"Follow a chat with {name}",
            responses={**_STREAM, **bad},
        )
        add(
            f"{prefix}{path}/{{chat_id}}/messages",
            messages,
            methods=["GET"],
            summary=f"Read a chat with {name}",
            responses={200: gives(dict[str, Any]), **bad},
        )


_chatter = needs("chat")


async def _asked(request: Request) -> tuple[Service, Who]:
    return service_of(request), await _chatter(request)


def _agent(service: Service, name: str | None) -> Agent:
    chosen = service.agent(name)
    if not isinstance(chosen, Agent):
        raise NotFound(
            f"agent {chosen.name!r} cannot be chatted with here, because its framework drives it: "
            "start it in Python with its run(...), and decide in the inbox"
        )
    return chosen


def _refused(error: SaysoError) -> Response:
    """The client shows the body as it is: one line of text."""
    status = status_of(error)
    return PlainTextResponse(str(error), 400 if status == 422 else status, headers_of(error))


async def _until_the_end(frames: Frames, driving: ExitStack) -> Frames:
    with driving:
        async with aclosing(frames):
            async for frame in frames:
                yield frame


def _chat_of(body: Json) -> str:
    return str(body.get("id", "")) if isinstance(body, dict) else ""


router = APIRouter(prefix="/api/chats", tags=["chat"])


@router.get("", summary="List your chats", responses={200: gives(Items), **refusals(401, 403)})
async def own(request: Request, who: AChatter) -> JsonAnswer:
    """The chats that you began, the newest first."""
    return JsonAnswer({"items": await hop(_own, service_of(request), who), "next": None})


def _own(service: Service, who: Who) -> list[dict[str, Json]]:
    found = []
    for _, thread in service.store.threads_of(who.name, limit=50):
        run = if_readable(service.store.last_run, thread.id)
        if run is None or run.agent not in service.agents:
            continue
        first = (if_readable(service.store.messages, thread.id) or [])[:1]
        title = codec.loads(first[0][1]).get("content", "") if first else ""
        found.append(
            {
                "id": thread.id,
                "agent": run.agent,
                "title": inline(str(title))[:80],
                "updated_at": moment(run.created).isoformat(),
                "status": str(run.status),
            }
        )
    return found
