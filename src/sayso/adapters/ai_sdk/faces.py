"""A call as the client shows it: a tool part, in one of the few states that it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sayso import codec, text
from sayso.adapters.ai_sdk.card import card_of
from sayso.adapters.ai_sdk.reading import Exchange, Reply, Slot
from sayso.adapters.ai_sdk.recipe import DENIED
from sayso.adapters.ai_sdk.wire import Chunk, approval_id
from sayso.inbox.people import WORDS_FOR_OTHERS, asks, may_see, words_for_others
from sayso.redaction import redact
from sayso.rows import OPEN, Call, CallStatus
from sayso.types import Json, Reviewer
from sayso.views import content_of

_PENDING = (CallStatus.ASKED, CallStatus.IN_DOUBT)
#: How calls end that people were asked about, and that did not run.
_NOT_RUN = {
    CallStatus.REJECTED: "A person rejected this call, so it was not run.",
    CallStatus.EXPIRED: "Nobody decided in time, so it was not run.",
    CallStatus.CANCELLED: "It was cancelled before it ran.",
    CallStatus.SUPERSEDED: "Something new was said instead of deciding, so it was not run.",
}
_DOUBT = (
    "{tool} was started, and nobody knows whether it took effect. "
    "To approve runs it again; to deny gives it up."
)
_FOR_OTHERS = "What came of this call is for other reviewers."
QUESTION = "ask_user_question"


@dataclass(frozen=True, slots=True)
class Face:
    """What is to be seen of a call: its input, and an open question or its end."""

    id: str
    name: str
    input: Json
    #: Whether a person is waited for.
    pending: bool = False
    #: The id of the card, where a yes or no is asked or was asked; else the part is answered.
    approval: str = ""
    #: The chunk that ends it, without the id.
    end: Chunk | None = None
    #: Why it did not run, in words.
    reason: str = ""
    #: Said before the card.
    warning: str = ""
    card: Json = None

    @property
    def denied(self) -> bool:
        """Whether it ended with a no."""
        return self.end is not None and self.end["type"] == "tool-output-denied"


def faces_of(slot: Slot, *, recipe: bool, guest: Reviewer | None = None) -> list[Face]:
    """The call of a slot, and what was asked from inside it; to guests without its secrets, and of
    what is for others no more than the name."""
    if slot.call is None:
        faces = [_unreadable(slot)]
        return faces if guest is None else [_masked(face) for face in faces]
    calls = (slot.call, *slot.asks)
    if guest is None:
        return [face_of(call, recipe=recipe) for call in calls]
    return [
        _masked(face_of(call, recipe=recipe)) if may_see(guest, call) else _veiled(call)
        for call in calls
    ]


def words_of(replies: Sequence[Reply], guest: Reviewer | None) -> list[str]:
    """What the model said beside its calls, reply by reply; to guests without its secrets, and not
    what may tell of calls for others."""
    if guest is None:
        return [reply.text for reply in replies]
    veiled = words_for_others(guest, map(_calls_of, replies))
    return [
        WORDS_FOR_OTHERS if others and reply.text else str(redact(reply.text).value)
        for reply, others in zip(replies, veiled, strict=True)
    ]


def asked_words(exchange: Exchange, guest: Reviewer | None) -> str:
    """What the user said; to guests only if something that they may see was asked for it."""
    if guest is None:
        return exchange.words
    calls = [call for reply in exchange.replies for call in _calls_of(reply)]
    others = any(not may_see(guest, call) for call in calls) and not asks(guest, calls)
    return WORDS_FOR_OTHERS if others else exchange.words


def _calls_of(reply: Reply) -> list[Call]:
    return [row for slot in reply.slots for row in (slot.call, *slot.asks) if row is not None]


def _masked(face: Face) -> Face:
    input, end, card = (redact(value).value for value in (face.input, face.end, face.card))
    if "shown" in (card or {}):
        card["shown"] = text.lines(input)
    return replace(face, input=input, end=end, card=card, reason=redact(face.reason).value)


def _veiled(call: Call) -> Face:
    """A call that is for other reviewers: that it was made, and whether it is over."""
    end = None if call.status in OPEN else _output(_FOR_OTHERS)
    return Face(call.id, _name(call), {}, end=end)


def _unreadable(slot: Slot) -> Face:
    """A call that could not be made at all: the model was told why."""
    try:
        given = codec.loads(slot.arguments or "{}")
    except ValueError:
        given = slot.arguments
    text = codec.loads(slot.error)["error"] if slot.error else "Nothing is known of it any more."
    return Face(slot.id, slot.name, given, end=_error(text))


def face_of(call: Call, *, recipe: bool) -> Face:
    """One row as it is shown."""
    args = content_of(call)
    question = call.kind == "question"
    pending = call.status in _PENDING
    doubt = call.status is CallStatus.IN_DOUBT
    confirms = doubt or (not question and call.asked and "approve" in call.terms.allowed)
    # The recipe's Yes names no revision, so that it can only speak of the first.
    asked = confirms and (doubt or not recipe or call.rev > 1)
    end, reason = (None, "") if pending else _end(call, denies=asked)
    return Face(
        id=call.id,
        name=_name(call),
        input=_asked(args) if question else args,
        pending=pending,
        approval=approval_id(call) if asked else "",
        end=end,
        reason=reason,
        warning=_DOUBT.format(tool=call.tool or "The call") if doubt else "",
        card=card_of(call, approval_id(call) if asked and pending else ""),
    )


def _name(call: Call) -> str:
    return call.tool or (QUESTION if call.kind == "question" else "approve")


def _asked(question: dict[str, Any]) -> dict[str, Json]:
    """A question in the words in which models ask it."""
    asked = {
        "question": question["text"],
        "options": question["options"],
        "allow_multiple": question["multiple"],
        "free_text": question["free_text"],
        "schema": question["schema"],
    }
    return {name: value for name, value in asked.items() if value is not None}


def _end(call: Call, *, denies: bool) -> tuple[Chunk | None, str]:
    """How a call has ended, if it has, and why it did not run."""
    if call.status is CallStatus.DONE:
        return _output(codec.loads(call.result or "null")), ""
    if call.status is CallStatus.RESPONDED:
        value = codec.loads(call.result or "null")
        return _output({"answer": value} if call.kind == "question" else value), ""
    if call.status is CallStatus.FAILED:
        return _error(call.result or "failed"), ""
    if call.status not in _NOT_RUN:
        return None, ""
    why = call.decision.message if call.decision is not None else ""
    by_person = call.asked and call.status is CallStatus.REJECTED
    if not call.asked:
        text = f"This call is forbidden by policy and was not run. {why}".strip()
        return _error(text), text
    if by_person and call.kind == "question":
        return _error(f"The user will not answer. {why}".strip()), why
    if denies:
        return {"type": "tool-output-denied"}, (by_person and why) or _NOT_RUN[call.status]
    if by_person and "approve" in call.terms.allowed:
        return _output(DENIED), why
    return _error(f"{_NOT_RUN[call.status]} {why}".strip()), why


def _output(value: Json) -> Chunk:
    return {"type": "tool-output-available", "output": value}


def _error(text: str) -> Chunk:
    return {"type": "tool-output-error", "errorText": text}
