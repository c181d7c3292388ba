"""What is sent: messages, the events that bring a client up to date, and interrupts.

The messages of a run are made from the store. ``RunResponse`` compares them with those that it sent
before, and sends the difference as events. Events can only add: text to a message, a call, or a
result. For everything else, such as arguments that a person edited, it sends the whole conversation
as a ``MESSAGES_SNAPSHOT``, which replaces what the client shows. A client that continues or reloads
gets one first, because what it shows is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sayso import codec
from sayso.adapters.chat.response import EVENT_STREAM, ChatResponse, Chunk, error_text
from sayso.adapters.chat.threads import Chat
from sayso.adapters.chat.views import Reply, ToolView, approval_id, tool_view, tool_views
from sayso.errors import SaysoError
from sayso.inbox.inbox import RequestReader
from sayso.inbox.people import may_decide
from sayso.rows import LIVE, Call, RunStatus
from sayso.sync import read, to_thread
from sayso.text import visible
from sayso.types import Json, Question, Request, Reviewer

HEADERS = EVENT_STREAM
PROTOCOL_VERSION = "1.0"

Message: TypeAlias = dict[str, Any]

_NOT_YOURS = "This waits for other people, and you may not decide it."
_NOT_FINISHED = "The run has not finished. Run the agent again without new messages to follow it."


# -- messages


def answer_messages(run: str, replies: Sequence[Reply]) -> Iterator[Message]:
    """Yield the messages of a run: one for each reply of the model, and one for each result."""
    for number, reply in enumerate(replies, 1):
        message: Message = {"id": f"{run}.{number}", "role": "assistant"}
        calls: list[dict[str, Any]] = []
        results: list[Message] = []
        for slot in reply.slots:
            for view in tool_views(slot):
                # A call that has no row has only the model's id, which other calls may share.
                call_id = view.id if slot.call is not None else f"{message['id']}.{view.id}"
                arguments = view.input if isinstance(view.input, str) else codec.dumps(view.input)
                function = {"name": view.name, "arguments": arguments}
                calls.append({"id": call_id, "type": "function", "function": function})
                if view.end is not None:
                    results.append(_result(call_id, view))
        if reply.text:
            message["content"] = reply.text
        if calls:
            message["toolCalls"] = calls
        if reply.text or calls:
            yield message
        yield from results


def _result(call_id: str, view: ToolView) -> Message:
    assert view.end is not None
    value = view.end.value
    content = value if isinstance(value, str) else codec.dumps(value)
    result = {"id": f"{call_id}.result", "role": "tool", "toolCallId": call_id, "content": content}
    return result if view.card is None else {**result, "metadata": {"sayso": view.card}}


# -- responses


class _NeedsSnapshot(Exception):
    """Events cannot express what has changed."""


@dataclass(slots=True, kw_only=True)
class RunResponse(ChatResponse):
    """The answer to one POST: a run of AG-UI, about one run of ours."""

    chat: Chat
    #: The client's id of the run.
    run_id: str
    #: The messages that the client posted, as pairs of role and id.
    held: Sequence[tuple[str, str]]
    by: Reviewer
    #: Whether the whole conversation has to be sent, now or at the end.
    stale: bool
    supersedes: bool = False
    #: What is wrong with answers that did not count.
    problems: Sequence[SaysoError] = ()
    #: The messages of this run that the client has, by id.
    _sent: dict[str, Message] = field(default_factory=dict)
    #: The message whose text is open.
    _writing: str = ""

    def start(self) -> Chunk:
        return {"type": "RUN_STARTED", **self._named, "protocolVersion": PROTOCOL_VERSION}

    @property
    def _named(self) -> dict[str, str]:
        return {"threadId": self.chat.id, "runId": self.run_id}

    async def news(self) -> Iterable[Chunk]:
        view, draft = self.view, self.draft
        if not view.id:
            return ()  # the thread is new to us
        messages = list(answer_messages(view.id, view.replies))
        if draft:
            number = len(view.replies) + 1
            messages.append({"id": f"{view.id}.{number}", "role": "assistant", "content": draft})
        chunks: list[Chunk] = []
        if not self.stale:
            try:
                for message in messages:
                    self._add(message, chunks, whole=not draft or message is not messages[-1])
                return chunks
            except _NeedsSnapshot:
                pass
        chunks.extend(self._end_text())
        chunks.extend(await self._snapshots(messages))
        self._sent = {message["id"]: message for message in messages}
        self.stale = False
        return chunks

    async def _snapshots(self, answer: list[Message]) -> list[Chunk]:
        """Return the whole conversation, in which ``answer`` is this run's part.

        Clients keep messages that they have where they are, and append the others. If that gives
        another order, an empty snapshot comes first.
        """
        messages: list[Message] = []
        exchanges = await to_thread(self.chat.shown)
        user_ids = self._user_ids()
        for exchange in exchanges:
            user_id = user_ids.get(f"{exchange.run}.1", f"{exchange.run}.user")
            messages.append({"id": user_id, "role": "user", "content": exchange.words})
            current = exchange.run == self.view.id
            messages += answer if current else answer_messages(exchange.run, exchange.replies)
        if all(exchange.run != self.view.id for exchange in exchanges):
            messages += answer
        snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": messages}
        ids = [message["id"] for message in messages]
        held = [name for _, name in self.held if name in ids]
        names = [*held, *(name for name in self._sent if name not in held)]
        if names == ids[: len(names)]:
            return [snapshot]
        return [{"type": "MESSAGES_SNAPSHOT", "messages": []}, snapshot]

    def _user_ids(self) -> dict[str, str]:
        """Return the client's ids of user messages, by the id of the answer that follows."""
        following = [*(name for _, name in self.held[1:]), f"{self.view.id}.1"]
        return {
            follower: name
            for (role, name), follower in zip(self.held, following, strict=False)
            if role == "user" and not name.endswith(".user")
        }

    def _add(self, message: Message, chunks: list[Chunk], *, whole: bool) -> None:
        """Add the events for what is new in a message. Raise if there is more than that."""
        message_id = message["id"]
        sent = self._sent.get(message_id, {})
        if message["role"] == "tool":
            if sent not in ({}, message):
                raise _NeedsSnapshot
            if not sent:
                fields = {name: value for name, value in message.items() if name != "id"}
                chunks.append({"type": "TOOL_CALL_RESULT", "messageId": message_id, **fields})
        else:
            self._add_text(message, sent.get("content", ""), chunks, whole=whole)
            sent_calls = {call["id"]: call for call in sent.get("toolCalls", ())}
            for call in message.get("toolCalls", ()):
                if sent_calls.get(call["id"], call) != call:
                    raise _NeedsSnapshot
                if call["id"] not in sent_calls:
                    chunks.extend(_call_events(message_id, call))
        self._sent[message_id] = message

    def _add_text(self, message: Message, sent: str, chunks: list[Chunk], *, whole: bool) -> None:
        message_id, text = message["id"], message.get("content", "")
        if not text.startswith(sent):
            raise _NeedsSnapshot  # the model was called again
        rest = text[len(sent) :]
        if rest:
            if self._writing != message_id:
                chunks.extend(self._end_text())
                self._writing = message_id
                started = {"messageId": message_id, "role": "assistant"}
                chunks.append({"type": "TEXT_MESSAGE_START", **started})
            content = {"messageId": message_id, "delta": rest}
            chunks.append({"type": "TEXT_MESSAGE_CONTENT", **content})
        if whole and self._writing == message_id:
            chunks.extend(self._end_text())

    def _end_text(self) -> Iterator[Chunk]:
        if self._writing:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._writing}
            self._writing = ""

    async def finish(self, error: BaseException | None) -> Iterable[Chunk]:
        end = list(self._end_text())
        interrupts: list[dict[str, Any]] = []
        run = self.view.run
        try:
            if error is None and self.supersedes:
                self.stale = True
                end += await self.news()
            if error is None and run is not None and run.status in LIVE:
                interrupts = await read(self.chat.store, self._interrupts)
        except SaysoError as failure:
            error = failure
        problems = [error] if error is not None else self.problems
        if problems:
            text = "\n".join(map(error_text, problems))
            failed = {**_run_error(text, type(problems[0]).__name__)}
            if interrupts:
                failed["metadata"] = {"sayso": {"interrupts": interrupts}}
            return [*end, failed]
        if interrupts:
            outcome = {"type": "interrupt", "interrupts": interrupts}
        elif run is None or run.status is RunStatus.DONE:
            outcome = {"type": "success"}
        elif run.status is RunStatus.CANCELLED:
            outcome = {"type": "cancelled"}
        elif run.status in LIVE:
            return [*end, _run_error(_NOT_FINISHED, "NotFinished")]
        else:
            return [*end, _run_error(run.output or "The run failed.", "RunFailed")]
        return [*end, {"type": "RUN_FINISHED", **self._named, "outcome": outcome}]

    def _interrupts(self) -> list[dict[str, Any]]:
        reader = RequestReader(self.chat.store)
        running = {i for r in self.view.replies for slot in r.slots for i in slot.running}
        return [
            interrupt(
                reader.request(call),
                tool_view(call, running=call.id in running),
                interrupt_id(call),
                decides=may_decide(self.chat.store, self.by, call),
            )
            for call in self.view.waiting
        ]


