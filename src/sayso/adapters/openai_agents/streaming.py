"""A run as it happens: the SDK's own events, and in the end where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sayso.errors import SaysoError
from sayso.gate.run_result import RunResult

Listener = Callable[[Any], None]


class Stream:
    """``async for event in stream``; then ``stream.stands`` says how it ended."""

    def __init__(self, work: Callable[[Listener], Awaitable[RunResult]]) -> None:
        self._work = work
        self._stands: RunResult | None = None

    @property
    def stands(self) -> RunResult:
        """Where the run stands, when all events have come."""
        if self._stands is None:
            raise SaysoError("the stream is not at its end: read its events first")
        return self._stands

    async def __aiter__(self) -> AsyncIterator[Any]:
        events: asyncio.Queue[Any] = asyncio.Queue()
        end = object()
        task = asyncio.ensure_future(self._work(events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(end))
        try:
            while (event := await events.get()) is not end:
                yield event
            self._stands = await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
