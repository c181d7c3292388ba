"""One response to ``useChat``: what its message shows, and the difference to the store.

``StreamWriter`` compares what the client shows with what the store has, and sends the difference.
The client sets the rules: a part is changed by its call's id, and its input only within the step
that was begun last. So the outcome of a call is sent before the next step begins, which is also the
order in which it happens. A card that was answered must change, or the client posts the answer
again and again. For the same reason, a run that ends with calls gets an empty step after them: in
the step that was begun last, the client takes finished calls for answers that it has to post.
Sending something twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.adapters.ai_sdk.views import CARD_TYPE, end_chunk, part_views
from sayso.adapters.chat.response import ChatResponse, Chunk, error_text
from sayso.adapters.chat.views import Guest, Reply, ToolView, words_of
from sayso.rows import LIVE, Call, RunStatus
from sayso.types import Json


@dataclass(slots=True, kw_only=True)
class UiResponse(ChatResponse):
    """A response that writes one message."""

    writer: StreamWriter
    #: The id of the message that the client shows.
    message: str

    def start(self) -> Chunk:
        ids = {"messageId": self.message} if self.message else {}
        return {"type": "start", **ids}

    async def news(self) -> Iterable[Chunk]:
        return self.writer.write(self.view.replies, self.draft)

    async def finish(self, error: BaseException | None) -> Iterable[Chunk]:
        return self.writer.finish(self._end(error))

    def _end(self, error: BaseException | None) -> Chunk:
        if error is not None:
            return {"type": "error", "errorText": error_text(error)}
        run = self.view.run
        if run is None or run.status is RunStatus.DONE:
            return {"type": "finish", "finishReason": "stop"}
        if run.status in LIVE:
            return {"type": "finish", "finishReason": "tool-calls"}
        if run.status is RunStatus.CANCELLED:
            return {"type": "finish", "finishReason": "other"}
        if self.view.replies and self.view.replies[-1].refused:
            return {"type": "finish", "finishReason": "content-filter"}
        return {"type": "error", "errorText": run.output or "the run failed"}


# -- the difference to what the client shows


_UNKNOWN = "This call is unknown, and nothing was run."


@dataclass(slots=True)
class ClientTool:
    """A tool part as the client shows it."""

    state: str
    input: Json
    approval: str = ""


@dataclass(slots=True)
class ClientMessage:
    """The client's copy of the message that it continues: written over, never trusted."""

    steps: int = 0
    tools: dict[str, ClientTool] = field(default_factory=dict)
    #: The tool parts of its last step. While one of them looks answered, the client posts again.
    last: set[str] = field(default_factory=set)


def client_message(message: Mapping[str, Any] | None) -> ClientMessage:
    held = ClientMessage()
    for part in message["parts"] if message is not None else ():
        if part["type"] == "step-start":
            held.steps += 1
            held.last = set()
        elif "toolCallId" in part:
            name, card_id = part["toolCallId"], part.get("approval", {}).get("id", "")
            held.tools[name] = ClientTool(part["state"], part.get("input"), card_id)
            held.last.add(name)
    return held


