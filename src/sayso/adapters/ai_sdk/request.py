"""What a browser posts, and the little of it that counts: new input, answers, and what it shows.

Every post carries the history, which is never trusted. Only answers are read from the messages
before the last one; only text from the last one. The client's copy of the message that it continues
only says how to write over it.

An answer becomes a decision that counts like one made anywhere else. If an answer does not count,
the post still succeeds: the request stays pending, the card is sent again, and the problem is shown
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.adapters.ai_sdk.wire import APPROVAL, approval_id
from sayso.agent.agent import judge_edit
from sayso.engine.asking import doubt_envelope
from sayso.errors import Conflict, InvalidCall, InvalidDecision, SaysoError, StoreError
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.types import Approve, Decision, Edit, Json, Reject, Respond, Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent

#: The longest name of a thread.
_LONGEST_ID = 200
_TRIGGERS = ("submit-message", "regenerate-message")


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """A tool part that looks as if a person had answered it."""

    id: str
    state: str
    #: The id of the approval, if the part has one.
    approval: str = ""
    approved: bool | None = None
    reason: str = ""
    output: Json = None
    error: str = ""
    #: What the client says it showed; some clients leave it out.
    input: Json = None
    has_input: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One POST body, checked."""

    chat: str
    regenerates: bool
    #: The client's id of the message that it continues.
    continues: str
    #: The last message, if the user wrote it: its id and its text.
    message: str = ""
    words: str | None = None
    answers: tuple[PartAnswer, ...] = ()
    #: Edited arguments, and results in place of a call, by the id of the approval.
    edits: Mapping[str, Json] = field(default_factory=dict)
    results: Mapping[str, Json] = field(default_factory=dict)
    #: The client's copies of assistant messages, by id.
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_request(body: object) -> ChatRequest:
    """Read a POST body. Raises ``InvalidCall`` with what is wrong."""
    data = codec.parse(body) if isinstance(body, bytes | str) else body
    if not isinstance(data, Mapping):
        raise InvalidCall("post a JSON object with id and messages")
    messages = _messages(data)
    trigger = data.get("trigger", "submit-message")
    if trigger not in _TRIGGERS:
        raise InvalidCall(f"trigger: use {' or '.join(_TRIGGERS)}", "trigger")
    last = messages[-1]
    common = {
        "chat": checked_id(data.get("id")),
        "regenerates": trigger == "regenerate-message",
        "continues": _text(data.get("messageId"), "messageId") or last["id"],
    }
    if last["role"] == "user":
        return ChatRequest(**common, message=last["id"], words=_words(last))
    spoken = [message for message in messages if message["role"] == "assistant"]
    return ChatRequest(
        **common,
        answers=tuple(answer for message in spoken for answer in _answers(message)),
        edits=_by_approval(data, "edits"),
        results=_by_approval(data, "answers"),
        held={message["id"]: message for message in spoken},
    )


def checked_id(chat: object) -> str:
    """Return a chat's id, which names its thread. Raises ``InvalidCall`` if it cannot."""
    if not isinstance(chat, str) or not chat.strip() or len(chat) > _LONGEST_ID:
        raise InvalidCall(f"id: a chat needs an id of 1 to {_LONGEST_ID} characters", "id")
    if "/" in chat or chat.startswith("@"):
        raise InvalidCall("id: a chat's id must not contain / or begin with @", "id")
    codec.canonical(chat)
    return chat


