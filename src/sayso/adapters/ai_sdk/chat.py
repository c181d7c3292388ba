"""The three doors of the wire: post, follow, and the whole chat for first paint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sayso.adapters.ai_sdk import driving
from sayso.adapters.ai_sdk.access import enter, look_in, person_of
from sayso.adapters.ai_sdk.answer import Answer, Frames
from sayso.adapters.ai_sdk.deciding import decide
from sayso.adapters.ai_sdk.driving import Drive
from sayso.adapters.ai_sdk.ear import Ear, ear_of
from sayso.adapters.ai_sdk.faces import asked_words
from sayso.adapters.ai_sdk.painter import Painter, held_in
from sayso.adapters.ai_sdk.post import Post, checked_id, read_post
from sayso.adapters.ai_sdk.reading import RunView, exchanges
from sayso.adapters.ai_sdk.telling import Telling
from sayso.adapters.ai_sdk.ui import assistant_message, user_message
from sayso.rows import LIVE
from sayso.stores.base import Store
from sayso.twin import hop, look
from sayso.types import Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent


def stream(body: object, agent: Agent, *, by: str | Reviewer, recipe: bool = False) -> Answer:
    """Answer a post: new words begin a run, answers are decided and their run goes on.

    ``body`` is what was posted, as bytes or as parsed JSON. With ``recipe`` a gated call waits as
    ``input-available`` and is answered with ``APPROVAL.YES`` or ``APPROVAL.NO``.
    """
    return Answer(_stream(body, agent, by, recipe))


async def _stream(body: object, agent: Agent, by: str | Reviewer, recipe: bool) -> Frames:
    post, person = read_post(body), person_of(by)
    chat = Chat(agent, post.chat, recipe)
    await enter(agent.store, post.chat, person, chat.ear, opens=post.words is not None)
    if post.words is not None:
        return (await chat.say(post, post.words, person)).frames()
    return (await chat.answer(post, person)).frames()


async def follow(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> Frames | None:
    """The last answer from its beginning, and on until it pauses or ends; None if there is none."""
    chat = Chat(agent, checked_id(chat_id), recipe)
    person = person_of(by)
    own = await look(agent.store, look_in, agent.store, chat_id, person)
    if own is None:
        return None
    chat.guest = None if own else person
    telling = await chat.last()
    return None if telling is None else telling.frames()


async def messages(
    agent: Agent, chat_id: str, *, by: str | Reviewer, recipe: bool = False
) -> list[dict[str, Any]]:
    """The whole chat as UIMessages, rebuilt from the store; empty if there is none."""
    chat = Chat(agent, checked_id(chat_id), recipe)
    person = person_of(by)
    own = await look(agent.store, look_in, agent.store, chat_id, person)
    if own is None:
        return []
    chat.guest = None if own else person
    shown = await hop(chat.shown)
    opening = chat.ear.opening.get(chat_id)
    if opening is not None and opening.run and opening.run not in {m["id"] for m in shown}:
        shown.append(user_message(opening.run, opening.words, guest=chat.guest))
    return shown


@dataclass(slots=True)
class Chat:
    """One thread of one agent, in one of the two flavours."""

    agent: Agent
    id: str
    recipe: bool
    #: Who looks in, where it is not their chat.
    guest: Reviewer | None = None

    @property
    def store(self) -> Store:
        """Where it is kept."""
        return self.agent.store

    @property
    def ear(self) -> Ear:
        """What is heard of it in this process."""
        return ear_of(self.agent)

    # -- new words

    async def say(self, post: Post, words: str, by: Reviewer) -> Telling:
        """Begin a run; the same message posted again gets the answer that it has."""
        if post.regenerates:
            again = await look(self.store, self._answering, words)
            if again is not None:
                return self._telling(again)
        said = (self.id, post.message, words)
        drive = None if post.regenerates else self.ear.said.get(said)
        if drive is None or not await self._stands(drive):
            drive = driving.begin(self.agent, words, thread=self.id, requester=by.name)
            self.ear.opened(said, drive)
        elif drive.task.done():
            return self._telling(self._view(drive.run))
        run = drive.run or await asyncio.shield(drive.began)
        return self._telling(self._view(run), drive=drive)

    def _answering(self, words: str) -> RunView | None:
        """The live run that answers these words already: nothing of it is made anew."""
        live = self.store.live_run(self.id)
        told = exchanges(self.store, self.id) if live is not None else []
        if live is None or not told or (told[-1].run, told[-1].words) != (live.id, words):
            return None
        return self._view(live.id)

    async def _stands(self, drive: Drive) -> bool:
        """Whether something came, or will come, of words that were posted before."""
        if not drive.task.done():
            return drive.task.get_loop() is asyncio.get_running_loop()
        stored = await look(self.store, self.store.run, drive.run) if drive.run else None
        return stored is not None

    # -- answers

    async def answer(self, post: Post, by: Reviewer) -> Telling:
        """Decide, and go on; what did not count is painted over."""
        view, live = await look(self.store, self._continued, post)
        problems: dict[str, str] = {}
        drive = None
        if live is not None:
            decided, problems = await decide(self.agent, live.waiting, post, by, recipe=self.recipe)
            if await look(self.store, self._due, live, decided, problems):
                # What was decided runs now, even if the reader is gone already.
                drive = driving.go_on(self.agent, live.id)
        held = held_in(post.held.get(post.continues))
        painter = Painter(held, recipe=self.recipe, problems=problems)
        drive = drive if live is view else None
        return self._telling(view, painter=painter, drive=drive, message=post.continues)

    @staticmethod
    def _due(live: RunView, decided: set[str], problems: Mapping[str, str]) -> bool:
        """Whether the run can go on: a decision that was the last word needs no second look."""
        if decided and not problems:
            live.refresh_calls()
            if not any(call.id in decided for call in live.waiting):
                return True
        live.refresh()
        return not live.still

    def _continued(self, post: Post) -> tuple[RunView, RunView | None]:
        """The run whose message the client goes on with, and the one that can be decided on."""
        named = self.store.run(post.continues)
        run = named if named is not None and named.thread == self.id else None
        if run is None:
            last = self.store.last_run(self.id)
            shown = held_in(post.held.get(post.continues)).tools
            if last is not None and any(c.id in shown for c in self.store.calls_of(last.id)):
                run = last  # a front end with names of its own for messages
        view = self._view("" if run is None else run.id)
        if run is not None:
            view.refresh(run)
            if run.status in LIVE:
                return view, view  # a thread has one live run at most
        other = self.store.live_run(self.id)
        if other is None:
            return view, None
        live = self._view(other.id)
        live.refresh(other)
        return view, live

    # -- what is there

    async def last(self) -> Telling | None:
        """The last answer, from its beginning."""
        opening = self.ear.opening.get(self.id)
        if opening is not None and opening.run:
            return self._telling(self._view(opening.run), drive=opening)
        run = await look(self.store, self.store.last_run, self.id)
        return None if run is None else self._telling(self._view(run.id))

    def shown(self) -> list[dict[str, Any]]:
        """Every exchange as two messages."""
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

    def _telling(
        self,
        view: RunView,
        *,
        painter: Painter | None = None,
        drive: Drive | None = None,
        message: str = "",
    ) -> Telling:
        return Telling(
            agent=self.agent,
            ear=self.ear,
            view=view,
            painter=painter or Painter(recipe=self.recipe, guest=self.guest),
            drive=drive,
            message=message or view.id,
            wake=-1 if view.run is None else view.run.wake,
        )
