"""Stored exchanges as UIMessages: what a page shows before any stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sayso.adapters.ai_sdk import card
from sayso.adapters.ai_sdk.faces import Face, faces_of, words_of
from sayso.adapters.ai_sdk.reading import Exchange, Reply
from sayso.redaction import redact
from sayso.types import Reviewer

_STATES = {
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
    "tool-output-denied": "output-denied",
}


def user_message(run: str, words: str, *, guest: Reviewer | None = None) -> dict[str, Any]:
    """What the user said."""
    text = words if guest is None else redact(words).value
    return {
        "id": f"{run}.user",
        "role": "user",
        "parts": [{"type": "text", "text": text}],
    }


def assistant_message(
    exchange: Exchange, *, recipe: bool, guest: Reviewer | None = None
) -> dict[str, Any]:
    """The answer so far; its id is that of the run, so that a stream goes on with it."""
    words = words_of(exchange.replies, guest)
    said = zip(exchange.replies, words, strict=True)
    parts = [part for reply, text in said for part in _parts(reply, text, recipe, guest)]
    return {"id": exchange.run, "role": "assistant", "parts": parts}


def _parts(
    reply: Reply, text: str, recipe: bool, guest: Reviewer | None
) -> Iterator[dict[str, Any]]:
    yield {"type": "step-start"}
    if text:
        yield {"type": "text", "text": text, "state": "done"}
    for slot in reply.slots:
        for face in faces_of(slot, recipe=recipe, guest=guest):
            if face.warning:
                yield {"type": "text", "text": face.warning, "state": "done"}
            yield _tool(face)
            if face.card is not None:
                yield {"type": card.TYPE, "id": face.id, "data": face.card}


def _tool(face: Face) -> dict[str, Any]:
    part: dict[str, Any] = {"type": f"tool-{face.name}", "toolCallId": face.id}
    part |= {"state": "input-available", "input": face.input}
    if face.end is not None:
        part["state"] = _STATES[face.end["type"]]
        part |= {name: value for name, value in face.end.items() if name != "type"}
    if face.denied:
        part["approval"] = {"id": face.approval, "approved": False, "reason": face.reason}
    elif face.approval and face.pending:
        part["state"] = "approval-requested"
        part["approval"] = {"id": face.approval}
    elif face.approval and face.end is not None:
        part["approval"] = {"id": face.approval, "approved": True}
    return part
