"""Saved views: filters of the inbox under a name, kept on the server for each person.

The views of a person are one value that the store keeps under a name. A view is only a filter: it
gives no right, and what it lists is what its person may see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import Path
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from sayso.errors import Conflict, InvalidCall, NotFound
from sayso.server.auth import CurrentReviewer
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse
from sayso.server.schemas import MaySend, SavedFilters, SavedViewView, page_of
from sayso.server.service import CurrentService, CurrentStore, Service
from sayso.stores.base import Store
from sayso.text import inline
from sayso.types import Json, Reviewer, checked_name

log = logging.getLogger("sayso.server")
router = Routes("/api/me/views", tag="requests")
#: How many views a person may save.
MOST_VIEWS = 50

ViewName = Annotated[str, Path(description="the name of the view", max_length=40)]
Views: TypeAlias = dict[str, SavedFilters]
_VIEWS: TypeAdapter[Views] = TypeAdapter(Views)


@router.get("", "List your saved views", page_of(SavedViewView))
def list_saved_views(service: CurrentService, who: CurrentReviewer) -> JsonResponse:
    """List your views in the order in which you saved them, with how many requests are in each."""
    return JsonResponse(_listed(service, who.reviewer))


@router.put("/{name:path}", "Save a view", SavedViewView, 409)
def save_view(
    service: CurrentService, who: CurrentReviewer, name: ViewName, body: MaySend[SavedFilters]
) -> JsonResponse:
    """Save filters under a name. A view of this name is replaced."""
    title = _checked(name)

    def save(views: Views) -> None:
        if title not in views and len(views) >= MOST_VIEWS:
            raise Conflict(f"you have {MOST_VIEWS} views: remove one before you save another")
        views[title] = body

    _change(service.store, who.name, save)
    return JsonResponse(_view(service, who.reviewer, title, body))


@router.delete("/{name:path}", "Remove a saved view", None, 404, 409, 422)
def remove_saved_view(store: CurrentStore, who: CurrentReviewer, name: ViewName) -> Response:
    """Remove one of your views."""
    title = _checked(name)

    def remove(views: Views) -> None:
        if views.pop(title, None) is None:
            raise NotFound(f"you have no view {title!r}: see GET /api/me/views")

    _change(store, who.name, remove)
    return Response(status_code=204)


def _checked(name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise InvalidCall(f"this is no name for a view: {error}", "name") from None


def _key(person: str) -> str:
    return f"views:{person}"


def _views(stored: str) -> Views:
    """Return the views in a stored value; none if something else than a server wrote it."""
    try:
        return _VIEWS.validate_json(stored or "{}")
    except ValidationError:
        log.warning("a person's saved views cannot be read: they are empty until the next is saved")
        return {}


def _change(store: Store, person: str, change: Callable[[Views], None]) -> None:
    """Change the views of a person, whatever another device does meanwhile."""
    for _ in range(10):
        stored = store.cursor(_key(person))
        views = _views(stored)
        change(views)
        changed = _VIEWS.dump_json(views, exclude_defaults=True).decode()
        if store.move_cursor(_key(person), changed, expected=stored):
            return
    raise Conflict("your views change all the time on another device: try again")


def _listed(service: Service, by: Reviewer) -> dict[str, Json]:
    views = _views(service.store.cursor(_key(by.name)))
    items = [_view(service, by, name, filters) for name, filters in views.items()]
    return {"items": items, "next": None}


def _view(service: Service, by: Reviewer, name: str, body: SavedFilters) -> dict[str, Json]:
    """Return a view with its count."""
    filters = body.model_dump()
    chosen = {key: value for key, value in filters.items() if value and key != "mine"}
    count = service.request_lists.groups
    groups = count(by, {"status": "pending", **chosen}, mine=body.mine)
    counts = {name: groups[name] for name in ("count", "at_least", "yours")}
    return {"name": inline(name), "filters": filters, **counts}
