"""Answers that come through LangGraph itself, as ``Command(resume=...)``.

LangGraph writes such a value down before anybody has looked at it, and hands it out again each time
the node starts over, at times even as the answer to a later interrupt. So a value counts once:
whether it was taken or refused is noted in the store, and after a wrong one the node simply
interrupts again. A value that may be an old one must name the ``digest`` that was shown: where the
same was said just before, where a call is asked about again, and where it is in doubt.

When people decide in the inbox, no value comes at all, and the node goes on by the row alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from langgraph.errors import GraphInterrupt

from sayso.adapters.langchain import _wire
from sayso.errors import InvalidDecision, SaysoError
from sayso.gate.foreign import ForeignThread
from sayso.gate.given import decision_from, decisions_from
from sayso.inbox import Inbox
from sayso.types import Decision, Request

Waiting: TypeAlias = Callable[[], Awaitable[tuple[Request, ...]]]
#: What is shown in the interrupt, given what waits and what was wrong with the last answer.
Show: TypeAlias = Callable[[Sequence[Request], str], Any]
Read: TypeAlias = Callable[[Any, Sequence[Request]], list[Decision]]


class Answers:
    """The interrupts of one task, in their order."""

    def __init__(self, thread: ForeignThread, key: str, by: str) -> None:
        self.thread = thread
        self.key = key
        self.by = by
        self._count = 0
        self._last: list[Any] = []

    async def settle(self, waiting: Waiting, show: Show, read: Read) -> None:
        """Return when nothing waits any more; interrupt the graph while something does."""
        error = ""
        while True:
            name = f"{self.key}/answer {self._count}"
            heard = self.thread.row(name) is not None
            asked = await waiting()
            if not asked and not heard:
                return
            try:
                value = _wire.interrupt(
                    show(asked, error) if asked else None, response_schema=_expected(asked)
                )
            except GraphInterrupt:
                if asked:
                    raise
                return  # heard in another branch of the thread's past, and settled since
            self._count += 1
            again, self._last = value in self._last, [value]
            take = read if _certain(value, asked, again) else _refuse
            error = await self.thread.once(name, partial(self._taken, value, asked, take))

    async def _taken(self, value: Any, asked: Sequence[Request], read: Read) -> str:
        """Make the decisions; what is wrong with them is said in the next interrupt."""
        inbox = Inbox(self.thread.store)
        try:
            for decision in read(value, asked):
                name = decision.request or ""
                await inbox.decide(name, decision, by=self.by, channel="langgraph")
        except SaysoError as error:
            return str(error)
        return ""


def _certain(value: Any, asked: Sequence[Request], again: bool) -> bool:
    """Whether a value can only be the answer to what is shown now."""
    first = all(r.kind != "in_doubt" and r.revision == 1 for r in asked)
    if first and not again:
        return True
    named = value.get("digests", [value.get("digest")]) if isinstance(value, Mapping) else []
    return bool(named == [request.digest for request in asked])


def _refuse(value: Any, asked: Sequence[Request]) -> list[Decision]:
    raise InvalidDecision(
        "this may be the answer to an earlier question: decide in the inbox, or add the digest "
        "that is shown here to the answer"
    )


def shown(call_id: str, requests: Sequence[Request], error: str) -> dict[str, Any]:
    """An interrupt about one call, in LangChain's own form and a little more."""
    request = requests[0]
    value: dict[str, Any] = {
        "type": {"approval": "tool_approval"}.get(request.kind, request.kind),
        "tool_call_id": call_id,
        "request_id": request.id,
        "digest": request.digest,
        "name": request.tool,
        "args": dict(request.args),
        "description": request.description,
        "allowed_decisions": list(request.allowed),
    }
    if request.question is not None:
        value["question"] = request.question.text
        value["options"] = [option.answer for option in request.question.options]
    return {**value, "error": error} if error else value


def _expected(requests: Sequence[Request]) -> dict[str, Any] | None:
    """A JSON Schema of the answer, for clients that draw a form of it."""
    if len(requests) != 1 or requests[0].kind == "question":
        return None
    request = requests[0]
    args = {k: v for k, v in (request.schema or {}).items() if k != "$defs"}
    one_of = forms(request.tool or "", args, request.allowed)
    return {"oneOf": one_of, "$defs": (request.schema or {}).get("$defs", {})}


def forms(tool: str, args: dict[str, Any], allowed: Sequence[str]) -> list[dict[str, Any]]:
    """The decisions that are allowed, in LangChain's form; an edit keeps to its tool."""
    forms: dict[str, dict[str, Any]] = {
        "approve": {},
        "edit": {"edited_action": object_of(name={"const": tool}, args=args)},
        "reject": {"message": {"type": "string"}},
        "respond": {"message": {}},
    }
    one_of = [object_of(type={"const": name}, **forms[name]) for name in allowed if name in forms]
    for form in one_of:
        if form["properties"]["type"]["const"] == "reject":
            form["required"].remove("message")
    return one_of


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def read_turn(value: Any, requests: Sequence[Request]) -> list[Decision]:
    """The answer to all calls of a turn."""
    replies = _of_inbox(value)
    return decisions_from(value if replies is None else {"decisions": replies}, requests)


def read_one(value: Any, requests: Sequence[Request]) -> list[Decision]:
    """The answer to ``shown``: a decision, or a question's answer as it is."""
    request = requests[0]
    if request.kind == "question" and not (isinstance(value, Mapping) and "type" in value):
        return [request.respond(value)]
    replies = _of_inbox(value)
    return [decision_from(replies[0] if replies and len(replies) == 1 else value, request)]


_INBOX = {"accept": "approve", "edit": "edit", "response": "respond", "ignore": "reject"}


def _of_inbox(value: Any) -> list[dict[str, Any]] | None:
    """The decisions in a list as the agent inbox writes it; nothing, if it is none."""
    listed = value if isinstance(value, list) else []
    if not listed or not all(isinstance(r, Mapping) and "args" in r for r in listed):
        return None
    if not all(reply.get("type") in tuple(_INBOX) for reply in listed):
        return None
    return [_of_reply(_INBOX[reply["type"]], reply["args"]) for reply in listed]


def _of_reply(type: str, args: Any) -> dict[str, Any]:
    if type == "edit":
        named = isinstance(args, Mapping) and {"action", "args"} == set(args)
        return {"type": type, "edited_action": {**args, "name": args["action"]} if named else args}
    return {"type": type, "message": args} if type == "respond" else {"type": type}
