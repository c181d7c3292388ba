"""``DeferredToolResults`` as decisions: some calls now, others later, and none if one is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied
from pydantic_core import PydanticSerializationError

from sayso.adapters.pydantic_ai import results
from sayso.errors import InvalidDecision
from sayso.gate.given import decision_from
from sayso.types import Decision, Edit, Json, Request

#: The request behind the framework's id of a call.
Find = Callable[[str], Request | None]

_UNSAID = ToolDenied().message


def decisions_of(given: DeferredToolResults, find: Find) -> list[Decision]:
    """The decisions, each checked against its request before any of them counts."""
    made = [_approval(_found(id, find), answer, id) for id, answer in given.approvals.items()]
    return made + [_result(_found(id, find), value, id) for id, value in given.calls.items()]


def _found(id: str, find: Find) -> Request:
    request = find(id)
    if request is None:
        raise InvalidDecision(f"no call {id!r:.60} waits in this conversation", "approvals")
    return request


def _approval(request: Request, answer: Any, id: str) -> Decision:
    at = f"approvals[{id}]"
    if answer is True or (isinstance(answer, ToolApproved) and answer.override_args is None):
        return decision_from({"type": "approve"}, request, at)
    if isinstance(answer, ToolApproved):
        whole = {**_defaults(request), **(answer.override_args or {})}
        decision_from({"type": "edit", "args": whole}, request, at)
        return Edit(whole, request=request.id, seen_digest=request.digest)
    if answer is False or isinstance(answer, ToolDenied):
        said = answer.message if isinstance(answer, ToolDenied) else _UNSAID
        return _no(request, "" if said == _UNSAID else said, at)
    raise InvalidDecision(f"{at}: give True, False, ToolApproved or ToolDenied", at)


def _result(request: Request, value: Any, id: str) -> Decision:
    at = f"calls[{id}]"
    if isinstance(value, ToolFailed | ModelRetry):
        return _no(request, value.message, at)
    given = value.return_value if isinstance(value, ToolReturn) else value
    try:
        stored = results.dump(given)
    except PydanticSerializationError as error:
        raise InvalidDecision(f"{at}: {error}", at) from None
    return decision_from({"type": "respond", "value": stored}, request, at)


def _no(request: Request, message: str, at: str) -> Decision:
    return decision_from({"type": "reject", "message": message}, request, at)


def _defaults(request: Request) -> dict[str, Json]:
    known = (request.schema or {}).get("properties", {})
    return {name: rules["default"] for name, rules in known.items() if "default" in rules}
