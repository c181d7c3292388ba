"""A thread of an agent, as a chat: new input, answers, and whose chat it is.

Only new input and answers come from a client. An answer becomes a decision that counts like one
made anywhere else. If it does not count, the request stays pending, and the wire says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sayso import codec
from sayso.adapters.chat.live import AgentListener, RunTask, listener_of
from sayso.adapters.chat.response import Frames
from sayso.adapters.chat.views import Exchange, Guest, RunView, exchanges
from sayso.agent.agent import judge_edit
from sayso.engine.asking import doubt_digest
from sayso.engine.commands import Note
from sayso.errors import Conflict, InvalidCall, NotAllowed, NotFound, SaysoError, StoreError
from sayso.inbox import Inbox
from sayso.inbox.people import may_see, requests_in
from sayso.rows import Call, CallStatus
from sayso.stores.base import Store
from sayso.sync import read, write
from sayso.types import Decision, Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent

A = TypeVar("A")

CHANNEL = "chat"
#: Why an answer to an earlier revision does not count.
CHANGED = "the request has changed since it was shown: look at it again"


@dataclass(slots=True)
class Chat:
    """One thread of one agent."""

    agent: Agent
    id: str
    #: The reader, if the chat is not theirs.
    guest: Guest | None = None

    @property
    def store(self) -> Store:
        return self.agent.store

    @property
    def listener(self) -> AgentListener:
        return listener_of(self.agent)

    def view(self, run: str) -> RunView:
        asking = [tool.name for tool in self.agent.tools.values() if tool.takes_context]
        return RunView(self.store, self.id, run, asking, self.guest)

    def shown(self) -> list[Exchange]:
        """Return the whole chat, with the rows of its calls, and input that is not stored yet."""
        exchange_list = exchanges(self.store, self.id)
        opening = self.listener.opening.get(self.id)
        if opening is not None and opening.run not in {"", *(e.run for e in exchange_list)}:
            exchange_list.append(Exchange(opening.words, opening.run))
        for exchange in exchange_list:
            view = self.view(exchange.run)
            for reply in exchange.replies:
                view.fill(reply)
        return exchange_list

    # -- new input

    async def say(
        self, message: str, words: str, by: Reviewer, *, again: bool = False
    ) -> tuple[RunView, RunTask | None]:
        """Start a run. A message that is posted again gets the answer that it has.

        ``message`` is the client's id. With ``again``, a message that was answered gets another
        answer; one that is being answered does not.
        """
        if again:
            answering = await read(self.store, self._answering, words)
            if answering is not None:
                return answering, None
        posted = (self.id, message, words)
        run_task = None if again else self.listener.posted.get(posted)
        if run_task is None or not await self._has_answer(run_task):
            events = self.agent.stream(words, thread=self.id, requester=by.name)
            run_task = RunTask(events, words)
            self.listener.remember_posted(posted, run_task)
        elif run_task.task.done():
            return self.view(run_task.run), None
        run = run_task.run or await asyncio.shield(run_task.began)
        return self.view(run), run_task

    def _answering(self, words: str) -> RunView | None:
        """Return the live run that answers this input, so that regenerating starts no other."""
        live = self.store.live_run(self.id)
        exchange_list = exchanges(self.store, self.id) if live is not None else []
        if (
            live is None
            or not exchange_list
            or (exchange_list[-1].run, exchange_list[-1].words) != (live.id, words)
        ):
            return None
        return self.view(live.id)

    async def _has_answer(self, run_task: RunTask) -> bool:
        """Return whether a message that was posted before has, or will have, an answer."""
        if not run_task.task.done():
            return run_task.task.get_loop() is asyncio.get_running_loop()
        stored = await read(self.store, self.store.run, run_task.run) if run_task.run else None
        return stored is not None

    # -- answers

    async def record(
        self,
        answers: Iterable[tuple[Call, A]],
        decision_on: Callable[[Call, A], Decision | None],
        by: Reviewer,
    ) -> dict[str, SaysoError]:
        """Record decisions. Return what is wrong with answers that do not count, by call.

        ``decision_on`` returns what an answer means, bound to what was shown; None if nothing.
        """
        inbox = Inbox(self.store, judge=partial(judge_edit, self.agent))
        problems: dict[str, SaysoError] = {}
        for call, answer in answers:
            try:
                decision = decision_on(call, answer)
                if decision is not None:
                    await inbox.decide(call.id, decision, by=by, channel=CHANNEL)
                    problems.pop(call.id, None)
            except StoreError:
                raise
            except SaysoError as error:
                problems[call.id] = error
        return problems

    async def resumed(self, live: RunView) -> RunTask | None:
        """Resume a run that can continue: decided calls run now, even without a reader."""
        await read(self.store, live.refresh_calls)
        return None if live.idle else RunTask(self.agent.stream_resume(live.id))


def shown_digest(call: Call) -> str:
    """Return the digest of what a client is shown of a request."""
    in_doubt = call.status is CallStatus.IN_DOUBT
    return doubt_digest(call.digest, call.attempt) if in_doubt else call.digest


# -- whose chat it is


_OPENED = "opened"
#: The longest name of a thread.
_LONGEST_ID = 200


def person_of(by: str | Reviewer) -> Reviewer:
    """Return who is calling. A bare name cannot review other people's requests."""
    person = Reviewer(by, role="chat") if isinstance(by, str) else by
    if person.role == "agent":
        raise NotAllowed("an agent cannot chat or decide: use a person's token")
    return person


def checked_id(chat: object, path: str = "id") -> str:
    """Return a chat's id, which names its thread. Raises ``InvalidCall`` if it cannot."""
    if not isinstance(chat, str) or not chat.strip() or len(chat) > _LONGEST_ID:
        raise InvalidCall(f"{path}: a chat needs an id of 1 to {_LONGEST_ID} characters", path)
    if "/" in chat or chat.startswith("@"):
        raise InvalidCall(f"{path}: a chat's id must not contain / or begin with @", path)
    codec.canonical(chat)
    return chat


def checked_words(texts: Iterable[str]) -> str:
    """Return what the user said. Raises ``InvalidCall`` if it is empty."""
    words = "\n".join(texts)
    if not words.strip():
        raise InvalidCall("the message is empty: write something", "messages")
    codec.canonical(words)
    return words


def owner_of(store: Store, chat: str) -> str | None:
    """Return the owner's name; None if the chat is unknown, and "" if it has no owner."""
    thread = store.thread(chat)
    return None if thread is None else thread.owner


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
            with suppress(Conflict):
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
    requests = requests_in(store, chat) if by.role == "reviewer" else []
    if by.role != "admin" and not any(may_see(by, call) for call in requests):
        raise _unknown(chat)
    return False


def _unknown(chat: str) -> NotFound:
    return NotFound(f"you have no chat {chat!r}: start a new one")


# -- streams


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
