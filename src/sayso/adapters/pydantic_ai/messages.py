"""The conversation of a pydantic-ai agent, as the framework's own messages.

A stored reply holds all messages since the one before it. It is stored before any of its calls is
made, so that a process that resumes the thread finds the calls, and their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sayso.adapters.calls import cancel_skipped
from sayso.adapters.conversation import Body, ConversationLog, shown
from sayso.gate import Gate, outcomes
from sayso.gate.framework import FrameworkThread
from sayso.policy import Policy
from sayso.types import Json


class MessageLog(ConversationLog):
    """What was said in one thread, in pydantic-ai's messages."""

    format = "pydantic-ai"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        self.messages: list[ModelMessage] = []
        #: What the user said, while there is no reply to it.
        self.prompt: Any = None
        self._raw: list[Json] = []
        #: How many replies have a call with this id, including replies that were removed since.
        self._replies_with: Counter[str] = Counter()

    def _load(self) -> None:
        super()._load()
        self.messages = ModelMessagesTypeAdapter.validate_python(self._raw)
        if self.prompt is not None:
            (request,) = ModelMessagesTypeAdapter.validate_python(self.prompt)
            (part,) = request.parts
            assert isinstance(part, UserPromptPart)
            self.prompt = part.content

    def replay(self, body: Body) -> None:
        if "prompt" in body:
            self.prompt = body["prompt"]
        if "messages" in body:
            self._raw = [*(() if body.get("anew") else self._raw), *body["messages"]]
            self._replies_with.update({call["id"] for call in body.get("calls", ())})
            self.prompt = None

    async def say_prompt(self, prompt: Any) -> None:
        """Store what the user said: text, or a sequence of the framework's content parts."""
        request = ModelRequest(parts=[UserPromptPart(prompt)])
        texts = [prompt] if isinstance(prompt, str) else [p for p in prompt if isinstance(p, str)]
        await self.say("".join(texts), prompt=_dump([request]))

    async def reply(self, messages: Sequence[ModelMessage], response: ModelResponse) -> None:
        """Store a reply that makes calls, and everything that led to it."""
        conversation = [*messages, response]
        results, data = self._unsaved(conversation)
        await self.append(*results, {"role": "assistant", **_shown(response), **data})
        self.messages = conversation
        self._replies_with.update({call.tool_call_id for call in response.tool_calls})

    async def end_with(self, messages: Sequence[ModelMessage], output: Json, type: str) -> None:
        """Store the last reply, and the output that the framework made of it."""
        results, data = self._unsaved(messages)
        await self.end(output, *results, type=type, **{**_shown(messages[-1]), **data})
        self.messages = list(messages)

    def _unsaved(self, messages: Sequence[ModelMessage]) -> tuple[list[Body], Body]:
        """Return the tool results for people to read, and the messages that are not stored yet."""
        known = len(self.messages)
        grown = len(messages) > known and (not known or messages[known - 1] is self.messages[-1])
        # Another capability may have cut or rewritten the history: then store all of it again.
        new = list(messages[known:] if grown else messages)
        results = [
            {
                "role": "tool",
                "call_id": part.tool_call_id,
                "name": part.tool_name,
                "content": part.model_response_str(),
            }
            for message in new
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return results, {"messages": _dump(new), **({} if grown else {"anew": True})}

    def key(self, id: str) -> str:
        """Return the key of a call in the last reply."""
        return _numbered(id, self._replies_with[id])

    @property
    def open_calls(self) -> list[ToolCallPart]:
        """The calls of the last reply, if nothing was said after it."""
        last = self.messages[-1] if self.messages else None
        return list(last.tool_calls) if isinstance(last, ModelResponse) else []

    @property
    def open_keys(self) -> list[str]:
        return [self.key(call.tool_call_id) for call in self.open_calls]

    async def closed_messages(self) -> list[ModelMessage]:
        """Return the messages with a result for every call, so that the user can speak next."""
        calls = self.open_calls
        if not calls:
            return list(self.messages)
        texts = await self.closing_texts()
        parts = [
            ToolReturnPart(
                tool_name=call.tool_name,
                content=text,
                tool_call_id=call.tool_call_id,
                outcome="success" if row is not None and outcomes.has_result(row) else "denied",
            )
            for call, (row, text) in zip(calls, texts, strict=True)
        ]
        return [*self.messages, ModelRequest(parts=parts)]


def key_in(messages: Sequence[ModelMessage], id: str) -> str:
    """Return the key of a call in the last reply, counted in the messages alone."""
    replies = [message for message in messages if isinstance(message, ModelResponse)]
    return _numbered(id, sum(any(c.tool_call_id == id for c in r.tool_calls) for r in replies))


def _numbered(id: str, count: int) -> str:
    """Number an id that earlier replies have too: some providers restart at every reply."""
    return id if count < 2 else f"{id}#{count}"


async def cancel_answered(
    calls: FrameworkThread, messages: Sequence[ModelMessage], key: Callable[[str], str]
) -> None:
    """Cancel calls that are still open although the last message holds their results."""
    last = messages[-1] if messages else None
    parts = last.parts if isinstance(last, ModelRequest) else ()
    # Older versions answer a call of an unknown tool with a request to try again.
    answered = [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    await cancel_skipped(calls, [key(part.tool_call_id) for part in answered])


def _dump(messages: list[ModelMessage]) -> Json:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def _shown(message: ModelMessage) -> Body:
    if not isinstance(message, ModelResponse):
        return {"content": ""}
    calls = [(c.tool_call_id, c.tool_name, c.args_as_json_str()) for c in message.tool_calls]
    return shown(message.text or "", calls)
