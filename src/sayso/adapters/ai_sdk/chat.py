"""The three functions behind a chat route: post, follow, and the whole chat for first paint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sayso.adapters.ai_sdk.live import AgentListener, RunTask, listener_of, resume_run, start_run
from sayso.adapters.ai_sdk.request import ChatRequest, checked_id, decide, read_request
from sayso.adapters.ai_sdk.response import ChatResponse, StreamWriter, client_message
from sayso.adapters.ai_sdk.views import (
    RunView,
    asked_words,
    assistant_message,
    exchanges,
    user_message,
)
from sayso.engine.commands import Note
from sayso.errors import NotAllowed, NotFound
from sayso.inbox.people import may_see, requests_in
from sayso.rows import LIVE
from sayso.stores.base import Store
from sayso.sync import read, to_thread, write
from sayso.types import Reviewer

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
    await enter(agent.store, request.chat, person, chat.listener, opens=request.words is not None)
    if request.words is not None:
        return (await chat.say(request, request.words, person)).frames()
    return (await chat.answer(request, person)).frames()


async def follow(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> Frames | None:
    """Stream the last answer from its beginning, until it pauses or ends. None if there is none."""
    chat = Chat(agent, checked_id(chat_id), recipe)
    person = person_of(by)
    own = await read(agent.store, look_in, agent.store, chat_id, person)
    if own is None:
        return None
    chat.guest = None if own else person
    response = await chat.last()
    return None if response is None else response.frames()


async def messages(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> list[dict[str, Any]]:
    """Return the whole chat as UIMessages, rebuilt from the store; empty if there is none."""
    chat = Chat(agent, checked_id(chat_id), recipe)
    person = person_of(by)
    own = await read(agent.store, look_in, agent.store, chat_id, person)
    if own is None:
        return []
    chat.guest = None if own else person
    shown = await to_thread(chat.shown)
    opening = chat.listener.opening.get(chat_id)
    if opening is not None and opening.run and opening.run not in {m["id"] for m in shown}:
        shown.append(user_message(opening.run, opening.words, guest=chat.guest))
    return shown


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
        """The agent's store."""
        return self.agent.store

    @property
    def listener(self) -> AgentListener:
        """The agent's listener in this process."""
        return listener_of(self.agent)

    # -- new input

    async def say(self, request: ChatRequest, words: str, by: Reviewer) -> ChatResponse:
        """Start a run. A message that is posted again gets the answer that it has."""
        if request.regenerates:
            again = await read(self.store, self._answering, words)
            if again is not None:
                return self._response(again)
        said = (self.id, request.message, words)
        run_task = None if request.regenerates else self.listener.said.get(said)
        if run_task is None or not await self._stands(run_task):
            run_task = start_run(self.agent, words, thread=self.id, requester=by.name)
            self.listener.opened(said, run_task)
        elif run_task.task.done():
            return self._response(self._view(run_task.run))
        run = run_task.run or await asyncio.shield(run_task.began)
        return self._response(self._view(run), run_task=run_task)

    def _answering(self, words: str) -> RunView | None:
        """Return the live run that answers this input already: regenerating must not start
        another."""
        live = self.store.live_run(self.id)
        told = exchanges(self.store, self.id) if live is not None else []
        if live is None or not told or (told[-1].run, told[-1].words) != (live.id, words):
            return None
        return self._view(live.id)

    async def _stands(self, run_task: RunTask) -> bool:
        """Whether a message that was posted before has, or will have, an answer."""
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
                run_task = resume_run(self.agent, live.id)
        held = client_message(request.held.get(request.continues))
        writer = StreamWriter(held, recipe=self.recipe, problems=problems)
        run_task = run_task if live is view else None
        return self._response(view, writer=writer, run_task=run_task, message=request.continues)

    @staticmethod
    def _due(live: RunView, decided: set[str], problems: Mapping[str, str]) -> bool:
        """Whether the run can continue. After a final decision, the run itself need not be read."""
        if decided and not problems:
            live.refresh_calls()
            if not any(call.id in decided for call in live.waiting):
                return True
        live.refresh()
        return not live.still

    def _continued(self, request: ChatRequest) -> tuple[RunView, RunView | None]:
        """Return the run whose message the client continues, and the one that waits for
        decisions."""
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
        """Return every exchange as two messages."""
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
    """Return who is calling. A bare name is a user of the chat, who cannot review other people's
    requests."""
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


async def enter(
    store: Store, chat: str, by: Reviewer, listener: AgentListener, *, opens: bool
) -> None:
    """Let only the owner post. Raises ``NotFound`` for everyone else.

    The first message of an unknown chat makes its sender the owner. That is stored before anything
    else, so that of two who post at the same moment, one is the owner.
    """
    owner = listener.owners.get(chat)
    if owner is None:
        owner = await read(store, owner_of, store, chat)
        if owner is None and opens:
            await write(store, Note(thread=chat, type=_OPENED, actor=by.name))
            owner = await read(store, owner_of, store, chat)
        if owner:
            listener.owned(chat, owner)
    if owner is not None and owner != by.name:
        raise _unknown(chat)


def look_in(store: Store, chat: str, by: Reviewer) -> bool | None:
    """Whether the chat is the caller's own; False for guests, who are reviewers of its requests.

    None if there is no such chat. Raises ``NotFound`` for everyone else.
    """
    owner = owner_of(store, chat)
    if owner in (None, by.name):
        return None if owner is None else True
    if by.role != "admin" and not _reviews(store, chat, by):
        raise _unknown(chat)
    return False


def _reviews(store: Store, chat: str, by: Reviewer) -> bool:
    asked = requests_in(store, chat) if by.role == "reviewer" else []
    return any(may_see(by, call) for call in asked)


def _unknown(chat: str) -> NotFound:
    return NotFound(f"you have no chat {chat!r}: start a new one")


# -- the result of stream()


Frames: TypeAlias = AsyncGenerator[str, None]


class PendingStream:
    """The result of ``stream``: ``await`` returns the frames or raises; ``async for`` does both
    in one."""

    __slots__ = ("_opening",)

    def __init__(self, opening: Coroutine[Any, Any, Frames]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, Frames]:
        return self._opening.__await__()

    async def __aiter__(self) -> Frames:
        async with aclosing(await self._opening) as frames:
            async for frame in frames:
                yield frame
