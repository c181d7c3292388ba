"""What happens while an agent runs, as typed events, and what it came to.

There is one stream of them: ``agent.stream`` yields it, and every listener of the agent gets it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sayso.types import Json, Request

if TYPE_CHECKING:
    from sayso.agent.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Something that happened, and in which run."""

    run: str = ""
    thread: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Began(AgentEvent):
    """A process begins to work on a run, which may be an old one."""

    resumed: bool = False


@dataclass(frozen=True, slots=True)
class ModelAsked(AgentEvent):
    """The model is given the conversation."""

    model: str
    turn: int


@dataclass(frozen=True, slots=True)
class Text(AgentEvent):
    """A piece of the model's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReplied(AgentEvent):
    """The model has answered."""

    model: str
    turn: int
    finish: str
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCalled(AgentEvent):
    """The model wants this call, and it stands in the store; whether it runs is another matter.

    ``id`` is that of the request, and ``call_id`` the one that the model gave. A call that cannot
    even be read has no request, and the model's id in both.
    """

    id: str
    tool: str
    args: Mapping[str, Json]
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Requested(AgentEvent):
    """A person is needed; the request stands in the store already."""

    request: Request
    #: It was asked before, and the run has come back to it.
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answered(AgentEvent):
    """A person has decided, here or elsewhere."""

    request: Request


@dataclass(frozen=True, slots=True)
class ToolStarted(AgentEvent):
    """A call begins to run."""

    id: str
    tool: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ToolEnded(AgentEvent):
    """A call has run; this is what the model is told of it."""

    id: str
    tool: str
    content: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class ToolPaused(AgentEvent):
    """A call stopped before its end: it asked somebody, or (``in_doubt``) was cut short."""

    id: str
    tool: str
    status: str


@dataclass(frozen=True, slots=True)
class ToolClosed(AgentEvent):
    """A call will not run: refused, answered in its place, expired, or not even readable."""

    id: str
    tool: str
    content: str
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Where a run stands: ``paused`` with its open requests, ``done`` with its output, or not.

    ``failed`` and ``cancelled`` say why in ``error``.
    """

    status: str
    run: str
    thread: str
    output: Any = None
    error: str = ""
    #: The model's words, where it would not do what it was asked.
    refusal: str = ""
    interruptions: tuple[Request, ...] = ()
    #: Tokens, counted over the whole run.
    usage: Mapping[str, int] = field(default_factory=dict)
    state: RunState = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ended(AgentEvent):
    """The last event: the run pauses or is over."""

    result: Result


@dataclass(frozen=True, slots=True)
class Broke(AgentEvent):
    """The last event where something raised: the run stands where it stood, and can be resumed."""

    error: str


def checked_listeners(
    listeners: Iterable[Callable[[AgentEvent], None]],
) -> list[Callable[[AgentEvent], None]]:
    """The listeners, if each can be told: nobody would await an async one."""
    if not isinstance(listeners, Iterable):
        raise TypeError(f"listeners={listeners!r:.80}: give a list of functions")
    given = list(listeners)
    for one in given:
        if not callable(one) or inspect.iscoroutinefunction(one):
            raise TypeError(f"the listener {one!r:.80} is no plain function: give one of the event")
    return given
