"""A request as the HTTP face shows it: the fields of ``Request``, made inert beside the raw ones.

Pages draw what stands under ``shown``, where every string went through ``assent.text``; the raw
arguments are there to fill an edit form.
"""

from __future__ import annotations

from typing import Any

from assent import codec, text
from assent.hiding import hidden
from assent.server.auth import Who
from assent.types import ASSURANCE, Json, Question, Request
from assent.views import question_json, request_json

_SUMMARY = 160
_LIKE_CALLS = {"approve", "edit", "reject", "respond"}


def shown_request(request: Request, who: Who, *, reveal: bool = False) -> dict[str, Json]:
    """Everything that this principal may know of a request, ready for JSON."""
    # The agent that made the call knows its arguments, and must get them as they were approved; who
    # only chats sees their own requests, whose arguments stand in the chat already.
    body = drawn(request, reveal=reveal or who.role in ("agent", "chat"))
    body["can"], body["why_not"] = abilities(request, who)
    return body


def drawn(request: Request, *, reveal: bool = False) -> dict[str, Json]:
    """What is the same for all who may see the request."""
    body = request_json(request)
    masked = False
    if not reveal:
        for field in ("args", "original", "preview", "description", "note"):
            view = hidden(body[field], request.schema)
            body[field], masked = view.value, masked or view.masked
        decision, ran = body["decision"], body["execution"]
        if decision is not None and "args" in decision:
            decision["args"] = hidden(decision["args"], request.schema).value
        for place, field in ((decision or {}, "value"), (ran, "result")):
            view = hidden(place.get(field))
            if view.masked:
                place[field], masked = view.value, True
    if masked:
        body["digest"] = None
    body |= {
        "masked": masked,
        "size": len(codec.dumps(body["args"]).encode(errors="replace")),
        "shown": _shown(request, body),
    }
    return body


def _shown(request: Request, body: dict[str, Json]) -> dict[str, Json]:
    told = text.examined([body["args"], body["description"], body["note"], body["question"]])
    return {
        "args": inert(body["args"]),
        "lines": text.lines(body["args"]),
        "original": None if body["original"] is None else inert(body["original"]),
        "description": inert(body["description"]),
        "note": inert(body["note"]),
        "preview": inert(body["preview"]),
        "question": _shown_question(request.question),
        "schema": inert(request.schema),
        "tool": inert(request.tool or ""),
        "agent": inert(request.agent),
        "requester": inert(request.requester),
        "summary": summary(request, body["args"]),
        "warnings": list(told.notes),
        "hidden": told.hidden,
    }


def inert(value: Json) -> Json:
    """The same value, every string of it made visible."""
    if isinstance(value, str):
        return text.visible(value).text
    if isinstance(value, dict):
        return {text.inline(str(key)): inert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inert(item) for item in value]
    return value


def _shown_question(question: Question | None) -> Json:
    if question is None:
        return None
    body = question_json(question)
    # The values go back as they are; only what is read is made visible.
    return {
        **body,
        "text": inert(question.text),
        "options": [
            {**option, "label": inert(option["label"]), "description": inert(option["description"])}
            for option in body["options"]
        ],
    }


def summary(request: Request, args: Json) -> str:
    """One line of what it is about, for lists; what is cut off there is whole on the card."""
    if request.question is not None:
        line = text.inline(request.question.text)
    elif request.tool is None:
        line = text.inline(str(args.get("text", "")))
    else:
        line = ", ".join(f"{text.inline(name)}: {_short(value)}" for name, value in args.items())
    return line if len(line) <= _SUMMARY else f"{line[:_SUMMARY]}…"


def _short(value: Any) -> str:
    words = value if isinstance(value, str) else codec.dumps(value)
    line = text.inline(words)
    return line if len(line) <= 60 else f"{line[:60]}…"


def abilities(request: Request, who: Who) -> tuple[list[str], str]:
    """What this person may do with it now, and why not if they may do nothing.

    The engine decides; this tells the page beforehand which buttons make sense.
    """
    by = who.reviewer
    if by.role == "agent":
        return [], "an agent cannot decide"
    if request.status != "pending":
        return [], f"it is {request.status}"
    ours = {by.name, *(f"group:{name}" for name in by.groups)}
    if request.reviewers and not ours & set(request.reviewers):
        return [], f"it is for {', '.join(request.reviewers)}"
    least = "token" if request.quorum > 1 else "code"
    if ASSURANCE.index(by.assurance) < ASSURANCE.index(least):
        return [], "it needs more than one person, and each has to be signed in"
    if any(vote.by == by.name for vote in request.votes):
        return [name for name in request.allowed if name == "reject"], "you voted already"
    return [name for name in request.allowed if name in _LIKE_CALLS], ""
