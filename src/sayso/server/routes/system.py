"""The server itself: sign-in, who you are, the agents, health and metrics."""

from __future__ import annotations

import logging
import os
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

import sayso
from sayso import codec
from sayso.agent import Agent
from sayso.agent.agent import Resumable
from sayso.agent.tool import Tool
from sayso.errors import NotAllowed
from sayso.gate.framework import FrameworkAgent, FrameworkTool
from sayso.gate.gate import policy_in_force
from sayso.inbox import directory
from sayso.policy import Policy
from sayso.server.auth import AnyPrincipal, device_of
from sayso.server.middleware import cookie_name, foreign_page
from sayso.server.monitoring import METRICS_TYPE
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse
from sayso.server.schemas import (
    AgentView,
    BodyRules,
    HealthView,
    HookView,
    LoginBody,
    MeView,
    page_of,
)
from sayso.server.service import CurrentService, service_of
from sayso.sync import to_thread
from sayso.text import inert, inline
from sayso.types import Json, iso

log = logging.getLogger("sayso.server")
router = Routes("/api", tag="session")
health_router = Routes(tag="health")

#: A body that signs someone in is a secret and a flag.
MAX_LOGIN_BYTES = 4096

# -- session


def count_attempt(request: Request) -> None:
    """Count a sign-in against the limit of its address."""
    address = request.client.host if request.client else "?"
    service_of(request).limits.count_write(f"login from {address}")


async def count_sign_in(request: Request) -> None:
    """Refuse a sign-in by a foreign page, and count any other, before its body is read."""
    if (page := foreign_page(request.scope)) is not None:
        raise NotAllowed(f"pages on {page!r:.100} cannot sign anyone in: use the server's own page")
    count_attempt(request)


@router.post("/login", "Sign in", None, 401, 403, 409, 429)
async def sign_in(
    request: Request,
    _: Annotated[None, Depends(count_sign_in)],
    body: Annotated[LoginBody, BodyRules(most=MAX_LOGIN_BYTES)],
) -> Response:
    """Exchange the secret of a one-time link, or a token, for a session cookie."""
    service = service_of(request)
    name = cookie_name(request.url.scheme)
    secret = await to_thread(
        directory.sign_in,
        service.store,
        body.token.strip(),
        present=request.cookies.get(name, ""),
        switch=body.switch,
        device=device_of(request),
    )
    response = Response(status_code=204)
    set_session(request, response, secret)
    return response


def set_session(request: Request, response: Response, secret: str) -> None:
    """Give the browser a session."""
    response.set_cookie(
        cookie_name(request.url.scheme),
        secret,
        max_age=directory.SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


@router.post("/logout", "Sign out")
async def sign_out(request: Request, who: AnyPrincipal) -> Response:
    """End this session."""
    if who.session and who.secret is not None:
        await to_thread(directory.sign_out, service_of(request).store, who.secret)
    response = Response(status_code=204)
    secure = request.url.scheme == "https"
    response.delete_cookie(cookie_name(request.url.scheme), path="/", secure=secure)
    return response


@router.get("/me", "Get your identity", MeView)
async def get_me(service: CurrentService, who: AnyPrincipal) -> JsonResponse:
    """Return your name, role and groups, and facts about this server."""
    by = who.reviewer
    return JsonResponse(
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
            "store": _address(service.store.url) if by.role in ("reviewer", "admin") else "",
        }
    )


def _address(url: str) -> str:
    """Return a store's address as a command in another folder needs it; it has no password."""
    scheme, slashes, path = url.partition(":///")
    return f"{scheme}{slashes}{os.path.abspath(path)}" if scheme == "sqlite" else url


# -- agents


@router.get("/agents", "List agents and their tools", page_of(AgentView))
def list_agents(service: CurrentService, who: AnyPrincipal) -> JsonResponse:
    """List the agents of this server, their tools, and which tools need approval."""
    items = [
        {
            "name": name,
            "default": name == service.default_agent,
            "chat": isinstance(agent, Agent),
            "tools": _tools_of(agent),
        }
        for name, agent in service.agents.items()
    ]
    return JsonResponse({"items": items, "next": None})