class StreamWriter:
    """What one client was sent of one message."""

    def __init__(
        self,
        held: ClientMessage | None = None,
        *,
        recipe: bool,
        guest: Guest | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        held = held or ClientMessage()
        self._recipe = recipe
        self._guest = guest
        self._problems = problems or {}
        self._steps = held.steps
        self._tools = held.tools
        self._unknown = held.last
        #: Whether there are calls in the client's last step, as long as no other is begun.
        self._holds_calls = bool(held.last)
        self._cards: dict[str, Json] = {}
        #: The rows of each call of the last step as they were last sent.
        self._rows: dict[str, list[Call]] = {}
        #: The text that was sent of the last step; None if the client has it already.
        self._sent_text: str | None = None
        self._block = 0
        self._writing = False
        self._stepping = False

    def write(self, replies: list[Reply], draft: str | None) -> Iterator[Chunk]:
        """Send what has changed; ``draft`` is the text of the next reply so far."""
        if not self._stepping:
            # A client may show what was never stored, and may post only one call of a step.
            started = [any(row.id in self._tools for row in reply.rows) for reply in replies]
            with_calls = (number for number, is_started in enumerate(started, 1) if is_started)
            self._steps = max([min(self._steps, len(replies)), *with_calls])
        first = max(self._steps - 1, 0)
        words = words_of(replies, self._guest)
        for index, reply in enumerate(replies[first:], first):
            if index >= self._steps:
                yield from self._step(index)
            yield from self._text(words[index], whole=True)
            for slot in reply.slots:
                if self._rows.get(slot.id) != slot.rows:
                    self._rows[slot.id] = slot.rows
                    for view in part_views(slot, recipe=self._recipe, guest=self._guest):
                        yield from self._tool(view)
        if draft and self._guest is None:  # redaction needs the whole text
            if len(replies) >= self._steps:
                yield from self._step(len(replies))
            yield from self._text(draft, whole=False)

    def finish(self, chunk: Chunk) -> Iterator[Chunk]:
        """Send the last chunks, and close calls that only the client knows."""
        yield from self._end_text()
        for name in sorted(self._unknown):
            yield {"type": "tool-output-error", "toolCallId": name, "errorText": _UNKNOWN}
        ends_with_calls = bool(self._rows) if self._stepping else self._holds_calls
        if self._stepping:
            yield {"type": "finish-step"}
        if ends_with_calls and chunk.get("finishReason") not in (None, "tool-calls"):
            yield {"type": "start-step"}
            # The client notices a step with its first part.
            yield {"type": "text-start", "id": "end"}
            yield {"type": "text-end", "id": "end"}
            yield {"type": "finish-step"}
        yield chunk if self._guest is None else self._guest.redact(chunk)

    # -- steps and text

    def _step(self, index: int) -> Iterator[Chunk]:
        yield from self._end_text()
        if self._stepping:
            yield {"type": "finish-step"}
        yield {"type": "start-step"}
        self._stepping = True
        self._steps = index + 1
        self._sent_text, self._block = "", 0
        self._rows = {}

    def _text(self, text: str, *, whole: bool) -> Iterator[Chunk]:
        if self._sent_text is None:
            return
        if not text.startswith(self._sent_text):
            # The model was called again, and text that was sent cannot be taken back.
            yield from self._end_text()
            self._sent_text, self._block = "", self._block + 1
        rest = text[len(self._sent_text) :]
        if rest:
            if not self._writing:
                self._writing = True
                yield {"type": "text-start", "id": self._text_id}
            yield {"type": "text-delta", "id": self._text_id, "delta": rest}
            self._sent_text = text
        if whole:
            yield from self._end_text()

    @property
    def _text_id(self) -> str:
        return f"{self._steps}.{self._block}"

    def _end_text(self) -> Iterator[Chunk]:
        if self._writing:
            self._writing = False
            yield {"type": "text-end", "id": self._text_id}

    # -- calls

    def _tool(self, view: ToolView) -> Iterator[Chunk]:
        old = self._tools.get(view.id)
        self._unknown.discard(view.id)
        new = ClientTool(_state(view), view.input, view.approval)
        if old is None or old != new:
            yield from self._changes(view, old)
            self._tools[view.id] = new
        if view.card is not None:
            problem = self._problems.get(view.id) if view.pending else None
            data = view.card if problem is None else {**view.card, "problem": problem}
            if self._cards.get(view.id) != data:
                self._cards[view.id] = data
                yield {"type": CARD_TYPE, "id": view.id, "data": data}

    def _changes(self, view: ToolView, old: ClientTool | None) -> Iterator[Chunk]:
        has_card = old is not None and old.approval == view.approval
        # The client may show an answer that did not count.
        undone = view.pending and old is not None and old.state.startswith("output-")
        if old is None or old.input != view.input or undone:
            yield {
                "type": "tool-input-available",
                "toolCallId": view.id,
                "toolName": view.name,
                "input": view.input,
            }
        waits = view.pending and bool(view.approval)
        if waits and view.warning:
            name = f"{view.approval}.warning"
            yield {"type": "text-start", "id": name}
            yield {"type": "text-delta", "id": name, "delta": view.warning}
            yield {"type": "text-end", "id": name}
        if waits or (view.denied and not has_card):
            yield {
                "type": "tool-approval-request",
                "toolCallId": view.id,
                "approvalId": view.approval,
            }
        if view.end is not None:
            yield {**end_chunk(view.end), "toolCallId": view.id}


def _state(view: ToolView) -> str:
    if view.end is not None:
        return f"{view.end}"
    if view.pending and view.approval:
        return "approval-requested"
    return "input-available"
