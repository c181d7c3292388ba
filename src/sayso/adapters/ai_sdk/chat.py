"""The three functions behind a chat route: post, follow, and the whole chat for first paint.

The second half reads what a browser posts, of which little counts: new input, answers, and what it
shows. Every post carries the history, which is never trusted. Only answers are read from the
messages before the last one, and only text from the last one. The client's copy of the message that
it continues is only used to overwrite it.

If an answer does not count, the post still succeeds: the request stays pending, the card is sent
again, and the problem is shown with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sayso import codec
from sayso.adapters.ai_sdk.response import StreamWriter, UiResponse, client_message
from sayso.adapters.ai_sdk.views import APPROVAL, DONE, assistant_message, user_message
from sayso.adapters.chat.live import RunTask
from sayso.adapters.chat.response import Frames
from sayso.adapters.chat.threads import (
    CHANGED,
    Chat,
    PendingStream,
    check_owner,
    checked_id,
    checked_words,
    is_own_chat,
    person_of,
    shown_digest,
)
from sayso.adapters.chat.views import Guest, RunView, approval_id, asked_words
from sayso.errors import Conflict, InvalidCall, InvalidDecision
from sayso.rows import LIVE, Call, CallStatus
from sayso.sync import read, to_thread
from sayso.types import Approve, Decision, Edit, Json, Reject, Respond, Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent


def stream(
    body: object, agent: Agent, *, by: str | Reviewer, recipe: bool = False
) -> PendingStream:
    """Answer a POST: new input starts a run; answers are recorded as decisions, and their run
    continues.

    ``body`` is the posted body, as bytes or parsed JSON. With ``recipe``, a guarded call waits as
    ``input-available`` and is answered with ``APPROVAL.YES`` or ``APPROVAL.NO``.
    """
    return PendingStream(_stream(body, agent, by, recipe))


async def _stream(body: object, agent: Agent, by: str | Reviewer, recipe: bool) -> Frames:
    request, person = read_request(body), person_of(by)
    chat = UiChat(agent, request.chat, recipe=recipe)
    await check_owner(
        agent.store, request.chat, person, chat.listener, opens=request.words is not None
    )
    if request.words is None:
        return (await chat.answer(request, person)).frames()
    view, run_task = await chat.say(
        request.message, request.words, person, again=request.regenerates
    )
    return chat.response(view, run_task=run_task).frames()


async def follow(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> Frames | None:
    """Stream the last answer from its beginning, until it pauses or ends. None if there is none."""
    chat = await _existing_chat(agent, chat_id, by, recipe)
    response = None if chat is None else await chat.last()
    return None if response is None else response.frames()


async def messages(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> list[dict[str, Any]]:
    """Return the whole chat as UIMessages, rebuilt from the store; empty if there is none."""
    chat = await _existing_chat(agent, chat_id, by, recipe)
    if chat is None:
        return []
    message_list: list[dict[str, Any]] = []
    for exchange in await to_thread(chat.shown):
        words = asked_words(exchange, chat.guest)
        message_list.append(user_message(exchange.run, words, guest=chat.guest))
        if exchange.replies:
            message_list.append(assistant_message(exchange, recipe=recipe, guest=chat.guest))
    return message_list


async def _existing_chat(
    agent: Agent, chat_id: str, by: str | Reviewer, recipe: bool
) -> UiChat | None:
    chat, person = UiChat(agent, checked_id(chat_id), recipe=recipe), person_of(by)
    own = await read(agent.store, is_own_chat, agent.store, chat_id, person)
    if own is None:
        return None
    if not own:
        chat.guest = await read(agent.store, Guest, person, agent.store, chat_id)
    return chat


@dataclass(slots=True)
class UiChat(Chat):
    """One thread of one agent, with built-in approvals or the recipe's."""

    recipe: bool = False

    async def answer(self, request: ChatRequest, by: Reviewer) -> UiResponse:
        """Record decisions, and resume. Answers that do not count are written over."""
        view, live = await read(self.store, self._continued, request)
        problems: dict[str, str] = {}
        run_task = None
        if live is not None:
            open_calls = {call.id: call for call in live.waiting}
            answers = [
                (open_calls[answer["toolCallId"]], answer)
                for answer in request.answers
                if answer["toolCallId"] in open_calls
            ]
            means = partial(decision_on, request=request, recipe=self.recipe)
            errors = await self.record(answers, means, by)
            problems = {call: str(error) for call, error in errors.items()}
            run_task = await self.resumed(live)
        held = client_message(request.held.get(request.continues))
        writer = StreamWriter(held, recipe=self.recipe, problems=problems)
        run_task = run_task if live is view else None
        return self.response(view, writer=writer, run_task=run_task, message=request.continues)

    def _continued(self, request: ChatRequest) -> tuple[RunView, RunView | None]:
        """Return the run of the message that the client continues, and the live one."""
        turn = self.store.run(request.continues)
        run = turn if turn is not None and turn.thread == self.id else None
        if run is None:
            last = self.store.last_run(self.id)
            tools = client_message(request.held.get(request.continues)).tools
            if last is not None and any(c.id in tools for c in self.store.calls_of(last.id)):
                run = last  # the front end has its own ids for messages
        view = self.view("" if run is None else run.id)
        if run is not None:
            view.refresh(run)
            if run.status in LIVE:
                return view, view  # a thread has at most one live run
        other = self.store.live_run(self.id)
        if other is None:
            return view, None
        live = self.view(other.id)
        live.refresh(other)
        return view, live

    async def last(self) -> UiResponse | None:
        """Return the last answer, from its beginning."""
        opening = self.listener.opening.get(self.id)
        if opening is not None and opening.run:
            return self.response(self.view(opening.run), run_task=opening)
        run = await read(self.store, self.store.last_run, self.id)
        return None if run is None else self.response(self.view(run.id))

    def response(
        self,
        view: RunView,
        *,
        writer: StreamWriter | None = None,
        run_task: RunTask | None = None,
        message: str = "",
    ) -> UiResponse:
        return UiResponse(
            agent=self.agent,
            view=view,
            run_task=run_task,
            done=DONE,
            writer=writer or StreamWriter(recipe=self.recipe, guest=self.guest),
            message=message or view.id,
        )


