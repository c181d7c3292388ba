"""Runs with their timeline, and the audit log."""

from __future__ import annotations

import json
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Literal, NamedTuple

from fastapi import Path, Query
from starlette.responses import StreamingResponse

from sayso import codec
from sayso.errors import InvalidCall, NotFound, SaysoError, Tampered, UnknownKey
from sayso.inbox.decisions import window_views
from sayso.inbox.people import audience_of_run, may_see, names_of
from sayso.redaction import Secrets, mask_request
from sayso.rows import Event, Run, RunStatus
from sayso.server.access import during_access
from sayso.server.audiences import EventAudiences, subject_of
from sayso.server.auth import CurrentAdmin, CurrentReviewer, Identity, count_stream
from sayso.server.details import (
    conversation_view,
    event_view,
    run_view,
    secrets_of_scope,
)
from sayso.server.openapi import Routes
from sayso.server.request_views import first_visible, request_view, shown_title
from sayso.server.responses import JsonResponse, error_body
from sayso.server.routes.parameters import After, Agent, Limit, Thread
from sayso.server.schemas import (
    EventView,
    RunView,
    Sent,
    VerificationView,
    WindowBody,
    WindowView,
    page_of,
)
from sayso.server.service import CurrentService, CurrentStore, Service
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable, readable_event, request_in, secrets_of_calls
from sayso.sync import to_thread
from sayso.text import inline
from sayso.types import Json, Reviewer
from sayso.views import is_request

router = Routes("/api", tag="record")

# -- runs


@router.get("/runs", "List runs", page_of(RunView))
def list_runs(
    store: CurrentStore,
    who: CurrentReviewer,
    status: Annotated[
        str | None, Query(description="the status", json_schema_extra={"enum": [*RunStatus]})
    ] = None,
    agent: Agent = None,
    thread: Thread = None,
    after: After = None,
    limit: Limit = 50,
) -> JsonResponse:
    """List runs, newest first."""
    if status is not None and status not in list(RunStatus):
        raise InvalidCall(f"unknown status {status!r:.40}: use {', '.join(RunStatus)}", "status")
    by = who.reviewer

    def read(after: str | None, many: int) -> tuple[list[tuple[str, Run]], str | None]:
        page = store.runs(status=status, agent=agent, thread=thread, after=after, limit=many)
        return page, page[-1][0] if len(page) == many else None

    visible, following = first_visible(
        read, partial(if_readable, _may_see_run, store, by), limit + 1, after
    )
    if len(visible) > limit:
        following = visible[limit - 1][0]
    views = [if_readable(_listed_run, store, by, run) for _, run in visible[:limit]]
    return JsonResponse({"items": [view for view in views if view], "next": following})


def _listed_run(store: Store, by: Reviewer, run: Run) -> dict[str, Json]:
    calls = store.calls_of(run.id)
    secrets = secrets_of_calls(store, calls if run.output or run.stop else ())
    requests = (call for call in calls if is_request(call) and may_see(by, call))
    first = next((request_in(store, call) for call in requests), None)
    title = "" if first is None else shown_title(first)
    withheld = any(not may_see(by, call) for call in calls)
    return run_view(run, secrets, title, withheld=withheld)


def _may_see_run(store: Store, by: Reviewer, run: Run) -> bool:
    return by.role == "admin" or audience_of_run(store, run).includes(names_of(by))


@router.get("/runs/{run_id:path}", "Get a run", RunView, 404)
def get_run(
    store: CurrentStore,
    who: CurrentReviewer,
    run_id: Annotated[str, Path(description="the run's id")],
) -> JsonResponse:
    """Return a run with its timeline, its requests and its conversation."""
    by = who.reviewer
    run = store.run(run_id)
    if run is None or not _may_see_run(store, by, run):
        raise NotFound(f"no run {run_id!r:.80}: see GET /api/runs")
    calls = store.calls_of(run.id)
    tools = {call.id: inline(call.tool) for call in calls}
    requests = [
        request_view(request_in(store, call), by)
        for call in calls
        if is_request(call) and may_see(by, call)
    ]
    masked = {request["id"] for request in requests if request["masked"]}
    title = str(requests[0]["shown"]["title"]) if requests else ""
    secrets = secrets_of_calls(store, calls)
    withheld = {call.id for call in calls if not may_see(by, call)}
    timeline: list[dict[str, Json]] = []
    after = 0
    while chain := store.chain(run.thread, after):
        for event in map(readable_event, chain):
            if event.run == run.id:
                view = event_view(
                    event,
                    secrets=secrets,
                    masked=event.call in masked,
                    withheld=event.call in withheld,
                )
                timeline.append({**view, "tool": tools.get(event.call)})
        after = chain[-1].seq
    return JsonResponse(
        {
            **run_view(run, secrets, title, withheld=bool(withheld)),
            "timeline": timeline,
            "windows": window_views(store, run.id, calls),
            "requests": requests,
            "conversation": conversation_view(store, run.thread, by),
        }
    )


@router.post("/windows", "Trust a run", WindowView, 404, 409)
def open_window(
    service: CurrentService, who: CurrentReviewer, body: Sent[WindowBody]
) -> JsonResponse:
    """Let a run do what it asks for, up to a risk, for some minutes.

    It ends with the first rejection in the run, or with `DELETE /api/grants/{id}`.
    """
    store = service.store
    run = store.run(body.run)
    if run is None or not _may_see_run(store, who.reviewer, run):
        raise NotFound(f"no run {body.run!r:.80}: see GET /api/runs")
    grant = service.inbox.trust_run_sync(
        run.id, max_risk=body.max_risk, ends_in=body.ends_in, by=who.reviewer
    )
    views = window_views(store, run.id, store.calls_of(run.id))
    return JsonResponse(next(view for view in views if view["id"] == grant.id))


