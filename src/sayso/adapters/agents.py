"""What the guarded agents of all adapters share: their log, their answers, and their streams.

``LoggedAgent`` opens the log of a thread and loads stored answers in their own types.
``StreamingAgent`` also streams the framework's own events: where an adapter runs its framework, it
calls ``listener()``, and passes each event to the listener if there is one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from sayso.adapters.conversation import ConversationLog, OutputTypes
from sayso.errors import SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkAgent
from sayso.gate.run_result import RunResult, RunState
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.types import Json, Reviewer


async def resume(
    guarded: FrameworkAgent, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> RunResult:
    """Resume a thread after these decisions. Calls without a decision stay pending."""
    return await guarded.resume(where, decisions=decisions, by=by)


L = TypeVar("L", bound=ConversationLog)


class LoggedAgent(FrameworkAgent, Generic[L]):
    """A guarded agent whose conversation is in a log of the store."""

    log_type: ClassVar[type[ConversationLog]]
    stores_input = True
    inbox: Inbox

    def __init__(self, gate: Gate, policy: Policy | None, coverage: Coverage | None) -> None:
        super().__init__(gate, Inbox(gate.store, validate=self.validate_edit), coverage)
        self.policy = policy

    @property
    def output_types(self) -> OutputTypes:
        """The types that answers may have besides text and JSON."""
        return OutputTypes(())

    async def open_log(self, thread: str) -> L:
        """Read the log of a thread. Raises ``Tampered`` if anything but Sayso wrote to it."""
        log: Any = self.log_type(self.gate, thread, self.policy)
        await log.load()
        opened: L = log
        return opened

    async def call_order(self, thread: str) -> Sequence[str]:
        return (await self.open_log(thread)).open_keys

    async def go_on(self, thread: str) -> Any:
        """Return the stored answer if only the end of the run is missing, or continue the turn."""
        log = await self.open_log(thread)
        if log.answer is not None:
            return await self.load_output(thread, log.answer["output"])
        return await self.continue_turn(log)

    async def continue_turn(self, log: L) -> Any:
        """Continue the framework from what the log holds. Return its output, or raise ``Paused``.

        The adapter implements this, or ``go_on`` if its framework keeps the conversation itself."""
        raise NotImplementedError

    def dump_output(self, output: Any) -> Json:
        return OutputTypes.dump(output)

    async def load_output(self, thread: str, stored: Json) -> Any:
        types = self.output_types
        if not types:
            return stored
        answer = (await self.open_log(thread)).answer
        return stored if answer is None else types.load(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnResult(RunResult):
    """A result with the attributes of the framework's own result, which is ``raw``.

    They are known only in the process that ran the agent.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "raw" or name.startswith("_"):
            raise AttributeError(name)
        if self.raw is None:
            raise AttributeError(
                f"{name} is part of the framework's own result, which is known only in the "
                "process that ran the agent: use output, interruptions and state"
            )
        return getattr(self.raw, name)


# -- streams


Listener: TypeAlias = Callable[[Any], None]

_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar(
    "sayso_listener", default=None
)


def listener() -> Listener | None:
    """Return the function that receives the events of the current run; None if there is none."""
    return _listener.get()


class Stream:
    """The framework's events, with ``async for event in stream``.

    Then ``stream.result`` is the result: if it is ``paused``, decide, and stream the rest with
    ``stream_resume``.
    """

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

        async def work() -> RunResult:
            _listener.set(events.put_nowait)  # only in the context of this task
            return await self._work()

        task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: events.put_nowait(end))
        try:
            while (event := await events.get()) is not end:
                yield event
            self._result = await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


S = TypeVar("S", bound=Stream)


class StreamingAgent(LoggedAgent[L], Generic[L, S]):
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
        stream: S = self.stream_type(work)
        return stream
