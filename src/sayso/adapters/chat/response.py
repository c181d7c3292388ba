"""One response: a run written from the store, and updated as the store changes, until nothing is
left to do.

A wire says what to send at the start, for each change, and at the end.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from sayso import codec
from sayso.adapters.chat.live import ChangeSignal, RunTask, listener_of
from sayso.adapters.chat.views import RunView
from sayso.errors import SaysoError
from sayso.sync import read

if TYPE_CHECKING:
    from sayso.agent import Agent

log = logging.getLogger("sayso.adapters.chat")

Frames: TypeAlias = AsyncGenerator[str, None]
#: One event of a wire.
Chunk: TypeAlias = dict[str, Any]

EVENT_STREAM: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-accel-buffering": "no",
}
KEEP_ALIVE = ": keep-alive\n\n"
KEEP_ALIVE_SECONDS = 15.0

_ERROR_TEXT = "Something went wrong. Nothing is lost: send the message again, or reload."


@dataclass(slots=True, kw_only=True)
class ChatResponse:
    """The response to one client about one run."""

    agent: Agent
    view: RunView
    run_task: RunTask | None
    #: What every response ends with.
    done: str = ""
    #: ``run.wake`` when the run was last resumed here.
    _wake: int = field(init=False)
    #: Whether the task was over when everything was last read.
    _over: bool = False

    def __post_init__(self) -> None:
        self._wake = -1 if self.view.run is None else self.view.run.wake

    # -- what a wire says

    def start(self) -> Chunk:
        """Return the first chunk."""
        raise NotImplementedError

    async def news(self) -> Iterable[Chunk]:
        """Return what has changed since the last call."""
        raise NotImplementedError

    async def finish(self, error: BaseException | None) -> Iterable[Chunk]:
        """Return the last chunks. ``error`` is what ended the run or this response, if anything."""
        raise NotImplementedError

    # -- frames

    def frames(self) -> Frames:
        """Return the response as frames. A client that stops reading stops nothing else.

        It listens from now on, so a view that was read just now need not be read again.
        """
        signal = ChangeSignal(self.view.store, self.view.thread, listener_of(self.agent))
        frames = self._frames(signal)
        weakref.finalize(frames, signal.close)  # the client may disconnect before the first frame
        return frames

    async def _frames(self, signal: ChangeSignal) -> Frames:
        text = _framed([self.start()])
        error: BaseException | None = None
        with closing(signal):
            try:
                if self.view.run is None:
                    await self._read_all()
                while await self._has_more(signal):
                    text += _framed(await self.news())
                    if text:
                        yield text
                    text = ""
                    while not await signal.wait(KEEP_ALIVE_SECONDS):
                        yield KEEP_ALIVE
                    if signal.was_stale():
                        await self._read_all()
                text += _framed(await self.news())
            except SaysoError as failure:  # the store cannot be reached
                error = failure
        if error is None and self.run_task is not None:
            error = self.run_task.error
        yield text + _framed(await self.finish(error)) + self.done

    async def _read_all(self) -> None:
        """Read everything again, including what the task wrote if it was over before."""
        self._over = self.run_task is not None and self.run_task.task.done()
        await read(self.view.store, self.view.refresh)

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
        if run_task is not None and run.wake == self._wake:
            return False  # no decision since it was last resumed
        self.run_task = RunTask(self.agent.stream_resume(run.id))
        self._wake = run.wake
        self._over = False
        signal.watch(self.run_task.task)
        return True

    @property
    def draft(self) -> str | None:
        """The text so far of the reply that the model is writing, if it is the next one."""
        draft = listener_of(self.agent).drafts.get(self.view.id)
        if draft is None or draft.turn != len(self.view.replies) + 1:
            return None
        # Half a surrogate pair cannot be encoded, and the stored reply does not have it either.
        return draft.text if draft.text.isascii() else draft.text.encode(errors="replace").decode()


def _framed(chunks: Iterable[Chunk]) -> str:
    return "".join(f"data: {codec.dumps(chunk)}\n\n" for chunk in chunks)


def error_text(error: BaseException) -> str:
    """Return an error's text for the browser. Errors that are not our own are only logged."""
    if isinstance(error, SaysoError):
        return str(error)
    log.error("a run failed", exc_info=error)
    return _ERROR_TEXT
