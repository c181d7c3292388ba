"""The record: runs with their timeline, the chain of facts, and figures about deciding."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Query, Request

from sayso.errors import InvalidCall, NotFound, Tampered, UnknownKey
from sayso.inbox.people import audience_of_run, may_see, names_of
from sayso.rows import Event, Run, RunStatus
from sayso.server.auth import AReviewer
from sayso.server.details import conversation, run_json, told
from sayso.server.service import Service, service_of
from sayso.server.showing.audiences import Audiences, subject_of
from sayso.server.showing.shown import is_masked, shown_request
from sayso.server.showing.stats import stats
from sayso.server.wire.answers import JsonAnswer
from sayso.server.wire.docs import gives, refusals
from sayso.server.wire.shapes import Items
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, request_in
from sayso.text import inline
from sayso.twin import hop
from sayso.types import Json, Reviewer
from sayso.views import is_request

router = APIRouter(prefix="/api", tags=["the record"])

After = Annotated[str | None, Query(max_length=100, description="the `next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/runs", summary="List runs", responses={200: gives(Items), **refusals(401, 403, 422)})
async def runs(
    request: Request,
    who: AReviewer,
    status: Annotated[str | None, Query(description="running, paused, done, failed…")] = None,
    agent: str | None = None,
    thread: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> JsonAnswer:
    """Runs, the newest first."""
    store = service_of(request).store
    if status is not None and status not in list(RunStatus):
        raise InvalidCall(f"status {status!r:.40}: use {', '.join(RunStatus)}", "status")
    found = await hop(
        lambda: store.runs(status=status, agent=agent, thread=thread, after=after, limit=limit)
    )
    following = found[-1][0] if len(found) == limit else None
    items = await hop(lambda: list(_listed(store, who.reviewer, found)))
    return JsonAnswer({"items": items, "next": following})


def _listed(store: Store, by: Reviewer, found: list[tuple[str, Run]]) -> Iterator[dict[str, Json]]:
    for _, run in found:
        if if_readable(_open_to, store, by, run):
            calls = [] if by.role == "admin" else store.calls_of(run.id)
            yield run_json(run, veiled=any(not may_see(by, call) for call in calls))


def _open_to(store: Store, by: Reviewer, run: Run) -> bool:
    """Whether what was said in a run is for this person."""
    if by.role == "admin":
        return True
    return audience_of_run(store, run).holds(names_of(by))


@router.get(
    "/runs/{run_id:path}",
    summary="One run and its timeline",
    responses={200: gives(dict[str, Any]), **refusals(401, 403, 404)},
)
async def run(request: Request, who: AReviewer, run_id: str) -> JsonAnswer:
    """What happened in a run, what it asked, and what was said."""
    return JsonAnswer(await hop(_run, service_of(request), run_id, who.reviewer))


def _run(service: Service, run_id: str, by: Reviewer) -> dict[str, Json]:
    store = service.store
    run = store.run(run_id)
    if run is None or not _open_to(store, by, run):
        raise NotFound(f"no run {run_id!r:.80}: see GET /api/runs")
    calls = store.calls_of(run.id)
    names = {call.id: inline(call.tool) for call in calls}
    requests = [
        shown_request(request_in(store, call), by)
        for call in calls
        if is_request(call) and may_see(by, call)
    ]
    masked = {request["id"] for request in requests if request["masked"]}
    others = {call.id for call in calls if not may_see(by, call)}
    timeline: list[dict[str, Json]] = []
    after = 0
    while chain := store.chain(run.thread, after):
        mine = [event for event in chain if event.run == run.id]
        timeline += [
            {
                **told(event, masked=event.call in masked, veiled=event.call in others),
                "tool": names.get(event.call),
            }
            for event in mine
        ]
        after = chain[-1].seq
    return {
        **run_json(run, veiled=bool(others)),
        "timeline": timeline,
        "requests": requests,
        "conversation": conversation(store, run.thread, by),
    }


@router.get(
    "/audit",
    summary="The chain of facts",
    responses={200: gives(Items), **refusals(401, 403, 422)},
)
async def facts(
    request: Request,
    who: AReviewer,
    order: Annotated[Literal["oldest", "newest"], Query(description="which end comes first")] = (
        "oldest"
    ),
    after: After = None,
    limit: Limit = 100,
) -> JsonAnswer:
    """Every fact in the order of the store, with the hash that ties it to the one before; of what
    was asked of others, that it happened.

    `order=newest` begins at the end and goes back; `next` then leads to older ones.
    """
    service = service_of(request)
    store = service.store
    if order == "newest":
        found = await hop(store.newest, after or "", limit)
    else:
        found = await hop(store.events, after or "", limit)
    items = await hop(lambda: list(_facts(service, who.reviewer, found)))
    following = found[-1][0] if len(found) == limit else None
    return JsonAnswer({"items": items, "next": following})


def _facts(
    service: Service, by: Reviewer, found: list[tuple[str, Event]]
) -> Iterator[dict[str, Json]]:
    audiences, ours = Audiences(service.store), names_of(by)
    subjects: dict[str, tuple[bool, str | None]] = {}
    for cursor, event in found:
        veiled = by.role != "admin" and not audiences.of(event).holds(ours)
        subject = "" if veiled else subject_of(event)
        if subject not in subjects:
            subjects[subject] = _subject(service, subject)
        masked, tool = subjects[subject]
        yield {
            "cursor": cursor,
            "thread": event.thread,
            "seq": event.seq,
            "digest": event.digest,
            "hash": event.hash,
            **told(event, masked=masked, veiled=veiled),
            "request": subject or event.call,
            "tool": tool,
        }


def _subject(service: Service, call_id: str) -> tuple[bool, str | None]:
    """Whether a request is shown without something that looks like a secret; and its tool."""
    try:
        call = service.store.call(call_id) if call_id else None
        if call is None:
            return False, None
        return is_masked(request_in(service.store, call)), inline(call.tool) or None
    except (Tampered, UnknownKey):
        return True, None  # nobody can tell any more what it was


@router.post(
    "/audit/verify",
    summary="Check the whole record",
    responses={200: gives(dict[str, Any]), **refusals(401, 403, 429)},
)
async def verify(request: Request, who: AReviewer) -> JsonAnswer:
    """Read everything and name the first broken, missing or cut row."""
    from sayso import audit  # seldom wanted, and not while a server starts

    report = await hop(audit.verify, service_of(request).store)
    return JsonAnswer(
        {
            "ok": not report.problems,
            "events": report.events,
            "threads": report.threads,
            "seals": report.seals,
            "unsealed": report.unsealed,
            "problems": [inline(str(problem)) for problem in report.problems],
        }
    )


@router.get(
    "/stats",
    summary="Figures about deciding",
    responses={200: gives(dict[str, Any]), **refusals(401, 403, 422)},
)
async def figures(
    request: Request,
    who: AReviewer,
    days: Annotated[int, Query(ge=1, le=366)] = 7,
    zone: Annotated[str, Query(max_length=64, description="whose days: Europe/Lisbon")] = "UTC",
) -> JsonAnswer:
    """Time to decision, volumes, approval rates, and decisions made in under three seconds."""
    where = _zone(zone)
    return JsonAnswer(await hop(stats, service_of(request).store, who.reviewer, days, where))


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidCall(
            f"zone {name!r:.40}: this machine knows no such time zone", "zone"
        ) from None
