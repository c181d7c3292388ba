"""Conversations, requests and answers as the framework's messages and contents.

``MessageLog`` is the conversation of a thread. A stored reply holds the tool results that led to
it. Requests and decisions are not part of the conversation: they have their own rows. The
session's state is kept beside it, in the snapshot of the run, without the history that is stored
here.

A request is a ``function_approval_request`` with the id of our request; what it asks about is in
the store. Of an answer, only the id counts, whether it approves, and what ``edited``, ``rejected``
and ``responded`` add.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_framework import (
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
)
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agents import OwnResult, listener
from sayso.adapters.calls import cancel_skipped
from sayso.adapters.conversation import Body, ConversationLog, shown
from sayso.errors import InvalidDecision
from sayso.gate import Gate
from sayso.gate.run_result import decision_from
from sayso.policy import Policy
from sayso.types import NO_ARGS, Decision, Json, Request
from sayso.views import framework_arguments, question_json

_APPROVALS = ("function_approval_request", "function_approval_response")


class MessageLog(ConversationLog):
    """What was said in one thread, in the framework's messages."""

    format = "agent-framework"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        self.session = AgentSession(session_id=thread)
        #: Everything before the last reply that made calls, and that reply if nothing followed it.
        self.messages: list[Message] = []
        self.open: ChatResponse[Any] | None = None
        #: What the user said in this turn, and the arguments that the run was given with it.
        self.prompt: list[Message] = []
        self.arguments: dict[str, Json] = {}
        #: What was said since the last reply: a service that keeps conversations has the rest.
        self.since: list[Message] = []
        #: The input of a workflow, and its outputs so far, with the names of their types.
        self.input: Json = None
        self.outputs: list[Json] = []
        #: The names of functions that middleware has added while the agent ran.
        self.added: list[Json] = []

    def _load(self) -> None:
        super()._load()
        run = self.store.run(self.run)
        if run is not None and run.snapshot is not None:
            snapshot = codec.loads(run.snapshot)
            self.session = AgentSession.from_dict(snapshot["session"])
            self.added = snapshot.get("added", [])
            self.outputs = snapshot["outputs"] if self.answer is None else self.outputs

    def replay(self, body: Body) -> None:
        if "input" in body:
            self.input = body["input"]
        self.outputs = body.get("outputs", [])
        if "prompt" in body:
            self.prompt = [Message.from_dict(raw) for raw in body["prompt"]]
            self.messages += [*self._reply(), *self.prompt]
            self.arguments, self.open = body["arguments"], None
            self.since = [*self.since, *self.prompt]
        if "messages" in body:
            messages = [Message.from_dict(raw) for raw in body["messages"]]
            self.messages += [*self._reply(), *messages]
            self.open = ChatResponse.from_dict(body["reply"]) if "reply" in body else None
            self.since = [] if "reply" in body or "answer" in body else messages

    def _reply(self) -> list[Message]:
        return [] if self.open is None else list(self.open.messages)

    @property
    def open_calls(self) -> list[Content]:
        """The calls of the last reply, if nothing was said after it."""
        return calls_of(self._reply())

    @property
    def open_keys(self) -> list[str]:
        return [call.id or "" for call in self.open_calls]

    @property
    def history(self) -> list[Message]:
        """The messages to give to the framework: none that the service itself keeps, and no
        approvals of calls that a provider made long ago, which it would take for forged ones."""
        if self.session.service_session_id is not None:
            return list(self.since)
        return without_approvals(self.messages)

    async def append(self, *bodies: Body, snapshot: str | None = None, last: bool = False) -> None:
        session = self.session.to_dict()
        # The history is in the log, and approvals are rows.
        left_out = ("in_memory", "tool_approval")
        session["state"] = {k: v for k, v in session["state"].items() if k not in left_out}
        added = {"added": self.added} if self.added else {}
        state = codec.dumps({"session": session, "outputs": self.outputs, **added})
        await super().append(*bodies, snapshot=state, last=last)

    async def save_session(self) -> None:
        """Store the session's state where nothing was said."""
        await self.append()

    async def say_messages(self, messages: list[Message], arguments: dict[str, Json]) -> None:
        text = " ".join(message.text for message in messages if message.text)
        await self.say(text, prompt=_dump(messages), arguments=arguments)
        self.prompt, self.arguments = messages, arguments
        self.messages += messages
        self.since += messages

    async def say_input(self, text: str, input: Json) -> None:
        """Store the input of a workflow, and its text for people."""
        self.input, self.outputs = input, []
        await self.say(text, input=input)

    async def reply(self, before: Sequence[Message], reply: ChatResponse[Any]) -> None:
        """Store a reply that makes calls, and the results that led to it."""
        data = {"messages": _dump(before), "reply": reply.to_dict(), **_shown(reply.messages)}
        await self.append(*_results(before), {"role": "assistant", **data})
        self.messages += [*self._reply(), *before]
        self.open, self.since = reply, []

    async def end_with(
        self, messages: Sequence[Message], output: Json, type: str = "", **more: Json
    ) -> None:
        """Store the last messages, and the output that was made of them."""
        await self.cancel_answered(self.open_calls)
        data = {"messages": _dump(messages), **_shown(messages), **more}
        await self.end(output, *_results(messages), type=type, **data)

    async def close_calls(self) -> None:
        """Store a result for every open call, so that the user can speak next."""
        calls = self.open_calls
        if not calls:
            return
        texts = await self.closing_texts()
        results = [
            Content.from_function_result(call_id=call.call_id or "", id=call.id, result=text)
            for call, (_, text) in zip(calls, texts, strict=True)
        ]
        message = Message("tool", results)
        data = {"content": "", "messages": _dump([message])}
        await self.append(*_results([message]), {"role": "assistant", **data})
        self.messages += [*self._reply(), message]
        self.open, self.since = None, [message]

    async def cancel_answered(self, contents: Sequence[Content]) -> None:
        """Cancel those of these calls that are still open: the agent continued without them."""
        await cancel_skipped(self.calls, [content.id or "" for content in contents])


