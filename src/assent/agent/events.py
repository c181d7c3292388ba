"""What happens while an agent runs, as typed events, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from assent.types import Json, Request

if TYPE_CHECKING:
    from assent.agent.state import RunState


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the model's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model wants this call; whether it runs is another matter."""

    id: str
    tool: str
    args: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Requested:
    """A person is needed; the request stands in the store already."""

    request: Request


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call begins to run."""

    id: str
    tool: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """What the model is told of a call."""

    id: str
    tool: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Where a run stands: ``paused`` with its open requests, ``done`` with its output, or not."""

    status: str
    run: str
    thread: str
    output: Any = None
    error: str = ""
    refusal: str = ""
    interruptions: tuple[Request, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    state: RunState


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event: the run pauses or is over."""

    result: Result


AgentEvent: TypeAlias = Text | ToolCalled | Requested | ToolStarted | ToolEnded | Ended
