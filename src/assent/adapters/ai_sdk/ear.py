"""What is heard of an agent in this process: replies as they come, and words not stored yet.

Everything else is read from the store, whichever process wrote it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from assent.adapters.ai_sdk.driving import Drive
from assent.stores.base import Store, Subscription

if TYPE_CHECKING:
    from assent.agent import Agent

_MOST_REMEMBERED = 1000
_QUIET_SECONDS = 0.05
#: The events of an agent that tell of something new in the store.
_WRITTEN = frozenset(
    ("ToolCalled", "Requested", "Answered", "ToolEnded", "ToolPaused", "ToolClosed")
)

#: A message of a chat, as its client named it, and what it said.
Said = tuple[str, str, str]


@dataclass(slots=True)
class Draft:
    """The reply that a model is giving: the how-manieth of its run, and its text so far."""

    turn: int
    text: str = ""


class Ear:
    """One agent's listener."""

    def __init__(self, agent: Agent) -> None:
        self.drafts: dict[str, Draft] = {}
        #: Words that were posted here, by message: who posts them twice gets one answer.
        self.said: OrderedDict[Said, Drive] = OrderedDict()
        #: The drive of each chat whose words are not in the store yet.
        self.opening: dict[str, Drive] = {}
        self._lock = threading.Lock()
        self._bells: dict[str, list[Bell]] = {}
        agent.listeners.append(self.hear)

    def hear(self, event: Any) -> None:
        """Called by the agent, in whichever thread it runs."""
        kind = type(event).__name__
        if kind == "ModelAsked":
            self.drafts[event.run] = Draft(event.turn)
        elif kind == "Text" and event.run in self.drafts:
            self.drafts[event.run].text += event.text
        elif kind in ("Ended", "Broke"):
            self.drafts.pop(event.run, None)
        with self._lock:
            bells = list(self._bells.get(event.thread, ()))
        for bell in bells:
            bell.ring(stale=kind in _WRITTEN)

    def opened(self, said: Said, drive: Drive) -> None:
        """Keep what was posted: until its run is over as words, and up to a limit as said."""
        chat = said[0]
        self.opening[chat] = drive
        self.said[said] = drive
        while len(self.said) > _MOST_REMEMBERED:
            self.said.popitem(last=False)

        def over(_: object) -> None:
            if self.opening.get(chat) is drive:
                del self.opening[chat]

        drive.task.add_done_callback(over)

    def open(self, bell: Bell) -> None:
        """Ring a bell at every word in its thread."""
        with self._lock:
            self._bells.setdefault(bell.thread, []).append(bell)

    def close(self, bell: Bell) -> None:
        """Ring it no more."""
        with self._lock:
            bells = self._bells.get(bell.thread, [])
            if bell in bells:
                bells.remove(bell)
            if not bells:
                self._bells.pop(bell.thread, None)


_ears: WeakKeyDictionary[Any, Ear] = WeakKeyDictionary()


def ear_of(agent: Agent) -> Ear:
    """The agent's listener; it is given one when it is first asked for."""
    ear = _ears.get(agent)
    if ear is None:
        ear = _ears[agent] = Ear(agent)
    return ear


class Bell:
    """Rings on this loop when something was heard of a thread, here or through the store.

    To listen to a store may mean to watch a file for other processes, which costs more than a
    whole answer does; so it begins only when nothing is heard of in this process.
    """

    def __init__(self, store: Store, thread: str, ear: Ear) -> None:
        self.thread = thread
        self._store = store
        #: Whether the store has moved since it was last asked.
        self._stale = False
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._watched: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._ear = ear
        ear.open(self)

    def ring(self, *, stale: bool = True) -> None:
        """Called from any thread."""
        self._stale = self._stale or stale
        if _running_loop() is self._loop:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            self.close()  # the loop is gone, and nobody waits any more

    def watch(self, task: asyncio.Task[None]) -> None:
        """Ring when the task is over, too."""
        if task is not self._watched:
            self._watched = task
            task.add_done_callback(self._over)

    def _over(self, _: object) -> None:
        self.ring()

    async def wait(self, seconds: float) -> bool:
        """Whether it rang within that time."""
        if self._subscription is None:
            if await self._rang(min(_QUIET_SECONDS, seconds)):
                return True
            self._subscription = self._store.subscribe(self.thread, self.ring)
            self._stale = True  # by what came before
            return True
        return await self._rang(seconds)

    async def _rang(self, seconds: float) -> bool:
        if not self._event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True

    def moved(self) -> bool:
        """Whether the store has to be read again."""
        stale, self._stale = self._stale, False
        return stale

    def close(self) -> None:
        """Stop listening."""
        self._ear.close(self)
        if self._subscription is not None:
            self._subscription.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
