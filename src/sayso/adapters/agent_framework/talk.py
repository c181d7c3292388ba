"""The conversation of a thread, kept in the gate's store: appended to, and never rewritten.

Rows have the same face as those of ``sayso.Agent`` (role, content, calls), so that pages and
terminals can show what was said. The framework's own messages stand in the row of the reply that
they led to. Requests and decisions are not part of it: they are rows of their own. Beside it the
run keeps the session's state (``snapshot``), without the history that stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import AgentSession, ChatResponse, Content, Message

from sayso import codec
from sayso.engine.commands import Cancel, Propose
from sayso.gate import Gate, outcomes
from sayso.gate.foreign import ForeignThread
from sayso.rows import Call, CallStatus
from sayso.rows import Message as Row
from sayso.twin import hop, write
from sayso.types import Json

_FORMAT = "agent-framework"
_FORGOTTEN = "Nothing is known of this call any more."
_APPROVALS = ("function_approval_request", "function_approval_response")


class Talk:
    """What was said on one thread, as far as it is stored, and what is to be stored next."""

    def __init__(self, gate: Gate, thread: str) -> None:
        self.gate = gate
        self.calls = ForeignThread(gate, thread)
        self.thread = thread
        self.session = AgentSession(session_id=thread)
        #: Everything before the last reply that made calls, and that reply, if nothing followed it.
        self.messages: list[Message] = []
        self.open: ChatResponse[Any] | None = None
        #: The user's words of this turn, which turn it is, and what the run was given with them.
        self.words: list[Message] = []
        self.turn = 0
        self.arguments: dict[str, Json] = {}
        #: What was said since the last reply: a service that keeps conversations has the rest.
        self.since: list[Message] = []
        #: The answer, where only the end is left to be stored.
        self.answer: dict[str, Json] | None = None
        #: What a workflow was given, and what it has put out so far.
        self.given: Any = None
        self.outputs: list[Json] = []
        #: The names of functions that others have added while the agent ran.
        self.added: list[Json] = []
        self._seen: int | None = None

    # -- reading

    async def load(self) -> None:
        """Read the thread, and the session's state."""
        await hop(self._load)

    def _load(self) -> None:
        rows = self.gate.store.messages(self.thread)
        self._seen = rows[-1][0] if rows else None
        for _, text in rows:
            body = codec.loads(text)
            if body.get("format") == _FORMAT:
                self._take(body)
        run = self.gate.store.run(self.calls.run)
        if run is not None and run.snapshot is not None:
            kept = codec.loads(run.snapshot)
            self.session = AgentSession.from_dict(kept["session"])
            self.outputs, self.added = kept["outputs"], kept.get("added", [])

    def _take(self, body: dict[str, Any]) -> None:
        if "given" in body:
            self.given, self.answer, self.turn = body["given"], None, self.turn + 1
        if "prompt" in body:
            self.words = [Message.from_dict(raw) for raw in body["prompt"]]
            self.messages += [*self._reply(), *self.words]
            self.arguments, self.answer = body["arguments"], None
            self.turn, self.open, self.since = self.turn + 1, None, [*self.since, *self.words]
        if "messages" in body:
            said = [Message.from_dict(raw) for raw in body["messages"]]
            self.messages += [*self._reply(), *said]
            self.open, self.answer = None, body.get("answer")
            self.since = [] if "reply" in body or "answer" in body else said
            if "reply" in body:
                self.open = ChatResponse.from_dict(body["reply"])

    def _reply(self) -> list[Message]:
        return [] if self.open is None else list(self.open.messages)

    @property
    def history(self) -> list[Message]:
        """What the framework is given: nothing that the service itself keeps, and no approvals of
        calls that a provider made long ago, which it would take for forged ones."""
        if self.session.service_session_id is not None:
            return list(self.since)
        return without_approvals(self.messages)

    # -- writing

    async def say(self, messages: list[Message], arguments: dict[str, Json]) -> None:
        """The user's words, before the model is asked: whoever comes back can ask it."""
        shown = " ".join(message.text for message in messages if message.text)
        raw = [message.to_dict() for message in messages]
        body = {"role": "user", "content": shown, "prompt": raw, "arguments": arguments}
        await self._write([body])
        self.words, self.arguments = messages, arguments
        self.messages += messages
        self.since += messages
        self.turn += 1

    async def put(self, given: Any) -> None:
        """What a workflow is given."""
        self.given, self.outputs, self.turn = given, [], self.turn + 1
        body = {"role": "user", "content": given if isinstance(given, str) else "", "given": given}
        await self._write([body])

    async def reply(self, before: Sequence[Message], reply: ChatResponse[Any]) -> None:
        """A reply with calls, and the results that led to it."""
        body = {"messages": _raw(before), "reply": reply.to_dict(), **_shown(reply.messages)}
        await self._write([*_results(before), body])
        self.messages += [*self._reply(), *before]
        self.open, self.since = reply, []

    async def end(self, messages: Sequence[Message], output: Json) -> None:
        """The last words, with what was made of them."""
        await call_off(self.calls, [] if self.open is None else calls_of(self.open.messages))
        body = {"messages": _raw(messages), "answer": {"output": output}, **_shown(messages)}
        await self._write([*_results(messages), body])

    async def keep(self) -> None:
        """The session's state, where nothing was said."""
        await self._write([])

    async def _write(self, bodies: list[dict[str, Json]]) -> None:
        run = self.calls.run
        command = Propose(
            thread=self.thread,
            run=run,
            agent=self.gate.agent,
            messages=tuple(Row(run, codec.dumps({**b, "format": _FORMAT})) for b in bodies),
            snapshot=codec.dumps(self._kept()),
            hold=True,
            after=self._seen,
        )
        await write(self.gate.store, command)
        self._seen = (self._seen or 0) + len(bodies)

    def _kept(self) -> dict[str, Json]:
        added: dict[str, Json] = {"added": self.added} if self.added else {}
        return {"session": self._state(), "outputs": self.outputs, **added}

    def _state(self) -> dict[str, Json]:
        whole = self.session.to_dict()
        kept = {k: v for k, v in whole["state"].items() if k not in ("in_memory", "tool_approval")}
        return {**whole, "state": kept}

    # -- calls that nobody will make any more

    async def close(self) -> None:
        """Answer every open call: also those that new words made pointless."""
        made = [] if self.open is None else calls_of(self.open.messages)
        if not made:
            return
        rows = [await hop(self.calls.row_before, call.id or "") for call in made]
        contents = [_answered(call, row) for call, row in zip(made, rows, strict=True)]
        result = Message("tool", contents)
        await self._write([*_results([result]), {**_shown([]), "messages": _raw([result])}])
        self.messages += [*self._reply(), result]
        self.open, self.since = None, [result]

    async def tidy(self, results: Sequence[Message]) -> None:
        """Call off what the framework has answered without us: its function is gone, say."""
        contents = [content for message in results for content in message.contents]
        await call_off(self.calls, contents)


