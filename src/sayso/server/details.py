"""What surrounds a request: its conversation, its events, its rule, and similar calls.

The conversation and the events are redacted twice: values that look like secrets are masked for
everyone, and what belongs to calls that the reader may not see is withheld (``MessageVisibility``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

from sayso import codec
from sayso.errors import InvalidCall
from sayso.inbox.people import HIDDEN_TEXT, has_visible_request, hidden_turns, may_see, requests_in
from sayso.redaction import (
    PLACEHOLDER,
    Secrets,
    mask_request,
    redact,
    secrets_in,
    secrets_of,
)
from sayso.rows import Call, Event, Run
from sayso.server.request_views import summarize
from sayso.server.service import Service
from sayso.stores.base import Query, Store
from sayso.stores.row_checks import if_readable, readable_event, request_in, secrets_of_calls
from sayso.text import inert, inline, lines
from sayso.types import Json, Request, Reviewer, iso, requester_name
from sayso.views import public_status

#: Shown in place of the arguments and results of a call that the reader may not see.
HIDDEN_CALL = "(not shown: this call is for other reviewers)"
#: How many messages of the conversation to show around a request.
_LAST_MESSAGES = 30
_MAX_SIMILAR = 100
_MAX_RECENT = 5
#: How many approved calls a call is compared with, and how few are not enough.
_MAX_COMPARED, _LEAST_COMPARED = 20, 3
#: Characters of a longer text, which is not compared.
_LONGEST_COMPARED = 80
#: Fields of an event that derive from the arguments: a guess could be checked against them.
_DERIVED_FIELDS = ("digest", "args", "salt")
#: Fields of an event that name something; ``token`` is the id that `sayso token list` shows.
_IDS = ("token", "request", "refusal", "grant", "person", "agent", "tool", "tool_digest", "by")


# -- around one request


def request_details(
    service: Service, request: Request, by: Reviewer, *, masked: bool
) -> dict[str, Json]:
    """Return what helps to decide a request, besides the request itself."""
    store = service.store
    call = store.call(request.id)
    assert call is not None
    run = store.run(call.run)
    thread = store.thread(call.thread)
    before = 0 if thread is None else max(thread.messages - _LAST_MESSAGES, 0)
    secrets = secrets_of(request)
    return {
        "conversation": conversation_view(store, request.thread, by, current=call, after=before),
        "events": [
            event_view(event, masked=masked, secrets=secrets)
            for event in map(readable_event, store.call_events(call.id))
        ],
        "like": _similar_calls(store, request, call, by),
        "policy": {
            "rule": inline(call.terms.rule),
            "description": inert(redact(call.terms.description, None, secrets).value),
            "digest": call.terms.policy,
            "requester_decides": call.terms.requester_decides,
            "assurance": call.terms.assurance,
            "on_expiry": call.terms.on_expiry,
        },
        "run_status": None if run is None else str(run.status),
        "stand_ins": _stand_ins(store, call),
    }


def _stand_ins(store: Store, call: Call) -> list[Json]:
    """Return who decides for the reviewers of a request that are away."""
    now = store.now()
    return [
        {
            "person": inline(person.name),
            "stand_in": inline(person.stand_in),
            "until": iso(person.away_until),
        }
        for person in store.absent()
        if person.has_stand_in(person.stand_in, now) and not person.names.isdisjoint(call.reviewers)
    ]


def _similar_calls(store: Store, request: Request, call: Call, by: Reviewer) -> dict[str, Json]:
    """Return the outcomes of the last calls of the same tool by the same agent."""
    query = Query(
        status="closed", agent=call.agent, tool=call.tool, sort="newest", limit=_MAX_SIMILAR
    )
    page = store.page(query) if call.tool else []
    similar = [other for _, other in page if other.kind == call.kind and may_see(by, other)]
    counts: Counter[str] = Counter(public_status(other) for other in similar)
    names = ("approved", "edited", "rejected", "responded", "expired")
    approved = [other for other in similar if public_status(other) in ("approved", "edited")]
    compared = [if_readable(request_in, store, other) for other in approved[:_MAX_COMPARED]]
    return {
        **{name: counts[name] for name in names},
        "facts": differences(request, [other for other in compared if other is not None]),
        "recent": [similar_view(request_in(store, other)) for other in similar[:_MAX_RECENT]],
    }


def differences(request: Request, approved: Sequence[Request]) -> list[Json]:
    """Say how the arguments of a call differ from those of the last approved calls.

    A number is compared with the median. A text is new only where earlier calls repeat theirs.
    """
    if len(approved) < _LEAST_COMPARED:
        return []
    earlier = [mask_request(other).request.args for other in approved]
    facts: list[Json] = []
    for name, value in mask_request(request).request.args.items():
        values = [args[name] for args in earlier if type(args.get(name)) is type(value)]
        if len(values) < _LEAST_COMPARED:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            usual = median(values)
            if 0 < 2 * usual <= value:
                times = f"{value / usual:.1f}".removesuffix(".0")
                facts.append(f"{inline(name)} is {times} times the usual {usual:g}")
        elif isinstance(value, str) and len(value) <= _LONGEST_COMPARED:
            repeats = len(set(values)) * 2 <= len(values)
            if repeats and value not in values and not PLACEHOLDER.search(value):
                facts.append(f"First time with {inline(name)} {inline(value)}")
    return facts


def similar_view(request: Request) -> dict[str, Json]:
    """Return a request in one line, for a list of similar ones."""
    decision = request.decision
    return {
        "id": request.id,
        "status": request.status,
        "by": None if decision is None else inline(decision.by),
        "at": request.created_at.isoformat() if decision is None else decision.at.isoformat(),
        "summary": summarize(request),
    }


# -- runs and events


def secrets_of_scope(store: Store, scope: str, tool_digest: str) -> Secrets:
    """Return the masked values of the arguments that the scope of a grant quotes."""
    tool = store.tool(tool_digest)
    parameters = None if tool is None else codec.loads(tool.schema)["parameters"]
    return secrets_in((codec.loads(scope).get("const"), parameters))


def run_view(run: Run, secrets: Secrets, title: str, *, withheld: bool = False) -> dict[str, Json]:
    """Return a run for a list. ``withheld`` hides the output: the run made calls for others."""
    output = run.output
    if output is not None:
        output = inert(redact(_parse_if_json(output), None, secrets).value)
    return {
        "id": run.id,
        "thread": run.thread,
        "title": title,
        "agent": inline(run.agent),
        "held": run.owner is not None,
        "status": str(run.status),
        "stop": inline(redact(run.stop, None, secrets).value),
        "requester": inline(requester_name(run.requester)),
        "created_at": iso(run.created),
        "open": run.asked + run.in_doubt,
        "output": HIDDEN_TEXT if withheld and output else output,
    }


def event_view(
    event: Event, *, secrets: Secrets, masked: bool = False, withheld: bool = False
) -> dict[str, Json]:
    """Return an event for a timeline, with these masked values masked in it.

    ``withheld`` hides its body, its actor and its request, ``masked`` only what derives from masked
    arguments.
    """
    body = None
    if event.body is not None and not withheld:
        body = _event_body(event.body, secrets, masked=masked)
    return {
        "at": iso(event.at),
        "type": event.type,
        "actor": "" if withheld else inline(event.actor),
        "run": event.run,
        "request": "" if withheld else event.call,
        "body": body,
    }


def _event_body(stored: str, secrets: Secrets, *, masked: bool) -> Json:
    body = codec.loads(stored)
    for field in ("result", "value", "scope"):  # JSON kept as text: look for secrets inside it
        inner = _parse_if_json(body[field]) if isinstance(body.get(field), str) else None
        redacted = redact(inner, None, secrets)
        if redacted.value != inner and not isinstance(inner, str):
            body[field] = codec.dumps(redacted.value)
            masked = masked or redacted.masked
    view = redact(body, None, secrets)
    view.value.update({name: body[name] for name in _IDS if isinstance(body.get(name), str)})
    if masked or view.masked or secrets:
        for field in _DERIVED_FIELDS:
            view.value.pop(field, None)
    return inert(view.value)


def _parse_if_json(written: str) -> Json:
    """Parse JSON; return other text as it is: why a run failed, or what a model wrote instead."""
    try:
        return codec.parse(written)
    except InvalidCall:
        return written


# -- conversations


def conversation_view(
    store: Store, thread: str, by: Reviewer, *, current: Call | None = None, after: int = 0
) -> list[dict[str, Json]]:
    """Return a thread's messages as this person may read them.

    Of a call that they may not see, only the tool's name remains. The turn that made ``current`` is
    marked.
    """
    stored = store.messages(thread, after)
    if not stored:
        return []  # reading the secrets of all calls takes longer than everything else
    messages = [codec.loads(body) for _, body in stored]
    visibility = MessageVisibility(store, thread, by)
    withheld = visibility.of(messages)
    secrets = secrets_of_calls(store, visibility.calls)
    turns = [
        _message_view(seq, message, hide, secrets)
        for (seq, _), message, hide in zip(stored, messages, withheld, strict=True)
    ]
    if current is not None:
        for turn in reversed(turns):
            if any(call["name"] == inline(current.tool) for call in turn.get("calls", ())):
                turn["current"] = True
                break
    return turns


def _message_view(
    seq: int, message: dict[str, Any], hide: Withheld, secrets: Secrets
) -> dict[str, Json]:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else codec.dumps(content)
    view: dict[str, Json] = {
        "seq": seq,
        "role": message.get("role", ""),
        "text": inert(redact(text, None, secrets).value),
        "current": False,
    }
    if hide.text and text:
        instead = HIDDEN_CALL if view["role"] == "tool" else HIDDEN_TEXT
        view |= {"text": instead, "veiled": True}
    if message.get("name"):
        view["name"] = inline(str(message["name"]))
    if calls := _calls(message):
        pairs = zip(calls, hide.calls, strict=True)
        view["calls"] = [_call_view(call, secrets, withheld=withheld) for call, withheld in pairs]
    return view


def _call_view(call: dict[str, Any], secrets: Secrets, *, withheld: bool) -> dict[str, Json]:
    view: dict[str, Json] = {
        "id": inline(str(call.get("id", ""))),
        "name": inline(str(call.get("name", ""))),
    }
    if withheld:
        return {**view, "shown_args": HIDDEN_CALL, "veiled": True}
    written = call.get("arguments", "")
    value = _parse_if_json(written) if isinstance(written, str) else written
    return {**view, "shown_args": "\n".join(lines(redact(value, None, secrets).value))}


class Withheld(NamedTuple):
    """What to withhold of one message: its text, and each of the calls that it makes."""

    text: bool = False
    calls: tuple[bool, ...] = ()


class MessageVisibility:
    """Decides what one reader may see of one conversation.

    A message holds what the model wrote, with call ids that providers reuse; the rows behind the
    calls say who may see them. Text follows the calls that it is about (``hidden_turns``). A
    user's text is visible to everyone who may see something that was asked because of it.
    """

    _MAX_RUNS = 50
    _MAX_REQUESTS = 200

    def __init__(self, store: Store, thread: str, by: Reviewer) -> None:
        self._store = store
        self._thread = thread
        self._by = by
        #: Whether to withhold each call read so far, by the id that the provider gave it.
        self._withheld_calls: dict[str, bool] = {}

    def of(self, messages: list[dict[str, Any]]) -> list[Withheld]:
        """Return what to withhold of each of these consecutive messages."""
        if self._by.role == "admin":
            return [Withheld(calls=(False,) * len(_calls(message))) for message in messages]
        rows = [
            [self._row(message, n, call) for n, call in enumerate(_calls(message))]
            for message in messages
        ]
        decisions = [self._of_calls(*pair) for pair in zip(messages, rows, strict=True)]
        for places in _exchanges(messages):
            first = messages[places[0]]
            starts_with_user = first.get("role") == "user"
            turns = [[row for row in rows[place] if row is not None] for place in places]
            before = [] if starts_with_user else self._calls_before(first)
            texts = list(hidden_turns(self._by, (before, *turns)))[1:]
            if starts_with_user:
                calls = [row for turn in turns for row in turn]
                texts[0] = any(texts) and not has_visible_request(self._by, calls)
            for place, withheld in zip(places, texts, strict=True):
                decisions[place] = decisions[place]._replace(text=withheld)
        return decisions

    def _of_calls(self, message: dict[str, Any], rows: list[Call | None]) -> Withheld:
        calls = tuple(row is not None and not may_see(self._by, row) for row in rows)
        ids = (str(call.get("id", "")) for call in _calls(message))
        self._withheld_calls.update(zip(ids, calls, strict=True))
        if message.get("role") != "tool":
            return Withheld(False, calls)
        withheld = self._withheld_calls.get(str(message.get("call_id", "")))
        if withheld is None:  # the call is in an earlier message: judge by the tool's name
            query = Query(
                status="any",
                thread=self._thread,
                tool=str(message.get("name", "")),
                sort="newest",
                limit=self._MAX_REQUESTS,
            )
            withheld = any(not may_see(self._by, call) for _, call in self._store.page(query))
        return Withheld(withheld, calls)

    def _row(self, message: dict[str, Any], n: int, call: dict[str, Any]) -> Call | None:
        if "turn" in message and "run" in message:  # our own agent: the key is turn and position
            return self._store.call_by_key(message["run"], f"{message['turn']}.{n}")
        # A framework's call has the provider's id as its key, after a path if a sub-agent made it.
        name = str(call.get("id", ""))
        keys = (row for row in self.calls if row.key == name or row.key.endswith(f"/{name}"))
        return next(keys, None)

    @cached_property
    def calls(self) -> list[Call]:
        """Every call of the thread, newest run first."""
        runs = self._store.runs(thread=self._thread, limit=self._MAX_RUNS)
        return [call for _, run in runs for call in self._store.calls_of(run.id)]

    def _calls_before(self, message: dict[str, Any]) -> list[Call]:
        """Return the calls that may precede the first message that we read of an exchange."""
        if "run" in message:
            return self._store.calls_of(message["run"])
        return requests_in(self._store, self._thread)


def _calls(message: dict[str, Any]) -> Any:
    return message.get("calls") or ()


def _exchanges(messages: list[dict[str, Any]]) -> list[list[int]]:
    """Group the positions of text messages by exchange: a user's text and the run's replies.

    Text in the middle of a run belongs to that run.
    """
    exchanges: dict[Any, list[int]] = {}
    number = 0
    answer = None
    for place in reversed(range(len(messages))):
        message = messages[place]
        if message.get("role") == "assistant":
            answer = message.get("run") or number
        elif message.get("role") == "user":
            answer = number if answer is None else answer
        else:
            continue
        exchanges.setdefault(answer, []).append(place)
        if message.get("role") == "user":
            number += 1
            answer = None
    return [places[::-1] for places in exchanges.values()]
