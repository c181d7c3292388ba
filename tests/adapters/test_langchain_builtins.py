"""Guarded agents with LangChain's built-in middleware and structured responses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware import HumanInTheLoopMiddleware as LangChains
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_world import Chat, World
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from sayso import InvalidDecision, Policy, Rule
from sayso.adapters.langchain import guard


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.gate.close()


@pytest.mark.parametrize(
    ("answer", "ran"),
    [
        ({"decisions": [{"type": "approve"}]}, [("look", "a")]),
        ({"decisions": [{"type": "reject", "message": "no"}]}, []),
        (None, []),
    ],
)
def test_langchain_middleware_asks_in_inbox(world: World, answer: Any, ran: Any) -> None:
    theirs = LangChains({"look": {"allowed_decisions": ["approve", "reject"]}})
    chat = Chat(script=[[("c1", "look", {"what": "a"})], "Done."], seen=[])
    agent = create_agent(chat, world.tools(), middleware=[theirs], checkpointer=InMemorySaver())
    guarded = guard(agent, world.gate, Policy([Rule("send")], default="allow"))
    (question,) = guarded.run_sync("go", thread="t").interruptions
    for wrong in ("yes", {"decisions": []}, {"decisions": [{"type": "edit"}]}):
        with pytest.raises(InvalidDecision):
            guarded.resume_sync("t", decisions=[question.respond(wrong)])
    decision = question.reject("no") if answer is None else question.respond(answer)
    result = guarded.resume_sync("t", decisions=[decision])
    assert (result.output, world.ran) == ("Done.", ran)


class Order(BaseModel):
    total: int


def test_structured_response_survives_a_resume(world: World) -> None:
    script = [[("c1", "send", {"to": "ana"})], [("o1", "Order", {"total": 3})]]
    chat = Chat(script=script, seen=[])
    saver = InMemorySaver(
        serde=JsonPlusSerializer(allowed_msgpack_modules=[(Order.__module__, "Order")])
    )
    agent = create_agent(chat, world.tools(), response_format=Order, checkpointer=saver)
    guarded = guard(agent, world.gate)
    (request,) = guarded.run_sync("go", thread="t").interruptions
    assert guarded.resume_sync("t", decisions=[request.approve()]).output == Order(total=3)
    assert guarded.resume_sync("t").output == Order(total=3)


class Calm(AgentMiddleware[Any, Any]):
    """Tells the model of every error, as LangChain's documentation has it."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except Exception as error:
            return self.told(request, error)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except Exception as error:
            return self.told(request, error)

    def told(self, request: Any, error: Exception) -> ToolMessage:
        return ToolMessage(f"Tool error: {error}", tool_call_id=request.tool_call["id"])


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_error_middleware_does_not_catch_pause(world: World, colour: str, tmp_path: Path) -> None:
    script: Any = [[("c1", "send", {"to": "ana"}), ("c2", "fail", {})], "Done."]

    def fail() -> str:
        """Fail."""
        raise ValueError("no ink")

    with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as sqlite:
        saver = sqlite if colour == "sync" else None
        agent = world.agent(*script, tools=[fail], saver=saver, middleware=[Calm()])
        guarded = guard(agent, world.gate, Policy([Rule("send")], default="allow"))
        (request,) = guarded.run_sync("go", thread="t").interruptions
        result = guarded.resume_sync("t", decisions=[request.approve()])
    assert (result.output, world.ran) == ("Done.", [("send", "ana", "Hello")])
    assert world.tool_results() == ["sent to ana", "Tool error: no ink"]


async def test_parallel_tool_node_finishes_all_calls(world: World) -> None:
    """LangGraph goes on when the first of them pauses, while others are at work."""

    @tool
    async def slow() -> str:
        """Take one's time."""
        await asyncio.sleep(0.3)
        world.ran.append("slow")
        return "at last"

    made: Any = [("c1", "send", {"to": "ana"}), ("c2", "slow", {}), ("c3", "send", {"to": "bob"})]
    chat = Chat(script=[made, "Done."], seen=[])
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([*world.tools(), slow]))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition)
    compiled = graph.add_edge("tools", "model").compile(checkpointer=InMemorySaver())
    guarded = guard(compiled, world.gate, Policy([Rule("send")], default="allow"))
    result = await guarded.run("go", thread="t")
    assert (len(result.interruptions), world.ran) == (2, ["slow"])
    both = [request.approve() for request in result.interruptions]
    assert (await guarded.resume("t", decisions=both)).output == "Done."
    assert len(world.ran) == 3
