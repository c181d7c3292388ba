"""The steps of a worker: each is one log line and one call of ``on_step``.

A step is something that happened to a run while a worker had it: it was taken, a call started or
ended, the run paused. ``sayso.Agent`` reports steps as events while they happen. Steps of framework
agents are read from the record after they released the run, because all adapters write it there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from sayso import codec, text
from sayso.agent import Agent
from sayso.agent.events import (
    AgentEvent,
    Ended,
    Errored,
    ModelAsked,
    ModelReplied,
    Requested,
    Started,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)
from sayso.gate.lease import due_run_here
from sayso.rows import LIVE, Call, CallStatus, Event, Run
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable
from sayso.sync import context_value

log = logging.getLogger("sayso.worker")


class Step(NamedTuple):
    """One thing that happened. ``seconds`` is how long it took, if it began in this process."""

    #: ``taken``, ``call_started``, ``call_done``, …; docs/monitoring.md lists them all.
    step: str
    agent: str
    run: str
    request: str = ""
    tool: str = ""
    seconds: float | None = None


OnStep = Callable[[Step], None]


class Steps:
    """Sends each step to the log and to ``on_step``."""

    def __init__(self, hear: OnStep | None = None) -> None:
        self._hear = hear
        self._began: dict[str, float] = {}
        #: "began" or "resumed" steps held back until it is clear that this worker has the run.
        self._held_begin: dict[str, Step] = {}
        #: Calls that will not run, held back until the model is told of them.
        self._held_calls: dict[str, list[Step]] = {}

    def tell(self, step: Step) -> None:
        """Log a step and pass it to ``on_step``."""
        if log.isEnabledFor(logging.INFO):
            _write(step)
        if self._hear is not None:
            self._hear(step)

    def swept(self, closed: tuple[Call, ...]) -> None:
        """Report what a sweep closed: expired requests, and calls of lost processes."""
        for call in closed:
            if call.status is CallStatus.EXPIRED:
                self.tell(Step("expired", call.agent, call.run, call.id, call.tool))
            elif call.status in (CallStatus.IN_DOUBT, CallStatus.READY):
                self.tell(Step("call_in_doubt", call.agent, call.run, call.id, call.tool))

    def during(self) -> AbstractContextManager[None]:
        """Receive the events of ``sayso.Agent`` runs inside this block."""
        return context_value(_current, self)

    def on_event(self, event: AgentEvent) -> None:
        """Turn an event of an agent into steps."""
        self._release_held(event)
        match event:
            case Started(resumed=resumed):
                step = _step(event, "resumed" if resumed else "began")
                if due_run_here(event.run) is None:
                    self.tell(step)
                else:
                    self._held_begin[event.run] = step
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
                closed = self._held_calls.setdefault(event.run, [])
                closed.append(_step(event, f"call_{status}", id, tool))

    def _release_held(self, event: AgentEvent) -> None:
        """Report or drop the steps that were held back.

        "began" waits until this worker is known to have the run. Calls that will not run wait
        until the model was told of the whole turn, since each resume meets them again until then.
        """
        due = due_run_here(event.run)
        match event:
            case Ended(result=result) if due is not None and due.belongs_to_other_process(
                result.status
            ):
                self._held_begin.pop(event.run, None)
                self._held_calls.pop(event.run, None)
            case ModelAsked() | ToolStarted() | Requested() | Ended() | Errored():
                self._release(self._held_begin.pop(event.run, None))
        match event:
            case Errored():
                self._held_calls.pop(event.run, None)
            case Ended(result=result) if result.status in LIVE:
                self._held_calls.pop(event.run, None)
            case ModelReplied() | Ended():
                self._release(*self._held_calls.pop(event.run, ()))

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


_current: ContextVar[Steps | None] = ContextVar("sayso_steps", default=None)


def listen(agent: object) -> bool:
    """Subscribe to an agent's events. Return False for framework agents, which send none."""
    if not isinstance(agent, Agent):
        return False
    for tool in agent.tools.values():
        if tool.inner is not None:
            listen(tool.inner)
    if _on_event not in agent.listeners:
        agent.listeners.append(_on_event)
    return True


def _on_event(event: AgentEvent) -> None:
    """Pass on events only inside a worker: a chat with the same agent is not a step."""
    steps = _current.get()
    if steps is not None:
        steps.on_event(event)


_RECORDED = {"asked": "asked", "reasked": "asked", "in_doubt": "call_in_doubt"}


def recorded(store: Store, run: Run, seen: int) -> list[Step]:
    """Return a run's steps from the record, after event number ``seen`` of its thread."""
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
    """Log a step as text for people, with the step itself as ``extra`` for programs."""
    words = [f"run {step.run} of {step.agent}: {step.step.replace('_', ' ')}"]
    if step.request:
        words.append(f" {step.request}")
    if step.tool:
        words.append(f" ({text.inline(step.tool)})")
    if step.seconds is not None:
        words.append(f" in {step.seconds:.3f} s")
    log.info("%s", "".join(words), extra={"step": step})
