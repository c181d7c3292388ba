"""Signing in and out, who you are, and which agents there are."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

import sayso
from sayso import codec
from sayso.agent import Agent
from sayso.agent.agent import Resumable
from sayso.agent.tool import Tool
from sayso.gate.driven import Driven
from sayso.gate.foreign_tool import ForeignTool
from sayso.policy import Policy
from sayso.server.access.signing_in import COOKIE, SESSION_SECONDS, sign_in, sign_out
from sayso.server.auth import Anyone
from sayso.server.service import Service, service_of
from sayso.server.showing.shown import inert
from sayso.server.wire.answers import JsonAnswer
from sayso.server.wire.bodies import read
from sayso.server.wire.docs import gives, refusals, takes
from sayso.server.wire.shapes import Items, LoginBody
from sayso.twin import hop
from sayso.types import Json

log = logging.getLogger("sayso.server")

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
            "version": sayso.__version__,
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
    items = await hop(lambda: [_agent(service, name) for name in service.agents])
    return JsonAnswer({"items": items, "next": None})


def _agent(service: Service, name: str) -> dict[str, Json]:
    agent = service.agents[name]
    return {
        "name": name,
        "default": name == service.default,
        "chat": isinstance(agent, Agent),
        "tools": tools_of(agent),
    }


def tools_of(agent: Resumable) -> list[dict[str, Json]]:
    """The face of each tool; of an agent behind an adapter, as far as its framework tells."""
    if isinstance(agent, Agent):
        return [_tool(tool, agent, agent.gate.policy) for tool in agent.tools.values()]
    if not isinstance(agent, Driven):
        return []
    try:
        policy = agent.gate.policy if agent.policy is None else agent.policy
        return [_tool(tool, agent, policy) for tool in agent.known_tools()]
    except Exception:
        log.warning("the tools of %s cannot be listed", agent.name, exc_info=True)
        return []


def _tool(tool: Tool | ForeignTool, agent: Resumable, policy: Policy) -> dict[str, Json]:
    if isinstance(tool, Tool):
        answered = tool.asks is not None or tool.function is None
        allowed = tool.own.allowed
    else:
        answered = tool.possible is not None
        allowed = tool.possible or tool.own.allowed
    needs = policy.foresee(tool.name, agent=agent.name, needs_approval=tool.needs_approval)
    return {
        "name": tool.name,
        "description": inert(tool.stored.description),
        "schema": codec.loads(tool.stored.schema)["parameters"],
        "needs_approval": "always" if answered else needs,
        "allowed": list(allowed),
    }
