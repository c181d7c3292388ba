"""Requests and staged decisions as JSON inside an exported state, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sayso.errors import InvalidDecision
from sayso.types import Approve, Decision, Edit, Execution, Json, Reject, Request, Respond, Risk
from sayso.views import kept_question, question_from, request_json

_KINDS: dict[str, type[Decision]] = {
    "approve": Approve,
    "edit": Edit,
    "reject": Reject,
    "respond": Respond,
}
_CONTENT = ("args", "message", "value")
#: What the store knows better, or what only a store can vouch for.
_LEFT_OUT = (
    "schema",
    "votes",
    "decision",
    "execution",
    "original",
    "requester_decides",
    "assurance",
    "effect",
    "effect_key",
    "evidence",
)


@dataclass(frozen=True, slots=True)
class Staged:
    """A decision that is not written yet."""

    decision: Decision
    by: str


def staged_to(staged: Staged) -> dict[str, Json]:
    """A staged decision as JSON."""
    decision = staged.decision
    shown: dict[str, Json] = {
        "type": decision.type,
        "by": staged.by,
        "request": decision.request,
        "digest": decision.seen_digest,
    }
    return shown | {n: getattr(decision, n) for n in _CONTENT if hasattr(decision, n)}


def staged_from(value: Mapping[str, Any]) -> Staged:
    """A staged decision read back."""
    kind = _KINDS.get(value["type"])
    if kind is None:
        raise InvalidDecision(f"no decision of type {value['type']!r}", "type")
    content = {name: value[name] for name in _CONTENT if name in value}
    decision = kind(request=value["request"], seen_digest=value["digest"], **content)
    return Staged(decision, value["by"])


def request_to(request: Request) -> dict[str, Json]:
    """An open request as JSON: what a person needs in order to decide."""
    shown = request_json(request)
    if request.question is not None:  # the text of a state is sorted, too
        shown["question"] = kept_question(request.question)
    return {name: value for name, value in shown.items() if name not in _LEFT_OUT and value}


def request_from(value: Mapping[str, Any], run: str, thread: str) -> Request:
    """An open request read back; the store has the rest of it."""
    question = None if value.get("question") is None else question_from(value["question"])
    ends = value.get("expires_at")
    return Request(
        id=value["id"],
        kind=value["kind"],
        status=value["status"],
        agent=value.get("agent", ""),
        run=value.get("run", run),
        thread=value.get("thread", thread),
        tool=value.get("tool"),
        args=value.get("args", {}),
        schema=None if question is None else question.schema,
        question=question,
        title=value.get("title", ""),
        description=value.get("description", ""),
        note=value.get("note", ""),
        preview=value.get("preview"),
        digest=value["digest"],
        revision=value["revision"],
        allowed=tuple(value["allowed"]),
        reviewers=tuple(value.get("reviewers", ())),
        quorum=value["quorum"],
        votes=(),
        risk=Risk(value["risk"]["level"], tuple(value["risk"]["reasons"])),
        rule=value.get("rule", ""),
        requester=value.get("requester", ""),
        created_at=datetime.fromisoformat(value["created_at"]),
        expires_at=None if ends is None else datetime.fromisoformat(ends),
        decision=None,
        execution=Execution("none", 0),
    )