def _tools_of(agent: Resumable) -> list[dict[str, Json]]:
    """Return an agent's tools; for a framework's agent, those that the framework reports."""
    if isinstance(agent, Agent):
        return [_tool_view(tool, agent, agent.gate.policy) for tool in agent.tools.values()]
    if not isinstance(agent, FrameworkAgent):
        return []
    try:
        policy = policy_in_force(agent.gate, agent.policy)
        return [_tool_view(tool, agent, policy) for tool in agent.known_tools()]
    except Exception:
        log.warning("the tools of %s cannot be listed", agent.name, exc_info=True)
        return []


def _tool_view(tool: Tool | FrameworkTool, agent: Resumable, policy: Policy) -> dict[str, Json]:
    if isinstance(tool, Tool):
        always = tool.asks is not None or tool.function is None  # people give its result
        allowed = tool.own.allowed
    else:
        always = tool.decisions is not None
        allowed = tool.decisions or tool.own.allowed
    needs = policy.how_often_asks(tool.name, agent=agent.name, needs_approval=tool.needs_approval)
    return {
        "name": tool.name,
        "description": inert(tool.stored.description),
        "schema": codec.loads(tool.stored.schema)["parameters"],
        "needs_approval": "always" if always else needs,
        "allowed": list(allowed),
    }


@router.get("/hooks", "List the sessions of coding agents", page_of(HookView))
async def list_hooks(service: CurrentService, who: AnyPrincipal) -> JsonResponse:
    """List when the hook of each session last spoke, and whether a tool was used without asking.

    An agent sees its own sessions. They are kept in memory: a restart of the server forgets them.
    """
    if who.role == "chat":
        raise NotAllowed(f"{who.name} has the role 'chat'; this needs agent, reviewer or admin")
    sessions = service.hooks.of(who.name if who.role == "agent" else None)
    items: list[Json] = [
        {
            "agent": inline(hook.agent),
            "session": inline(hook.session),
            "last_at": iso(hook.last_at),
            "unasked": hook.unasked,
            "unasked_tool": inline(hook.unasked_tool),
        }
        for hook in sessions
    ]
    return JsonResponse({"items": items, "next": None})


# -- monitoring


@health_router.plain.head("/healthz", include_in_schema=False)  # some load balancers send HEAD
@health_router.get(
    "/healthz",
    "Check the server and its store",
    HealthView,
    responses={503: {"model": HealthView, "description": "The store cannot be used"}},
)
async def get_health(service: CurrentService) -> JsonResponse:
    """Return 200 while the store can be read and the app's lifespan runs; otherwise 503 and why.

    The response comes within two seconds.
    """
    status, body = await service.health.check()
    if not service.feed.running:
        status = 503
        body["status"] = (
            "not running: the app is mounted without its lifespan, so nothing resumes runs; see "
            "docs/server.md"
        )
    return JsonResponse({**body, "busy": service.worker.busy}, status)


@health_router.plain.head("/readyz", include_in_schema=False)
@health_router.get(
    "/readyz",
    "Check whether the server can work",
    HealthView,
    responses={503: {"model": HealthView, "description": "Send no requests to this server"}},
)
async def get_readiness(service: CurrentService) -> JsonResponse:
    """Return 200 if `/healthz` does, and this server has the keys of the rows in use; else 503.

    A server that is not ready does not need a restart: it becomes ready once the store is back.
    """
    status, body = await service.health.check_ready()
    ready = status == 200 and service.feed.running
    return JsonResponse({**body, "busy": service.worker.busy}, 200 if ready else 503)


@health_router.plain.head("/livez", include_in_schema=False)
@health_router.get("/livez", "Check that the server answers")
async def get_liveness() -> Response:
    """Return 204 whatever the state of the store: only a server that hangs needs a restart."""
    return Response(status_code=204)


@health_router.get(
    "/metrics",
    "Get Prometheus metrics",
    Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(service: CurrentService) -> Response:
    """Return metrics in Prometheus' text format."""
    service.metrics.readers.set(service.feed.readers)
    service.metrics.busy.set(service.worker.busy)
    for session in reversed(service.hooks.of(None)):
        service.metrics.hook_seen(session.agent, session.last_at)
    await service.store_metrics.refresh()
    return Response(service.metrics.render(), media_type=METRICS_TYPE)