def _messages(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages, with every field that is used checked."""
    given = data.get("messages", [data["message"]] if "message" in data else None)
    if not isinstance(given, list) or not given:
        raise InvalidCall("messages: post at least one message", "messages")
    return [_message(message, f"messages[{n}]") for n, message in enumerate(given)]


def _message(message: object, path: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidCall(f"{path}: a message is an object with role and parts", path)
    parts = message.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise InvalidCall(f"{path}.parts: pass a list of parts", f"{path}.parts")
    role = _text(message.get("role"), f"{path}.role")
    if role not in ("user", "assistant", "system"):
        raise InvalidCall(f"{path}.role: use user or assistant", f"{path}.role")
    read = [_part(part, f"{path}.parts[{n}]") for n, part in enumerate(parts)]
    return {"id": _text(message.get("id"), f"{path}.id"), "role": role, "parts": read}


def _part(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    kind = _text(part.get("type"), f"{path}.type")
    if not kind.startswith("tool-") and kind != "dynamic-tool":
        return {"type": kind, "text": _text(part.get("text"), f"{path}.text")}
    approval = part.get("approval")
    if approval is not None and not isinstance(approval, Mapping):
        raise InvalidCall(f"{path}.approval: pass an object", f"{path}.approval")
    return {
        **part,
        "type": kind,
        "toolCallId": _text(part.get("toolCallId"), f"{path}.toolCallId"),
        "state": _text(part.get("state"), f"{path}.state"),
        "approval": {} if approval is None else {**approval, "id": _text(approval.get("id"), path)},
    }


def _text(value: object, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidCall(f"{path}: pass a string", path)
    return value


def _words(message: Mapping[str, Any]) -> str:
    if any(part["type"] == "file" for part in message["parts"]):
        raise InvalidCall("files are not supported: send text", "messages")
    words = "\n".join(p["text"] for p in message["parts"] if p["type"] == "text" and p["text"])
    if not words.strip():
        raise InvalidCall("the message is empty: write something", "messages")
    codec.canonical(words)
    return words


def _answers(message: Mapping[str, Any]) -> Iterator[PartAnswer]:
    for part in message["parts"]:
        # We never send a part that the provider executes, so nobody was shown one.
        if "toolCallId" not in part or part.get("providerExecuted"):
            continue
        approval = part["approval"]
        yield PartAnswer(
            id=part["toolCallId"],
            state=part["state"],
            approval=approval.get("id", ""),
            approved=approval.get("approved"),
            reason=_text(approval.get("reason"), "approval.reason"),
            output=part.get("output"),
            error=_text(part.get("errorText"), "errorText"),
            input=part.get("input"),
            has_input="input" in part,
        )


def _by_approval(data: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        raise InvalidCall(f"{name}: pass an object, by approval id", name)
    return given


# -- answers as decisions


CHANNEL = "chat"

_CHANGED = "the request has changed since it was shown: look at it again"


async def decide(
    agent: Agent, waiting: Iterable[Call], request: ChatRequest, by: Reviewer, *, recipe: bool
) -> tuple[set[str], dict[str, str]]:
    """Record the decisions. Return the decided calls, and what was wrong with answers that do
    not count."""
    open_calls = {call.id: call for call in waiting}
    inbox = Inbox(agent.store, judge=partial(judge_edit, agent))
    decided: set[str] = set()
    problems: dict[str, str] = {}
    for answer in request.answers:
        call = open_calls.get(answer.id)
        if call is None:
            continue
        try:
            decision = decision_on(call, answer, request, recipe=recipe)
            if decision is not None:
                await inbox.decide(call.id, decision, by=by, channel=CHANNEL)
                decided.add(call.id)
                problems.pop(call.id, None)
        except StoreError:
            raise
        except SaysoError as error:
            problems[call.id] = str(error)
    return decided, problems


def decision_on(
    call: Call, answer: PartAnswer, request: ChatRequest, *, recipe: bool
) -> Decision | None:
    """Return the decision that an answer means, bound to what was shown; None if it means none."""
    if answer.state == "approval-responded":
        decision = _confirmed(call, answer, request)
    elif call.status is CallStatus.IN_DOUBT:
        return None  # only a card says what is in doubt
    elif call.kind == "question" or "approve" not in call.terms.allowed:
        decision = _answered(call, answer)
    elif recipe and call.rev == 1 and answer.state == "output-available":
        decision = _said(call, answer)
    else:
        return None
    return None if decision is None else replace(decision, seen_digest=_digest(call))


def _digest(call: Call) -> str:
    in_doubt = call.status is CallStatus.IN_DOUBT
    return codec.digest(doubt_envelope(call)) if in_doubt else call.digest


def _confirmed(call: Call, answer: PartAnswer, request: ChatRequest) -> Decision | None:
    """Return the decision of a card. Its id names the request and the revision that it showed."""
    if type(answer.approved) is not bool:
        return None
    if answer.approval != approval_id(call):
        raise Conflict(_CHANGED)
    if not answer.approved:
        return Reject(answer.reason)
    _check_shown(call, answer)
    if answer.approval in request.results:
        return Respond(request.results[answer.approval])
    if answer.approval not in request.edits:
        return Approve()
    edits = request.edits[answer.approval]
    if not isinstance(edits, dict):
        raise InvalidDecision("pass the edited arguments as an object", "args")
    return Edit({**codec.loads(call.args), **edits})


def _said(call: Call, answer: PartAnswer) -> Decision | None:
    """Return the decision of the recipe's Yes or No; any other output of a waiting call is
    ignored."""
    if answer.output == APPROVAL.NO:
        return Reject()
    if answer.output != APPROVAL.YES:
        return None
    _check_shown(call, answer)
    return Approve()


def _check_shown(call: Call, answer: PartAnswer) -> None:
    """Raise ``Conflict`` if the client showed other arguments than the stored ones."""
    if answer.has_input and answer.input != codec.loads(call.args):
        raise Conflict(_CHANGED)


def _answered(call: Call, answer: PartAnswer) -> Decision | None:
    """Return the answer to a question, or the result of a tool without a body."""
    if answer.state == "output-error":
        return Reject(answer.error)
    if answer.state != "output-available":
        return None
    return Respond(_unwrapped(call, answer.output) if call.kind == "question" else answer.output)


def _unwrapped(call: Call, output: Json) -> Json:
    """Return a bare answer, also from the form in which models read it."""
    rules = codec.loads(call.args)["schema"] or {}
    wrapped = isinstance(output, dict) and set(output) == {"answer"}
    return output["answer"] if wrapped and "answer" not in rules.get("properties", {}) else output
