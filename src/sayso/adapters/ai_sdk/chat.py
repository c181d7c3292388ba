"""The three functions behind a chat route: post, follow, and the whole chat for first paint.

The second half reads what a browser posts, of which little counts: new input, answers, and what it
shows. Every post carries the history, which is never trusted. Only answers are read from the
messages before the last one, and only text from the last one. The client's copy of the message that
it continues is only used to overwrite it.

An answer becomes a decision that counts like one made anywhere else. If an answer does not count,
the post still succeeds: the request stays pending, the card is sent again, and the problem is shown
beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sayso import codec
from sayso.adapters.ai_sdk.live import AgentListener, RunTask, listener_of
from sayso.adapters.ai_sdk.response import ChatResponse, StreamWriter, client_message
from sayso.adapters.ai_sdk.views import (
    APPROVAL,
    RunView,
    approval_id,
    asked_words,
    assistant_message,
    exchanges,
    user_message,
)
from sayso.agent.agent import judge_edit
from sayso.engine.asking import doubt_envelope
from sayso.engine.commands import Note
from sayso.errors import (
    Conflict,
    InvalidCall,
    InvalidDecision,
    NotAllowed,
    NotFound,
    SaysoError,
    StoreError,
)
from sayso.inbox import Inbox
from sayso.inbox.people import may_see, requests_in
from sayso.rows import LIVE, Call, CallStatus
from sayso.stores.base import Store
from sayso.sync import read, to_thread, write
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
    chat = Chat(agent, request.chat, recipe)
    await check_owner(
        agent.store, request.chat, person, chat.listener, opens=request.words is not None
    )
    if request.words is not None:
        return (await chat.say(request, request.words, person)).frames()
    return (await chat.answer(request, person)).frames()


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
    shown = await to_thread(chat.shown)
    opening = chat.listener.opening.get(chat_id)
    if opening is not None and opening.run and opening.run not in {m["id"] for m in shown}:
        shown.append(user_message(opening.run, opening.words, guest=chat.guest))
    return shown


async def _existing_chat(
    agent: Agent, chat_id: str, by: str | Reviewer, recipe: bool
) -> Chat | None:
    chat, person = Chat(agent, checked_id(chat_id), recipe), person_of(by)
    own = await read(agent.store, is_own_chat, agent.store, chat_id, person)
    if own is None:
        return None
    chat.guest = None if own else person
    return chat


@dataclass(slots=True)
class Chat:
    """One thread of one agent, with built-in approvals or the recipe's."""

    agent: Agent
    id: str
    recipe: bool
    #: The reader, if the chat is not theirs.
    guest: Reviewer | None = None

    @property
    def store(self) -> Store:
        return self.agent.store

    @property
    def listener(self) -> AgentListener:
        return listener_of(self.agent)

    # -- new input

    async def say(self, request: ChatRequest, words: str, by: Reviewer) -> ChatResponse:
        """Start a run. A message that is posted again gets the answer that it has."""
        if request.regenerates:
            again = await read(self.store, self._answering, words)
            if again is not None:
                return self._response(again)
        message = (self.id, request.message, words)
        run_task = None if request.regenerates else self.listener.posted.get(message)
        if run_task is None or not await self._has_answer(run_task):
            events = self.agent.stream(words, thread=self.id, requester=by.name)
            run_task = RunTask(events, words)
            self.listener.remember_posted(message, run_task)
        elif run_task.task.done():
            return self._response(self._view(run_task.run))
        run = run_task.run or await asyncio.shield(run_task.began)
        return self._response(self._view(run), run_task=run_task)

    def _answering(self, words: str) -> RunView | None:
        """Return the live run that answers this input, so that regenerating starts no other."""
        live = self.store.live_run(self.id)
        found = exchanges(self.store, self.id) if live is not None else []
        if live is None or not found or (found[-1].run, found[-1].words) != (live.id, words):
            return None
        return self._view(live.id)

    async def _has_answer(self, run_task: RunTask) -> bool:
        """Return whether a message that was posted before has, or will have, an answer."""
        if not run_task.task.done():
            return run_task.task.get_loop() is asyncio.get_running_loop()
        stored = await read(self.store, self.store.run, run_task.run) if run_task.run else None
        return stored is not None

    # -- answers

    async def answer(self, request: ChatRequest, by: Reviewer) -> ChatResponse:
        """Record decisions, and resume. Answers that do not count are written over."""
        view, live = await read(self.store, self._continued, request)
        problems: dict[str, str] = {}
        run_task = None
        if live is not None:
            decided, problems = await decide(
                self.agent, live.waiting, request, by, recipe=self.recipe
            )
            if await read(self.store, self._due, live, decided, problems):
                # Decided calls run now, even if the reader has disconnected.
                run_task = RunTask(self.agent.stream_resume(live.id))
        held = client_message(request.held.get(request.continues))
        writer = StreamWriter(held, recipe=self.recipe, problems=problems)
        run_task = run_task if live is view else None
        return self._response(view, writer=writer, run_task=run_task, message=request.continues)

    @staticmethod
    def _due(live: RunView, decided: set[str], problems: Mapping[str, str]) -> bool:
        """Return whether the run can continue. After a final decision, only its calls are read."""
        if decided and not problems:
            live.refresh_calls()
            if not any(call.id in decided for call in live.waiting):
                return True
        live.refresh()
        return not live.idle

    def _continued(self, request: ChatRequest) -> tuple[RunView, RunView | None]:
        """Return the run of the message that the client continues, and the live one."""
        named = self.store.run(request.continues)
        run = named if named is not None and named.thread == self.id else None
        if run is None:
            last = self.store.last_run(self.id)
            shown = client_message(request.held.get(request.continues)).tools
            if last is not None and any(c.id in shown for c in self.store.calls_of(last.id)):
                run = last  # the front end has its own ids for messages
        view = self._view("" if run is None else run.id)
        if run is not None:
            view.refresh(run)
            if run.status in LIVE:
                return view, view  # a thread has at most one live run
        other = self.store.live_run(self.id)
        if other is None:
            return view, None
        live = self._view(other.id)
        live.refresh(other)
        return view, live

    # -- reading

    async def last(self) -> ChatResponse | None:
        """Return the last answer, from its beginning."""
        opening = self.listener.opening.get(self.id)
        if opening is not None and opening.run:
            return self._response(self._view(opening.run), run_task=opening)
        run = await read(self.store, self.store.last_run, self.id)
        return None if run is None else self._response(self._view(run.id))

    def shown(self) -> list[dict[str, Any]]:
        found = []
        for exchange in exchanges(self.store, self.id):
            view = self._view(exchange.run)
            for reply in exchange.replies:
                view.fill(reply)
            words = asked_words(exchange, self.guest)
            found.append(user_message(exchange.run, words, guest=self.guest))
            found.append(assistant_message(exchange, recipe=self.recipe, guest=self.guest))
        return found

    def _view(self, run: str) -> RunView:
        asking = [tool.name for tool in self.agent.tools.values() if tool.takes_context]
        return RunView(self.store, self.id, run, asking)

    def _response(
        self,
        view: RunView,
        *,
        writer: StreamWriter | None = None,
        run_task: RunTask | None = None,
        message: str = "",
    ) -> ChatResponse:
        return ChatResponse(
            agent=self.agent,
            listener=self.listener,
            view=view,
            writer=writer or StreamWriter(recipe=self.recipe, guest=self.guest),
            run_task=run_task,
            message=message or view.id,
            wake=-1 if view.run is None else view.run.wake,
        )


