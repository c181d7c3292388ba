"""Agents without a checkpointer, as ``langgraph dev`` loads them: the server brings its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import sayso
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard

FOLDER = Path(__file__).parent


class Chat(BaseChatModel):
    """Sends one mail, and is done."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Chat:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = AIMessage("Done.")
        if not any(isinstance(message, AIMessage) for message in messages):
            made: Any = {"id": "c1", "name": "send", "args": {"to": "ana"}}
            said = AIMessage("", tool_calls=[made])
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
async def send(to: str) -> str:
    """Send one mail."""
    with (FOLDER / "sent").open("a") as file:  # the effect that a test counts
        file.write(f"{to}\n")
    return f"sent to {to}"


def opened(agent: str) -> sayso.Gate:
    rules = sayso.Policy([sayso.Rule("*")])
    return sayso.Gate(FOLDER / "sayso.db", policy=rules, agent=agent, wait=0)


gate = opened("guarded")
guarded = guard(create_agent(Chat(), tools=[send]), gate).graph

asks = HumanInTheLoopMiddleware({"send": True}, gate=opened("drop_in"))
drop_in = create_agent(Chat(), tools=[send], middleware=[asks])


async def made(config: dict[str, Any]) -> Any:
    """Guard an agent on the event loop of the server, for each request."""
    return guard(create_agent(Chat(), tools=[send]), gate).graph
