"""The same with LangChain's HumanInTheLoopMiddleware and LangGraph's SqliteSaver, fsync on."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command


@tool
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        reply = AIMessage(content="done")
        if not isinstance(messages[-1], ToolMessage):
            wanted = {"to": "a@example.com", "body": "hello"}
            made = {"name": "send_email", "args": wanted, "id": uuid.uuid4().hex}
            reply = AIMessage(content="", tool_calls=[made])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def main(n: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteSaver.from_conn_string(f"{folder}/graph.db") as saver,
    ):
        gate = HumanInTheLoopMiddleware(interrupt_on={"send_email": True})
        agent = create_agent(Scripted(), [send_email], checkpointer=saver, middleware=[gate])
        said = {"messages": [{"role": "user", "content": "send it"}]}
        yes = Command(resume={"decisions": [{"type": "approve"}]})

        def once(i: int) -> float:
            config = {"configurable": {"thread_id": f"t{i}"}}
            began = time.perf_counter()
            agent.invoke(said, config)
            done = agent.invoke(yes, config)
            assert done["messages"][-1].content == "done"
            return time.perf_counter() - began

        for i in range(20):
            once(-i - 1)
        cpu = time.process_time()
        walls = [once(i) for i in range(n)]
        cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
