"""Requests as JSON: one request for one reader, and pages of requests for the inbox.

A view has the fields of ``Request`` and ``shown``, where every string went through ``sayso.text``
and is inert. Pages display ``shown``; the raw arguments fill an edit form.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from sayso import codec, text
from sayso.forking import fork_safe_lock
from sayso.inbox.inbox import RequestReader
from sayso.inbox.people import may_see, may_see_rejection, names_of, viewer_of
from sayso.redaction import (
    MaskedRequest,
    Secrets,
    mask_request,
    masked_title,
    redact,
    secrets_of,
    without_fingerprints,
)
from sayso.rows import Call
from sayso.server.responses import to_json
from sayso.stores.base import RequestGroup, Store, Viewer
from sayso.stores.listing import is_for, short
from sayso.text import inert
from sayso.types import ASSURANCE, DECISIONS, Json, Request, Reviewer, iso, may_be_requester
from sayso.views import request_json

K = TypeVar("K")
T = TypeVar("T")

_MAX_SUMMARY = 160


# -- one request


def request_view(request: Request, by: Reviewer, *, reveal: bool = False) -> dict[str, Json]:
    """Return everything that this reader may know about a request, ready for JSON."""
    if by.role == "agent" and request.status != "pending" and not request.settled:
        request = replace(request, status="pending", decision=None)
    body = common_view(request, reveal=reveal or _knows_arguments(by))
    body["can"], body["why_not"] = possible_decisions(request, by)
    body["confirm_with"] = "passkey" if needs_passkey(request, by) else None
    body["refusals"] = _visible_refusals(request, body["refusals"], by)
    return body


def _visible_refusals(request: Request, refusals: list[Json], by: Reviewer) -> list[Json]:
    """Return the earlier rejections, of which this reader may only know that there were some."""
    visible = [may_see_rejection(by, rejection) for rejection in request.refusals]
    return [
        refusal if may_see else {**dict.fromkeys(refusal), "id": refusal["id"]}
        for refusal, may_see in zip(refusals, visible, strict=True)
    ]


def common_view(request: Request, *, reveal: bool = False) -> dict[str, Json]:
    """Return the part of the view that is the same for every reader."""
    masked = MaskedRequest(request, False, Secrets()) if reveal else mask_request(request)
    body = request_json(masked.request)
    for refusal in body["refusals"]:
        refusal["by"] = refusal["by"] and text.inline(refusal["by"])
        refusal["message"] = inert(refusal["message"])
    if masked.masked:
        body["digest"] = None  # so that nobody can approve what they have not seen
    body |= {
        "masked": masked.masked,
        "size": len(codec.dumps(body["args"]).encode(errors="replace")),
        "shown": _shown(request, masked.request, body),
    }
    return body


def _knows_arguments(by: Reviewer) -> bool:
    """Return whether redacting would only get in this reader's way.

    The agent that made the call needs the arguments exactly as approved, and a chat user sees only
    their own requests, whose arguments are in the chat already.
    """
    return by.role in ("agent", "chat")


def edited_args(
    request: Request,
    args: dict[str, Json],
    sent: Mapping[str, Json],
    by: Reviewer,
    *,
    written: bool,
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the arguments before and after an edit as this reader sees them before a reveal.

    ``args`` are the edited arguments, of which the reader sent those in ``sent``. What they sent in
    place of a masked value counts as a change even if it is equal, and is not compared with masked
    values: either would confirm a guess.
    """
    before = dict(request.editable if written else request.args)
    if _knows_arguments(by):
        return before, args
    secrets = secrets_of(request)
    shown_before: dict[str, Json] = redact(before, request.schema, secrets).value
    after: dict[str, Json] = redact(args, request.schema, secrets).value
    for name in sent.keys() & args.keys():
        if name in before and shown_before[name] != before[name]:
            after[name] = f"{text.mask(codec.dumps(args[name]))[:-1]}, changed)"
        else:
            redacted = redact({name: args[name]}, request.schema).value[name]
            after[name] = without_fingerprints(redacted)
    return shown_before, after


