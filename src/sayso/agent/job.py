"""What one process needs to know while it works on one run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sayso import rows
from sayso.agent.events import AgentEvent
from sayso.agent.models.base import Model
from sayso.agent.tool import Tool
from sayso.gate import Gate
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.stores.row_checks import tool_of
from sayso.types import Request
from sayso.views import request_of

Emit = Callable[[AgentEvent], None]

#: How the id of an agent's run begins.
RUN = "run_"


class AnswerType(Protocol):
    """The declared type of an agent's answers."""

    schema: dict[str, Any]

    def read(self, text: str) -> Any:
        """The answer in a model's text; ValueError says what does not fit."""

    def dump(self, value: Any) -> str:
        """An answer as it is stored."""

    def load(self, text: str) -> Any:
        """A stored answer."""


class AgentSpec(Protocol):
    """What a run needs to know of its agent."""

    name: str
    model: Model
    instructions: str
    tools: dict[str, Tool]
    max_turns: int
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool | None
    settings: dict[str, Any]
    on_change: str
    listeners: list[Callable[[AgentEvent], None]]

    @property
    def output(self) -> AnswerType | None:
        """The declared type of its answers, if they are no plain text."""

    @property
    def gate(self) -> Gate:
        """The agent's door."""

    @property
    def digest(self) -> str:
        """What the agent is, as a hash."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One entry into one run: whose it is, for whom, and who listens."""

    agent: AgentSpec
    thread: str
    run: str
    emit: Emit
    requester: str = ""
    deps: Any = None
    #: The limit that this run was given, where it was given one of its own.
    max_turns: int | None = None
    streams: bool = False
    parent_call: str | None = None
    owner: str = field(init=False)

    def __post_init__(self) -> None:
        self.owner = f"{self.gate.driver.owner}:{secrets.token_hex(4)}"

    @property
    def gate(self) -> Gate:
        """The agent's door."""
        return self.agent.gate

    @property
    def store(self) -> Store:
        """Where the run is kept."""
        return self.agent.gate.store

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools of the agent by name, as they are now."""
        return self.agent.tools

    def tell(self, event: AgentEvent) -> None:
        """Say that something happened in this run."""
        if self.heard:
            self.emit(replace(event, run=self.run, thread=self.thread, agent=self.agent.name))

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return self.streams or bool(self.agent.listeners)

    @property
    def asks_here(self) -> bool:
        """Whether somebody who is told of a request may have decided when the telling is done.

        A channel may ask the person in front of it. A listener is called on the loop, and can only
        have somebody decide later.
        """
        return bool(self.gate.channels)

    def request(self, call: Call) -> Request:
        """A row of this run as people see it."""
        return request_of(call, self._known(call) or tool_of(self.store, call))

    def knows(self, call: Call) -> bool:
        """Whether the tool of a call is the agent's own, as it is now: nothing is to be read."""
        return not call.tool_digest or self._known(call) is not None

    def _known(self, call: Call) -> rows.Tool | None:
        tool = self.tools.get(call.tool)
        known = tool is not None and tool.stored.digest == call.tool_digest
        return tool.stored if tool is not None and known else None
