"""An agent with two tools, a scripted model and a gate, for the tests of LangChain's adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import sayso
from sayso.types import Request

CONFIG: Any = {"configurable": {"thread_id": "t"}}
Calls = list[tuple[str, str, dict[str, Any]]]


needs_modes = pytest.mark.skipif(
    "interrupt_mode" not in inspect.signature(HumanInTheLoopMiddleware).parameters,
    reason="LangChain before 1.4.6 has only one mode",
)
MODES = ["batched", pytest.param("per_call", marks=needs_modes)]


def in_mode(mode: str) -> Any:
    """Return the option for a mode of the middleware. LangChain before 1.4.6 does not know it."""
    return {} if mode == "batched" else {"interrupt_mode": mode}


class Chat(BaseChatModel):
    """A chat model that follows a script. ``seen`` lists its prompts."""

    script: Any
    seen: list[Any] = []  # noqa: RUF012

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Chat:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(list(messages))
        line = self.script[sum(isinstance(m, AIMessage) for m in messages)]
        if isinstance(line, str):
            said = AIMessage(line)
        else:
            made = [{"id": id, "name": name, "args": args} for id, name, args in line]
            said = AIMessage("", tool_calls=made)
        return ChatResult(generations=[ChatGeneration(message=said)])


class World:
    """The inbox, the effects, and the model's prompts of one test."""

    def __init__(self, **options: Any) -> None:
        self.gate = sayso.Gate("memory://", agent="mailer", wait=0, **options)
        self.inbox = sayso.Inbox(self.gate.store)
        self.ran: list[Any] = []
        self.chat = Chat(script=[], seen=[])

    def tools(self) -> list[Any]:
        ran = self.ran

        @tool
        def send(to: str, text: str = "Hello") -> str:
            """Send one mail."""
            ran.append(("send", to, text))
            return f"sent to {to}"

        @tool
        def look(what: str) -> str:
            """Look at something."""
            ran.append(("look", what))
            return f"saw {what}"

        return [send, look]

    def agent(
        self, *script: Calls | str, tools: Sequence[Any] = (), saver: Any = None, **options: Any
    ) -> Any:
        self.chat = Chat(script=list(script), seen=[])
        saver = InMemorySaver() if saver is None else saver
        made = [*self.tools(), *tools]
        return create_agent(self.chat, tools=made, checkpointer=saver, **options)

    def pending(self) -> list[Request]:
        return list(self.inbox.pending_sync().items)

    def decide(self, choose: Callable[[Request], Any] = Request.approve, by: str = "ana") -> None:
        for request in self.pending():
            self.inbox.decide_sync(request.id, choose(request), by=by)

    def tool_results(self) -> list[str]:
        """Return the tool results in the model's last prompt."""
        return [m.text for m in self.chat.seen[-1] if isinstance(m, ToolMessage)]


def go(agent: Any, config: Any = CONFIG) -> Any:
    return agent.invoke({"messages": [{"role": "user", "content": "go"}]}, config)


def answer(agent: Any, value: Any, config: Any = CONFIG) -> Any:
    return agent.invoke(Command(resume=value), config)


def says(*types: str) -> Any:
    return {"decisions": [{"type": type} for type in types]}


def interrupts(agent: Any, config: Any = CONFIG) -> list[Any]:
    return [interrupt.value for interrupt in agent.get_state(config).interrupts]
