"""Where a request stands in the lists of people: one shelf per public status.

The shelf is a column of its own, so that one index serves every list, and a call that is started
and recorded stays where it is.
"""

from __future__ import annotations

from typing import get_args

from sayso.rows import Call, CallStatus
from sayso.stores.base import Query
from sayso.types import RequestStatus
from sayso.views import is_request, public_status

#: What waits for people; an index knows these by name.
OPEN = ("asked", "in_doubt")
_CLOSED = tuple(name for name in get_args(RequestStatus) if name != "pending")
#: Calls that nobody was asked about.
UNASKED = ""

_SHELVES = {
    "pending": OPEN,
    "closed": _CLOSED,
    "any": (*OPEN, *_CLOSED),
    "all": (*OPEN, *_CLOSED, UNASKED),
    **{name: (name,) for name in _CLOSED},
}


def shelf_of(call: Call) -> str:
    """The shelf of a call as it stands now."""
    if not is_request(call):
        return UNASKED
    status = call.status
    return (
        status.value if status in (CallStatus.ASKED, CallStatus.IN_DOUBT) else public_status(call)
    )


def shelves_of(query: Query) -> tuple[str, ...]:
    """Where to look for what a query wants; its ``kind`` may leave out what is in doubt."""
    shelves = _SHELVES[query.status]
    if query.kind is None:
        return shelves
    return tuple(name for name in shelves if (name == "in_doubt") == (query.kind == "in_doubt"))
