"""The chat middleware: keeps each reply before its calls are made, and gives it again later.

A run that is resumed goes through the framework's own loop from the last reply on: the model is not
asked for it a second time, and every call in it finds its row.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, Message, MiddlewareFailure

from sayso.adapters.agent_framework.gated import Gated
from sayso.adapters.agent_framework.messages import MessageLog, answers_to, calls_of
from sayso.adapters.agent_framework.tools import open_tools
from sayso.errors import Paused, SaysoError


class Replies(ChatMiddleware):
    """Stands next to the model for one run of the agent."""

    def __init__(self, log: MessageLog, added: list[Any], gated: Gated) -> None:
        self.log = log
        self.gated = gated
        #: Functions that others have added while the agent ran, on this thread.
        self.added = added
        self._tools: list[Any] = []
        self._given: set[str] = set()
        #: The stored reply, until the framework has asked for it.
        self._again = log.open
        #: What was said since the last reply that was stored.
        self.unsaved: list[Message] = []
        self._made = log.open_calls

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._bring(context.options)
        open_tools(context.options)
        if self._again is not None:
            self._check_added(context.options)
            context.result, self._again = self._again, None
            return
        if self.gated.waits:  # other middleware has made a result of what is only a request
            await self.log.save_session()
            raise Paused(self.log.calls.run, ())
        results = answers_to(self._made, context.messages)
        await self.log.cancel_answered([c for message in results for c in message.contents])
        await call_next()
        reply = context.result
        assert isinstance(reply, ChatResponse)
        for call in calls_of(reply.messages):
            # Given here and stored, so that the call is the same one when it is made again.
            call.id = call.id or f"af-call-{secrets.token_hex(16)}"
        self.unsaved += results
        if calls_of(reply.messages) or _asks(reply):
            await self.log.reply(self.unsaved, reply)
            self.unsaved, self._made = [], calls_of(reply.messages)
        else:
            self.unsaved, self._made = [*self.unsaved, *reply.messages], []

    def _bring(self, options: Any) -> None:
        """Give the agent again what was added before a pause, and remember what is added now."""
        tools = options.get("tools") if options else None
        if not isinstance(tools, list):
            return
        if tools is not self._tools:
            self._tools, self._given = tools, {_name(tool) for tool in tools}
            tools.extend(tool for tool in self.added if _name(tool) not in self._given)
        else:
            self.added[:] = [tool for tool in tools if _name(tool) not in self._given]
            self.log.added = [_name(tool) for tool in self.added]

    def _check_added(self, options: Any) -> None:
        """Stop before the framework tells the model that there is no such function: what people
        were asked about it stays as it is."""
        have = {_name(tool) for tool in (options or {}).get("tools") or ()}
        gone = [c.name for c in self._made if c.name in self.log.added and c.name not in have]
        if gone:
            error = SaysoError(
                f"{gone[0]} was added by another function while the agent ran, and this process "
                "does not have it: resume where it was added, or give it to the agent itself, or "
                "from a context provider; until then its call waits"
            )
            raise MiddlewareFailure(str(error)) from error


def _name(tool: Any) -> str:
    return str(getattr(tool, "name", ""))


def _asks(reply: ChatResponse[Any]) -> bool:
    """Whether the provider asks about a call that it makes itself."""
    contents = [content for message in reply.messages for content in message.contents]
    return any(content.type == "function_approval_request" for content in contents)
