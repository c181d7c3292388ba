"""The LangGraph side of ``ours/scene.py``: the same tool and script, and a saver on a store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.types import Command

#: Threads of this process begin with it: a database may hold those of an earlier round.
OWN = uuid.uuid4().hex[:8]
MAIL = {"to": "a@example.com", "body": "hello"}
SAID = {"messages": [{"role": "user", "content": "send it"}]}
YES = Command(resume={"decisions": [{"type": "approve"}]})


@tool
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


class Instant(BaseChatModel):
    """Sends ``mails`` times, and is done."""

    mails: int = 1

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        turn = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            turn += isinstance(message, AIMessage)
        reply = AIMessage(content="done")
        if turn < self.mails:
            made = {"name": "send_email", "args": dict(MAIL), "id": uuid.uuid4().hex}
            reply = AIMessage(content="", tool_calls=[made])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def agent_on(saver: Any, mails: int = 1) -> Any:
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_email": True})
    return create_agent(Instant(mails=mails), [send_email], checkpointer=saver, middleware=[gate])


def config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 10_000}


def cycle(agent: Any, thread: str) -> None:
    """Pause, decide, resume."""
    agent.invoke(SAID, config(thread))
    done = agent.invoke(YES, config(thread))
    assert done["messages"][-1].content == "done"


@contextmanager
def saver_at(place: str, pool: int = 1) -> Iterator[Any]:
    """A saver on a PostgreSQL URL, with a pool of connections, or on SQLite in a file."""
    if not place.startswith("postgresql://"):
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(place) as saver:
            # It leaves SQLite's own default in place, which is as durable as ours.
            assert saver.conn.execute("PRAGMA synchronous").fetchone()[0] == 2
            yield saver
        return
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(place, min_size=pool, max_size=pool, kwargs=settings) as connections:
        saver = PostgresSaver(connections)
        saver.setup()
        yield saver
