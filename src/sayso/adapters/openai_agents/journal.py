"""The conversation of a thread: the user's words, each reply of the model before its calls are
made, and what was said in the end. Only added to; a process that takes over replays what is there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents import ModelResponse
from agents.usage import deserialize_usage, serialize_usage
from openai.types.responses import ResponseOutputItem
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.openai_agents.sealing import sealed, unsealed
from sayso.engine.commands import Propose
from sayso.errors import InvalidCall
from sayso.gate import Gate, outcomes
from sayso.gate.foreign import made_before
from sayso.rows import Call, Message
from sayso.twin import hop, write
from sayso.types import Json

Items = list[dict[str, Any]]

_FORMAT = "openai-agents"
_FORGOTTEN = "This call was not made."
_outputs: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])


class Journal:
    """What is kept of one thread, and how far this entry has replayed it."""

    def __init__(self, gate: Gate, thread: str, run: str) -> None:
        self.gate = gate
        self.store = gate.store
        self.thread = thread
        self.run = run
        #: What was said before the last words of the user.
        self.history: Items = []
        #: Those words, while they are unanswered.
        self.words: Items | None = None
        self.answer: dict[str, Json] | None = None
        #: The how manieth words they are.
        self.number = 0
        self._replies: dict[str, list[dict[str, Any]]] = {}
        #: How many replies were given to the SDK, by path; beyond those kept, the model is asked.
        self.given: dict[str, int] = {}
        self._seen: int | None = None
        #: Agents that are tools run side by side, and write one after the other.
        self._writing = asyncio.Lock()

    # -- reading

    def load(self) -> None:
        """Read the thread."""
        rows = self.store.messages(self.thread)
        self._seen = rows[-1][0] if rows else None
        for _, text in rows:
            body = codec.loads(text)
            if body.get("format") == _FORMAT:
                self._take(unsealed(self.store.keys, self.thread, body))

    def _take(self, kept: Mapping[str, Any]) -> None:
        if "words" in kept:
            self.history = self.conversation(closed=True)
            self.words, self.answer, self._replies = kept["words"], None, {}
            self.number += 1
        elif "reply" in kept:
            self._replies.setdefault(kept["path"], []).append(kept["reply"])
        else:
            self.history = [*self.history[: kept["keep"]], *kept["items"]]
            self.words, self.answer, self._replies = None, kept["answer"], {}

    def conversation(self, *, closed: bool = False) -> Items:
        """All that was said up to the last words; ``closed``: with the replies that newer words cut
        short, and an answer to each of their calls."""
        said = [*self.history, *(self.words or ())]
        for reply in self._replies.get("", ()) if closed else ():
            said += reply["output"]
            said += [self._closed(item) for item in reply["output"] if _is_call(item)]
        return said

    def _closed(self, item: Mapping[str, Any]) -> dict[str, Any]:
        id = item.get("call_id") or item["id"]
        row = self.store.call_by_key(self.run, id)
        row = row or made_before(self.store, self.gate.agent, self.thread, id)
        if item["type"] == "mcp_approval_request":
            return {
                "type": "mcp_approval_response",
                "approval_request_id": item["id"],
                "approve": row is not None and outcomes.went_well(row),
            }
        output = _FORGOTTEN if row is None else _told(row)
        return {"type": "function_call_output", "call_id": item["call_id"], "output": output}

    # -- replaying

    def replayed(self, path: str) -> ModelResponse | None:
        """The next reply of a run, if it is kept already."""
        number = self.given.get(path, 0)
        kept = self._replies.get(path, [])
        if number >= len(kept):
            return None
        self.given[path] = number + 1
        return response_from(kept[number])

    # -- writing

    async def say(self, input: Any) -> None:
        """The user's words, before the model is asked; a state of older words ends here."""
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        if not isinstance(items, Sequence) or not items:
            raise InvalidCall("say something: a text, or a list of the SDK's input items", "input")
        kept: Items = to_jsonable_python(list(items), by_alias=True)
        shown = input if isinstance(input, str) else json.dumps(kept)
        await self._write({"role": "user", "content": shown}, {"words": kept}, snapshot="")
        self.history = await hop(self.conversation, closed=True)
        self.words, self.answer, self._replies = kept, None, {}
        self.number += 1

    async def reply(self, path: str, reply: ModelResponse) -> None:
        """A reply of the model, before anything comes of it."""
        raw = response_to(reply)
        await self._write(_shown(raw["output"]), {"path": path, "reply": raw})
        self._replies.setdefault(path, []).append(raw)
        self.given[path] = len(self._replies[path])

    async def end(self, conversation: Sequence[Any], output: Json) -> None:
        """All that was said, and what came of it."""
        whole: Items = to_jsonable_python(list(conversation), by_alias=True)
        keep = 0
        while keep < min(len(whole), len(self.history)) and whole[keep] == self.history[keep]:
            keep += 1
        self.answer = {"output": output}
        body = {"keep": keep, "items": whole[keep:], "answer": self.answer}
        await self._write({"role": "assistant", "content": ""}, body)

    async def _write(
        self, shown: dict[str, Json], kept: dict[str, Any], snapshot: str | None = None
    ) -> None:
        body = {**_text(shown), "format": _FORMAT, **sealed(self.store.keys, self.thread, kept)}
        async with self._writing:
            command = Propose(
                thread=self.thread,
                run=self.run,
                agent=self.gate.agent,
                messages=(Message(self.run, codec.dumps(body)),),
                snapshot=snapshot,
                hold=True,
                after=self._seen,
            )
            await write(self.store, command)
            self._seen = (self._seen or 0) + 1


def response_to(reply: ModelResponse) -> dict[str, Any]:
    """A reply as JSON."""
    return {
        "output": [_raw(item) for item in reply.output],
        "usage": serialize_usage(reply.usage),
        "response_id": reply.response_id,
        "request_id": reply.request_id,
    }


def response_from(raw: Mapping[str, Any]) -> ModelResponse:
    """And back."""
    return ModelResponse(
        output=_outputs.validate_python(raw["output"]),
        usage=deserialize_usage(raw["usage"]),
        response_id=raw["response_id"],
        request_id=raw["request_id"],
    )


def _raw(item: Any) -> dict[str, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_unset=True)
    raw: dict[str, Any] = to_jsonable_python(item, by_alias=True)
    return raw


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") in ("function_call", "mcp_approval_request")


def _told(row: Call) -> str:
    if not outcomes.went_well(row):
        return outcomes.why_not(row)
    return outcomes.as_text(codec.loads(row.result or "null"))


def _shown(output: Items) -> dict[str, Json]:
    """A reply as people read it."""
    parts = [p for item in output if item.get("type") == "message" for p in item["content"]]
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in output
        if item.get("type") == "function_call"
    ]
    said = "".join(part.get("text") or "" for part in parts)
    return {"role": "assistant", "content": said, **({"calls": calls} if calls else {})}


def _text(shown: dict[str, Json]) -> dict[str, Json]:
    """The same; half a surrogate pair, which is no text, becomes a question mark."""
    whole: dict[str, Json] = codec.loads(codec.dumps(shown).encode(errors="replace"))
    return whole
