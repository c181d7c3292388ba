"""Taking a run forward beside the readers: who goes away stops nobody.

This is all that is asked of ``sayso.Agent`` itself; the rest of the wire reads the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.agent import Agent

log = logging.getLogger("sayso.adapters.ai_sdk")

#: A loop keeps its tasks by weak references only.
_driving: set[asyncio.Task[None]] = set()


class Drive:
    """One entry into a run, as a task of its own."""

    def __init__(self, events: AsyncIterator[Any], words: str = "") -> None:
        self.words = words
        self.began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._drain(events))
        _driving.add(self.task)
        self.task.add_done_callback(self._over)

    async def _drain(self, events: AsyncIterator[Any]) -> None:
        async for event in events:
            if not self.began.done():
                self.began.set_result(event.run)

    def _over(self, task: asyncio.Task[None]) -> None:
        _driving.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.info("a run ended with %r", error)
        if not self.began.done():
            if error is None:
                self.began.cancel()
            else:
                self.began.set_exception(error)
                self.began.exception()  # whoever waits for it is told; if nobody does, so be it

    @property
    def run(self) -> str:
        """The id of the run, as soon as it has one."""
        began = self.began
        told = began.done() and not began.cancelled() and began.exception() is None
        return began.result() if told else ""

    @property
    def error(self) -> BaseException | None:
        """What it ended with, if that was no result."""
        task = self.task
        if not task.done():
            return None
        return asyncio.CancelledError() if task.cancelled() else task.exception()


def begin(agent: Agent, words: str, *, thread: str, requester: str) -> Drive:
    """Answer the user's words; what the thread still asked is superseded."""
    return Drive(agent.stream(words, thread=thread, requester=requester), words)


def go_on(agent: Agent, run: str) -> Drive:
    """Go on with a run, or wait for whoever does."""
    return Drive(agent.stream_resume(run))
