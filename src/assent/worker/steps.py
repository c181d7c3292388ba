"""Each step of a worker, told once: as one line of the log, and to whoever counts.

A step is something that happened to a run while a worker had it: it was taken, a call started or
ended, it paused. Our own agents say so while it happens; what they say before they have the run
waits until they do, since another worker may have it. What agents behind an adapter did is read
from the record when they have let go of the run, because that is where all of them write it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from assent import codec, text
from assent.agent import Agent
from assent.agent.events import (
    AgentEvent,
    Began,
    Broke,
    Ended,
    ModelAsked,
    Requested,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)
from assent.agent.resumable import Resumable
from assent.gate.inside import due_here
from assent.rows import Call, CallStatus, Event

log = logging.getLogger("assent.worker")


class Step(NamedTuple):
    """One thing that happened; ``seconds`` where something ended that had begun here."""

    #: ``taken``, ``call_started``, ``call_done``, …; docs/deployment.md has them all.
    step: str
    agent: str
    run: str
    request: str = ""
    tool: str = ""
    seconds: float | None = None


Hear = Callable[[Step], None]


class Steps:
    """Tells the log and one listener of each step."""

    def __init__(self, hear: Hear | None = None) -> None:
        self._hear = hear
        self._began: dict[str, float] = {}
        #: What was said of runs that may be another one's.
        self._early: dict[str, list[Step]] = {}

    def tell(self, step: Step) -> None:
        """One line, and one count."""
        if log.isEnabledFor(logging.INFO):
            _write(step)
        if self._hear is not None:
            self._hear(step)

    def swept(self, closed: Call | tuple[Call, ...]) -> None:
        """What the clock has ended: a request, or the calls of a process that went away."""
        for call in (closed,) if isinstance(closed, Call) else closed:
            if call.status is CallStatus.EXPIRED:
                self.tell(Step("expired", call.agent, call.run, call.id, call.tool))
            elif call.status in (CallStatus.IN_DOUBT, CallStatus.READY):
                self.tell(Step("call_in_doubt", call.agent, call.run, call.id, call.tool))

    @contextmanager
    def during(self) -> Iterator[None]:
        """What our own agents do in here is told by this one."""
        token = _here.set(self)
        try:
            yield
        finally:
            _here.reset(token)

    def heard(self, event: AgentEvent) -> None:
        """What an agent of ours says of itself."""
        self._release(event)
        match event:
            case Began(resumed=resumed):
                self._tell(event, "resumed" if resumed else "began")
            case Requested(request=request, again=False):
                self._tell(event, "asked", request.id, request.tool or "")
            case ToolStarted(id=id, tool=tool):
                self._began[id] = time.monotonic()
                self._tell(event, "call_started", id, tool)
            case ToolEnded(id=id, tool=tool, status=status):
                self._tell(event, f"call_{status}", id, tool, self._since(id))
            case ToolPaused(id=id, tool=tool, status=status):
                self._tell(event, f"call_{status}", id, tool, self._since(id))
            case ToolClosed(id=id, tool=tool, status=status):
                self._tell(event, f"call_{status}", id, tool)

    def _release(self, event: AgentEvent) -> None:
        """Tell what waits, when the run is ours; if it is another one's, that one tells."""
        due = due_here(event.run)
        match event:
            case Began() if due is not None:
                self._early[event.run] = []
            case Ended(result=result) if due is not None and due.is_others(result.status):
                self._early.pop(event.run, None)
            case ModelAsked() | ToolStarted() | Requested(again=False) | Ended() | Broke():
                for step in self._early.pop(event.run, ()):
                    self.tell(step)

    def _tell(
        self,
        event: AgentEvent,
        step: str,
        request: str = "",
        tool: str = "",
        seconds: float | None = None,
    ) -> None:
        told = Step(step, event.agent, event.run, request, tool, seconds)
        if (early := self._early.get(event.run)) is not None:
            early.append(told)
        else:
            self.tell(told)

    def _since(self, call: str) -> float | None:
        began = self._began.pop(call, None)
        return None if began is None else time.monotonic() - began


_here: ContextVar[Steps | None] = ContextVar("assent_steps", default=None)


def listen(agent: Resumable) -> bool:
    """Have an agent say what it does; no if only the record will tell."""
    if not isinstance(agent, Agent):
        return False
    if _heard not in agent.listeners:
        agent.listeners.append(_heard)
    return True


def _heard(event: AgentEvent) -> None:
    """Only what a worker has it do: a chat that drives the same agent is no step."""
    steps = _here.get()
    if steps is not None:
        steps.heard(event)


_RECORDED = {"asked": "asked", "reasked": "asked", "in_doubt": "call_in_doubt"}


def recorded(events: list[Event], agent: str) -> Iterator[Step]:
    """The steps that the record tells of."""
    began: dict[str, tuple[str, int]] = {}
    for event in events:
        body = {} if event.body is None else codec.loads(event.body)
        tool, at = began.get(event.call, (str(body.get("tool", "")), event.at))
        seconds = None
        match event.type:
            case "started":
                began[event.call] = tool, event.at
                name = "call_started"
            case "recorded":
                name = "call_done" if body.get("ok") else "call_failed"
                seconds = (event.at - at) / 1_000_000 if event.call in began else None
            case other if other in _RECORDED:
                name = _RECORDED[other]
            case _:
                continue
        yield Step(name, agent, event.run, event.call, tool, seconds)


def _write(step: Step) -> None:
    """The line for people, and the same as fields for programs."""
    words = [f"run {step.run} of {step.agent}: {step.step.replace('_', ' ')}"]
    if step.request:
        words.append(f" {step.request}")
    if step.tool:
        words.append(f" ({text.inline(step.tool)})")
    if step.seconds is not None:
        words.append(f" in {step.seconds:.3f} s")
    log.info("%s", "".join(words), extra={"step": step})