# -- the audit log


@router.get("/audit", "List audit events", page_of(EventView))
def list_audit_events(
    service: CurrentService,
    who: CurrentReviewer,
    order: Annotated[Literal["oldest", "newest"], Query(description="which end comes first")] = (
        "oldest"
    ),
    after: After = None,
    limit: Limit = 100,
) -> JsonResponse:
    """List every event in the store's order, with the hash that chains it to the one before.

    Of an event about requests that you may not see you learn only its type, its time and its hash.
    With `order=newest`, `next` leads to older events.
    """
    read = service.store.newest if order == "newest" else service.store.events
    page = read(after or "", limit)
    items = list(_audit_views(service, who.reviewer, page))
    following = page[-1][0] if len(page) == limit else None
    return JsonResponse({"items": items, "next": following})


_EXPORT_PAGE = 200


@router.get(
    "/audit/export",
    "Export the audit log",
    StreamingResponse,
    429,
    responses={
        200: {
            "content": {
                "application/x-ndjson": {"schema": {"$ref": "#/components/schemas/EventView"}}
            },
            "description": "A line of JSON for each event, oldest first",
        }
    },
)
async def export_audit_log(
    service: CurrentService,
    who: CurrentAdmin,
    after: Annotated[
        str | None, Query(max_length=100, description="the `cursor` of the last line you have")
    ] = None,
) -> StreamingResponse:
    """Stream the events after a cursor up to the newest, each as `GET /api/audit` lists it.

    To continue after a broken connection, or later, pass the `cursor` of the last whole line. A
    last line with `error` and `message` says that something ended the export early.
    """
    first = await to_thread(service.store.events, after or "", _EXPORT_PAGE)
    counted = count_stream(service, who)
    lines = _export(service, who, first, counted)
    weakref.finalize(lines, counted.close)  # the client may leave before the first line
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=_NOT_STORED)


_NOT_STORED = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def _export(
    service: Service, who: Identity, page: list[tuple[str, Event]], counted: ExitStack
) -> AsyncGenerator[bytes, None]:
    def lines() -> bytes:
        # ASCII, because some clients also split lines at characters other than a line feed.
        views = _audit_views(service, who.reviewer, page)
        return b"".join(f"{json.dumps(view)}\n".encode() for view in views)

    with counted:
        try:
            async with during_access(service.rights, who.seconds_left):
                while page:
                    yield await to_thread(lines)
                    page = await to_thread(service.store.events, page[-1][0], _EXPORT_PAGE)
        except SaysoError as error:
            yield f"{json.dumps(error_body(error))}\n".encode()


def _audit_views(
    service: Service, by: Reviewer, found: list[tuple[str, Event]]
) -> Iterator[dict[str, Json]]:
    audiences = EventAudiences(service.store)
    names = names_of(by)
    subjects: dict[str, _Subject] = {}
    for cursor, stored_event in found:
        event = readable_event(stored_event)
        if by.role != "admin" and not audiences.of(event).includes(names):
            # A reader outside its audience learns that it happened, and when.
            hidden = event._replace(thread="", digest="", actor="", run="", call="", body=None)
            yield {**_audit_view(cursor, hidden, _Subject(Secrets())), "tool": None}
            continue
        call_id = subject_of(event)
        about = call_id or event.run
        if about not in subjects:
            subjects[about] = _subject(service.store, call_id, event.run)
        subject = subjects[about]
        if event.type == "granted" and event.body is not None:
            grant = codec.loads(event.body)
            secrets = secrets_of_scope(service.store, grant["scope"], grant["tool_digest"])
            subject = _Subject(secrets)
        view = _audit_view(cursor, event, subject)
        yield {**view, "request": call_id or event.call, "tool": subject.tool}


def _audit_view(cursor: str, event: Event, subject: _Subject) -> dict[str, Json]:
    chained = {"thread": event.thread, "digest": event.digest, "hash": event.hash}
    view = event_view(event, secrets=subject.secrets, masked=subject.masked)
    return {"cursor": cursor, "seq": event.seq, **chained, **view}


class _Subject(NamedTuple):
    """What an event is about: its masked values, whether something is masked, and its tool."""

    secrets: Secrets
    masked: bool = False
    tool: str | None = None


def _subject(store: Store, call_id: str, run_id: str) -> _Subject:
    """Return what the events of a call are about, or those of a run if they name no call."""
    try:
        call = store.call(call_id) if call_id else None
        if call is None:
            return _Subject(secrets_of_calls(store, store.calls_of(run_id) if run_id else ()))
        _, masked, secrets = mask_request(request_in(store, call))
        return _Subject(secrets, masked, inline(call.tool) or None)
    except (Tampered, UnknownKey):
        return _Subject(Secrets(), masked=True)  # the row no longer proves what it was


@router.post("/audit/verify", "Verify the audit log", VerificationView)
def verify_audit_log(service: CurrentService, who: CurrentReviewer) -> JsonResponse:
    """Check every event, row and seal, and name each that is broken, missing or cut off.

    A server verifies once at a time: 429 while another verification runs.
    """
    from sayso import audit  # rarely used, so not imported when a server starts

    with service.limits.verification():
        report = audit.verify(service.store)
    return JsonResponse(
        {
            "ok": not report.problems,
            "events": report.events,
            "threads": report.threads,
            "seals": report.seals,
            "unsealed": report.unsealed,
            "problems": [
                inline(str(problem))
                if who.role == "admin"
                else f"row {problem.pos} of the audit log is invalid; ask an admin for details"
                for problem in report.problems
            ],
        }
    )