def _call_events(message: str, call: dict[str, Any]) -> Iterator[Chunk]:
    call_id = {"toolCallId": call["id"]}
    function = call["function"]
    tool = {"toolCallName": function["name"], "parentMessageId": message}
    yield {"type": "TOOL_CALL_START", **call_id, **tool}
    yield {"type": "TOOL_CALL_ARGS", **call_id, "delta": function["arguments"]}
    yield {"type": "TOOL_CALL_END", **call_id}


def _run_error(message: str, code: str) -> Chunk:
    return {"type": "RUN_ERROR", "message": message, "code": code}


# -- interrupts


def interrupt_id(call: Call) -> str:
    """Return the id of an interrupt: the request's, and the revision after the first.

    Clients send back nothing else, so the id has to say what was shown.
    """
    return approval_id(call).removesuffix(".r1")


def interrupt(request: Request, view: ToolView, name: str, *, decides: bool) -> dict[str, Any]:
    """Return a request as an interrupt. ``decides`` is whether the client's user may decide it."""
    reason = "tool_call" if request.tool is not None else "confirmation"
    if request.kind != "approval":
        reason = "input_required" if request.kind == "question" else "sayso:in_doubt"
    message = view.warning or _question(request)
    interrupt_json: dict[str, Any] = {
        "id": name,
        "reason": reason,
        "message": message if decides else f"{message}\n{_NOT_YOURS}",
        "toolCallId": request.id,
        "metadata": {"sayso": {**view.card, "digest": request.digest}},
    }
    if request.expires_at is not None:
        interrupt_json["expiresAt"] = request.expires_at.isoformat()
    if decides:
        interrupt_json["responseSchema"] = response_schema(request)
    return interrupt_json


