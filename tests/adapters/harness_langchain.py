"""The story on LangChain: ``create_agent`` with a fake chat model, guarded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiosqlite
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sayso.adapters.langchain import GuardedAgent, guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript


class FakeChat(BaseChatModel):
    """A chat model that follows the script."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **kwargs: Any) -> FakeChat:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        replies = sum(isinstance(message, AIMessage) for message in messages)
        heard = [
            (m.tool_call_id, m.text, m.status == "error")
            for m in messages
            if isinstance(m, ToolMessage)
        ]
        turn = self.script.reply(replies, heard)
        if isinstance(turn, str):
            said = AIMessage(turn)
        else:
            made = [{"name": c.name, "args": c.args, "id": c.id} for c in turn]
            said = AIMessage("", tool_calls=made)
        return ChatResult(generations=[ChatGeneration(message=said)])


class LangChainHarness(AdapterHarness):
    """With the async SQLite saver."""

    def agent(self) -> GuardedAgent:
        return guard(self.bare(), self.context.gate)

    def bare(self, **options: Any) -> Any:
        context = self.context
        return self.build_clerk(context.tools, context.script, checkpointer=self.saver(), **options)

    def build_clerk(
        self, tools: Sequence[Callable[..., Any]], script: ModelScript, **options: Any
    ) -> Any:
        kind = "func" if self.colour == "sync" else "coroutine"
        structured = [StructuredTool.from_function(**{kind: tool}) for tool in tools]
        return create_agent(FakeChat(script=script), tools=structured, **options)

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        config: Any = None
        if asyncio.get_running_loop() is not self.loop:
            # LangGraph cannot use the async saver of the agent around it on another event loop.
            config = {"configurable": {"thread_id": "clerk"}}
        return await clerk.ainvoke({"messages": [("user", task)]}, config)

    async def open(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.connection = await aiosqlite.connect(self.context.folder / "checkpoints.db")

    def saver(self) -> Any:
        return AsyncSqliteSaver(self.connection)

    async def close(self) -> None:
        await self.connection.close()

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        file = sqlite3.connect(folder / "checkpoints.db")
        found = 0
        with file:
            for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
                for row, blob in file.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                    changed = bytes(blob).replace(old.encode(), new.encode())
                    if changed != bytes(blob):
                        file.execute(
                            f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row)
                        )
                        found += 1
        file.close()
        return found > 0


class SyncLangChainHarness(LangChainHarness):
    """With the sync SQLite saver, and tools that are plain functions."""

    colour = "sync"

    async def open(self) -> None:
        self.loop = asyncio.get_running_loop()
        path = self.context.folder / "checkpoints.db"
        self.file = sqlite3.connect(path, check_same_thread=False)

    def saver(self) -> Any:
        return SqliteSaver(self.file)

    def run_clerk_sync(self, clerk: Any, task: str) -> Any:
        return clerk.invoke({"messages": [("user", task)]})

    async def close(self) -> None:
        self.file.close()
