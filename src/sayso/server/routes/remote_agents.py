"""The API of agents on other machines: open, wait, claim, renew, report.

A coding agent with a hook runs its calls itself. It opens a request and waits in the same way, then
takes the answer (release) or announces that it will ask again (defer).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from sayso import codec
from sayso.engine.effects import is_remote
from sayso.errors import Conflict, InvalidCall, NotAllowed
from sayso.rows import Call
from sayso.server import remote_agents
from sayso.server.access import during_access
from sayso.server.auth import CurrentAgent, Identity, check_visible
from sayso.server.openapi import Routes
from sayso.server.request_views import request_view
from sayso.server.responses import JsonResponse
from sayso.server.routes.parameters import RequestId
from sayso.server.schemas import (
    CallerBody,
    ClaimBody,
    ClaimView,
    MaySend,
    OpenBody,
    PromptBody,
    PromptView,
    RenewView,
    ReportBody,
    RequestView,
    ResultBody,
    Sent,
    TokenBody,
)
from sayso.server.service import CurrentService, Service
from sayso.stores.row_checks import request_in
from sayso.sync import to_thread
from sayso.types import Reviewer

router = Routes("/api/requests", tag="remote agents")


@router.post(
    "",
    "Open a request",
    RequestView,
    404,
    409,
    status_code=201,
    responses={200: {"model": RequestView, "description": "This key opened it before"}},
)
async def open_request(
    service: CurrentService,
    who: CurrentAgent,
    body: Sent[OpenBody],
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=200, description="identifies the call: sent again, returns the same request"
        ),
    ] = None,
) -> JsonResponse:
    """Ask people about a tool call, a question or a text. 200 if this key opened it before."""
    agent = _agent_name(who, body.agent)
    if idempotency_key is not None and not idempotency_key.strip():
        raise InvalidCall("Idempotency-Key is empty: send a key, or omit it", "Idempotency-Key")
    if body.caller and body.run:
        service.hooks.note(agent, body.run)
    call, new = await remote_agents.open_call(service, agent, body, idempotency_key)
    view = _view(service, call, who.reviewer)
    if call.caller:
        view = {**view, "caller": call.caller}
    return JsonResponse(view, 201 if new else 200)


@router.get("/{request_id}/wait", "Wait for a decision", RequestView, 404)
async def wait_for_decision(
    service: CurrentService,
    who: CurrentAgent,
    request_id: RequestId,
    timeout: Annotated[float, Query(ge=0, le=120, description="seconds")] = 45,
) -> JsonResponse:
    """Return the request once it is decided, or as it is after the timeout: then wait again.

    A call in doubt is waited for as well, until a person or a late result settles it.
    """
    call = await to_thread(remote_agents.get_call, service, request_id)
    check_visible(who, call)
    async with during_access(service.rights, who.seconds_left):
        call = await remote_agents.wait_for_decision(service, call, timeout)
    return JsonResponse(_view(service, call, who.reviewer))


@router.post("/{request_id}/claim", "Claim an approved call", ClaimView, 404, 409)
async def claim_request(
    service: CurrentService, who: CurrentAgent, request_id: RequestId, body: MaySend[ClaimBody]
) -> JsonResponse:
    """Start the call: return the approved arguments and a token, once.

    After this, report a result before the lease lapses, or the call is in doubt.
    """
    call = await _remote_call(service, request_id, who)
    call = await remote_agents.claim(service, call, who.name, body)
    return JsonResponse(
        {
            "request": call.id,
            "tool": call.tool or None,
            "args": codec.loads(call.args),
            "token": call.token,
            "attempt": call.attempt,
            "key": call.id,
            "lease": float(body.lease),
        }
    )


@router.post(
    "/{request_id}/release",
    "Take the answer to a call that the agent runs itself",
    RequestView,
    404,
    409,
)
async def release_request(
    service: CurrentService, who: CurrentAgent, request_id: RequestId, body: Sent[CallerBody]
) -> JsonResponse:
    """Release an approved call: if `execution.status` is `released`, run it with `args`.

    The server expects no result for it. Any other request is returned unchanged.
    """
    call = await _remote_call(service, request_id, who)
    call = await remote_agents.release(service, call, body.caller)
    return JsonResponse(_view(service, call, who.reviewer))


@router.post("/{request_id}/defer", "Announce that the agent will ask again", RequestView, 404, 409)
async def defer_request(
    service: CurrentService, who: CurrentAgent, request_id: RequestId, body: Sent[CallerBody]
) -> JsonResponse:
    """Keep this request for the same call, opened again. A decided one is returned unchanged."""
    call = await _remote_call(service, request_id, who)
    call = await service.gate.backend.defer(call, body.caller)
    return JsonResponse(_view(service, call, who.reviewer))


@router.post("/released/result", "Report what a released call did", RequestView, 404, 409)
async def report_released(
    service: CurrentService, who: CurrentAgent, body: Sent[ReportBody]
) -> JsonResponse:
    """Store the result of the call that was last released to this caller. The first one counts."""
    call = await remote_agents.report_released(service, _agent_name(who, body.agent), body)
    return JsonResponse(_view(service, call, who.reviewer))


@router.post("/session/prompt", "Note that the user has written", PromptView, 404, 409)
async def note_prompt(
    service: CurrentService, who: CurrentAgent, body: Sent[PromptBody]
) -> JsonResponse:
    """End the rejections of a session: people are asked again about calls that they rejected."""
    noted = await remote_agents.note_prompt(service, _agent_name(who, body.agent), body.run)
    return JsonResponse({"noted": noted})


@router.post("/{request_id}/renew", "Renew a claim", RenewView, 404, 409)
async def renew_claim(
    service: CurrentService, who: CurrentAgent, request_id: RequestId, body: Sent[TokenBody]
) -> JsonResponse:
    """Extend a claim by the lease it asked for. `ours` says whether the claim is still valid."""
    call = await _remote_call(service, request_id, who)
    return JsonResponse({"ours": await to_thread(remote_agents.renew, service, call, body.token)})


@router.post("/{request_id}/result", "Report a result", RequestView, 404, 409)
async def report_result(
    service: CurrentService, who: CurrentAgent, request_id: RequestId, body: Sent[ResultBody]
) -> JsonResponse:
    """Record the outcome of a claimed call. Sending the same outcome again returns it."""
    call = await _remote_call(service, request_id, who)
    done = await remote_agents.report(service, call, body)
    return JsonResponse(_view(service, done, who.reviewer))


def _agent_name(who: Identity, named: str | None) -> str:
    """Return the name of the agent that sent a body: its token's, or its own without sign-in."""
    agent = who.name if who.secret is not None else named or "remote"
    if named not in (None, agent):
        raise NotAllowed(f"this token belongs to the agent {agent!r}, not to {named!r}")
    return agent


def _view(service: Service, call: Call, by: Reviewer) -> dict[str, object]:
    return request_view(request_in(service.store, call), by)


async def _remote_call(service: Service, call_id: str, who: Identity) -> Call:
    """Return a call that was opened over HTTP; any other runs where its agent is."""
    call = await to_thread(remote_agents.get_call, service, call_id)
    check_visible(who, call)
    if not is_remote(call.binds):
        raise Conflict(f"{call.id} was not opened over HTTP: the agent that asked runs it itself")
    return call