def calls_of(messages: Sequence[Message]) -> list[Content]:
    """Return the calls in a reply that the framework makes itself."""
    calls = [c for message in messages for c in message.contents if c.type == "function_call"]
    return [call for call in calls if not call.hosted and not call.informational_only]


def name_calls(messages: Sequence[Message]) -> list[Content]:
    """Return the calls in a reply, each with an id of its own.

    It is stored with the reply, so that a call has the same id when it is made again.
    """
    calls = calls_of(messages)
    for call in calls:
        call.id = call.id or f"af-call-{secrets.token_hex(16)}"
    return calls


def answers_to(made: Sequence[Content], messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of these calls."""
    ids = {call.id for call in made}
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    for message in messages[replies[-1] + 1 if replies else 0 :]:
        for content in message.contents:
            if content.type == "function_result" and content.id is None:
                # The framework sets no id for a function that it does not know.
                same = [call.id for call in made if call.call_id == content.call_id]
                content.id = same[0] if same else None
    return [
        message
        for message in messages
        if message.role == "tool"
        and any(c.type == "function_result" and c.id in ids for c in message.contents)
    ]


def without_approvals(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without approval requests and answers about calls of the provider."""
    remaining = []
    for message in messages:
        contents = [content for content in message.contents if content.type not in _APPROVALS]
        if len(contents) == len(message.contents):
            remaining.append(message)
        elif contents:
            remaining.append(Message(message.role, contents, author_name=message.author_name))
    return remaining


def stream_messages(messages: Sequence[Message]) -> None:
    """Pass messages to the listener of the current run, if there is one."""
    for message in messages:
        author = message.author_name
        stream_update(
            AgentResponseUpdate(contents=message.contents, role=message.role, author_name=author)
        )


def stream_update(update: AgentResponseUpdate | ChatResponseUpdate) -> None:
    """Pass an update to the listener of the current run, if there is one."""
    listen = listener()
    contents = [content for content in update.contents if content.type not in _APPROVALS]
    if listen is None or (update.contents and not contents):
        return
    fields = ("role", "author_name", "response_id", "message_id", "created_at", "finish_reason")
    about: Any = {name: getattr(update, name) for name in fields}
    listen(AgentResponseUpdate(contents=contents, **about, raw_representation=update))


def _dump(messages: Sequence[Message]) -> list[Json]:
    return [message.to_dict() for message in messages]


def _shown(messages: Sequence[Message]) -> Body:
    calls = []
    for call in calls_of(messages):
        args = call.arguments
        text = args if isinstance(args, str) else codec.dumps(args or {})
        calls.append((call.call_id, call.name, text))
    return shown(" ".join(m.text for m in messages if m.role == "assistant" and m.text), calls)


def _results(messages: Sequence[Message]) -> list[dict[str, Json]]:
    return [
        {"role": "tool", "call_id": content.call_id, "name": "", "content": str(content.result)}
        for message in messages
        for content in message.contents
        if content.type == "function_result"
    ]


# -- requests and answers as contents


_ABOUT = "sayso"
RESULT = "function_result"


def edited(
    request: Content, arguments: Mapping[str, Json] = NO_ARGS, *, unset: Iterable[str] = ()
) -> Content:
    """Approve a request with these arguments changed, and those in ``unset`` removed."""
    return _answer(request, True, {"arguments": dict(arguments), "unset": [*unset]})


def rejected(request: Content, reason: str) -> Content:
    """Reject a request. The model reads the reason."""
    return _answer(request, False, {"reason": reason})


def responded(request: Content, value: Json) -> Content:
    """Give the result instead of running the function, or answer a question."""
    if request.type == "function_call":
        return Content.from_function_result(call_id=request.call_id or "", result=value)
    return _answer(request, False, {"value": value})


def _answer(request: Content, approved: bool, more: dict[str, Json]) -> Content:
    answer = request.to_function_approval_response(approved)
    about = dict(answer.additional_properties.get(_ABOUT) or {})
    answer.additional_properties = {_ABOUT: {**about, **more}}
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(OwnResult):
    """What a guarded agent returns, with the attributes of the framework's ``AgentResponse``.

    ``messages``, ``usage_details``, ``response_id`` and others are those of ``raw``.
    """

    @property
    def text(self) -> str:
        """What the agent said; "" while the run waits."""
        if self.status != "done":
            return ""
        return self.output if isinstance(self.output, str) else codec.dumps(_plain(self.output))

    @property
    def value(self) -> Any:
        """The answer in its ``response_format``; None for plain text."""
        return None if isinstance(self.output, str) else self.output

    @property
    def user_input_requests(self) -> list[Content]:
        """The pending requests as contents."""
        return [request_content(request) for request in self.interruptions]


def decision_of(answer: Content, request: Request) -> Decision:
    """Return the decision that an answer means. Raises ``InvalidDecision`` if it means none."""
    at = f"answer to {request.id}"
    if answer.type == RESULT:
        return decision_from({"type": "respond", "value": answer.result}, request, at)
    more = answer.additional_properties.get(_ABOUT) or {}
    if more.get("digest", request.digest) != request.digest:
        raise InvalidDecision(f"{at}: the request has changed since; look at it again", at)
    if "value" in more:
        return decision_from({"type": "respond", "value": more["value"]}, request, at)
    if answer.approved is not True:
        return decision_from({"type": "reject", "message": more.get("reason", "")}, request, at)
    if "arguments" not in more:
        return decision_from({"type": "approve"}, request, at)
    changes = {"args": more["arguments"], "unset": more.get("unset", ())}
    return decision_from({"type": "edit", **changes}, request, at)


def request_content(request: Request) -> Content:
    """Return a request as content: an approval request, or a call whose result is the answer."""
    about = {"request": request.id, "digest": request.digest, "kind": request.kind}
    if request.kind == "question":
        assert request.question is not None
        question = codec.dumps(question_json(request.question))
        call = Content.from_function_call(
            call_id=request.id, name="ask_user_question", arguments=question, id=request.id
        )
        call.user_input_request = True
        call.additional_properties = {_ABOUT: about}
        return call
    call_content = Content.from_function_call(
        call_id=request.id,
        name=request.tool or "",
        arguments=framework_arguments(request),
        id=request.id,
    )
    return approval_request(call_content, about)


def approval_request(made: Content, about: dict[str, Json]) -> Content:
    """Return the framework's request to approve a call, with the call's id."""
    return Content.from_function_approval_request(
        id=made.id or "", function_call=made, additional_properties={_ABOUT: about}
    )


def _plain(output: Any) -> Json:
    plain: Json = to_jsonable_python(output, by_alias=True, fallback=str)
    return plain