def _shown(request: Request, masked: Request, body: dict[str, Json]) -> dict[str, Json]:
    names = ("args", "written", "description", "note", "question")
    title = masked_title(request, masked)
    examined = text.examined([*(body[name] for name in names), text.without_escapes(title)])
    args = body["args"]
    if request.kind == "approval" and request.tool is None:
        args = dict(sorted(args.items(), key=lambda item: item[0] != "text"))  # before its details
    return {
        "args": inert(args),
        "lines": text.lines(args),
        "original": None if body["original"] is None else inert(body["original"]),
        "written": None if body["written"] is None else inert(body["written"]),
        "title": title,
        "description": inert(body["description"]),
        "note": inert(body["note"]),
        "preview": inert(body["preview"]),
        "binds": inert(body["binds"]),
        "evidence": inert(body["evidence"]),
        "opinion": inert(body["opinion"]),
        "question": _shown_question(body["question"]),
        "schema": inert(body["schema"]),
        "tool": inert(request.tool or ""),
        "agent": inert(request.agent),
        "requester": inert(request.requester),
        "summary": _summary(masked, title),
        "warnings": list(examined.notes),
        "hidden": examined.hidden,
    }


def _shown_question(question: dict[str, Json] | None) -> Json:
    if question is None:
        return None
    # The answer sends an option's value back, so values stay as they are.
    return {
        **question,
        "text": inert(question["text"]),
        "options": [
            {**option, "label": inert(option["label"]), "description": inert(option["description"])}
            for option in question["options"]
        ],
    }


def shown_title(request: Request) -> str:
    """Return the title as people read it in lists, with its secrets masked."""
    return masked_title(request, mask_request(request).request)


def summarize(request: Request) -> str:
    """Return one line about a request for lists, with its secrets masked and cut where long."""
    masked = mask_request(request).request
    return _summary(masked, masked_title(request, masked))


def _summary(masked: Request, title: str) -> str:
    if masked.title:
        line = title
    elif masked.question is not None:
        line = text.inline(masked.question.text)
    elif masked.tool is None:
        line = text.inline(str(masked.args.get("text", "")))
    else:
        values = {n: v if isinstance(v, str) else codec.dumps(v) for n, v in masked.args.items()}
        words = (f"{text.inline(n)}: {_cut(text.inline(v), 60)}" for n, v in values.items())
        line = ", ".join(words)
    return _cut(line, _MAX_SUMMARY)


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[:most]}…"


def needs_passkey(request: Request, by: Reviewer) -> bool:
    """Return whether a person who is signed in confirms each decision with a passkey."""
    return request.assurance == "passkey" and by.assurance in ("token", "session")


def possible_decisions(request: Request, by: Reviewer) -> tuple[list[str], str]:
    """Return the decisions this person may make now, and the reason if there are none.

    The engine decides. This only tells the page which buttons to offer.
    """
    if by.role == "agent":
        return [], "agents cannot decide"
    if request.status != "pending":
        return [], f"it is {request.status}"
    if request.reviewers and names_of(by).isdisjoint(request.reviewers):
        return [], f"it is for {', '.join(request.reviewers)}"
    if not request.requester_decides and may_be_requester(by.name, request.requester):
        return [], "you asked for this, so someone else has to decide"
    if request.quorum > 1 and ASSURANCE.index(by.assurance) < ASSURANCE.index("token"):
        return [], "it needs more than one person, and each has to be signed in"
    weaker = ASSURANCE.index(by.assurance) < ASSURANCE.index(request.assurance)
    if weaker and not needs_passkey(request, by):
        return [], f"it needs a decision with assurance {request.assurance}"
    rejecters = {rejection.by for rejection in request.refusals} - {by.name}
    if request.overturn == "rejecter" and rejecters and by.role != "admin":
        only = [name for name in request.allowed if name in ("reject", "respond")]
        return only, "it was rejected before, and only that person or an admin may approve it"
    if any(vote.by == by.name for vote in request.votes):
        return [name for name in request.allowed if name == "reject"], "you already voted"
    return [name for name in request.allowed if name in DECISIONS], ""


