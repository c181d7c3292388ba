"""What stands around a request: the conversation, its history, its rule, and calls like it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sayso import codec
from sayso.errors import InvalidCall
from sayso.hiding import hidden
from sayso.inbox.people import WORDS_FOR_OTHERS, may_see
from sayso.rows import Call, Event, Run
from sayso.server.service import Service
from sayso.server.showing.shown import inert, summary
from sayso.server.showing.veil import FOR_OTHERS, Veil, Veiled
from sayso.stores.base import Query, Store
from sayso.stores.row_checks import request_in
from sayso.text import inline, lines
from sayso.types import Json, Request, Reviewer, moment
from sayso.views import public_status

_TAIL = 30
_LIKE = 100
_RECENT = 5
#: What a fact holds of arguments without showing them: their hashes, and what salts its own.
_CHECKS = ("digest", "args", "salt")


def about(service: Service, request: Request, by: Reviewer, *, masked: bool) -> dict[str, Json]:
    """Everything beside the request itself that helps to decide it."""
    store = service.store
    call = store.call(request.id)
    assert call is not None
    run, thread = store.run(call.run), store.thread(call.thread)
    before = 0 if thread is None else max(thread.messages - _TAIL, 0)
    return {
        "conversation": conversation(store, request.thread, by, current=call, after=before),
        "events": [told(event, masked=masked) for event in store.call_events(call.id)],
        "like": _like(store, call, by),
        "policy": {
            "rule": inline(call.terms.rule),
            "description": inert(hidden(call.terms.description).value),
            "digest": call.terms.policy,
            "requester_decides": call.terms.requester_decides,
            "assurance": call.terms.assurance,
            "on_expiry": call.terms.on_expiry,
        },
        "run_status": None if run is None else str(run.status),
    }


def conversation(
    store: Store, thread: str, by: Reviewer, *, current: Call | None = None, after: int = 0
) -> list[dict[str, Json]]:
    """What was said, as text that is safe to show; the turn that made the call is marked, and of
    calls for others no more than the name is left."""
    stored = store.messages(thread, after)
    messages = [codec.loads(body) for _, body in stored]
    veiled = Veil(store, thread, by).over(messages)
    rows = zip(stored, messages, veiled, strict=True)
    said = [_said(seq, message, veil) for (seq, _), message, veil in rows]
    if current is not None:
        for turn in reversed(said):
            if any(call["name"] == inline(current.tool) for call in turn.get("calls", ())):
                turn["current"] = True
                break
    return said


def _said(seq: int, message: dict[str, Any], veil: Veiled) -> dict[str, Json]:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else codec.dumps(content)
    veiled = veil.words and bool(text)
    turn: dict[str, Json] = {
        "seq": seq,
        "role": message.get("role", ""),
        "text": inert(hidden(text).value),
        "current": False,
    }
    if veiled:
        turn |= {"text": FOR_OTHERS if turn["role"] == "tool" else WORDS_FOR_OTHERS, "veiled": True}
    if message.get("name"):
        turn["name"] = inline(str(message["name"]))
    calls = message.get("calls") or ()
    if calls:
        made = zip(calls, veil.calls, strict=True)
        turn["calls"] = [_made(call, veiled=veiled) for call, veiled in made]
    return turn


def _made(call: dict[str, Any], *, veiled: bool) -> dict[str, Json]:
    made: dict[str, Json] = {
        "id": inline(str(call.get("id", ""))),
        "name": inline(str(call.get("name", ""))),
        "shown_args": FOR_OTHERS if veiled else _arguments(call.get("arguments", "")),
    }
    return {**made, "veiled": True} if veiled else made


def _arguments(written: Any) -> str:
    """Arguments as the model wrote them, which need not be JSON."""
    try:
        value = codec.parse(written) if isinstance(written, str) else written
    except InvalidCall:
        value = written
    return "\n".join(lines(hidden(value).value))


def told(event: Event, *, masked: bool = False, veiled: bool = False) -> dict[str, Json]:
    """One fact, for a timeline; to who may not see what it is about (``veiled``) it says no more
    than that it happened."""
    return {
        "at": moment(event.at).isoformat(),
        "type": event.type,
        "actor": inline(event.actor),
        "run": event.run,
        "request": event.call,
        "body": None if event.body is None or veiled else _body(event.body, masked=masked),
    }


def _body(kept: str, *, masked: bool) -> Json:
    """What a fact says; beside something masked, nothing that a guess could be checked against."""
    body, inside = _opened(codec.loads(kept))
    view = hidden(body)
    if isinstance(body.get("token"), str):
        view.value["token"] = body["token"]  # the id that `sayso token list` shows, no secret
    if masked or inside or view.masked:
        for field in _CHECKS:
            view.value.pop(field, None)
    return inert(view.value)


def _opened(body: dict[str, Json]) -> tuple[dict[str, Json], bool]:
    """The body of a fact with what it keeps as text read, where that may hold secrets by name; and
    whether it does."""
    found = False
    for field in ("result", "value", "scope"):
        read = _output(body[field]) if isinstance(body.get(field), str) else None
        view = hidden(read)
        if view.masked and not isinstance(read, str):
            body[field], found = codec.dumps(view.value), True
    return body, found


def _like(store: Store, call: Call, by: Reviewer) -> dict[str, Json]:
    """What became of the last calls of the same tool by the same agent, as far as they are known
    to this person."""
    query = Query(status="closed", agent=call.agent, tool=call.tool, sort="newest", limit=_LIKE)
    page = store.page(query) if call.tool else []
    found = [other for _, other in page if other.kind == call.kind and may_see(by, other)]
    counts: Counter[str] = Counter(public_status(other) for other in found)
    names = ("approved", "edited", "rejected", "responded", "expired")
    return {
        **{name: counts[name] for name in names},
        "recent": [_recent(store, other) for other in found[:_RECENT]],
    }


def _recent(store: Store, call: Call) -> dict[str, Json]:
    request = request_in(store, call)
    decision = request.decision
    return {
        "id": request.id,
        "status": request.status,
        "by": None if decision is None else inline(decision.by),
        "at": request.created_at.isoformat() if decision is None else decision.at.isoformat(),
        "summary": summary(request, hidden(dict(request.args), request.schema).value),
    }


def run_json(run: Run, *, veiled: bool = False) -> dict[str, Json]:
    """A run in a list; where it made calls that are for others (``veiled``), not what it said."""
    output = None if run.output is None else inert(hidden(_output(run.output)).value)
    return {
        "id": run.id,
        "thread": run.thread,
        "agent": inline(run.agent),
        "status": str(run.status),
        "stop": inline(hidden(run.stop).value),
        "requester": inline(run.requester),
        "created_at": moment(run.created).isoformat(),
        "open": run.asked + run.in_doubt,
        "output": WORDS_FOR_OTHERS if veiled and output else output,
    }


def _output(kept: str) -> Json:
    """What a run came to: JSON where an agent gave an answer, words where it failed."""
    try:
        return codec.parse(kept)
    except InvalidCall:
        return kept
