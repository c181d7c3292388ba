"""What a webhook says: that something happened to a request, and where to look. No arguments."""

from __future__ import annotations

from typing import NamedTuple

from sayso import codec
from sayso.hiding import hidden
from sayso.rows import Call, CallStatus, Event
from sayso.server.showing.shown import inert
from sayso.server.webhooks.endpoint import Endpoint
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable
from sayso.types import Json, Micros, moment
from sayso.views import is_request

_OPENED = ("asked", "reasked", "in_doubt")
_CLOSED = ("expired", "cancelled", "superseded")
_STATUS = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "respond": "responded",
}


class Message(NamedTuple):
    """One webhook before it is signed; the id is the same however often it is sent."""

    id: str
    type: str
    request: str
    at: Micros
    body: str


def message_of(store: Store, event: Event, endpoint: Endpoint) -> Message | None:
    """What this endpoint is told of an event; nothing if it is not for it."""
    told = _told(event) if event.call else None
    if told is None or told[0] not in endpoint.events:
        return None
    call = if_readable(store.call, event.call)
    if call is None or not is_request(call) or _went_on(event, call):
        return None
    kind, status = told
    data = {
        "id": call.id,
        "kind": "in_doubt" if event.type == "in_doubt" else call.kind,
        "status": status,
        "agent": call.agent,
        "tool": call.tool or None,
        "run": call.run,
        "thread": call.thread,
        "requester": call.requester,
        "reviewers": list(call.terms.reviewers),
        "quorum": call.terms.quorum,
        "risk": {"level": call.terms.risk.level, "reasons": list(call.terms.risk.reasons)},
        "created_at": moment(call.created).isoformat(),
        "expires_at": None if call.expires_at is None else moment(call.expires_at).isoformat(),
        "by": None if kind == "request.opened" else event.actor,
        "decision": _decision(event) if kind == "request.decided" else None,
        "link": f"{endpoint.page.rstrip('/')}/inbox/{call.id}",
    }
    whole = {"type": kind, "timestamp": moment(event.at).isoformat(), "data": data}
    # Agents choose their names, runs and reasons: nothing of that may carry a secret out.
    body = codec.dumps(inert(hidden(whole).value))
    return Message(_id_of(event), kind, call.id, event.at, body)


def _told(event: Event) -> tuple[str, str] | None:
    """The webhook's type, and how the request stood then."""
    if event.type in _OPENED:
        return "request.opened", "pending"
    if event.type in _CLOSED:
        return "request.closed", event.type
    body = {} if event.body is None else codec.loads(event.body)
    if event.type == "decided" and body:  # without a body it was pruned, and is long past
        return "request.decided", _STATUS[body["decision"]]
    if event.type == "recorded" and body.get("late"):
        return "request.closed", "approved"  # the result came, and there is no doubt any more
    return None


def _went_on(event: Event, call: Call) -> bool:
    """Whether a doubt needed nobody: an idempotent call simply runs again."""
    retried = call.terms.effect == "idempotent" and call.status is not CallStatus.IN_DOUBT
    return event.type == "in_doubt" and retried


def _decision(event: Event) -> dict[str, Json]:
    body = codec.loads(event.body or "{}")
    return {
        "type": body["decision"],
        "by": event.actor,
        "at": moment(event.at).isoformat(),
        "channel": body["channel"],
        "assurance": body["assurance"],
        "message": body["message"],
    }


def _id_of(event: Event) -> str:
    return f"evt_{codec.sha256(f'{event.thread}/{event.seq}/{event.hash}'.encode())[:32]}"
