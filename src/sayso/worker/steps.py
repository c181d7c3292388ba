"""Each step of a worker, told once: as one line of the log, and to whoever counts.

A step is something that happened to a run while a worker had it: it was taken, a call started or
ended, it paused. Our own agents say so while it happens; that they have the run is told when they
do, since another worker may have it. What agents behind an adapter did is read from the record when
they have let go of the run, because that is where all of them write it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from sayso import codec, text
from sayso.agent import Agent
from sayso.agent.events import (
    AgentEvent,
    Began,
    Broke,
    Ended,
    ModelAsked,
    ModelReplied,
    Requested,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)
from sayso.gate.reentrancy import due_here
from sayso.rows import LIVE, Call, CallStatus, Event, Run
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable

log = logging.getLogger("sayso.worker")


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
        #: That a run was taken up which may be another one's.
        self._early: dict[str, Step] = {}
        #: Calls that do not run, of which the model is yet to be told.
        self._closed: dict[str, list[Step]] = {}

    def tell(self, step: Step) -> None:
        """One line, and one count."""
        if log.isEnabledFor(logging.INFO):
            _write(step)
        if self._hear is not None:
            self._hear(step)

    def swept(self, closed: tuple[Call, ...]) -> None:
        """What the clock has ended: a request, or the calls of a process that went away."""
        for call in closed:
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
        self._let_go(event)
        match event:
            case Began(resumed=resumed):
                step = _step(event, "resumed" if resumed else "began")
                if due_here(event.run) is None:
                    self.tell(step)
                else:
                    self._early[event.run] = step
            case Requested(request=request, again=False):
                name = "call_in_doubt" if request.kind == "in_doubt" else "asked"
                self.tell(_step(event, name, request.id, request.tool or ""))
            case ToolStarted(id=id, tool=tool):
                self._began[id] = time.monotonic()
                self.tell(_step(event, "call_started", id, tool))
            case ToolEnded(id=id, tool=tool, status=status):
                self.tell(_step(event, f"call_{status}", id, tool, self._since(id)))
            case ToolPaused(id=id, tool=tool, status=status):
                self.tell(_step(event, f"call_{status}", id, tool, self._since(id)))
            case ToolClosed(id=id, tool=tool, status=status):
                closed = self._closed.setdefault(event.run, [])
                closed.append(_step(event, f"call_{status}", id, tool))

    def _let_go(self, event: AgentEvent) -> None:
        """Tell what had to wait: who has the run, until it is ours; and calls that do not run,
        until the model has heard of all of its turn. Until then whoever goes on with the run
        comes by them again."""
        due = due_here(event.run)
        match event:
            case Ended(result=result) if due is not None and due.is_others(result.status):
                self._early.pop(event.run, None)
                self._closed.pop(event.run, None)
            case ModelAsked() | ToolStarted() | Requested() | Ended() | Broke():
                self._release(self._early.pop(event.run, None))
        match event:
            case Broke():
                self._closed.pop(event.run, None)
            case Ended(result=result) if result.status in LIVE:
                self._closed.pop(event.run, None)
            case ModelReplied() | Ended():
                self._release(*self._closed.pop(event.run, ()))

    def _release(self, *steps: Step | None) -> None:
        for step in steps:
            if step is not None:
                self.tell(step)

    def _since(self, call: str) -> float | None:
        began = self._began.pop(call, None)
        return None if began is None else time.monotonic() - began


def _step(
    event: AgentEvent,
    step: str,
    request: str = "",
    tool: str = "",
    seconds: float | None = None,
) -> Step:
    return Step(step, event.agent, event.run, request, tool, seconds)


_here: ContextVar[Steps | None] = ContextVar("sayso_steps", default=None)


def listen(agent: object) -> bool:
    """Have an agent say what it does; no if only the record will tell."""
    if not isinstance(agent, Agent):
        return False
    for tool in agent.tools.values():
        if tool.inner is not None:
            listen(tool.inner)
    if _heard not in agent.listeners:
        agent.listeners.append(_heard)
    return True


def _heard(event: AgentEvent) -> None:
    """Only what a worker has it do: a chat that drives the same agent is no step."""
    steps = _here.get()
    if steps is not None:
        steps.heard(event)


_RECORDED = {"asked": "asked", "reasked": "asked", "in_doubt": "call_in_doubt"}


def recorded(store: Store, run: Run, seen: int) -> list[Step]:
    """The steps of a run that the record tells of, after so many events of its thread."""
    events = [event for event in store.chain(run.thread, seen) if event.run == run.id]
    ids = {event.call for event in events if event.call}
    calls = {id: if_readable(store.call, id) for id in ids}
    tools = {id: call.tool for id, call in calls.items() if call is not None}
    return list(_recorded(events, run.agent, tools))


def _recorded(events: list[Event], agent: str, tools: Mapping[str, str]) -> Iterator[Step]:
    began: dict[str, int] = {}
    for event in events:
        seconds = None
        match event.type:
            case "started":
                began[event.call] = event.at
                name = "call_started"
            case "recorded":
                body = {} if event.body is None else codec.loads(event.body)
                name = "call_done" if body.get("ok") else "call_failed"
                at = began.get(event.call)
                seconds = None if at is None else (event.at - at) / 1_000_000
            case other if other in _RECORDED:
                name = _RECORDED[other]
            case _:
                continue
        yield Step(name, agent, event.run, event.call, tools.get(event.call, ""), seconds)


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
