"""A request as the HTTP face shows it: the fields of ``Request``, made inert beside the raw ones.

Pages draw what stands under ``shown``, where every string went through ``sayso.text``; the raw
arguments are there to fill an edit form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import codec, text
from sayso.hiding import hidden
from sayso.inbox.people import names_of
from sayso.types import ASSURANCE, Json, Request, Reviewer, plain_name
from sayso.views import request_json

_SUMMARY = 160
#: What people may be shown only in part, and what the tool's schema has a say in.
_ARGUMENTS = ("args", "original", "preview", "title", "description", "note")
_LIKE_CALLS = {"approve", "edit", "reject", "respond"}


def shown_request(request: Request, by: Reviewer, *, reveal: bool = False) -> dict[str, Json]:
    """Everything that this principal may know of a request, ready for JSON."""
    body = drawn(request, reveal=reveal or _knows(by))
    body["can"], body["why_not"] = abilities(request, by)
    return body


def drawn(request: Request, *, reveal: bool = False) -> dict[str, Json]:
    """What is the same for all who may see the request."""
    body = request_json(request)
    masked = not reveal and _mask(body, request.schema)
    if masked:
        body["digest"] = None
    body |= {
        "masked": masked,
        "size": len(codec.dumps(body["args"]).encode(errors="replace")),
        "shown": _shown(request, body),
    }
    return body


def _knows(by: Reviewer) -> bool:
    """Whether they know the arguments anyhow: the agent that made the call must get them as they
    were approved; who only chats sees their own requests, and has them in the chat already."""
    return by.role in ("agent", "chat")


def seen(request: Request, args: Mapping[str, Json], by: Reviewer) -> Json:
    """Arguments for a request as this person is shown them unasked."""
    return dict(args) if _knows(by) else hidden(dict(args), request.schema).value


def is_masked(request: Request) -> bool:
    """Whether people are shown it without something that looks like a secret."""
    return _mask(request_json(request), request.schema)


def _mask(body: dict[str, Json], schema: Mapping[str, Any] | None) -> bool:
    """Take what looks like a secret out of a request, and say whether there was any."""
    decision, ran = body["decision"] or {}, body["execution"]
    places = [(body, name, schema) for name in _ARGUMENTS]
    places += [(decision, "args", schema), (decision, "value", None), (decision, "message", None)]
    places += [(ran, "result", None), (body["risk"], "reasons", None)]
    asked, evidence = body["question"] or {}, body["evidence"] or {}
    places += [(evidence, "text", None)]
    places += [(asked, "text", None), (asked, "options", None)]
    masked = False
    for place, name, said in places:
        if name in place:
            view = hidden(place[name], said)
            place[name], masked = view.value, masked or view.masked
    return masked


def _shown(request: Request, body: dict[str, Json]) -> dict[str, Json]:
    told = text.examined(
        [body["args"], body["title"], body["description"], body["note"], body["question"]]
    )
    args = _in_order(request, body["args"])
    return {
        "args": inert(args),
        "lines": text.lines(args),
        "original": None if body["original"] is None else inert(body["original"]),
        "title": inert(body["title"]),
        "description": inert(body["description"]),
        "note": inert(body["note"]),
        "preview": inert(body["preview"]),
        "evidence": inert(body["evidence"]),
        "question": _shown_question(body["question"]),
        "schema": inert(request.schema),
        "tool": inert(request.tool or ""),
        "agent": inert(request.agent),
        "requester": inert(request.requester),
        "summary": summary(request, body["args"]),
        "warnings": list(told.notes),
        "hidden": told.hidden,
    }


def _in_order(request: Request, args: Json) -> Json:
    """What is asked comes before its details, where it is not a call."""
    if request.kind != "approval" or request.tool is not None:
        return args
    return dict(sorted(args.items(), key=lambda item: item[0] != "text"))


def inert(value: Json) -> Json:
    """The same value, every string of it made visible."""
    if isinstance(value, str):
        return text.visible(value).text
    if isinstance(value, dict):
        return {text.inline(str(key)): inert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inert(item) for item in value]
    return value


def _shown_question(question: dict[str, Json] | None) -> Json:
    if question is None:
        return None
    # The values go back as they are; only what is read is made visible.
    return {
        **question,
        "text": inert(question["text"]),
        "options": [
            {**option, "label": inert(option["label"]), "description": inert(option["description"])}
            for option in question["options"]
        ],
    }


def summary(request: Request, args: Json) -> str:
    """One line of what it is about, for lists; what is cut off there is whole on the card."""
    if request.title:
        line = text.inline(hidden(request.title).value)
    elif request.question is not None:
        line = text.inline(hidden(request.question.text).value)
    elif request.tool is None:
        line = text.inline(str(args.get("text", "")))
    else:
        line = ", ".join(f"{text.inline(name)}: {_short(value)}" for name, value in args.items())
    return line if len(line) <= _SUMMARY else f"{line[:_SUMMARY]}…"


def _short(value: Any) -> str:
    words = value if isinstance(value, str) else codec.dumps(value)
    line = text.inline(words)
    return line if len(line) <= 60 else f"{line[:60]}…"


def abilities(request: Request, by: Reviewer) -> tuple[list[str], str]:
    """What this person may do with it now, and why not if they may do nothing.

    The engine decides; this tells the page beforehand which buttons make sense.
    """
    if by.role == "agent":
        return [], "an agent cannot decide"
    if request.status != "pending":
        return [], f"it is {request.status}"
    if request.reviewers and names_of(by).isdisjoint(request.reviewers):
        return [], f"it is for {', '.join(request.reviewers)}"
    if not request.requester_decides and plain_name(request.requester) == by.name:
        return [], "you asked for it, and somebody else has to decide"
    if request.quorum > 1 and ASSURANCE.index(by.assurance) < ASSURANCE.index("token"):
        return [], "it needs more than one person, and each has to be signed in"
    if ASSURANCE.index(by.assurance) < ASSURANCE.index(request.assurance):
        return [], f"it needs a decision with assurance {request.assurance}"
    if any(vote.by == by.name for vote in request.votes):
        return [name for name in request.allowed if name == "reject"], "you voted already"
    return [name for name in request.allowed if name in _LIKE_CALLS], ""
