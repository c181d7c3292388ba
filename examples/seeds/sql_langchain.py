"""LangChain's database agent with its human-in-the-loop middleware.

The three marked lines put it behind a gate. Without them it is a program of bare LangChain.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import sayso  # added
from sayso.adapters import langchain as hitl  # was: from langchain.agents import middleware as hitl

QUERY = "DELETE FROM records WHERE created_at < NOW() - INTERVAL '30 days';"
READ = ToolCall(name="read_data", args={"table": "records"}, id="call_1")
DELETE = ToolCall(name="execute_sql", args={"query": QUERY}, id="call_2")
SCRIPT = [
    AIMessage("", tool_calls=[READ]),
    AIMessage("", tool_calls=[DELETE]),
    AIMessage("The old records are gone."),
]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        return self


def read_data(table: str) -> str:
    """Read a table."""
    print(f"  read {table}")
    return "1,000 rows"


def execute_sql(query: str) -> str:
    """Execute a statement."""
    print(f"  executed {query}")
    return "30 rows"


agent = create_agent(
    Scripted(messages=iter(SCRIPT)),
    tools=[read_data, execute_sql],
    middleware=[
        hitl.HumanInTheLoopMiddleware(
            interrupt_on={
                "execute_sql": {"allowed_decisions": ["approve", "reject"]},  # no editing
                "read_data": False,
            },
            description_prefix="Tool execution pending approval",
            gate=sayso.Gate("sayso.db", agent="dba", wait=0),  # added
        ),
    ],
    checkpointer=InMemorySaver(),
)

if __name__ == "__main__":
    config: Any = {"configurable": {"thread_id": "some_id"}}
    wish: Any = {"messages": [{"role": "user", "content": "Delete old records"}]}
    result = agent.invoke(wish, config=config)
    for action in result["__interrupt__"][0].value["action_requests"]:
        print(f"{action['description'].splitlines()[0]}: {action['name']}")
    result = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config=config)
    print(result["messages"][-1].text)
