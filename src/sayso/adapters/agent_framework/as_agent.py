"""A guarded agent as an agent of the framework: requests and answers are its contents.

A request is a ``function_approval_request`` with the id of our request. What it asks about is in
the store. Of an answer, only the id counts, whether it approves, and what ``edited``, ``rejected``
and ``responded`` add.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    BaseAgent,
    Content,
    Message,
    ResponseStream,
    normalize_messages,
)
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.calls import edit_of
from sayso.errors import InvalidDecision
from sayso.gate.run_result import RunResult, decision_from
from sayso.inbox import Inbox
from sayso.types import Decision, Json, Reject, Request, Reviewer
from sayso.views import question_json

_ABOUT = "sayso"


class Guarded(Protocol):
    """What is needed here of a guarded agent."""

    @property
    def name(self) -> str: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def response_format(self) -> Any: ...

    def with_options(self, options: Mapping[str, Any]) -> Guarded: ...

    async def run(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        arguments: Mapping[str, Json] | None = None,
    ) -> RunResult: ...

    async def resume(
        self, where: str, *, decisions: Any = None, by: str | Reviewer = "user"
    ) -> RunResult: ...


def edited(request: Content, arguments: Mapping[str, Json]) -> Content:
    """Approve a request with other arguments."""
    return _answer(request, True, {"arguments": dict(arguments)})


def rejected(request: Content, reason: str) -> Content:
    """Reject a request; the model is told the reason."""
    return _answer(request, False, {"reason": reason})


def responded(request: Content, value: Json) -> Content:
    """Give the result in the function's place, or the answer to a question. Nothing runs."""
    if request.type == "function_call":
        return Content.from_function_result(call_id=request.call_id or "", result=value)
    return _answer(request, False, {"value": value})


def _answer(request: Content, approved: bool, more: dict[str, Json]) -> Content:
    answer = request.to_function_approval_response(approved)
    about = dict(answer.additional_properties.get(_ABOUT) or {})
    answer.additional_properties = {_ABOUT: {**about, **more}}
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(RunResult):
    """What a guarded agent returns, with the attributes of the framework's ``AgentResponse``."""

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


class ApprovalAgent(BaseAgent):
    """``agent.run("…", session=s)``, then ``agent.run(Message("user", [answer]), session=s)``."""

    def __init__(self, guarded: Guarded, *, by: str) -> None:
        super().__init__(name=guarded.name)
        self.guarded = guarded
        self.by = by

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Awaitable[AgentResponse[Any]] | ResponseStream[AgentResponseUpdate, AgentResponse[Any]]:
        given = normalize_messages(messages)
        guarded = self.guarded.with_options(kwargs) if kwargs else self.guarded
        going = self._run(guarded, given, session, dict(function_invocation_kwargs or {}))
        if not stream:
            return going
        ended: list[AgentResponse[Any]] = []

        async def updates() -> AsyncIterator[AgentResponseUpdate]:
            ended.append(await going)
            for message in ended[0].messages:
                yield AgentResponseUpdate(contents=message.contents, role=message.role)

        return ResponseStream(updates(), finalizer=lambda _: ended[0])

    async def _run(
        self,
        guarded: Guarded,
        given: list[Message],
        session: AgentSession | None,
        arguments: dict[str, Any],
    ) -> AgentResponse[Any]:
        thread = None if session is None else session.session_id
        contents = [content for message in given for content in message.contents]
        answers = [c for c in contents if c.type in ("function_approval_response", _RESULT)]
        if not answers:
            result = await guarded.run(given, thread=thread, arguments=arguments)
        elif thread is None:
            raise InvalidDecision("an answer needs the session in which the agent asked")
        else:
            decisions = [await self._decision(answer, thread) for answer in answers]
            words = " ".join(content.text for content in contents if content.text)
            decisions = _with_words(decisions, words) if words.strip() else decisions
            result = await guarded.resume(thread, decisions=decisions, by=self.by)
        return _response(result, guarded.response_format)

    async def _decision(self, answer: Content, thread: str) -> Decision:
        name = answer.call_id if answer.type == _RESULT else answer.id
        request = await self.guarded.inbox.get(name or "")
        if request.thread != thread:
            raise InvalidDecision(f"{request.id} was not asked in this session")
        return decision_of(answer, request)


_RESULT = "function_result"


def _with_words(decisions: Sequence[Decision], words: str) -> list[Decision]:
    """Use text beside a plain rejection as its reason.

    Raises ``InvalidDecision`` beside any other answer, where the text would be lost.
    """
    plain = [d for d in decisions if isinstance(d, Reject) and not d.message]
    if not plain:
        raise InvalidDecision(
            "text beside this answer would be lost: send it in a message of its own, after the run "
            "has continued"
        )
    return [replace(d, message=words) if d in plain else d for d in decisions]


def decision_of(answer: Content, request: Request) -> Decision:
    """Return the decision that an answer means. Raises ``InvalidDecision`` if it means none."""
    at = f"answer to {request.id}"
    if answer.type == _RESULT:
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
    return edit_of(request, more["arguments"], at)


def request_content(request: Request) -> Content:
    """Return a request as content: an approval request, or a call whose result is the answer."""
    about = {"request": request.id, "digest": request.digest, "kind": request.kind}
    if request.kind == "question":
        assert request.question is not None
        asked = codec.dumps(question_json(request.question))
        call = Content.from_function_call(
            call_id=request.id, name="ask_user_question", arguments=asked, id=request.id
        )
        call.user_input_request = True
        call.additional_properties = {_ABOUT: about}
        return call
    made = Content.from_function_call(
        call_id=request.id, name=request.tool or "", arguments=dict(request.args), id=request.id
    )
    return Content.from_function_approval_request(
        id=request.id, function_call=made, additional_properties={_ABOUT: about}
    )


def _response(result: RunResult, format: Any) -> AgentResponse[Any]:
    if result.status == "paused":
        said: Sequence[Any] = [request_content(request) for request in result.interruptions]
        return AgentResponse(messages=[Message("assistant", said)], response_id=result.run)
    output = result.output if result.status == "done" else result.error
    text = output if isinstance(output, str) else codec.dumps(_plain(output))
    return AgentResponse(
        messages=[Message("assistant", [text])],
        response_id=result.run,
        value=None if isinstance(output, str) else output,
        response_format=format if result.status == "done" else None,
    )


def _plain(output: Any) -> Json:
    plain: Json = to_jsonable_python(output, by_alias=True, fallback=str)
    return plain