# -- what a client posts


_TRIGGERS = ("submit-message", "regenerate-message")


#: A checked tool part, which may look as if a person had answered it.
ToolPart: TypeAlias = Mapping[str, Any]


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
    answers: tuple[ToolPart, ...] = ()
    #: Changed arguments, names of removed ones, and results in place of a call, by the id of the
    #: approval.
    edits: Mapping[str, Json] = field(default_factory=dict)
    unset: Mapping[str, Json] = field(default_factory=dict)
    results: Mapping[str, Json] = field(default_factory=dict)
    #: The rejections that also stop the run, by the id of the approval, or of a call without one.
    stop: frozenset[str] = frozenset()
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
        unset=_by_approval(data, "unset"),
        results=_by_approval(data, "answers"),
        stop=_stops(data),
        held={message["id"]: message for message in spoken},
    )


def _messages(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages, with every field that is used checked."""
    messages = data.get("messages", [data["message"]] if "message" in data else None)
    if not isinstance(messages, list) or not messages:
        raise InvalidCall("messages: post at least one message", "messages")
    return [_message(message, f"messages[{n}]") for n, message in enumerate(messages)]


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
    return checked_words(p["text"] for p in message["parts"] if p["type"] == "text" and p["text"])


def _answers(message: Mapping[str, Any]) -> Iterator[ToolPart]:
    for part in message["parts"]:
        # We never send a part that the provider executes, so the user has not seen one.
        if "toolCallId" in part and not part.get("providerExecuted"):
            reason = _text(part["approval"].get("reason"), "approval.reason")
            error = _text(part.get("errorText"), "errorText")
            yield {**part, "approval": {**part["approval"], "reason": reason}, "errorText": error}


def _by_approval(data: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    decisions = data.get(name, {})
    if not isinstance(decisions, Mapping):
        raise InvalidCall(f"{name}: pass an object, by approval id", name)
    return decisions


def _stops(data: Mapping[str, Any]) -> frozenset[str]:
    stops = data.get("stop", [])
    if not isinstance(stops, list) or not all(isinstance(name, str) for name in stops):
        raise InvalidCall("stop: pass a list of approval ids", "stop")
    return frozenset(stops)


# -- answers as decisions


def decision_on(
    call: Call, answer: ToolPart, *, request: ChatRequest, recipe: bool
) -> Decision | None:
    """Return the decision that an answer means, bound to what was shown; None if it means none."""
    if answer["state"] == "approval-responded":
        decision = _card_decision(call, answer, request)
    elif call.status is CallStatus.IN_DOUBT:
        return None  # only a card says what is in doubt
    elif call.kind == "question" or "approve" not in call.terms.allowed:
        decision = _answer_decision(call, answer)
    elif recipe and call.rev == 1 and answer["state"] == "output-available":
        decision = _recipe_decision(call, answer)
    else:
        return None
    if decision is None:
        return None
    if request.stop & {call.id, approval_id(call)}:
        if not isinstance(decision, Reject):
            raise InvalidDecision("only a rejection can stop the run", "stop")
        decision = replace(decision, stop=True)
    return replace(decision, seen_digest=shown_digest(call))


def _card_decision(call: Call, answer: ToolPart, request: ChatRequest) -> Decision | None:
    """Return the decision of a card. Its id names the request and the revision that it showed."""
    approved, card = answer["approval"].get("approved"), answer["approval"].get("id", "")
    if type(approved) is not bool:
        return None
    if card != approval_id(call):
        raise Conflict(CHANGED)
    if not approved:
        return Reject(answer["approval"]["reason"])
    _check_shown(call, answer)
    if card in request.results:
        return Respond(request.results[card])
    if card in request.edits or card in request.unset:
        return Edit(request.edits.get(card, {}), request.unset.get(card, ()))
    return Approve()


def _recipe_decision(call: Call, answer: ToolPart) -> Decision | None:
    """Return the decision of the recipe's Yes or No; any other output is ignored."""
    if answer.get("output") == APPROVAL.NO:
        return Reject()
    if answer.get("output") != APPROVAL.YES:
        return None
    _check_shown(call, answer)
    return Approve()


def _check_shown(call: Call, answer: ToolPart) -> None:
    """Raise ``Conflict`` if the client showed other arguments than the stored ones.

    Some clients leave them out.
    """
    if "input" in answer and answer["input"] != codec.loads(call.args):
        raise Conflict(CHANGED)


def _answer_decision(call: Call, answer: ToolPart) -> Decision | None:
    """Return the answer to a question, or the result of a tool without a body."""
    if answer["state"] == "output-error":
        return Reject(answer["errorText"])
    if answer["state"] != "output-available":
        return None
    output = answer.get("output")
    if call.kind == "question" and isinstance(output, dict) and set(output) == {"answer"}:
        rules = codec.loads(call.args)["schema"] or {}
        if "answer" not in rules.get("properties", {}):
            output = output["answer"]  # the form in which models read it
    return Respond(output)
