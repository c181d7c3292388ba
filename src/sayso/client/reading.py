"""What the server sends, as the values that a gate has: requests, and rows of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sayso import codec
from sayso.rows import Call, CallStatus
from sayso.types import (
    Decided,
    DecisionMade,
    Evidence,
    Execution,
    Micros,
    Request,
    Risk,
    Terms,
    VoteMade,
)
from sayso.views import question_from

Body = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def request_from(body: Body) -> Request:
    """A request from its JSON; ``digest`` is empty where the server masked something."""
    return Request(
        id=body["id"],
        kind=body["kind"],
        status=body["status"],
        agent=body["agent"],
        run=body["run"],
        thread=body["thread"],
        tool=body["tool"],
        args=body["args"],
        schema=body["schema"],
        question=None if body["question"] is None else question_from(body["question"]),
        title=body["title"],
        description=body["description"],
        note=body["note"],
        preview=body["preview"],
        digest=body["digest"] or "",
        revision=body["revision"],
        allowed=tuple(body["allowed"]),
        reviewers=tuple(body["reviewers"]),
        quorum=body["quorum"],
        votes=tuple(_vote(vote) for vote in body["votes"]),
        risk=Risk(body["risk"]["level"], tuple(body["risk"]["reasons"])),
        rule=body["rule"],
        requester=body["requester"],
        created_at=datetime.fromisoformat(body["created_at"]),
        expires_at=_moment(body["expires_at"]),
        decision=None if body["decision"] is None else _decision(body["decision"]),
        execution=Execution(**body["execution"]),
        original=body["original"],
        requester_decides=body.get("requester_decides", True),
        assurance=body.get("assurance", "code"),
        effect=body.get("effect", "once"),
        effect_key=body.get("effect_key", ""),
        evidence=_evidence(body.get("evidence")),
    )


def _evidence(body: Body | None) -> Evidence | None:
    if body is None:
        return None
    return Evidence(body["answer"], body["text"], datetime.fromisoformat(body["at"]))


def _vote(body: Body) -> VoteMade:
    at = datetime.fromisoformat(body["at"])
    return VoteMade(type="approve", by=body["by"], at=at, assurance=body["assurance"])


def _decision(body: Body) -> DecisionMade:
    return DecisionMade(
        type=body["type"],
        by=body["by"],
        at=datetime.fromisoformat(body["at"]),
        channel=body["channel"],
        assurance=body["assurance"],
        message=body.get("message", ""),
        args=body.get("args"),
        value=body.get("value"),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def row_of(request: Request, args: Body | None = None, attempt: int = 0) -> Call:
    """The row behind a request, as far as the code that runs or ends a call looks at it.

    The digest, the nonce and the signatures stay on the server, which has verified them.
    """
    status = request.execution.status
    if status == "none":
        status = "asked" if request.status == "pending" else request.status
    return Call(
        id=request.id,
        run=request.run,
        thread=request.thread,
        key=request.id,
        kind=request.kind,
        agent=request.agent,
        tool=request.tool or "",
        tool_digest="",
        args=codec.canonical(dict(request.args if args is None else args)).decode(),
        args_hash="",
        nonce="",
        terms=Terms(effect=request.effect),
        created=_micros(request.created_at),
        requester=request.requester,
        status=CallStatus(status),
        original=None if request.original is None else codec.dumps(request.original),
        decision=None if request.decision is None else _decided(request.decision),
        attempt=attempt or request.execution.attempts,
        result=_stored(request, status),
        effect_key=request.effect_key,
    )


def _stored(request: Request, status: str) -> str | None:
    result = request.execution.result
    if status not in ("done", "responded"):
        return None if result is None else str(result)
    return codec.dumps(result) if request.execution.kept else None


def _decided(decision: DecisionMade) -> Decided:
    return Decided(
        type=decision.type,
        by=decision.by,
        at=_micros(decision.at),
        channel=decision.channel,
        assurance=decision.assurance,
        digest="",
        signature="",
        message=decision.message,
        value=None if decision.value is None else codec.dumps(decision.value),
    )


def _micros(at: datetime) -> Micros:
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