def _question(request: Request) -> str:
    """Return what to ask, and who rejected an equal call before."""
    if request.question is not None:
        text = request.question.text
    elif request.tool is None:
        text = request.args["text"]
    else:
        text = request.title or f"Run {request.tool}?"
    lines = [visible(text).text]
    for refusal in request.refusals:
        who = "Another person" if refusal.by is None else refusal.by
        lines.append(visible(f"{who} rejected an equal call. {refusal.message}").text.strip())
    return "\n".join(lines)


def response_schema(request: Request) -> dict[str, Any]:
    """Return a JSON Schema of the payload that decides a request."""
    if request.kind == "question":
        assert request.question is not None
        return _answer_schema(request.question)
    form: dict[str, Any] = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
    form["stop"] = {"type": "boolean", "description": "Also stop the run, after a rejection."}
    schema: dict[str, Any] = {"type": "object", "properties": form, "required": ["approved"]}
    if "edit" in request.allowed:
        arguments = dict(request.schema or {"type": "object"})
        schema |= {name: arguments.pop(name) for name in ("$defs",) if name in arguments}
        form["editedArgs"] = {**arguments, "description": "All arguments. Not merged."}
    if "respond" in request.allowed:
        form["result"] = {"description": "The result to use instead of running the tool."}
    return {**schema, "additionalProperties": False}


def _answer_schema(question: Question) -> dict[str, Any]:
    if question.schema is not None:
        return dict(question.schema)
    choices: list[dict[str, Json]] = [
        {"const": option.answer, "title": option.label} for option in question.options
    ]
    if question.free_text:
        choices.append({"type": "string"})
    answer = choices[0] if len(choices) == 1 else {"anyOf": choices}
    if question.multiple:
        return {"type": "array", "items": answer, "minItems": 1, "uniqueItems": True}
    return answer
