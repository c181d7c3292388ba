"""Typed events of a running agent, and two ways to receive them: a stream and a log.

Every event goes to the agent's listeners; ``agent.stream`` also yields it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sayso import text
from sayso.gate.run_result import RunResult
from sayso.types import Json, Request

log = logging.getLogger("sayso.agent")

# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """The base of all events: the run, thread and agent it belongs to."""

    run: str = ""
    thread: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Started(AgentEvent):
    """A process started or resumed a run."""

    resumed: bool = False


@dataclass(frozen=True, slots=True)
class ModelAsked(AgentEvent):
    """The conversation was sent to the model."""

    model: str
    turn: int


@dataclass(frozen=True, slots=True)
class Text(AgentEvent):
    """A piece of the model's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReplied(AgentEvent):
    """The model answered."""

    model: str
    turn: int
    finish: str
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCalled(AgentEvent):
    """The model made a call and it was stored. Whether it runs is decided later.

    ``id`` is the request's id and ``call_id`` the model's. A call that could not be parsed has no
    request; both fields then hold the model's id.
    """

    id: str
    tool: str
    args: Mapping[str, Json]
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Requested(AgentEvent):
    """A request needs a person. It is already stored."""

    request: Request
    #: True if the request was open before this run was resumed.
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answered(AgentEvent):
    """A person decided a request, in this process or elsewhere."""

    request: Request


@dataclass(frozen=True, slots=True)
class ToolStarted(AgentEvent):
    """A call started to run."""

    id: str
    tool: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ToolEnded(AgentEvent):
    """A call ran. ``content`` is what the model sees."""

    id: str
    tool: str
    content: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class ToolPaused(AgentEvent):
    """A call stopped before its end: ``suspended`` to ask a person, or ``in_doubt``."""

    id: str
    tool: str
    status: str


@dataclass(frozen=True, slots=True)
class ToolClosed(AgentEvent):
    """A call will not run: it was rejected, answered, expired, or could not be parsed."""

    id: str
    tool: str
    content: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class Ended(AgentEvent):
    """The last event: the run paused or finished."""

    result: RunResult


@dataclass(frozen=True, slots=True)
class Errored(AgentEvent):
    """The last event if an exception was raised. The run is unchanged and can be resumed."""

    error: str


Emit: TypeAlias = Callable[[AgentEvent], None]


def checked_listeners(listeners: Iterable[Emit]) -> list[Emit]:
    """Return the listeners as a list. Raises ``TypeError`` unless each is a sync callable."""
    if not isinstance(listeners, Iterable):
        raise TypeError(f"listeners={listeners!r:.80}: pass a list of functions")
    listener_list = list(listeners)
    for listener in listener_list:
        if not callable(listener) or inspect.iscoroutinefunction(listener):
            raise TypeError(
                f"the listener {listener!r:.80} is not a sync function: pass a function that takes "
                "the event"
            )
    return listener_list


# --- the stream ---

#: Streamed runs. Held here because an event loop keeps only weak references to its tasks.
_streams: set[asyncio.Task[RunResult]] = set()


async def streamed(
    work: Callable[[Emit], Coroutine[Any, Any, RunResult]], listeners: Emit
) -> AsyncIterator[AgentEvent]:
    """Run ``work`` in its own task and yield its events.

    A reader who stops reading does not stop the run in the middle of an effect.
    """
    queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

    def emit(event: AgentEvent) -> None:
        listeners(event)
        queue.put_nowait(event)

    def ended(task: asyncio.Task[RunResult]) -> None:
        _streams.discard(task)
        queue.put_nowait(None)
        if not task.cancelled() and task.exception() is not None:
            log.info("a streamed run ended with %r", task.exception())

    task = asyncio.create_task(work(emit))
    _streams.add(task)
    task.add_done_callback(ended)
    while (event := await queue.get()) is not None:
        yield event
    await task


async def wait_for_streams() -> None:
    """Wait until the streamed runs of this event loop have paused or ended."""
    await asyncio.gather(*_streams_here(), return_exceptions=True)


def cancel_streams() -> None:
    """Cancel the streamed runs of this event loop. A call that had started is in doubt."""
    for task in _streams_here():
        task.cancel()


def _streams_here() -> list[asyncio.Task[RunResult]]:
    loop = asyncio.get_running_loop()
    return [task for task in _streams if task.get_loop() is loop]


# --- the log ---


def log_events(logger: logging.Logger | None = None, level: int = logging.INFO) -> Emit:
    """Return a listener that logs one line per event, except for text deltas.

    ``Agent(…, listeners=[log_events()])`` logs to ``sayso.agent.events``. Records carry
    ``sayso_run``, ``sayso_thread``, ``sayso_agent`` and ``sayso_request`` for formatters and
    filters. Arguments, results and messages are not logged.
    """
    target = logger or logging.getLogger("sayso.agent.events")

    def listen(event: AgentEvent) -> None:
        line, request = _log_line(event)
        if line:
            extra = {
                "sayso_run": event.run,
                "sayso_thread": event.thread,
                "sayso_agent": event.agent,
                "sayso_request": request,
            }
            failed = isinstance(event, Errored)
            of = f" {request}" if request else ""
            target.log(
                logging.ERROR if failed else level, "%s%s: %s", event.run, of, line, extra=extra
            )

    return listen


def _log_line(event: AgentEvent) -> tuple[str, str]:
    """Return the text for an event and its request's id. Names from outside are escaped."""
    match event:
        case Started(resumed=resumed):
            return ("resumed" if resumed else "began"), ""
        case ModelAsked(model=model, turn=turn):
            return f"calling {text.inline(model)}, turn {turn}", ""
        case ModelReplied(finish=finish, turn=turn):
            return f"got a reply, turn {turn} ({finish})", ""
        case Requested(request=request):
            return f"{text.inline(request.tool or request.kind)} needs a person", request.id
        case Answered(request=request):
            by = request.decision.by if request.decision is not None else ""
            return f"{request.status} by {text.inline(by)}", request.id
        case Ended(result=result):
            return f"is {result.status}", ""
        case Errored(error=error):
            return f"stopped: {text.inline(error)}", ""
        case _:
            return _tool_line(event)


def _tool_line(event: AgentEvent) -> tuple[str, str]:
    match event:
        case ToolCalled(id=id, tool=tool):
            return f"{text.inline(tool)} called", id
        case ToolStarted(id=id, tool=tool, attempt=attempt):
            return f"{text.inline(tool)} started, attempt {attempt}", id
        case (
            ToolEnded(id=id, tool=tool, status=status) | ToolPaused(id=id, tool=tool, status=status)
        ):
            return f"{text.inline(tool)} is {status}", id
        case ToolClosed(id=id, tool=tool, status=status):
            return f"{text.inline(tool)} does not run: {status}", id
        case _:
            return "", ""
