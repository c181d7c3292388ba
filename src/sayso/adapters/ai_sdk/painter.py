"""From what a client shows to what the store has: the difference, in chunks that it understands.

The rules that the client sets: a part is changed by its call's id, and its input only within the
step that was begun last; so whatever becomes of a call is told before the next step begins, which
is also the order in which it happens. A card that was answered must move, or the client posts the
answer again and again. What is told twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.adapters.ai_sdk import card
from sayso.adapters.ai_sdk.faces import Face, faces_of, words_of
from sayso.adapters.ai_sdk.reading import Reply
from sayso.adapters.ai_sdk.wire import Chunk
from sayso.redaction import redact
from sayso.rows import Call
from sayso.types import Json, Reviewer

_UNKNOWN = "This call is not known here, and nothing was run."


@dataclass(slots=True)
class Shown:
    """A tool part as the client has it."""

    state: str
    input: Json
    approval: str = ""


@dataclass(slots=True)
class Held:
    """The message that the client goes on with, as it says itself; it is only painted over."""

    steps: int = 0
    tools: dict[str, Shown] = field(default_factory=dict)
    #: The parts of its last step: while one of them looks answered, the client posts again.
    last: set[str] = field(default_factory=set)


def held_in(message: Mapping[str, Any] | None) -> Held:
    """Read the client's copy of a message."""
    held = Held()
    for part in message["parts"] if message is not None else ():
        if part["type"] == "step-start":
            held.steps += 1
            held.last = set()
        elif "toolCallId" in part:
            name, card_id = part["toolCallId"], part.get("approval", {}).get("id", "")
            held.tools[name] = Shown(part["state"], part.get("input"), card_id)
            held.last.add(name)
    return held


class Painter:
    """What one client has been told of one message."""

    def __init__(
        self,
        held: Held | None = None,
        *,
        recipe: bool,
        guest: Reviewer | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        held = held or Held()
        self._recipe = recipe
        self._guest = guest
        self._problems = problems or {}
        self._steps = held.steps
        self._tools = held.tools
        self._strangers = held.last
        self._cards: dict[str, Json] = {}
        #: What was painted last of each call of the last step, as rows.
        self._rows: dict[str, tuple[Call | None, ...]] = {}
        #: What was said of the text of the last step; nothing where the client has it already.
        self._said: str | None = None
        self._block = 0
        self._writing = False
        self._stepping = False

    # -- what is new

    def paint(self, replies: list[Reply], draft: str | None) -> Iterator[Chunk]:
        """Tell what has changed; ``draft`` is the next reply as far as it has come."""
        if not self._stepping:
            # A client may hold what was never stored, and may post no more of a step than a call.
            self._steps = max(min(self._steps, len(replies)), self._steps_with_calls(replies))
        first = max(self._steps - 1, 0)
        words = words_of(replies, self._guest)
        for index, reply in enumerate(replies[first:], first):
            if index >= self._steps:
                yield from self._step(index)
            yield from self._text(words[index], whole=True)
            for slot in reply.slots:
                rows = (slot.call, *slot.asks)
                if self._rows.get(slot.id) != rows:
                    self._rows[slot.id] = rows
                    for face in faces_of(slot, recipe=self._recipe, guest=self._guest):
                        yield from self._tool(face)
        if draft and self._guest is None:  # what looks like a secret is seen when it is whole
            if len(replies) >= self._steps:
                yield from self._step(len(replies))
            yield from self._text(draft, whole=False)

    def _steps_with_calls(self, replies: list[Reply]) -> int:
        """How many steps the client has seen, by the calls that it shows."""
        steps = 0
        for number, reply in enumerate(replies, 1):
            rows = (row for slot in reply.slots for row in (slot.call, *slot.asks))
            if any(row is not None and row.id in self._tools for row in rows):
                steps = number
        return steps

    def finish(self, chunk: Chunk) -> Iterator[Chunk]:
        """The last chunks: what the client shows and nobody knows is closed, too."""
        yield from self._hush()
        for name in sorted(self._strangers):
            yield {"type": "tool-output-error", "toolCallId": name, "errorText": _UNKNOWN}
        if self._stepping:
            yield {"type": "finish-step"}
        yield chunk if self._guest is None else redact(chunk).value

    # -- steps and text

    def _step(self, index: int) -> Iterator[Chunk]:
        yield from self._hush()
        if self._stepping:
            yield {"type": "finish-step"}
        yield {"type": "start-step"}
        self._stepping = True
        self._steps = index + 1
        self._said, self._block = "", 0
        self._rows = {}

    def _text(self, text: str, *, whole: bool) -> Iterator[Chunk]:
        if self._said is None:
            return
        if not text.startswith(self._said):
            # The model was asked anew: what it said first cannot be taken back.
            yield from self._hush()
            self._said, self._block = "", self._block + 1
        rest = text[len(self._said) :]
        if rest:
            if not self._writing:
                self._writing = True
                yield {"type": "text-start", "id": self._text_id}
            yield {"type": "text-delta", "id": self._text_id, "delta": rest}
            self._said = text
        if whole:
            yield from self._hush()

    @property
    def _text_id(self) -> str:
        return f"{self._steps}.{self._block}"

    def _hush(self) -> Iterator[Chunk]:
        if self._writing:
            self._writing = False
            yield {"type": "text-end", "id": self._text_id}

    # -- calls

    def _tool(self, face: Face) -> Iterator[Chunk]:
        old = self._tools.get(face.id)
        self._strangers.discard(face.id)
        new = Shown(_state(face), face.input, face.approval)
        if old is None or old != new:
            yield from self._moved(face, old, new)
            self._tools[face.id] = new
        if face.card is not None:
            problem = self._problems.get(face.id) if face.pending else None
            data = face.card if problem is None else {**face.card, "problem": problem}
            if self._cards.get(face.id) != data:
                self._cards[face.id] = data
                yield {"type": card.TYPE, "id": face.id, "data": data}

    def _moved(self, face: Face, old: Shown | None, new: Shown) -> Iterator[Chunk]:
        has_card = old is not None and old.approval == face.approval
        if old is None or old.input != face.input or _goes_back(face, old):
            yield {
                "type": "tool-input-available",
                "toolCallId": face.id,
                "toolName": face.name,
                "input": face.input,
            }
        if face.pending and face.approval:
            yield from self._warned(face)
            yield _request(face)
        elif face.denied and not has_card:
            yield _request(face)
        if face.end is not None:
            yield {**face.end, "toolCallId": face.id}

    def _warned(self, face: Face) -> Iterator[Chunk]:
        if face.warning:
            name = f"{face.approval}.warning"
            yield {"type": "text-start", "id": name}
            yield {"type": "text-delta", "id": name, "delta": face.warning}
            yield {"type": "text-end", "id": name}


def _request(face: Face) -> Chunk:
    return {
        "type": "tool-approval-request",
        "toolCallId": face.id,
        "approvalId": face.approval,
    }


def _state(face: Face) -> str:
    if face.end is not None:
        return f"{face.end}"
    if face.pending and face.approval:
        return "approval-requested"
    return "input-available"


def _goes_back(face: Face, old: Shown) -> bool:
    """Whether the client shows an answer that did not count."""
    return face.pending and old.state.startswith("output-")