def waits_for(request: Request, by: Reviewer) -> bool:
    """Return whether a request waits for this person, who has not voted on it yet."""
    can, _ = possible_decisions(request, by)
    return bool(can) and not any(vote.by == by.name for vote in request.votes)


# -- pages of requests

#: How many store pages to read for a reader who may see few of the requests.
_MAX_STORE_PAGES = 20
#: The least requests to read at once, so that a reader who asks for few still gets a page.
_STORE_PAGE = 50
#: Characters of JSON after which a page ends; the rest is on the next one.
_MAX_PAGE = 8_000_000
#: Characters of JSON to cache in all, and for one request.
_MAX_CACHED = 4_000_000
_MAX_ENTRY = 20_000
#: Up to so many pending requests are judged one by one, to count those that wait for a person.
_MOST_JUDGED = 100
#: What the requests of a group have in common; each is also a filter of the list.
_GROUPED = ("kind", "agent", "tool", "risk")


def first_visible(
    read: Callable[[str | None, int], tuple[list[tuple[K, T]], str | None]],
    is_visible: Callable[[T], object],
    many: int,
    after: str | None,
) -> tuple[list[tuple[K, T]], str | None]:
    """Return the first rows that a person may see, and where to go on if reading was cut short.

    Ask for one more than a page has. Then only rows that they may see decide whether there is a
    next page: the others would answer questions about what is in them.
    """
    size = max(many, _STORE_PAGE)
    visible: list[tuple[K, T]] = []
    for _ in range(_MAX_STORE_PAGES):
        rows, after = read(after, size)
        visible += [row for row in rows if is_visible(row[1])]
        if after is None or len(rows) < size or len(visible) >= many:
            break
    return visible[:many], after


class CachedRequest(NamedTuple):
    """A request and the JSON of its common view."""

    request: Request
    json: str
    refusals: list[Json]


