"""What a person needs beside the arguments, as a data part: any version of the client takes one."""

from __future__ import annotations

from typing import Any

from sayso import codec, text
from sayso.rows import Call, CallStatus
from sayso.types import Json, moment
from sayso.views import content_of, decision_made, is_request, public_status

TYPE = "data-request"
_DOUBT_ANSWERS = ("approve", "respond", "reject")


def card_of(call: Call, approval: str) -> Json:
    """The request behind a tool part; nothing for a call that nobody is asked about."""
    if not is_request(call):
        return None
    terms, args = call.terms, content_of(call)
    in_doubt = call.status is CallStatus.IN_DOUBT
    status = public_status(call)
    ends = call.expires_at
    card: dict[str, Any] = {
        "id": call.id,
        "kind": "in_doubt" if in_doubt else call.kind,
        "status": status,
        "tool": call.tool or None,
        "toolCallId": call.id,
        "approvalId": approval or None,
        "revision": call.rev,
        "allowed": list(_DOUBT_ANSWERS if in_doubt else terms.allowed),
        "description": text.visible(terms.description).text,
        "note": text.visible(call.note).text,
        "risk": {"level": terms.risk.level, "reasons": list(terms.risk.reasons)},
        "rule": terms.rule,
        "reviewers": list(terms.reviewers),
        "quorum": terms.quorum,
        "votes": [vote.by for vote in call.votes],
        "expiresAt": None if ends is None else moment(ends).isoformat(),
        "question": args if call.kind == "question" else None,
        "preview": codec.loads(call.preview) if call.preview else None,
        "original": None if call.original is None else codec.loads(call.original),
        "decision": None if in_doubt else _decision(call),
    }
    if status == "pending" and call.kind != "question":
        card["shown"] = text.lines(args)
        card["warnings"] = list(text.notes(args))
    return {name: value for name, value in card.items() if value not in (None, "", [])}


def _decision(call: Call) -> Json:
    made = decision_made(call)
    if made is None:
        return None
    said = {"type": made.type, "by": made.by, "at": made.at.isoformat(), "channel": made.channel}
    return {**said, "message": made.message} if made.message else said