# -- whose chat it is


_OPENED = "opened"


def person_of(by: str | Reviewer) -> Reviewer:
    """Return who is calling. A bare name cannot review other people's requests."""
    person = Reviewer(by, role="chat") if isinstance(by, str) else by
    if person.role == "agent":
        raise NotAllowed("an agent cannot chat or decide: use a person's token")
    return person


def owner_of(store: Store, chat: str) -> str | None:
    """Return the owner's name; None if the chat is unknown, and "" if it has no owner."""
    first = store.chain(chat, 0, 1)
    if not first:
        return None
    if first[0].type == _OPENED:
        return first[0].actor
    began_elsewhere = store.last_run(chat)
    return "" if began_elsewhere is None else began_elsewhere.requester


async def check_owner(
    store: Store, chat: str, by: Reviewer, listener: AgentListener, *, opens: bool
) -> None:
    """Raise ``NotFound`` unless the caller owns the chat.

    The first message of an unknown chat makes its sender the owner. That is stored before anything
    else, so if two people post at the same moment, one of them is the owner.
    """
    owner = listener.owners.get(chat)
    if owner is None:
        owner = await read(store, owner_of, store, chat)
        if owner is None and opens:
            await write(store, Note(thread=chat, type=_OPENED, actor=by.name))
            owner = await read(store, owner_of, store, chat)
        if owner:
            listener.owners[chat] = owner
    if owner is not None and owner != by.name:
        raise _unknown(chat)