class RequestListCache:
    """Renders pages of requests, caching the JSON of each request.

    Many people reload the same page, and rendering a request (making its text inert, redacting its
    secrets) takes longer than reading it. An entry is keyed by the whole row, so it lasts exactly
    as long as the row is unchanged. What differs between readers is added last. Safe to use from
    several OS threads.
    """

    def __init__(self, store: Store) -> None:
        self._reader = RequestReader(store)
        self._lock = fork_safe_lock()
        self._cache: OrderedDict[Call, CachedRequest] = OrderedDict()
        self._size = 0

    def page(self, by: Reviewer, filters: dict[str, Any], *, mine: bool) -> str:
        """Return a page of the requests that this person may see, as JSON. Reads the store.

        A page is short where finding the rest would take long; ``next`` continues.
        """
        room = _MAX_PAGE
        entries: list[CachedRequest] = []
        visible, following = self._visible(by, filters, mine=mine)
        after = filters["after"]
        for cursor, call in visible[: filters["limit"]]:
            entry = self._entry(call)
            if entries and len(entry.json) > room:
                break
            entries.append(entry)
            room -= len(entry.json)
            after = str(cursor)
        if len(entries) < len(visible):
            following = after
        items = ",".join(_json_for(entry, by) for entry in entries)
        return f'{{"items":[{items}],"next":{to_json(following)}}}'

    def _visible(
        self, by: Reviewer, filters: Mapping[str, Any], *, mine: bool
    ) -> tuple[list[tuple[int, Call]], str | None]:
        """Read one more request than a page has, and where to go on if reading was cut short."""
        viewer = viewer_of(by, mine=mine)

        def read(after: str | None, many: int) -> tuple[list[tuple[int, Call]], str | None]:
            return self._reader.page({**filters, "after": after, "limit": many}, quick=True)

        def is_visible(call: Call) -> bool:
            return may_see(by, call) and is_for(viewer, call)

        return first_visible(read, is_visible, filters["limit"] + 1, filters["after"])

    def groups(self, by: Reviewer, filters: dict[str, Any], *, mine: bool) -> dict[str, Json]:
        """Count the requests that this person may see, in groups. Reads the store.

        The values of a filter are counted with the other filters on, and itself off.
        """
        chosen = {name: short(filters[name]) for name in _GROUPED if name in filters}
        all_groups = self._reader.groups(filters, viewer_of(by, mine=mine))

        def matches(group: RequestGroup, apart_from: str = "") -> bool:
            return all(
                name == apart_from or getattr(group, name) == value
                for name, value in chosen.items()
            )

        values: dict[str, Json] = {}
        for name in _GROUPED:
            counts: Counter[str] = Counter()
            for group in all_groups:
                if matches(group, name):
                    counts[getattr(group, name)] += group.count
            values[name] = [{"value": key, "count": counts[key]} for key in sorted(counts) if key]
        groups = [group for group in all_groups if matches(group)]
        count = sum(group.count for group in groups)
        at_least = any(group.at_least for group in groups)
        if not all_groups:  # a text was perhaps not looked for to the end
            rest = {"after": None, **filters, "limit": 1}
            visible, following = self._visible(by, rest, mine=mine)
            at_least = bool(visible) or following is not None
        return {
            "count": count,
            "at_least": at_least,
            "yours": self._yours(by, filters, count, matches, mine=mine),
            "items": [_group_view(group) for group in groups],
            "values": values,
        }

    def _yours(
        self,
        by: Reviewer,
        filters: dict[str, Any],
        count: int,
        matches: Callable[[RequestGroup], bool],
        *,
        mine: bool,
    ) -> int:
        """Count the pending requests that wait for this person. Of many, those for their names."""
        if filters["status"] != "pending":
            return 0
        if count <= _MOST_JUDGED:
            first = {"after": None, **filters, "limit": _MOST_JUDGED}
            visible, _ = self._visible(by, first, mine=mine)
            if len(visible) >= count:  # the page has them all
                calls = [call for _, call in visible[:count]]
                return sum(waits_for(self._entry(call).request, by) for call in calls)
        if by.role != "admin":
            return count
        named = Viewer(names=names_of(by), only_theirs=mine)
        return sum(group.count for group in self._reader.groups(filters, named) if matches(group))

    def _entry(self, call: Call) -> CachedRequest:
        with self._lock:
            entry = self._cache.get(call)
            if entry is not None:
                self._cache.move_to_end(call)
                return entry
        request = self._reader.request(call)
        body = common_view(request)
        refusals = body.pop("refusals")
        entry = CachedRequest(request, to_json(body), refusals)
        if len(entry.json) <= _MAX_ENTRY:
            with self._lock:
                if call not in self._cache:  # another OS thread may have been faster
                    self._cache[call] = entry
                    self._size += len(entry.json)
                while self._size > _MAX_CACHED:
                    self._size -= len(self._cache.popitem(last=False)[1].json)
        return entry


def _json_for(entry: CachedRequest, by: Reviewer) -> str:
    """Add what depends on the reader to the JSON of a cached view."""
    can, why_not = possible_decisions(entry.request, by)
    refusals = _visible_refusals(entry.request, entry.refusals, by)
    added = to_json({"refusals": refusals, "can": can, "why_not": why_not})
    return f"{entry.json[:-1]},{added[1:]}"


def _group_view(group: RequestGroup) -> dict[str, Json]:
    return {
        "kind": group.kind,
        "agent": group.agent,
        "tool": group.tool or None,
        "risk": group.risk,
        "count": group.count,
        "at_least": group.at_least,
        "expires_at": iso(group.expires),
        "oldest_at": iso(group.created),
    }
