"""A store, tools that record what really ran, and agents with scripted models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sayso
from sayso.agent import Agent
from sayso.agent.events import AgentEvent
from sayso.agent.models import ModelRequest
from sayso.inbox import Inbox
from sayso.stores.base import Store
from sayso.testing.scripted_model import ScriptedModel


class World:
    """The store, effects and agents of one test."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inbox = Inbox(store)
        self.ran: list[tuple[str, Any]] = []
        self.events: list[AgentEvent] = []
        self.pay = sayso.tool(needs_approval=True)(self._pay())
        self.look = sayso.tool(self._look())

    def _pay(self) -> Any:
        def pay(amount: int, to: str = "ana") -> str:
            """Pay somebody.

            Args:
                amount: Euros.
                to: Who gets it.
            """
            self.ran.append(("pay", (amount, to)))
            return f"paid {amount} to {to}"

        return pay

    def _look(self) -> Any:
        async def look(what: str) -> dict[str, str]:
            """Look something up."""
            self.ran.append(("look", what))
            return {"found": what}

        return look

    def agent(
        self,
        *steps: Any,
        name: str = "assistant",
        tools: Iterable[Any] | None = None,
        **options: Any,
    ) -> Agent:
        """Return an agent on this store whose model follows these steps."""
        tools = [self.pay, self.look] if tools is None else tools
        model = options.pop("model", None) or ScriptedModel(steps)
        return Agent(
            name,
            model=model,
            tools=tools,
            store=self.store,
            listeners=[self.events.append],
            **options,
        )

    def script(self, agent: Agent, *steps: Any) -> ScriptedModel:
        """Give an agent a new script."""
        agent.model = ScriptedModel(steps)
        return agent.model

    def effects(self, name: str) -> list[Any]:
        """Return what one tool really did."""
        return [what for tool, what in self.ran if tool == name]

    def happened(self) -> list[str]:
        """Return the names of all events so far, and clear the list."""
        names = [type(event).__name__ for event in self.events]
        self.events.clear()
        return names


def asked(agent: Agent) -> list[ModelRequest]:
    """Return the requests that the scripted model got."""
    model = agent.model
    assert isinstance(model, ScriptedModel)
    return model.requests


def tool_results(agent: Agent) -> list[str]:
    """Return the tool results in the model's last request, since the last user message."""
    messages = asked(agent)[-1].messages
    last = max(n for n, message in enumerate(messages) if message["role"] == "user")
    return [m["content"] for m in messages[last + 1 :] if m["role"] == "tool"]


def error_in(content: str) -> str:
    """Return the error in a tool result."""
    said = json.loads(content)
    assert list(said) == ["error"]
    assert "Traceback" not in said["error"]
    return str(said["error"])
