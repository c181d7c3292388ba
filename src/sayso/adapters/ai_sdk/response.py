"""One response: a message written from the store, and updated as the store changes, until nothing
is left to do.

``StreamWriter`` compares what the client shows with what the store has, and sends the difference.
The client sets the rules: a part is changed by its call's id, and its input only within the step
that was begun last. So the outcome of a call is sent before the next step begins, which is also the
order in which it happens. A card that was answered must change, or the client posts the answer
again and again. Sending something twice does no harm.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sayso.adapters.ai_sdk.live import AgentListener, Changes, ChangeSignal, RunTask
from sayso.adapters.ai_sdk.views import (
    CARD_TYPE,
    DONE,
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    Chunk,
    Reply,
    RunView,
    ToolView,
    frame,
    tool_views,
    words_of,
)
from sayso.errors import SaysoError
from sayso.redaction import redact
from sayso.rows import LIVE, Call, RunStatus
from sayso.sync import read
from sayso.types import Json, Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent

log = logging.getLogger("sayso.adapters.ai_sdk")

_ERROR_TEXT = "Something went wrong. Nothing is lost: send the message again, or reload."


@dataclass(slots=True, kw_only=True)
class ChatResponse:
    """The response to one client about one run."""

    agent: Agent
    listener: AgentListener
    view: RunView
    writer: StreamWriter
    run_task: RunTask | None
    #: The id of the message that the client shows.
    message: str
    #: ``run.wake`` when the run was last resumed here.
    wake: int = -1
    #: Whether the task was over when everything was last read.
    _over: bool = False

    def frames(self) -> AsyncGenerator[str, None]:
        """Return the response as frames. A client that stops reading stops nothing else.

        It listens from now on, so a view that was read just now need not be read again.
        """
        signal = ChangeSignal(self.view.store, self.view.thread, self.listener)
        frames = self._frames(signal)
        weakref.finalize(frames, signal.close)  # the client may disconnect before the first frame
        return frames

    async def _frames(self, signal: ChangeSignal) -> AsyncGenerator[str, None]:
        named = {"messageId": self.message} if self.message else {}
        text = frame({"type": "start", **named})
        end: Chunk | None = None
        with closing(signal):
            try:
                if self.view.run is None:
                    await self._read_all()
                while await self._has_more(signal):
                    text += "".join(map(frame, self._news()))
                    if text:
                        yield text
                    text = ""
                    while not await signal.wait(KEEP_ALIVE_SECONDS):
                        yield KEEP_ALIVE
                    await self._catch_up(signal.news())
            except SaysoError as error:  # the store cannot be reached
                end = {"type": "error", "errorText": _error_text(error)}
        text += "".join(map(frame, self._news()))
        yield text + "".join(map(frame, self.writer.finish(end or self._end()))) + DONE

    async def _read_all(self) -> None:
        """Read everything again, including what the task wrote if it was over before."""
        self._over = self.run_task is not None and self.run_task.task.done()
        await read(self.view.store, self.view.refresh)

    async def _catch_up(self, news: Changes) -> None:
        view = self.view
        if news.stale:
            await self._read_all()
        elif news.calls or (news.answered and any(c.id in news.answered for c in view.waiting)):
            await read(view.store, view.refresh_calls)

    async def _has_more(self, signal: ChangeSignal) -> bool:
        """Return whether there is more to come. Resumes a run that is ready and not running."""
        run_task = self.run_task
        if run_task is not None and not run_task.task.done():
            signal.watch(run_task.task)
            return True
        if run_task is not None and not self._over:
            await self._read_all()  # the task may have ended during the last read
        run = self.view.run
        if (run_task is not None and run_task.error is not None) or run is None or self.view.idle:
            return False
        if run_task is not None and run.wake == self.wake:
            return False  # no decision since it was last resumed
        self.run_task, self.wake = RunTask(self.agent.stream_resume(run.id)), run.wake
        self._over = False
        signal.watch(self.run_task.task)
        return True

    def _news(self) -> Iterator[Chunk]:
        replies = self.view.replies
        draft = self.listener.drafts.get(self.view.id)
        coming = draft is not None and draft.turn == len(replies) + 1
        text = draft.text if draft is not None and coming else None
        # Half a surrogate pair cannot be encoded, and the stored reply does not have it either.
        clean = text if text is None or text.isascii() else text.encode(errors="replace").decode()
        return self.writer.write(replies, clean)

    def _end(self) -> Chunk:
        error = None if self.run_task is None else self.run_task.error
        if error is not None:
            return {"type": "error", "errorText": _error_text(error)}
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


def _error_text(error: BaseException) -> str:
    """Return an error's text for the browser. Errors that are not our own are only logged."""
    if isinstance(error, SaysoError):
        return str(error)
    log.error("a run failed", exc_info=error)
    return _ERROR_TEXT


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
        guest: Reviewer | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        held = held or ClientMessage()
        self._recipe = recipe
        self._guest = guest
        self._problems = problems or {}
        self._steps = held.steps
        self._tools = held.tools
        self._unknown = held.last
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
            seen = [any(row.id in self._tools for row in reply.rows) for reply in replies]
            with_calls = (number for number, shown in enumerate(seen, 1) if shown)
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
                    for view in tool_views(slot, recipe=self._recipe, guest=self._guest):
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
        if self._stepping:
            yield {"type": "finish-step"}
        yield chunk if self._guest is None else redact(chunk).value

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
            yield {**view.end, "toolCallId": view.id}


def _state(view: ToolView) -> str:
    if view.end is not None:
        return f"{view.end}"
    if view.pending and view.approval:
        return "approval-requested"
    return "input-available"
