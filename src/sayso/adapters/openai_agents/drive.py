"""What the tools and the model need to know of the run that they are in."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agents import Agent, RunConfig, ToolApprovalItem

from sayso.adapters.openai_agents.messages import ItemLog
from sayso.errors import InvalidCall, SaysoError
from sayso.gate.foreign import ForeignThread
from sayso.rows import Call, CallStatus
from sayso.types import Reviewer

_WAITS = (CallStatus.ASKED, CallStatus.IN_DOUBT)

_drive: contextvars.ContextVar[Drive | None] = contextvars.ContextVar(
    "sayso_openai_drive", default=None
)
#: The calls of agents that are tools, around what runs here: "" in the outermost run.
_path: contextvars.ContextVar[str] = contextvars.ContextVar("sayso_openai_path", default="")


@dataclass
class Drive:
    """One entry into one thread, by us or by hand."""

    calls: ForeignThread
    #: Nothing where the SDK is driven by hand: then its ``RunState`` is all that is kept.
    log: ItemLog | None = None
    run_config: RunConfig = field(default_factory=RunConfig)
    #: Who decides where the SDK is driven by hand.
    by: str | Reviewer = "user"
    #: A call paused in its body or was cut short, which the SDK has no word for: the model is not
    #: shown this turn.
    stopped: bool = False
    #: Where an agent that a tool runs in its body has stopped for people, by path.
    waits_in: set[str] = field(default_factory=set)
    #: The calls that were put to the policy in this entry.
    judged: set[str] = field(default_factory=set)
    #: What broke at the gate inside an agent that is a tool.
    error: SaysoError | None = None
    #: What the model said together with its calls, by path.
    notes: dict[str, str] = field(default_factory=dict)
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def by_hand(self) -> bool:
        """Whether somebody else drives the SDK."""
        return self.log is None

    @property
    def path(self) -> str:
        """Where we are among agents that are tools."""
        return _path.get()

    @contextmanager
    def open(self) -> Iterator[Drive]:
        """Everything in here belongs to this thread."""
        token, outer = _drive.set(self), _path.set("")
        try:
            yield self
        finally:
            _path.reset(outer)
            _drive.reset(token)

    @contextmanager
    def inside(self, key: str) -> Iterator[None]:
        """The run of an agent that is a tool, under the key of its call."""
        token = _path.set(f"{key}/")
        try:
            yield
        finally:
            _path.reset(token)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember what breaks at the gate inside an agent that is a tool: the SDK would tell it to
        the outer model, and it has to end the whole run."""
        try:
            yield
        except SaysoError as error:
            if self.path:
                self.error = self.error or error
            raise

    def check(self) -> None:
        """Raise it again, on the way out."""
        error = self.error
        if error is not None:
            self.error = error if self.path else None
            raise error

    def key(self, agent: Agent[object], id: str) -> str:
        """The natural key of a call within the thread."""
        key = self._keys[agent.name, id] = _path.get() + id
        return key

    def key_of(self, item: ToolApprovalItem) -> str:
        """The same for an interruption; one that we were not told of is of the outermost run."""
        id = item.call_id or ""
        return self._keys.get((item.agent.name, id), id)

    def row(self, key: str) -> Call | None:
        """The row of a call."""
        return self.calls.row(key)

    def waits(self, key: str) -> bool:
        """Whether a call waits for people."""
        row = self.row(key)
        return row is not None and row.status in _WAITS


def open_drive() -> Drive | None:
    """The thread that is being driven here, if any."""
    return _drive.get()


def the_drive(name: str) -> Drive:
    """The thread that is being driven here: without one, no call can be asked about."""
    drive = _drive.get()
    if drive is None:
        raise InvalidCall(
            f"{name} is guarded, and this run has no thread: use guarded.run(...), or drive the "
            "SDK by hand within `async with guarded.thread('t-1'):`",
            "thread",
        )
    return drive
