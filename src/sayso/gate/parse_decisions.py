"""Parse the decisions passed to ``resume``. All are checked before any is written.

    {"decisions": [{"type": "approve"},
                   {"type": "edit", "edited_action": {"name": "send", "args": {…}}},
                   {"type": "reject", "message": "why"},
                   {"type": "respond", "message": "the result"}]}

with one entry per request, in the order of the requests (LangChain's form, which other tools write
too), or a list of ``Decision`` objects made from their requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sayso.errors import InvalidDecision
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Decision, Edit, Request


def decisions_from(given: object, requests: Sequence[Request]) -> list[Decision]:
    """Return the decisions. Raises ``InvalidDecision`` if one is invalid."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return _from_wire(given, requests)
    if isinstance(given, Decision):
        given = (given,)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidDecision(
            'pass {"decisions": [...]} or a list made of request.approve() and the like'
        )
    decisions = list(given)
    for decision in decisions:
        if not isinstance(decision, Decision) or decision.request is None:
            raise InvalidDecision("make each decision from its request: request.approve()")
    return decisions


def check_asked_in(store: Store, thread: str, decisions: Iterable[Decision]) -> None:
    """Raise ``InvalidDecision`` for a request from another thread, sub-agents' threads excepted.

    The right to resume one conversation does not include decisions in another.
    """
    for decision in decisions:
        call = store.call(decision.request or "")
        if call is not None and not _asked_within(store, thread, call):
            raise InvalidDecision(
                f"{call.id} was asked on thread {call.thread!r}, not on {thread!r}: resume that "
                "thread, or decide in the inbox"
            )


def _asked_within(store: Store, thread: str, call: Call) -> bool:
    """Return whether a call was made on this thread or in a sub-agent's run below it."""
    asked: Call | None = call
    while asked is not None and asked.thread != thread:
        run = store.run(asked.run)
        asked = store.call(run.parent_call) if run is not None and run.parent_call else None
    return asked is not None


def _from_wire(given: Mapping[Any, Any], requests: Sequence[Request]) -> list[Decision]:
    listed = given.get("decisions")
    if not isinstance(listed, list | tuple):
        raise InvalidDecision('pass {"decisions": [...]}', "decisions")
    if len(listed) != len(requests):
        raise InvalidDecision(
            f"{len(listed)} decisions for {len(requests)} requests: pass one for each, in order",
            "decisions",
        )
    return [
        decision_from(one, request, f"decisions[{n}]")
        for n, (one, request) in enumerate(zip(listed, requests, strict=True))
    ]


def decision_from(given: object, request: Request, at: str = "decision") -> Decision:
    """Return the decision for one request. Raises ``InvalidDecision``."""
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
        raise InvalidDecision(f"{at}.message: a response needs a message", f"{at}.message")
    return request.respond(given["value"] if "value" in given else given["message"])


def _edit(given: Mapping[Any, Any], request: Request, at: str) -> Decision:
    from sayso import schema  # brings jsonschema

    action = given.get("edited_action", given)
    args = action.get("args") if isinstance(action, Mapping) else None
    if not isinstance(action, Mapping) or not isinstance(args, Mapping):
        raise InvalidDecision(
            f'{at}: an edit looks like {{"edited_action": {{"name": …, "args": {{…}}}}}}', at
        )
    if action.get("name", request.tool) != request.tool:
        raise InvalidDecision(
            f"{at}: an edit cannot change the tool (the request is for {request.tool}): reject it "
            "and say what to do instead",
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
        raise InvalidDecision(f"{at} must be text", at)
    return value
