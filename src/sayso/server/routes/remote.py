"""The routes of agents on other machines: open, wait, claim, renew, report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request

from sayso import codec
from sayso.errors import Conflict, InvalidCall, NotAllowed, NotFound
from sayso.inbox.people import may_see
from sayso.rows import Call
from sayso.server import remote
from sayso.server.auth import AnAgent
from sayso.server.service import Service, service_of
from sayso.server.showing.judging import came_from_elsewhere
from sayso.server.showing.shown import shown_request
from sayso.server.wire.answers import JsonAnswer
from sayso.server.wire.bodies import read
from sayso.server.wire.docs import gives, refusals, takes
from sayso.server.wire.shapes import (
    ClaimBody,
    ClaimView,
    OpenBody,
    RequestView,
    ResultBody,
    TokenBody,
)
from sayso.twin import hop
from sayso.types import Reviewer

router = APIRouter(prefix="/api/requests", tags=["agents elsewhere"])

_BAD = refusals(400, 401, 403, 404, 409, 413, 422, 429)


@router.post(
    "",
    summary="Open a request",
    status_code=201,
    responses={201: gives(RequestView), 200: gives(RequestView), **_BAD},
    openapi_extra=takes(OpenBody),
)
async def opened(
    request: Request,
    who: AnAgent,
    idempotency_key: Annotated[
        str | None,
        Header(max_length=200, description="names the call: sent again, it is the same request"),
    ] = None,
) -> JsonAnswer:
    """Put a call, a question or a text to people; 200 if this key opened it before."""
    service = service_of(request)
    body = await read(request, OpenBody)
    agent = who.name if who.secret is not None else body.agent or "remote"
    if body.agent is not None and body.agent != agent:
        raise NotAllowed(f"this token is for the agent {agent!r}, not for {body.agent!r}")
    if idempotency_key is not None and not idempotency_key.strip():
        raise InvalidCall("Idempotency-Key: give one, or leave the header out", "Idempotency-Key")
    call, new = await remote.open_call(service, agent, body, idempotency_key)
    return JsonAnswer(_shown(service, call, who.reviewer), 201 if new else 200)


def _shown(service: Service, call: Call, by: Reviewer) -> dict[str, object]:
    return shown_request(remote.view(service, call), by)


async def _own(service: Service, call_id: str, by: Reviewer) -> Call:
    call = await hop(remote.found, service, call_id)
    if not may_see(by, call):
        raise NotFound(f"no request {call_id!r:.80}: it is not there, or not yours")
    return call


async def _opened(service: Service, call_id: str, by: Reviewer) -> Call:
    """One that came from elsewhere and so runs there; others run where their agent is."""
    call = await _own(service, call_id, by)
    if not came_from_elsewhere(call):
        raise Conflict(f"{call.id} was not opened over HTTP: the agent that asked runs it itself")
    return call


@router.get(
    "/{request_id}/wait",
    summary="Wait for a decision",
    responses={200: gives(RequestView), **refusals(401, 403, 404, 422)},
)
async def wait(
    request: Request,
    who: AnAgent,
    request_id: str,
    timeout: Annotated[float, Query(ge=0, le=120, description="seconds")] = 45,
) -> JsonAnswer:
    """The request once it is decided, or as it stands when the time is over: then ask again.

    A call in doubt is waited for as well, until a person or a late result has settled it.
    """
    service = service_of(request)
    call = await _own(service, request_id, who.reviewer)
    call = await remote.wait_for(service, call, timeout)
    return JsonAnswer(_shown(service, call, who.reviewer))


@router.post(
    "/{request_id}/claim",
    summary="Claim an approved call",
    responses={200: gives(ClaimView), **_BAD},
    openapi_extra=takes(ClaimBody, required=False),
)
async def claim(request: Request, who: AnAgent, request_id: str) -> JsonAnswer:
    """The approved arguments and a token, once; from here on it is reported, or in doubt."""
    service = service_of(request)
    body = await read(request, ClaimBody)
    call = await _opened(service, request_id, who.reviewer)
    call = await remote.claim(service, call, who.name, body)
    given = {
        "request": call.id,
        "tool": call.tool or None,
        "args": codec.loads(call.args),
        "token": call.token,
        "attempt": call.attempt,
        "key": call.id,
        "lease": float(body.lease),
    }
    return JsonAnswer(given)


@router.post(
    "/{request_id}/renew",
    summary="Show a sign of life",
    responses={200: gives(dict[str, bool]), **_BAD},
    openapi_extra=takes(TokenBody),
)
async def renew(request: Request, who: AnAgent, request_id: str) -> JsonAnswer:
    """Let a claim hold as long again as it asked for; `ours` says whether it still does."""
    service = service_of(request)
    body = await read(request, TokenBody)
    call = await _opened(service, request_id, who.reviewer)
    return JsonAnswer({"ours": await hop(remote.renew, service, call, body.token)})


@router.post(
    "/{request_id}/result",
    summary="Report what came of it",
    responses={200: gives(RequestView), **_BAD},
    openapi_extra=takes(ResultBody),
)
async def result(request: Request, who: AnAgent, request_id: str) -> JsonAnswer:
    """Record the outcome by the claim's own token; said twice, it is an echo."""
    service = service_of(request)
    body = await read(request, ResultBody)
    call = await _opened(service, request_id, who.reviewer)
    done = await remote.report(service, call, body)
    return JsonAnswer(_shown(service, done, who.reviewer))
