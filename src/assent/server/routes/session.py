"""Signing in and out, who you are, and which agents there are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

import assent
from assent import codec
from assent.agent import Agent
from assent.agent.resumable import Resumable
from assent.agent.tool import Tool
from assent.server.access.auth import Anyone
from assent.server.access.signing_in import COOKIE, SESSION_SECONDS, sign_in, sign_out
from assent.server.service import service_of
from assent.server.showing.shown import inert
from assent.server.wire.answers import JsonAnswer
from assent.server.wire.bodies import read
from assent.server.wire.docs import gives, refusals, takes
from assent.server.wire.shapes import Items, LoginBody
from assent.twin import hop
from assent.types import Json

router = APIRouter(prefix="/api", tags=["session"])


@router.post(
    "/login",
    summary="Sign in",
    status_code=204,
    response_class=Response,
    responses=refusals(400, 401, 403, 413, 422),
    openapi_extra=takes(LoginBody),
)
async def login(request: Request) -> Response:
    """A session's cookie for the secret of a one-time link, or for a token."""
    service = service_of(request)
    body = await read(request, LoginBody)
    service.limits.take(f"login from {request.client.host if request.client else '?'}")
    secret, _ = await hop(sign_in, service.store, body.token.strip())
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return response


@router.post(
    "/logout",
    summary="Sign out",
    status_code=204,
    response_class=Response,
    responses=refusals(401, 403),
)
async def logout(request: Request, who: Anyone) -> Response:
    """End this session, here and in the store."""
    if who.session and who.secret is not None:
        await hop(sign_out, service_of(request).store, who.secret)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/")
    return response


@router.get("/me", summary="Who you are", responses={200: gives(dict[str, Any]), **refusals(401)})
async def me(request: Request, who: Anyone) -> JsonAnswer:
    """Your name, role and groups, and what this server is."""
    service = service_of(request)
    by = who.reviewer
    return JsonAnswer(
        {
            "name": by.name,
            "role": by.role,
            "groups": list(by.groups),
            "assurance": by.assurance,
            "auth": service.auth,
            "demo": service.demo,
            "environment": service.environment,
            "version": assent.__version__,
            "agents": len(service.agents),
        }
    )


@router.get(
    "/agents",
    summary="List agents and their tools",
    responses={200: gives(Items), **refusals(401)},
)
async def agents(request: Request, who: Anyone) -> JsonAnswer:
    """Which agents are here, what they can do, and which of it needs a person."""
    service = service_of(request)
    items = [
        {"name": name, "default": name == service.default, "tools": tools_of(agent)}
        for name, agent in service.agents.items()
    ]
    return JsonAnswer({"items": items, "next": None})


def tools_of(agent: Resumable) -> list[dict[str, Json]]:
    """The face of each tool; an agent behind an adapter tells no more than its name."""
    return [_tool(tool) for tool in agent.tools.values()] if isinstance(agent, Agent) else []


def _tool(tool: Tool) -> dict[str, Json]:
    when = "sometimes"
    if tool.asks is not None or tool.function is None or tool.needs_approval is True:
        when = "always"
    elif tool.needs_approval is False:
        when = "never"
    return {
        "name": tool.name,
        "description": inert(tool.stored.description),
        "schema": codec.loads(tool.stored.schema)["parameters"],
        "needs_approval": when,
        "allowed": list(tool.own.allowed),
    }
