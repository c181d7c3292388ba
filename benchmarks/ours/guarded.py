"""A run of a LangChain agent with one tool call that needs no approval, guarded or bare, n times.

``python guarded.py N (guarded | bare)``. Prints the CPU of the process and the median wall time per
run, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver


@tool
def send_email(to: str, body: str = "hello") -> str:
    """Send an email."""
    return f"sent to {to}"


class Instant(BaseChatModel):
    """Sends one mail, and is done."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        reply = AIMessage("done")
        if len(messages) == 1:
            made = {"name": "send_email", "args": {"to": "a@example.com"}, "id": "c1"}
            reply = AIMessage("", tool_calls=[made])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def bare() -> Callable[[str], Awaitable[Any]]:
    agent = create_agent(Instant(), [send_email], checkpointer=InMemorySaver())

    async def run(thread: str) -> Any:
        said: Any = {"messages": [{"role": "user", "content": "send it"}]}
        return await agent.ainvoke(said, {"configurable": {"thread_id": thread}})

    return run


def guarded(store: str) -> Callable[[str], Awaitable[Any]]:
    import sayso  # here, because the bare side runs without it
    from sayso.adapters.langchain import guard

    gate = sayso.Gate(store, agent="mailer", wait=0)
    rules = sayso.Policy([sayso.Rule("send_email", verdict="allow")])
    agent = guard(create_agent(Instant(), [send_email], checkpointer=InMemorySaver()), gate, rules)

    async def run(thread: str) -> Any:
        result = await agent.run("send it", thread=thread)
        assert result.status == "done"

    return run


async def main(n: int, side: str, store: str) -> None:
    run = bare() if side == "bare" else guarded(store)
    for number in range(10):
        await run(f"warm-{number}")
    walls: list[float] = []
    cpu = time.process_time()
    for number in range(n):
        began = time.perf_counter()
        await run(str(number))
        walls.append((time.perf_counter() - began) * 1e3)
    figures = {
        "cpu_ms": (time.process_time() - cpu) / n * 1e3,
        "wall_ms": statistics.median(walls),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(int(sys.argv[1]), sys.argv[2], f"sqlite:///{Path(folder) / 'sayso.db'}"))
