"""The conversation of a thread: building its messages, reading them, and adding to them.

Requests and decisions are never messages; only tool results are. The results of a turn are stored
together with the next reply, in the order of the model's calls, whenever they arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from sayso import codec
from sayso.agent.models.base import ModelReply, known_call_ids
from sayso.agent.run_context import RunContext
from sayso.gate import outcomes
from sayso.rows import Call, CallStatus, Message
from sayso.types import Json

MessageBody: TypeAlias = dict[str, Json]

# --- messages ---


def user_message(text: str) -> MessageBody:
    return {"role": "user", "content": text}


def tool_message(call_id: str, name: str, content: str) -> MessageBody:
    return {"role": "tool", "call_id": call_id, "name": name, "content": content}


def approval_message(request_id: str, call: Call | None, error: str) -> MessageBody:
    """Return the decision on a call that the provider runs."""
    status, decision = (None, None) if call is None else (call.status, call.decision)
    reason = decision.message if decision is not None else ""
    if not reason and not error and status is not None:
        reason = outcomes.NOT_RUN.get(status, "")
    return {
        "role": "approval",
        "request_id": request_id,
        "approve": status is CallStatus.DONE,
        "reason": reason or error,
    }


def error_content(text: str) -> str:
    """Return an error as the model reads it, never with a traceback."""
    return codec.dumps({"error": text})


def result_content(call: Call) -> str:
    """Return what the model sees of a call that has ended."""
    if not outcomes.has_result(call):
        return error_content(outcomes.why_not(call))
    if call.kind == "question":
        return codec.dumps({"answer": codec.loads(call.result or "null")})
    return outcomes.result_text(call)


# --- the conversation of a run ---


class Conversation:
    """The messages that the model sees: stored ones, then those the next commit will add."""

    def __init__(self, ctx: RunContext) -> None:
        self.ctx = ctx
        self.saved: list[MessageBody] = []
        self.unsaved: list[MessageBody] = []
        #: The ids of all calls in it.
        self.call_ids: set[str] = set()
        self.usage: dict[str, int] = {}
        #: The number of model replies in this run.
        self.turns = 0
        #: The sequence number of the last stored message.
        self.last_seq = 0

    def begin(self) -> None:
        """Begin a thread that is not stored yet."""
        self.saved, self.unsaved, self.last_seq = [], [], 0

    def load(self) -> None:
        """Read the thread and discard unsaved messages."""
        store, thread = self.ctx.store, self.ctx.thread
        rows = store.messages(thread)
        # Parsing one JSON array takes half the time of parsing the messages one by one.
        self.saved = codec.loads(f"[{','.join(body for _, body in rows)}]")
        self.unsaved = []
        self.call_ids = known_call_ids(self.saved)
        self.last_seq = rows[-1][0] if rows else 0
        if not rows and (row := store.thread(thread)) is not None:
            self.last_seq = row.messages  # more than none, if all of them were pruned
        replies = [message for message in self.saved if message.get("run") == self.ctx.run]
        self.turns = len(replies)
        self.usage = {}
        for message in replies:
            _add_usage(self.usage, message.get("usage", {}).items())

    def copies(self) -> list[MessageBody]:
        """Return copies of all messages, for a model or a tool that may change them."""
        return [_copy(message) for message in self.saved + self.unsaved]

    @property
    def last(self) -> MessageBody:
        return self.saved[-1] if self.saved else {}

    def reply(self, reply: ModelReply) -> MessageBody:
        """Count a reply as a turn of this run and return its message."""
        self.turns += 1
        self.call_ids.update(call.id for call in reply.calls)
        # Half a surrogate pair cannot be encoded: it becomes a question mark.
        text = codec.dumps({**reply.message, "run": self.ctx.run})
        message: MessageBody = codec.loads(text.encode(errors="replace"))
        if reply.usage:
            message["usage"] = dict(reply.usage)
        _add_usage(self.usage, reply.usage.items())
        return message

    def rows(self) -> tuple[Message, ...]:
        """Return the unsaved messages as rows for the next commit."""
        return tuple(Message(self.ctx.run, codec.dumps(body)) for body in self.unsaved)

    def committed(self) -> None:
        self.last_seq += len(self.unsaved)
        self.saved += self.unsaved
        self.unsaved = []


def _copy(value: Any) -> Any:
    # Faster than copy.deepcopy, because most values are strings.
    if isinstance(value, list):
        return [_copy(part) if isinstance(part, dict | list) else part for part in value]
    copied = value.copy()
    for name, part in copied.items():
        if isinstance(part, dict | list):
            copied[name] = _copy(part)
    return copied


def _add_usage(usage: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for name, count in more:
        usage[name] = usage.get(name, 0) + count
