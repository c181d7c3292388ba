"""One response: a message painted from the store, and on as it changes, until it stands still."""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sayso.adapters.ai_sdk import driving
from sayso.adapters.ai_sdk.bell import Bell, News
from sayso.adapters.ai_sdk.driving import Drive
from sayso.adapters.ai_sdk.ear import Ear
from sayso.adapters.ai_sdk.painter import Painter
from sayso.adapters.ai_sdk.reading import RunView
from sayso.adapters.ai_sdk.wire import DONE, KEEP_ALIVE, KEEP_ALIVE_SECONDS, Chunk, frame
from sayso.errors import SaysoError
from sayso.rows import LIVE, RunStatus
from sayso.twin import look

if TYPE_CHECKING:
    from sayso.agent import Agent

log = logging.getLogger("sayso.adapters.ai_sdk")

_BROKE = "Something went wrong. Nothing is lost: send the message again, or reload."


@dataclass(slots=True, kw_only=True)
class Telling:
    """What is told to one client about one run."""

    agent: Agent
    ear: Ear
    view: RunView
    painter: Painter
    drive: Drive | None
    #: The id of the message that the client shows.
    message: str
    #: How often people had woken the run when it was last driven on.
    wake: int = -1
    #: Whether the drive was over when everything was last read.
    _over: bool = False

    def frames(self) -> AsyncGenerator[str, None]:
        """The response, as frames that come together; who stops reading stops nothing else.

        It listens from now on, so that a view which was read just now need not be read again.
        """
        bell = Bell(self.view.store, self.view.thread, self.ear)
        told = self._told(bell)
        weakref.finalize(told, bell.close)  # a client may go away before the first frame
        return told

    async def _told(self, bell: Bell) -> AsyncGenerator[str, None]:
        named = {"messageId": self.message} if self.message else {}
        text = frame({"type": "start", **named})
        end: Chunk | None = None
        with closing(bell):
            try:
                if self.view.run is None:
                    await self._look()
                while await self._goes_on(bell):
                    text += "".join(map(frame, self._news()))
                    if text:
                        yield text
                    text = ""
                    while not await bell.wait(KEEP_ALIVE_SECONDS):
                        yield KEEP_ALIVE
                    await self._catch_up(bell.news())
            except SaysoError as error:  # the store is away, and what it holds is not lost
                end = {"type": "error", "errorText": _told(error)}
        text += "".join(map(frame, self._news()))
        yield text + "".join(map(frame, self.painter.finish(end or self._end()))) + DONE

    async def _look(self) -> None:
        """Read everything again; what the drive wrote is in it, if it was over before."""
        self._over = self.drive is not None and self.drive.task.done()
        await look(self.view.store, self.view.refresh)

    async def _catch_up(self, news: News) -> None:
        """Read what was heard of, and no more."""
        view = self.view
        if news.stale:
            await self._look()
        elif news.calls or (news.answered and any(c.id in news.answered for c in view.waiting)):
            await look(view.store, view.refresh_calls)

    async def _goes_on(self, bell: Bell) -> bool:
        """Whether there is more to come; a run that is due and that nobody drives is driven."""
        drive = self.drive
        if drive is not None and not drive.task.done():
            bell.watch(drive.task)
            return True
        if drive is not None and not self._over:
            await self._look()  # it may have ended while we looked
        run = self.view.run
        if (drive is not None and drive.error is not None) or run is None or self.view.still:
            return False
        if drive is not None and run.wake == self.wake:
            return False  # it was looked at since anybody decided, and there is no more to do
        self.drive, self.wake = driving.go_on(self.agent, run.id), run.wake
        self._over = False
        bell.watch(self.drive.task)
        return True

    def _news(self) -> Iterator[Chunk]:
        replies = self.view.replies
        draft = self.ear.drafts.get(self.view.id)
        coming = draft is not None and draft.turn == len(replies) + 1
        text = draft.text if draft is not None and coming else None
        # Half a surrogate pair has no bytes, and the stored reply will not have it either.
        clean = text if text is None or text.isascii() else text.encode(errors="replace").decode()
        return self.painter.paint(replies, clean)

    def _end(self) -> Chunk:
        error = None if self.drive is None else self.drive.error
        if error is not None:
            return {"type": "error", "errorText": _told(error)}
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


def _told(error: BaseException) -> str:
    """Our own errors say what to do; what else is in an error is not for the browser."""
    if isinstance(error, SaysoError):
        return str(error)
    log.error("a run broke", exc_info=error)
    return _BROKE
