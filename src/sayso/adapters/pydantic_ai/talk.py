"""The conversation of a thread, kept in the gate's store: appended to, and never rewritten.

Rows have the same face as those of ``sayso.Agent`` (role, content, calls), so that pages and
terminals can show what was said. The framework's own messages stand in the row of the reply that
they led to; a reply is stored before any of its calls is made, so that whoever comes back finds the
calls, and their rows.
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
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from sayso import codec
from sayso.engine.commands import Cancel, Propose
from sayso.gate import Gate, outcomes
from sayso.gate.foreign import ForeignThread
from sayso.rows import Call, CallStatus, Message
from sayso.twin import hop, write
from sayso.types import Json

_FORMAT = "pydantic-ai"
_FORGOTTEN = "Nothing is known of this call any more."


class Talk:
    """What was said on one thread, as far as it is stored, and what is to be stored next."""

    def __init__(self, gate: Gate, thread: str) -> None:
        self.gate = gate
        self.calls = ForeignThread(gate, thread)
        self.thread = thread
        #: The framework's messages, those of the store first.
        self.messages: list[ModelMessage] = []
        #: The user's words, as long as there is no reply to them.
        self.words: Any = None
        #: The answer of this run, where only the end is left to be stored.
        self.answer: dict[str, Json] | None = None
        self._seen: int | None = None
        #: How many replies have a call with this id, also those that were cut off since.
        self._times: Counter[str] = Counter()

    # -- reading

    async def load(self) -> None:
        """Read the thread."""
        await hop(self._load)

    def _load(self) -> None:
        rows = self.gate.store.messages(self.thread)
        self._seen = rows[-1][0] if rows else None
        raw: list[Json] = []
        for _, text in rows:
            body = codec.loads(text)
            if body.get("format") != _FORMAT:
                continue  # somebody else's agent spoke here before
            if "prompt" in body:
                self.words, self.answer = body["prompt"], None
            if "messages" in body:
                raw = [*(() if body.get("anew") else raw), *body["messages"]]
                self._times.update({call["id"] for call in body.get("calls", ())})
                self.words, self.answer = None, body.get("answer")
        self.messages = ModelMessagesTypeAdapter.validate_python(raw)
        if self.words is not None:
            (said,) = ModelMessagesTypeAdapter.validate_python(self.words)
            (prompt,) = said.parts
            assert isinstance(prompt, UserPromptPart)
            self.words = prompt.content

    # -- writing

    async def say(self, words: Any) -> None:
        """The user's words, before the model is asked: whoever comes back can ask it."""
        request = ModelRequest(parts=[UserPromptPart(words)])
        shown = words if isinstance(words, str) else "".join(w for w in words if isinstance(w, str))
        body = {"role": "user", "content": shown, "prompt": _raw([request])}
        await self._write([body])

    async def reply(self, messages: Sequence[ModelMessage], response: ModelResponse) -> None:
        """A reply with calls, and all that led to it."""
        await self._keep([*messages, response], {})
        self._times.update({call.tool_call_id for call in response.tool_calls})

    async def end(self, messages: Sequence[ModelMessage], output: Json) -> None:
        """The last reply, with what was made of it."""
        await self._keep(list(messages), {"answer": {"output": output}})

    async def _keep(self, messages: list[ModelMessage], more: dict[str, Json]) -> None:
        known = len(self.messages)
        # Another capability may have cut or rewritten the history: then all of it counts anew.
        grown = len(messages) > known and (not known or messages[known - 1] is self.messages[-1])
        fresh = messages[known:] if grown else messages
        said = [
            _result(part) for m in fresh for part in m.parts if isinstance(part, ToolReturnPart)
        ]
        last: dict[str, Json] = {"messages": _raw(fresh), **_shown(messages[-1]), **more}
        await self._write([*said, last if grown else {**last, "anew": True}])
        self.messages = messages

    async def _write(self, bodies: list[dict[str, Json]]) -> None:
        calls = self.calls
        command = Propose(
            thread=self.thread,
            run=calls.run,
            agent=self.gate.agent,
            messages=tuple(
                Message(calls.run, codec.dumps({**body, "format": _FORMAT})) for body in bodies
            ),
            hold=True,
            after=self._seen,
        )
        await write(self.gate.store, command)
        self._seen = (self._seen or 0) + len(bodies)

    def key(self, id: str) -> str:
        """What a call of the last reply is found by."""
        return _numbered(id, self._times[id])

    # -- calls that nobody will make any more

    @property
    def open_calls(self) -> list[ToolCallPart]:
        """The calls of the last reply, if nothing was said after it."""
        last = self.messages[-1] if self.messages else None
        return list(last.tool_calls) if isinstance(last, ModelResponse) else []

    async def closed(self) -> list[ModelMessage]:
        """The messages, with an answer to every call: also to what new words made pointless."""
        calls = self.open_calls
        if not calls:
            return list(self.messages)
        rows = [await hop(self.calls.row_before, self.key(call.tool_call_id)) for call in calls]
        parts = [_answered(call, row) for call, row in zip(calls, rows, strict=True)]
        return [*self.messages, ModelRequest(parts=parts)]

    async def tidy(self, answered: Sequence[ModelMessage]) -> None:
        """Call off what the framework has answered without us: its tool is gone, say."""
        await tidy(self.calls, answered, self.key)


def key_in(messages: Sequence[ModelMessage], id: str) -> str:
    """What a call of the last reply is found by, where the messages are all that is known."""
    replies = [message for message in messages if isinstance(message, ModelResponse)]
    time = sum(any(call.tool_call_id == id for call in reply.tool_calls) for reply in replies)
    return _numbered(id, time)


def _numbered(id: str, time: int) -> str:
    """The id; if an earlier reply has it too, with which time it is. Some providers count the calls
    of each reply anew."""
    return id if time < 2 else f"{id}#{time}"


async def tidy(
    calls: ForeignThread, answered: Sequence[ModelMessage], key: Callable[[str], str]
) -> None:
    """Call off what waits and has an answer in the last message, which is not from us."""
    last = answered[-1] if answered else None
    for part in last.parts if isinstance(last, ModelRequest) else ():
        if isinstance(part, ToolReturnPart):
            row = await hop(calls.row, key(part.tool_call_id))
            if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
                await write(calls.store, _called_off(row))


def _called_off(row: Call) -> Cancel:
    reason = f"the agent went on without {row.tool}"
    return Cancel(thread=row.thread, run=row.run, call=row.id, by="agent", reason=reason)


def _raw(messages: list[ModelMessage]) -> Json:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def _shown(message: ModelMessage) -> dict[str, Json]:
    """A reply as people read it."""
    if not isinstance(message, ModelResponse):
        return {"role": "assistant", "content": ""}
    calls = [
        {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_json_str()}
        for call in message.tool_calls
    ]
    return {
        "role": "assistant",
        "content": message.text or "",
        **({"calls": calls} if calls else {}),
    }


def _result(part: ToolReturnPart) -> dict[str, Json]:
    return {
        "role": "tool",
        "call_id": part.tool_call_id,
        "name": part.tool_name,
        "content": part.model_response_str(),
    }


def _answered(call: ToolCallPart, row: Call | None) -> ToolReturnPart:
    well = row is not None and outcomes.went_well(row)
    text = _FORGOTTEN if row is None else outcomes.why_not(row)
    if row is not None and well:
        text = outcomes.as_text(codec.loads(row.result or "null"))
    return ToolReturnPart(
        tool_name=call.tool_name,
        content=text,
        tool_call_id=call.tool_call_id,
        outcome="success" if well else "denied",
    )
