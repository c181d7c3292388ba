"""Standing yeses: the list, and the end of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from sayso.errors import NotFound
from sayso.hiding import hidden
from sayso.inbox.decisions import displayed_scope
from sayso.inbox.people import names_of
from sayso.server.auth import AReviewer, Who
from sayso.server.service import Service, service_of
from sayso.server.showing.audiences import audience_of_scope
from sayso.server.showing.shown import inert
from sayso.server.wire.answers import JsonAnswer
from sayso.server.wire.docs import gives, refusals
from sayso.server.wire.shapes import Items
from sayso.stores.base import Store
from sayso.text import inline, lines
from sayso.twin import look
from sayso.types import Grant, Json, Micros, moment

router = APIRouter(prefix="/api/grants", tags=["grants"])


@router.get(
    "",
    summary="List standing yeses",
    responses={200: gives(Items), **refusals(401, 403)},
)
async def listed(
    request: Request,
    who: AReviewer,
    all: Annotated[bool, Query(description="also those that have ended")] = False,
) -> JsonAnswer:
    """What runs without asking, for how long, and who said so."""
    service = service_of(request)
    found = await _seen_by(service, who, live_only=not all)
    items = [await look(service.store, _shown, service.store, grant) for grant in found]
    return JsonAnswer({"items": items, "next": None})


@router.delete(
    "/{grant_id}",
    summary="Revoke a standing yes",
    responses={200: gives(dict[str, object]), **refusals(401, 403, 404, 429)},
)
async def revoke(request: Request, who: AReviewer, grant_id: str) -> JsonAnswer:
    """End it now; what it covered is asked about again."""
    service = service_of(request)
    if not any(g.id == grant_id for g in await _seen_by(service, who, live_only=False)):
        raise NotFound(f"no grant {grant_id!r:.80}: see GET /api/grants")
    grant = await service.inbox.revoke(grant_id, by=who.name)
    return JsonAnswer(await look(service.store, _shown, service.store, grant))


async def _seen_by(service: Service, who: Who, *, live_only: bool) -> list[Grant]:
    """Those that this person may see: a scope has arguments in it, and they are for whom the call
    was for that the yes was given to."""
    found = await service.inbox.grants(live_only=live_only)
    if who.role == "admin":
        return list(found)
    ours = names_of(who.reviewer)
    return [grant for grant in found if audience_of_scope(grant.scope, grant.by).holds(ours)]


def _shown(store: Store, grant: Grant) -> dict[str, Json]:
    scope = hidden(displayed_scope(store, grant)).value
    return {
        "id": grant.id,
        "agent": inline(grant.agent),
        "tool": inline(grant.tool),
        "scope": scope,
        "shown_scope": lines(inert(scope)) if scope else ["any arguments"],
        "by": inline(grant.by),
        "created_at": _when(grant.created),
        "ends_at": _when(grant.ends),
        "uses_left": grant.uses_left,
        "revoked_at": _when(grant.revoked),
        "live": grant.live(store.now()),
    }


def _when(at: Micros | None) -> str | None:
    return None if at is None else moment(at).isoformat()
