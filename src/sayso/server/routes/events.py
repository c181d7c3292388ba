"""The live feed as server-sent events: what moved, for whoever may see it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from sayso.errors import StoreError
from sayso.inbox.people import names_of
from sayso.server.auth import AReviewer, Who
from sayso.server.feed import Item
from sayso.server.service import Service, service_of
from sayso.server.wire.docs import refusals
from sayso.twin import hop, look

router = APIRouter(prefix="/api", tags=["live"])

KEEP_ALIVE = 15.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.get(
    "/events",
    summary="Follow what happens",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "`event: change` for each fact"},
        **refusals(401, 403, 422),
    },
)
async def events(
    request: Request,
    who: AReviewer,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="replays what came after it")
    ] = None,
    after: Annotated[str | None, Query(max_length=100, description="the same, as a query")] = None,
) -> StreamingResponse:
    """Events from now on, or from a place on; each is shown only to who may see its request, or
    the run that it belongs to."""
    service = service_of(request)
    if not service.feed.running:
        raise StoreError(
            "the live feed is not running: an app that is mounted into another one needs its "
            "lifespan run there, see docs/server.md"
        )
    place = last_event_id if last_event_id is not None else after
    if place is not None:
        await hop(service.store.events, place, 1)  # a place that is none is refused here
    frames = _frames(service, who, place)
    return StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)


async def _frames(service: Service, who: Who, after: str | None) -> AsyncIterator[bytes]:
    quiet = b": welcome\nretry: 2000\n\n"
    sees = _sees(who)
    async for batch in service.feed.follow(after, KEEP_ALIVE):
        doubtful = batch.revokes or not batch.items
        if doubtful and not await look(service.store, who.still, service.store):
            reason = json.dumps({"reason": "your access was revoked: sign in again"})
            yield f"event: end\ndata: {reason}\n\n".encode()
            return
        seen = batch.seen_by(who.reviewer, sees)
        if seen or not batch.items:
            yield seen or quiet
        quiet = b": keep-alive\n\n"


def _sees(who: Who) -> Callable[[Item], bool]:
    """What says whether an event is for this reader."""
    if who.role == "admin":
        return lambda item: True
    ours = names_of(who.reviewer)
    return lambda item: item.audience.holds(ours)
