"""What wakes up a response: what was heard of its thread, and what of it has to be read again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from sayso.stores.base import Store, Subscription


class Opens(Protocol):
    """Lets bells hear what an agent in this process says."""

    def open(self, bell: Bell) -> None: ...
    def close(self, bell: Bell) -> None: ...


_QUIET_SECONDS = 0.05
#: What comes this soon after something was told is told together: a screen shows no more pictures.
_TOGETHER_SECONDS = 0.01


@dataclass(slots=True)
class News:
    """What was heard of a thread: anything may have moved, or calls, or these were answered."""

    stale: bool = False
    calls: bool = False
    answered: set[str] = field(default_factory=set)


class Bell:
    """Rings on this loop when something was heard of a thread, here or through the store.

    To listen to a store may mean to watch a file for other processes, which costs more than a
    whole answer does; so it begins only when nothing is heard of in this process.
    """

    def __init__(self, store: Store, thread: str, ear: Opens) -> None:
        self.thread = thread
        self._store = store
        self._ear = ear
        self._loop = asyncio.get_running_loop()
        self._news = News()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None
        #: When it may ring again, and what rings it then.
        self._next = self._loop.time() + _TOGETHER_SECONDS
        self._later: asyncio.TimerHandle | None = None
        self._watched: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        ear.open(self)

    def ring(self, stale: bool = True, calls: bool = False, answered: str = "") -> None:
        """Called from any thread; with nothing in it, there are new words."""
        if _running_loop() is self._loop:
            self._heard(stale, calls, answered)
            return
        try:
            self._loop.call_soon_threadsafe(self._heard, stale, calls, answered)
        except RuntimeError:
            self.close()  # the loop is gone, and nobody waits any more

    def _heard(self, stale: bool, calls: bool, answered: str) -> None:
        news = self._news
        news.stale = news.stale or stale
        news.calls = news.calls or calls
        if answered:
            news.answered.add(answered)
        if self._later is None:
            if self._loop.time() < self._next:
                self._later = self._loop.call_at(self._next, self._wake)
            else:
                self._wake()

    def _wake(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._next = self._loop.time() + _TOGETHER_SECONDS
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Ring when the task is over, too, and then at once."""
        if task is not self._watched:
            self._watched = task
            task.add_done_callback(self._over)

    def _over(self, _: object) -> None:
        self._news.stale = True
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Whether it rang within that time."""
        if self._subscription is None:
            if await self._rang(min(_QUIET_SECONDS, seconds)):
                return True
            self._subscription = self._store.subscribe(self.thread, self.ring)
            self._news.stale = True  # by what came before
            return True
        return await self._rang(seconds)

    async def _rang(self, seconds: float) -> bool:
        if not self._rung:
            self._waiter = waiter = self._loop.create_future()
            over = self._loop.call_later(seconds, _release, waiter)
            try:
                await waiter
            finally:
                over.cancel()
                self._waiter = None
        rung, self._rung = self._rung, False
        return rung

    def news(self) -> News:
        """What has to be read again since this was last asked."""
        news, self._news = self._news, News()
        return news

    def close(self) -> None:
        """Stop listening."""
        self._ear.close(self)
        if self._later is not None:
            self._later.cancel()
        if self._subscription is not None:
            self._subscription.cancel()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
