"""The chat API: the AI SDK's UI-message stream, and AG-UI.

``/api/chat`` uses the AI SDK's built-in approvals, ``/api/chat-recipe`` serves front ends written
to the recipe in its documentation. ``/api/ag-ui`` is one route: a client of AG-UI reloads with a
run that has no input. All are for the default agent and, with ``/{agent}``, for a named one.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from sayso import codec
from sayso.adapters import ag_ui, ai_sdk
from sayso.agent import Agent
from sayso.errors import NotFound
from sayso.server.access import until_access_ends
from sayso.server.auth import CurrentChatUser, Identity, count_stream
from sayso.server.openapi import Routes, event_stream, text_errors
from sayso.server.responses import JsonResponse, plain_text_errors
from sayso.server.schemas import ChatView, Messages, page_of, read_json
from sayso.server.service import CurrentService, Service, service_of
from sayso.stores.row_checks import if_readable
from sayso.text import inline
from sayso.types import Json, iso

#: A path parameter on some routes and a query parameter on others.
AgentName = Annotated[
    str | None,
    Field(description="the agent's name, as in `GET /api/agents`; the default agent if omitted"),
]
ChatId = Annotated[str, Path(description="the chat's id, which the client chose")]

_STREAM = event_stream("UI-message stream v1")
_NO_STREAM = {204: {"description": "No answer is being written"}, **text_errors(429)}


_USER_TEXT = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Welcome ana"}]}
_LIST = {"type": "array", "items": {"type": "object"}}


def _json_input(
    description: str, properties: dict[str, Any], required: list[str], example: dict[str, Any]
) -> dict[str, Any]:
    """Describe the JSON that a route reads itself, for its ``openapi_extra``."""
    schema = {
        "type": "object",
        "description": description,
        "required": required,
        "properties": properties,
    }
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_BODY = _json_input(
    "what `useChat` posts; only new user text and decisions count",
    {"id": {"type": "string"}, "messages": _LIST},
    ["id"],
    {"id": "chat-1", "trigger": "submit-message", "messages": [_USER_TEXT]},
)


def _chat_router(*, recipe: bool) -> APIRouter:
    """Return the chat routes, for built-in approvals or for the recipe."""
    router = APIRouter(
        prefix="/api/chat-recipe" if recipe else "/api/chat",
        tags=["chat"],
        dependencies=[Depends(plain_text_errors)],
        responses=text_errors(401, 403, 404),
    )

    async def chat(request: Request, who: CurrentChatUser, agent: AgentName = None) -> Response:
        """Send new user text or decisions, and stream the answer."""
        service = service_of(request)
        chosen = _chat_agent(service, agent)
        body = await read_json(request)
        with count_stream(service, who) as stack:
            # The stream itself advances the run, so the worker must leave its thread alone.
            chat_id = str(body.get("id", "")) if isinstance(body, dict) else ""
            stack.enter_context(service.worker.leaving(chat_id))
            frames = await ai_sdk.stream(body, chosen, by=who.reviewer, recipe=recipe)
            return _streamed(service, who, frames, stack, ai_sdk.HEADERS)

    async def resume_chat(
        request: Request, who: CurrentChatUser, chat_id: ChatId, agent: AgentName = None
    ) -> Response:
        """Stream the answer that is being written, from its start."""
        service = service_of(request)
        chosen = _chat_agent(service, agent)
        with count_stream(service, who) as stack:
            frames = await ai_sdk.follow(chosen, chat_id, by=who.reviewer, recipe=recipe)
            if frames is None:
                return Response(status_code=204)
            return _streamed(service, who, frames, stack, ai_sdk.HEADERS)

    async def list_messages(
        request: Request, who: CurrentChatUser, chat_id: ChatId, agent: AgentName = None
    ) -> Response:
        """Return the whole conversation in the client's format."""
        chosen = _chat_agent(service_of(request), agent)
        messages = await ai_sdk.messages(chosen, chat_id, by=who.reviewer, recipe=recipe)
        return JsonResponse({"messages": messages})

    suffix = "_recipe" if recipe else ""
    for path, part, whom in (
        ("", "", "the default agent"),
        ("/{agent}", "_with_agent", "an agent"),
    ):
        name = f"{part}{suffix}"
        router.post(
            path,
            name=f"chat{name}",
            summary=f"Chat with {whom}",
            response_class=Response,
            responses={**_STREAM, **text_errors(400, 413, 429)},
            openapi_extra=_BODY,
        )(chat)
        router.get(
            f"{path}/{{chat_id}}/stream",
            name=f"resume_chat{name}",
            summary=f"Resume a chat with {whom}",
            response_class=Response,
            responses={**_STREAM, **_NO_STREAM},
        )(resume_chat)
        router.get(
            f"{path}/{{chat_id}}/messages",
            name=f"list_messages{name}",
            summary=f"List the messages of a chat with {whom}",
            response_model=Messages,
        )(list_messages)
    return router


