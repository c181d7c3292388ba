"""The story on an agent of the Microsoft Agent Framework."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from assent.adapters.agent_framework import guard
from assent.testing import Stage


class Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A chat client whose model is a function of the messages."""

    def __init__(self, reply: Any) -> None:
        super().__init__()
        self.reply = reply

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        async def answer() -> ChatResponse[Any]:
            response: ChatResponse[Any] = self.reply(messages)
            return response

        return answer()


class AgentFrameworkStage(Stage):
    def agent(self) -> Any:
        cast = self.cast
        return guard(Agent(Client(self._reply), tools=list(cast.tools)), cast.gate)

    def _reply(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        replies = sum(message.role == "assistant" for message in messages)
        heard = [
            (content.call_id, str(content.result))
            for message in messages
            for content in message.contents
            if content.type == "function_result"
        ]
        turn = self.cast.script.reply(replies, heard)
        if isinstance(turn, str):
            return ChatResponse(messages=[Message("assistant", [turn])])
        calls = [
            Content.from_function_call(call_id=made.id, name=made.name, arguments=made.args)
            for made in turn
        ]
        return ChatResponse(messages=[Message("assistant", calls)])

    @classmethod
    def tamper(cls, folder: Path, old: str, new: str) -> bool:
        file = sqlite3.connect(folder.parent / "assent.db")
        with file:
            found = file.execute(
                "UPDATE message SET body = replace(body, ?, ?) WHERE instr(body, ?)",
                (old, new, old),
            )
        file.close()
        return found.rowcount > 0
