"""The live feed as server-sent events."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Annotated

from fastapi import Header, Query
from starlette.responses import StreamingResponse

from sayso.errors import StoreError
from sayso.inbox.people import names_of
from sayso.server.access import until_access_ends
from sayso.server.auth import CurrentReviewer, Identity, count_stream
from sayso.server.feed import RIGHTS_EVENTS, Item
from sayso.server.openapi import Routes, event_stream
from sayso.server.service import CurrentService, Service
from sayso.sync import read, to_thread

router = Routes("/api", tag="live")

KEEP_ALIVE = 15.0
_END = b'event: end\ndata: {"reason": "your access was revoked or changed: sign in again"}\n\n'
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.get(
    "/events",
    "Stream events",
    StreamingResponse,
    429,
    responses=event_stream("`event: change` for each event"),
)
async def stream_events(
    service: CurrentService,
    who: CurrentReviewer,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="replay the events after this one")
    ] = None,
    after: Annotated[str | None, Query(max_length=100, description="the same, as a query")] = None,
) -> StreamingResponse:
    """Stream events from now on, or after a given one, about requests and runs that you may see.

    An event says what changed, not the new content. The stream ends if your access is revoked.
    """
    if not service.feed.running:
        raise StoreError(
            "the live feed is not running: the app is mounted without its lifespan, see "
            "docs/server.md"
        )
    cursor = last_event_id if last_event_id is not None else after
    if cursor is not None:
        await to_thread(service.store.events, cursor, 1)  # raises if it is not a cursor
    counted = count_stream(service, who)
    frames = until_access_ends(
        service.rights, who.seconds_left, _frames(service, who, cursor, counted), last=_END
    )
    weakref.finalize(frames, counted.close)  # the client may leave before the first frame
    return StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)


async def _frames(
    service: Service, who: Identity, after: str | None, counted: ExitStack
) -> AsyncGenerator[bytes, None]:
    idle = b": welcome\nretry: 2000\n\n"
    admin = who.role == "admin"
    names = names_of(who.reviewer)

    def may_see(item: Item) -> bool:
        return admin or item.audience.includes(names)

    with counted:
        async for items in service.feed.follow(after, KEEP_ALIVE):
            # What comes after the end of access must not be sent, even before the watch notices it.
            rights_changed = any(item.type in RIGHTS_EVENTS for item in items)
            if rights_changed and await read(service.store, who.seconds_left, service.store) <= 0:
                yield _END
                return
            frames = b"".join(item.frame for item in items if may_see(item))
            if frames or not items:
                yield frames or idle
            idle = b": keep-alive\n\n"