router = _chat_router(recipe=False)
recipe_router = _chat_router(recipe=True)


def _chat_agent(service: Service, name: str | None) -> Agent:
    chosen = service.agent(name)
    if not isinstance(chosen, Agent):
        raise NotFound(
            f"agent {chosen.name!r} has no chat here because its framework runs it: start it in "
            "Python with run(...), and decide in the inbox"
        )
    return chosen


def _streamed(
    service: Service,
    who: Identity,
    frames: AsyncGenerator[str, None],
    opened: ExitStack,
    headers: Mapping[str, str],
) -> Response:
    """Stream an answer for as long as the caller has access, then close what was opened for it."""
    until_end = opened.pop_all()

    async def pieces() -> AsyncGenerator[str, None]:
        with until_end:
            allowed = until_access_ends(service.rights, who.seconds_left, frames)
            async with aclosing(allowed):
                async for frame in allowed:
                    yield frame

    streamed = pieces()
    weakref.finalize(streamed, until_end.close)  # the client may leave before the first frame
    return StreamingResponse(streamed, headers=headers)


# -- AG-UI

ag_ui_router = APIRouter(
    prefix="/api/ag-ui",
    tags=["chat"],
    dependencies=[Depends(plain_text_errors)],
    responses=text_errors(401, 403, 404),
)
_RUN_INPUT = _json_input(
    "a `RunAgentInput`; only new user text and `resume` count",
    {
        "threadId": {"type": "string"},
        "runId": {"type": "string"},
        "messages": _LIST,
        "resume": _LIST,
    },
    ["threadId", "runId"],
    {
        "threadId": "chat-1",
        "runId": "r2",
        "messages": [],
        "resume": [
            {"interruptId": "req_5c0f", "status": "resolved", "payload": {"approved": True}}
        ],
    },
)


async def run_agent(request: Request, who: CurrentChatUser, agent: AgentName = None) -> Response:
    """Send new user text or decisions, or nothing to reload, and stream the events."""
    service = service_of(request)
    chosen = _chat_agent(service, agent)
    body = await read_json(request)
    with count_stream(service, who) as stack:
        thread = str(body.get("threadId", "")) if isinstance(body, dict) else ""
        stack.enter_context(service.worker.leaving(thread))
        events = await ag_ui.stream(body, chosen, by=who.reviewer)
        return _streamed(service, who, events, stack, ag_ui.HEADERS)


for _path, _name, _whom in (
    ("", "run_agent", "the default agent"),
    ("/{agent}", "run_agent_with_name", "an agent"),
):
    ag_ui_router.post(
        _path,
        name=_name,
        summary=f"Run {_whom} over AG-UI",
        response_class=Response,
        responses={**event_stream("AG-UI events"), **text_errors(400, 413, 429)},
        openapi_extra=_RUN_INPUT,
    )(run_agent)


# -- the list of chats

chats_router = Routes("/api/chats", tag="chat")


@chats_router.get("", "List your chats", page_of(ChatView))
def list_chats(service: CurrentService, who: CurrentChatUser) -> JsonResponse:
    """List the chats that you started, newest first."""
    return JsonResponse({"items": _own_chats(service, who), "next": None})


def _own_chats(service: Service, who: Identity) -> list[dict[str, Json]]:
    chats: list[dict[str, Json]] = []
    for _, thread in service.store.threads_of(who.name, limit=50):
        run = if_readable(service.store.last_run, thread.id)
        if run is None or run.agent not in service.agents:
            continue
        first = (if_readable(service.store.messages, thread.id) or [])[:1]
        title = codec.loads(first[0][1]).get("content", "") if first else ""
        chats.append(
            {
                "id": thread.id,
                "agent": run.agent,
                "title": inline(str(title))[:80],
                "updated_at": iso(run.created),
                "status": str(run.status),
            }
        )
    return chats
