"""Streams of a framework's own events, from a guarded agent that runs or resumes.

An adapter subclasses ``StreamingAgent``. Where it lets its framework run, it asks ``listener()``
whether anything listens, and hands each event to it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from sayso.errors import SaysoError
from sayso.gate.framework import FrameworkAgent
from sayso.gate.run_result import RunResult, RunState
from sayso.types import Reviewer

Listener: TypeAlias = Callable[[Any], None]

_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar(
    "sayso_listener", default=None
)


def listener() -> Listener | None:
    """Return what the events of the run in progress go to; None if nothing listens."""
    return _listener.get()


class Stream:
    """The framework's events, with ``async for event in stream``. Then ``stream.result`` is the
    result: if it is ``paused``, decide, and stream the rest with ``stream_resume``."""

    def __init__(self, work: Callable[[], Awaitable[RunResult]]) -> None:
        self._work = work
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The result of the run. Raises ``SaysoError`` before all events were read."""
        if self._result is None:
            raise SaysoError("the stream has not ended: read its events first")
        return self._result

    async def __aiter__(self) -> AsyncIterator[Any]:
        events: asyncio.Queue[Any] = asyncio.Queue()
        end = object()
        task = asyncio.ensure_future(self._listened(events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(end))
        try:
            while (event := await events.get()) is not end:
                yield event
            self._result = await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listened(self, heard: Listener) -> RunResult:
        _listener.set(heard)  # in a task of its own, so nothing else hears it
        return await self._work()


S = TypeVar("S", bound=Stream)


class StreamingAgent(FrameworkAgent, Generic[S]):
    """A guarded agent whose runs can be streamed."""

    stream_type: ClassVar[Any] = Stream

    def stream(self, input: Any, *, thread: str | None = None, requester: str = "") -> S:
        """Run the agent, and stream the framework's events."""
        return self._stream(lambda: self.run(input, thread=thread, requester=requester))

    def stream_resume(
        self, where: RunState | str, *, decisions: Any = None, by: str | Reviewer = "user"
    ) -> S:
        """Resume a run, and stream the framework's events."""
        return self._stream(lambda: self.resume(where, decisions=decisions, by=by))

    def _stream(self, work: Callable[[], Awaitable[RunResult]]) -> S:
        made: S = self.stream_type(work)
        return made