async def call_off(calls: ForeignThread, contents: Sequence[Content], prefix: str = "") -> None:
    """Call off those of these calls that are still open: the agent has gone on without them."""
    for content in contents:
        row = await hop(calls.row, f"{prefix}{content.id or ''}")
        if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
            reason = f"the agent went on without {row.tool}"
            command = Cancel(thread=row.thread, run=row.run, call=row.id, by="agent", reason=reason)
            await write(calls.store, command)


def calls_of(messages: Sequence[Message]) -> list[Content]:
    """The calls in a reply that are ours to make."""
    found = [c for message in messages for c in message.contents if c.type == "function_call"]
    return [call for call in found if not call.hosted and not call.informational_only]


def answers_to(made: Sequence[Content], messages: Sequence[Message]) -> list[Message]:
    """The messages with the results of these calls."""
    ids = {call.id for call in made}
    said = [place for place, message in enumerate(messages) if message.role == "assistant"]
    for message in messages[said[-1] + 1 if said else 0 :]:
        for content in message.contents:
            if content.type == "function_result" and content.id is None:
                # The framework says nothing more of a function that it does not know.
                same = [call.id for call in made if call.call_id == content.call_id]
                content.id = same[0] if same else None
    return [
        message
        for message in messages
        if message.role == "tool"
        and any(c.type == "function_result" and c.id in ids for c in message.contents)
    ]


def without_approvals(messages: Sequence[Message]) -> list[Message]:
    """The same messages without requests and answers about calls of the provider."""
    kept = []
    for message in messages:
        contents = [content for content in message.contents if content.type not in _APPROVALS]
        if len(contents) == len(message.contents):
            kept.append(message)
        elif contents:
            kept.append(Message(message.role, contents, author_name=message.author_name))
    return kept


def _raw(messages: Sequence[Message]) -> list[Json]:
    return [message.to_dict() for message in messages]


def _shown(messages: Sequence[Message]) -> dict[str, Json]:
    """A reply as people read it."""
    made = [
        {"id": call.call_id, "name": call.name, "arguments": _written(call.arguments)}
        for call in calls_of(messages)
    ]
    said = " ".join(m.text for m in messages if m.role == "assistant" and m.text)
    return {"role": "assistant", "content": said, **({"calls": made} if made else {})}


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else codec.dumps(arguments or {})


def _results(messages: Sequence[Message]) -> list[dict[str, Json]]:
    return [
        {"role": "tool", "call_id": content.call_id, "name": "", "content": str(content.result)}
        for message in messages
        for content in message.contents
        if content.type == "function_result"
    ]


def _answered(call: Content, row: Call | None) -> Content:
    text = _FORGOTTEN if row is None else outcomes.why_not(row)
    if row is not None and outcomes.went_well(row):
        text = outcomes.as_text(codec.loads(row.result or "null"))
    return Content.from_function_result(call_id=call.call_id or "", id=call.id, result=text)
