"""A run as a stream of its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

from sayso.agent.events import AgentEvent, Result
from sayso.agent.job import Emit

log = logging.getLogger("sayso.agent")

Work: TypeAlias = Callable[[Emit], Coroutine[Any, Any, Result]]

#: Streamed runs that nobody else may hold: a loop keeps its tasks by weak references only.
_running: set[asyncio.Task[Result]] = set()


async def streamed(work: Work, listeners: Emit) -> AsyncIterator[AgentEvent]:
    """Run beside the reader: who stops reading does not stop a call in mid-effect."""
    queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

    def emit(event: AgentEvent) -> None:
        listeners(event)
        queue.put_nowait(event)

    def ended(task: asyncio.Task[Result]) -> None:
        _running.discard(task)
        queue.put_nowait(None)
        if not task.cancelled() and task.exception() is not None:
            log.info("a streamed run ended with %r", task.exception())

    task = asyncio.create_task(work(emit))
    _running.add(task)
    task.add_done_callback(ended)
    while (event := await queue.get()) is not None:
        yield event
    await task


async def drained() -> None:
    """Wait until the streamed runs of this loop have paused or ended, whoever still reads them."""
    await asyncio.gather(*_of_this_loop(), return_exceptions=True)


def cut_short() -> None:
    """End them now: a call that had started is in doubt."""
    for task in _of_this_loop():
        task.cancel()


def _of_this_loop() -> list[asyncio.Task[Result]]:
    loop = asyncio.get_running_loop()
    return [task for task in _running if task.get_loop() is loop]
