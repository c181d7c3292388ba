"""Requests as people see them: the list, and everything about one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from sayso.errors import NotFound
from sayso.server import remote
from sayso.server.auth import Anyone, AReviewer, check_sees
from sayso.server.details import about
from sayso.server.service import Service, service_of
from sayso.server.showing.shown import shown_request
from sayso.server.wire.answers import JsonAnswer, Written
from sayso.server.wire.docs import gives, refusals
from sayso.server.wire.shapes import RequestPage, RequestView
from sayso.twin import hop, look
from sayso.types import STATUS_FILTERS
from sayso.types import Request as Asked

router = APIRouter(prefix="/api/requests", tags=["requests"])

_MOST = 200


@router.get(
    "",
    summary="List requests",
    responses={200: gives(RequestPage), **refusals(401, 403, 422)},
)
async def listed(
    request: Request,
    who: AReviewer,
    status: Annotated[str, Query(description=f"one of {', '.join(STATUS_FILTERS)}")] = "pending",
    kind: Annotated[str | None, Query(description="approval, question or in_doubt")] = None,
    agent: str | None = None,
    tool: str | None = None,
    thread: str | None = None,
    run: str | None = None,
    risk: Annotated[str | None, Query(description="low, medium, high or critical")] = None,
    q: Annotated[str | None, Query(description="words of tool, agent, description or id")] = None,
    mine: Annotated[
        bool, Query(description="only what is for this person, not for everybody")
    ] = False,
    sort: Annotated[str | None, Query(description="oldest, newest or expiring")] = None,
    after: Annotated[str | None, Query(description="the `next` of the page before")] = None,
    limit: Annotated[
        int, Query(ge=1, le=_MOST, description="at most; a page of very large ones has fewer")
    ] = 50,
) -> JsonAnswer:
    """A page of requests that this person may see, the oldest first unless asked otherwise."""
    status = status or "pending"
    filters: dict[str, Any] = {"status": status, "limit": limit, "after": after or None}
    named = {"kind": kind, "agent": agent, "tool": tool, "thread": thread, "run": run, "q": q}
    named |= {"risk": risk, "sort": sort}
    filters |= {name: value for name, value in named.items() if value not in (None, "")}
    if status != "pending":
        filters.setdefault("sort", "newest")
    return Written(await hop(service_of(request).cards.page, who.reviewer, filters, mine=mine))


@router.get(
    "/{request_id}",
    summary="Everything about one request",
    responses={200: gives(RequestView), **refusals(401, 403, 404)},
)
async def one(request: Request, who: Anyone, request_id: str) -> JsonAnswer:
    """The request, the conversation around it, its history, and what became of calls like it."""
    service = service_of(request)
    try:
        found = await service.inbox.get(request_id)
    except NotFound:
        # Nobody was asked, since a rule or a standing yes was enough; it was opened all the same.
        found = await look(service.store, _unasked, service, request_id)
    check_sees(who, found)
    body = shown_request(found, who.reviewer)
    if who.role != "agent":
        masked = bool(body["masked"])
        body |= await look(service.store, about, service, found, who.reviewer, masked=masked)
    return JsonAnswer(body)


def _unasked(service: Service, request_id: str) -> Asked:
    return remote.view(service, remote.found(service, request_id))


@router.post(
    "/{request_id}/reveal",
    summary="Unmask what looks like a secret",
    responses={200: gives(RequestView), **refusals(401, 403, 404)},
)
async def reveal(request: Request, who: AReviewer, request_id: str) -> JsonAnswer:
    """The request with nothing masked; that it was shown, and to whom, is written down first."""
    service = service_of(request)
    found = await service.inbox.get(request_id)
    check_sees(who, found)
    await service.inbox.reveal(request_id, by=who.name)
    around = await hop(about, service, found, who.reviewer, masked=False)
    return JsonAnswer(shown_request(found, who.reviewer, reveal=True) | around)
