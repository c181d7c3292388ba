"""Deciding: one request, many alike, trying an edit out, calling off."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from sayso.errors import Conflict, InvalidDecision, NotFound, Refused, SaysoError
from sayso.inbox import DecisionResult
from sayso.server import remote
from sayso.server.access.traces import traced
from sayso.server.auth import AChatter, Anyone, AReviewer, check_sees
from sayso.server.service import Service, service_of
from sayso.server.showing.shown import shown_request
from sayso.server.trial import tried
from sayso.server.wire.answers import JsonAnswer, told
from sayso.server.wire.bodies import read
from sayso.server.wire.docs import gives, refusals, takes
from sayso.server.wire.shapes import (
    CancelBody,
    CheckBody,
    DecisionBody,
    Items,
    OneOfMany,
    RequestView,
)
from sayso.twin import hop, look
from sayso.types import Approve, Decision, Edit, Reject, Respond

log = logging.getLogger("sayso.server")
router = APIRouter(prefix="/api", tags=["requests"])

Many = Annotated[list[OneOfMany], Field(min_length=1, max_length=100)]


@router.post(
    "/requests/{request_id}/decision",
    summary="Decide a request",
    responses={200: gives(RequestView), **refusals(400, 401, 403, 404, 409, 413, 422, 429)},
    openapi_extra=takes(DecisionBody),
)
async def decide(request: Request, who: AChatter, request_id: str) -> JsonAnswer:
    """One answer. The second of two people gets 409, and is told who decided what."""
    service = service_of(request)
    body = await read(request, DecisionBody)
    decision = decision_of(body)
    try:
        async with traced(service.store, who.reviewer, tried=decision.type, request=request_id):
            check_sees(who, await service.inbox.get(request_id))
            decided = await service.inbox.decide(
                request_id,
                decision,
                by=who.reviewer,
                seen_digest=body.seen_digest,
                channel="web" if who.session or who.secret is None else "api",
                grant=None if body.grant is None else body.grant.model_dump(),
            )
    except (Conflict, Refused) as error:
        raise await _who_won(service, request_id, error) from None
    service.metrics.decisions.labels(decision.type).inc()
    if decision.type in _ENDING:
        await hop(_let_end, service, request_id)
    if service.agents and not service.feed.running:
        log.warning(
            "%s is decided, and nobody goes on with it here: an app that is mounted into another "
            "one needs its lifespan run there, see docs/server.md",
            request_id,
        )
    return JsonAnswer(shown_request(decided, who.reviewer))


#: After these nothing of a call is left to be run.
_ENDING = ("reject", "respond")


def _let_end(service: Service, request_id: str) -> None:
    call = service.store.call(request_id)
    if call is not None:
        remote.let_end(service, call)


async def _who_won(service: Service, request_id: str, error: SaysoError) -> SaysoError:
    """The same refusal, with the decision that stands."""
    error.request = await service.inbox.get(request_id)  # type: ignore[attr-defined]
    return error


def decision_of(body: DecisionBody | OneOfMany, request: str | None = None) -> Decision:
    """The decision that a body means; what belongs to another type of it is refused."""
    given = body.model_fields_set
    misplaced = given & {"args", "message", "value", "grant"} - _FIELDS[body.type]
    if misplaced:
        field = sorted(misplaced)[0]
        raise InvalidDecision(f"{field} does not go with {body.type!r}", field)
    bound: dict[str, Any] = {"request": request, "seen_digest": body.seen_digest}
    if body.type == "approve":
        return Approve(**bound)
    if body.type == "reject":
        return Reject(body.message or "", **bound)
    if body.type == "respond":
        if "value" not in given:
            raise InvalidDecision("respond with a value", "value")
        return Respond(body.value, **bound)
    assert isinstance(body, DecisionBody)
    if body.args is None:
        raise InvalidDecision("an edit gives the whole new arguments", "args")
    return Edit(body.args, **bound)


_FIELDS = {
    "approve": {"grant", "message"},
    "edit": {"args", "message"},
    "reject": {"message"},
    "respond": {"value", "message"},
}


@router.post(
    "/decisions",
    summary="Decide many requests that are alike",
    responses={200: gives(Items), **refusals(400, 401, 403, 404, 413, 422, 429)},
    openapi_extra=takes(Many),
)
async def decide_many(request: Request, who: AReviewer) -> JsonAnswer:
    """One kind of answer to requests of one tool; each has its own outcome, also one that is not
    there."""
    service = service_of(request)
    bodies = await read(request, Many)
    decisions = [decision_of(body, body.id) for body in bodies]
    missing: dict[str, NotFound] = {}
    for body in bodies:
        try:
            async with traced(service.store, who.reviewer, tried=body.type, request=body.id):
                check_sees(who, await service.inbox.get(body.id))
        except NotFound as none:
            missing[body.id] = none
    there = [decision for decision in decisions if decision.request not in missing]
    if not there:
        raise missing[bodies[0].id]
    channel = "web" if who.session or who.secret is None else "api"
    made = iter(await service.inbox.decide_many(there, by=who.reviewer, channel=channel))
    outcomes = [
        DecisionResult(body.id, None, missing[body.id]) if body.id in missing else next(made)
        for body in bodies
    ]
    items = []
    for outcome in outcomes:
        if outcome.request is not None:
            service.metrics.decisions.labels(decisions[0].type).inc()
            if decisions[0].type in _ENDING:
                await hop(_let_end, service, outcome.id)
            items.append(
                {"id": outcome.id, "request": shown_request(outcome.request, who.reviewer)}
            )
        elif outcome.error is not None:
            error = outcome.error
            if outcome.id not in missing:
                error = await _who_won(service, outcome.id, error)
            items.append({"id": outcome.id, "error": told(error)})
    return JsonAnswer({"items": items, "next": None})


@router.post(
    "/requests/{request_id}/check",
    summary="Try an edit out",
    responses={200: gives(dict[str, Any]), **refusals(400, 401, 403, 404, 413, 422, 429)},
    openapi_extra=takes(CheckBody),
)
async def check(request: Request, who: AChatter, request_id: str) -> JsonAnswer:
    """Whether these arguments would be accepted, what they change, and which rule they meet."""
    service = service_of(request)
    body = await read(request, CheckBody)
    found = await service.inbox.get(request_id)
    check_sees(who, found)
    return JsonAnswer(await look(service.store, tried, service, found, body.args, who.reviewer))


@router.post(
    "/requests/{request_id}/cancel",
    summary="Call a request off",
    responses={200: gives(RequestView), **refusals(400, 401, 403, 404, 409, 413, 422, 429)},
    openapi_extra=takes(CancelBody, required=False),
)
async def cancel(request: Request, who: Anyone, request_id: str) -> JsonAnswer:
    """Close it without a decision, or one that was approved and has not started; an agent may call
    off its own."""
    service = service_of(request)
    body = await read(request, CancelBody)
    found = await service.inbox.get(request_id)
    check_sees(who, found)
    try:
        if found.status not in ("pending", "approved", "edited"):
            raise Conflict(f"request {found.id} is {found.status}: there is nothing to call off")
        await service.inbox.cancel(request_id, by=who.name, reason=body.message)
    except Conflict as error:
        raise await _who_won(service, request_id, error) from None
    return JsonAnswer(shown_request(await service.inbox.get(request_id), who.reviewer))
