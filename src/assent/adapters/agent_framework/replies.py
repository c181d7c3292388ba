"""The chat middleware: keeps each reply before its calls are made, and gives it again later.

A run that is resumed goes through the framework's own loop from the last reply on: the model is not
asked for it a second time, and every call in it finds its row.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, FunctionTool, Message

from assent.adapters.agent_framework.gated import opened
from assent.adapters.agent_framework.talk import Talk, calls_of


class Replies(ChatMiddleware):
    """Stands next to the model for one run of the agent."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        #: The stored reply, until the framework has asked for it.
        self._again = talk.open
        #: What was said since the last reply that was stored.
        self.unsaved: list[Message] = []
        self._made = _ids(talk.open)
        self._opened: dict[int, FunctionTool] = {}

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._open_tools(context.options.get("tools") if context.options else None)
        if self._again is not None:
            context.result, self._again = self._again, None
            return
        results = [m for m in context.messages if _answers(m, self._made)]
        await self.talk.tidy(results)
        await call_next()
        reply = context.result
        assert isinstance(reply, ChatResponse)
        for call in calls_of(reply.messages):
            # Given here and stored, so that the call is the same one when it is made again.
            call.id = call.id or f"af-call-{secrets.token_hex(16)}"
        self.unsaved += results
        if calls_of(reply.messages) or _asks(reply):
            await self.talk.reply(self.unsaved, reply)
            self.unsaved, self._made = [], _ids(reply)
        else:
            self.unsaved, self._made = [*self.unsaved, *reply.messages], set()

    def _open_tools(self, tools: Any) -> None:
        """Let the framework call what it would stop at by itself; the gate asks in its place."""
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if not isinstance(tool, FunctionTool):
                continue
            if tool.declaration_only or tool.approval_mode == "always_require":
                tools[index] = self._opened.setdefault(id(tool), opened(tool))


def _ids(reply: ChatResponse[Any] | None) -> set[str | None]:
    return set() if reply is None else {call.id for call in calls_of(reply.messages)}


def _answers(message: Message, made: set[str | None]) -> bool:
    contents: Sequence[Any] = message.contents
    return message.role == "tool" and any(
        content.type == "function_result" and content.id in made for content in contents
    )


def _asks(reply: ChatResponse[Any]) -> bool:
    """Whether the provider asks about a call that it makes itself."""
    contents = [content for message in reply.messages for content in message.contents]
    return any(content.type == "function_approval_request" for content in contents)
