"""Answers as they are handed to a framework: read and checked whole before any of them counts.

    {"decisions": [{"type": "approve"},
                   {"type": "edit", "edited_action": {"name": "send", "args": {…}}},
                   {"type": "reject", "message": "why"},
                   {"type": "respond", "message": "the result"}]}

one for each request, in the order of the requests (LangChain's form, which other tools write too);
or a list of ``Decision`` objects made from their requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sayso.errors import InvalidDecision
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Decision, Edit, Request


def decisions_from(given: object, requests: Sequence[Request]) -> list[Decision]:
    """The decisions; InvalidDecision says what is wrong with them, and none counts."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return _from_wire(given, requests)
    if isinstance(given, Decision):
        given = (given,)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidDecision(
            'answer with {"decisions": [...]} or with a list made of request.approve() and the like'
        )
    decisions = list(given)
    for decision in decisions:
        if not isinstance(decision, Decision) or decision.request is None:
            raise InvalidDecision("make decisions from their request, as request.approve()")
    return decisions


def check_asked_in(store: Store, thread: str, decisions: Iterable[Decision]) -> None:
    """Refuse, before any of them counts, what was asked on another thread than this or one of an
    agent inside it: whoever may go on with one conversation need not have a say in another."""
    for decision in decisions:
        call = store.call(decision.request or "")
        if call is not None and not _asked_within(store, thread, call):
            raise InvalidDecision(
                f"{call.id} was asked on thread {call.thread!r}, and not on {thread!r}: resume "
                "that one, or decide it in the inbox"
            )


def _asked_within(store: Store, thread: str, call: Call) -> bool:
    """Whether a call was made on this thread, or in a run that a call on this thread began."""
    asked: Call | None = call
    while asked is not None and asked.thread != thread:
        run = store.run(asked.run)
        asked = store.call(run.parent_call) if run is not None and run.parent_call else None
    return asked is not None


def _from_wire(given: Mapping[Any, Any], requests: Sequence[Request]) -> list[Decision]:
    listed = given.get("decisions")
    if not isinstance(listed, list | tuple):
        raise InvalidDecision('answer with {"decisions": [...]}', "decisions")
    if len(listed) != len(requests):
        raise InvalidDecision(
            f"{len(listed)} decisions for {len(requests)} requests: give one for each, in order",
            "decisions",
        )
    return [
        decision_from(one, request, f"decisions[{n}]")
        for n, (one, request) in enumerate(zip(listed, requests, strict=True))
    ]


def decision_from(given: object, request: Request, at: str = "decision") -> Decision:
    """One decision about one request."""
    if not isinstance(given, Mapping):
        raise InvalidDecision(f'{at}: write {{"type": "approve"}} or the like', at)
    type = given.get("type")
    if type not in request.allowed:
        allowed = ", ".join(request.allowed)
        raise InvalidDecision(f"{at}.type: {type!r:.40} is not one of {allowed}", f"{at}.type")
    if type == "approve":
        return request.approve()
    if type == "edit":
        return _edit(given, request, at)
    if type == "reject":
        return request.reject(_text(given.get("message", ""), f"{at}.message"))
    if "value" not in given and "message" not in given:
        raise InvalidDecision(f"{at}.message: a response needs one", f"{at}.message")
    return request.respond(given["value"] if "value" in given else given["message"])


def _edit(given: Mapping[Any, Any], request: Request, at: str) -> Decision:
    from sayso import schema  # brings jsonschema

    action = given.get("edited_action", given)
    args = action.get("args") if isinstance(action, Mapping) else None
    if not isinstance(action, Mapping) or not isinstance(args, Mapping):
        raise InvalidDecision(
            f'{at}: an edit is {{"edited_action": {{"name": …, "args": {{…}}}}}}', at
        )
    if action.get("name", request.tool) != request.tool:
        raise InvalidDecision(
            f"{at}: an edit cannot make it another tool ({request.tool} was asked about): "
            "reject it and say what to do instead",
            f"{at}.edited_action.name",
        )
    wrong = schema.errors(request.schema or {}, dict(args))
    if wrong:
        path, message = wrong[0]
        raise InvalidDecision(f"{at}.args.{path}: {message}", f"{at}.args.{path}")
    known = (request.schema or {}).get("properties", {})
    defaults = {name: p["default"] for name, p in known.items() if "default" in p}
    whole = {**defaults, **args}
    return Edit(whole, request=request.id, seen_digest=request.digest)


def _text(value: object, at: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidDecision(f"{at} is text", at)
    return value