def is_own_chat(store: Store, chat: str, by: Reviewer) -> bool | None:
    """Return whether the caller owns the chat: False for a reviewer of its requests, and None if
    there is no such chat. Raises ``NotFound`` for everyone else.
    """
    owner = owner_of(store, chat)
    if owner in (None, by.name):
        return None if owner is None else True
    asked = requests_in(store, chat) if by.role == "reviewer" else []
    if by.role != "admin" and not any(may_see(by, call) for call in asked):
        raise _unknown(chat)
    return False


def _unknown(chat: str) -> NotFound:
    return NotFound(f"you have no chat {chat!r}: start a new one")


# -- the result of stream()


Frames: TypeAlias = AsyncGenerator[str, None]


class PendingStream:
    """The result of ``stream``: ``await`` it for the frames, or iterate with ``async for``."""

    __slots__ = ("_opening",)

    def __init__(self, opening: Coroutine[Any, Any, Frames]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, Frames]:
        return self._opening.__await__()

    async def __aiter__(self) -> Frames:
        async with aclosing(await self._opening) as frames:
            async for frame in frames:
                yield frame


# -- what a client posts


#: The longest name of a thread.
_LONGEST_ID = 200
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


def _answers(message: Mapping[str, Any]) -> Iterator[ToolPart]:
    for part in message["parts"]:
        # We never send a part that the provider executes, so the user has not seen one.
        if "toolCallId" in part and not part.get("providerExecuted"):
            reason = _text(part["approval"].get("reason"), "approval.reason")
            error = _text(part.get("errorText"), "errorText")
            yield {**part, "approval": {**part["approval"], "reason": reason}, "errorText": error}


def _by_approval(data: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        raise InvalidCall(f"{name}: pass an object, by approval id", name)
    return given


def _stops(data: Mapping[str, Any]) -> frozenset[str]:
    given = data.get("stop", [])
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise InvalidCall("stop: pass a list of approval ids", "stop")
    return frozenset(given)


# -- answers as decisions


CHANNEL = "chat"

_CHANGED = "the request has changed since it was shown: look at it again"


async def decide(
    agent: Agent, waiting: Iterable[Call], request: ChatRequest, by: Reviewer, *, recipe: bool
) -> tuple[set[str], dict[str, str]]:
    """Record decisions. Return the decided calls, and what is wrong with other answers."""
    open_calls = {call.id: call for call in waiting}
    inbox = Inbox(agent.store, judge=partial(judge_edit, agent))
    decided: set[str] = set()
    problems: dict[str, str] = {}
    for answer in request.answers:
        call = open_calls.get(answer["toolCallId"])
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
    call: Call, answer: ToolPart, request: ChatRequest, *, recipe: bool
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
    in_doubt = call.status is CallStatus.IN_DOUBT
    seen = codec.digest(doubt_envelope(call)) if in_doubt else call.digest
    return replace(decision, seen_digest=seen)


def _card_decision(call: Call, answer: ToolPart, request: ChatRequest) -> Decision | None:
    """Return the decision of a card. Its id names the request and the revision that it showed."""
    approved, card = answer["approval"].get("approved"), answer["approval"].get("id", "")
    if type(approved) is not bool:
        return None
    if card != approval_id(call):
        raise Conflict(_CHANGED)
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
        raise Conflict(_CHANGED)


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
