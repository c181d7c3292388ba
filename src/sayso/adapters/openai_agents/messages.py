"""The conversation of an agent of the SDK: what the user said, each reply of the model before its
calls are made, and all items once the turn is over.

The SDK can start a turn again from what the user said: a process that resumes it replays the stored
replies, and calls the model only for those that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents import ModelResponse
from agents.usage import deserialize_usage, serialize_usage
from openai.types.responses import ResponseOutputItem
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from sayso.adapters.conversation import Body, ReplayLog, closing_text
from sayso.errors import InvalidCall
from sayso.gate import Gate, outcomes
from sayso.policy import Policy
from sayso.twin import hop
from sayso.types import Json

Items = list[dict[str, Any]]

_outputs: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])


class ItemLog(ReplayLog):
    """What was said in one thread, in the SDK's items."""

    format = "openai-agents"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        #: The items before the last input of the user.
        self.history: Items = []
        #: That input, while it is unanswered.
        self.input: Items | None = None

    def replay(self, body: Body) -> None:
        if "input" in body:
            self.history = self.conversation(closed=True)
            self.input = body["input"]
        elif "items" in body:
            self.history = [*self.history[: body["keep"]], *body["items"]]
            self.input = None
        super().replay(body)

    def conversation(self, *, closed: bool = False) -> Items:
        """Return all items up to the user's last input.

        ``closed`` adds the replies that a newer input cut short, with a result for each call.
        """
        items = [*self.history, *(self.input or ())]
        for reply in self.replies.get("", ()) if closed else ():
            items += reply["output"]
            items += [self._closed(item) for item in reply["output"] if _is_call(item)]
        return items

    def _closed(self, item: Mapping[str, Any]) -> dict[str, Any]:
        row = self.calls.row_before(item.get("call_id") or item["id"])
        if item["type"] == "mcp_approval_request":
            return {
                "type": "mcp_approval_response",
                "approval_request_id": item["id"],
                "approve": row is not None and outcomes.went_well(row),
            }
        output = closing_text(row)
        return {"type": "function_call_output", "call_id": item["call_id"], "output": output}

    def next_response(self, path: str) -> ModelResponse | None:
        """Return the next stored reply on a path; None if the model has to be called."""
        raw = self.next_reply(path)
        if raw is None:
            return None
        return ModelResponse(
            output=_outputs.validate_python(raw["output"]),
            usage=deserialize_usage(raw["usage"]),
            response_id=raw["response_id"],
            request_id=raw["request_id"],
        )

    async def say_input(self, input: Any) -> None:
        """Store what the user said, and drop the SDK's state of an earlier turn."""
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        if not isinstance(items, Sequence) or not items:
            raise InvalidCall("say something: a text, or a list of the SDK's input items", "input")
        stored: Items = to_jsonable_python(list(items), by_alias=True)
        content = input if isinstance(input, str) else json.dumps(stored)
        history = await hop(self.conversation, closed=True)
        await self.say(content, input=stored, snapshot="")
        self.history, self.input = history, stored

    async def add_response(self, path: str, response: ModelResponse) -> None:
        """Store a reply of the model, before any of its calls is made."""
        output = [_dump(item) for item in response.output]
        raw = {
            "output": output,
            "usage": serialize_usage(response.usage),
            "response_id": response.response_id,
            "request_id": response.request_id,
        }
        await self.reply(path, raw, **_shown(output))

    async def end_with(self, conversation: Sequence[Any], output: Json) -> None:
        """Store the items of the whole turn, and its output."""
        items: Items = to_jsonable_python(list(conversation), by_alias=True)
        keep = 0
        while keep < min(len(items), len(self.history)) and items[keep] == self.history[keep]:
            keep += 1
        await self.end(output, keep=keep, items=items[keep:])


def _dump(item: Any) -> dict[str, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_unset=True)
    raw: dict[str, Any] = to_jsonable_python(item, by_alias=True)
    return raw


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") in ("function_call", "mcp_approval_request")


def _shown(output: Items) -> dict[str, Any]:
    """Return a reply in the fields that pages and terminals show."""
    parts = [p for item in output if item.get("type") == "message" for p in item["content"]]
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in output
        if item.get("type") == "function_call"
    ]
    text = "".join(part.get("text") or "" for part in parts)
    return {"content": text, **({"calls": calls} if calls else {})}
