"""Shared by the tests of the Agent Framework adapter: a scripted client, a store, and people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)
from store_world import StoreWorld

import sayso


def call(name: str, id: str = "c1", /, **args: Any) -> Content:
    return Content.from_function_call(call_id=id, name=name, arguments=args)


class Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A chat client whose model is a function of the messages."""

    def __init__(self, reply: Callable[[Sequence[Message]], ChatResponse[Any]]) -> None:
        super().__init__()
        self.reply = reply

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        async def whole() -> ChatResponse[Any]:
            return self.reply(messages)

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for message in self.reply(messages).messages:
                yield ChatResponseUpdate(contents=message.contents, role="assistant")

        if stream:
            return ResponseStream(pieces(), finalizer=ChatResponse.from_updates)
        return whole()


class World(StoreWorld):
    def __init__(self, folder: Path, policy: sayso.Policy | None = None, hours: int = 0) -> None:
        super().__init__(folder, policy, hours)
        #: What the model was shown each time.
        self.shown: list[list[Message]] = []

    def client(self, *turns: Sequence[Content] | str, **more: Any) -> Client:
        def reply(messages: Sequence[Message]) -> ChatResponse[Any]:
            self.shown.append(list(messages))
            turn = turns[sum(message.role == "assistant" for message in messages)]
            contents: Any = [turn] if isinstance(turn, str) else list(turn)
            # As a provider would, each answer has contents of its own.
            made = [
                Content.from_dict(c.to_dict()) if isinstance(c, Content) else c for c in contents
            ]
            return ChatResponse(messages=[Message("assistant", made)], **more)

        return Client(reply)

    def agent(self, *turns: Sequence[Content] | str, **options: Any) -> Agent[Any]:
        return Agent(self.client(*turns), **options)

    @property
    def results(self) -> dict[str, str]:
        """Return the results in the model's last prompt, by the provider's id of the call."""
        contents = [content for message in self.shown[-1] for content in message.contents]
        return {c.call_id: str(c.result) for c in contents if c.type == "function_result"}

    @property
    def prompts(self) -> list[str]:
        """Return the user's messages in the model's last prompt."""
        return [m.text for m in self.shown[-1] if m.role == "user" and m.text]

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of contents in the model's last prompt."""
        return {content.type for message in self.shown[-1] for content in message.contents}
