"""What happens in this process while chats run: tasks that advance runs, a listener on the agent,
and signals that wake responses.

A task advances a run independently of its readers: a client that goes away stops nothing. This is
all that the wires need of ``sayso.Agent`` itself. Everything else is read from the store,
whichever process wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from sayso.forking import fork_safe_lock
from sayso.stores.base import Store, Subscription

if TYPE_CHECKING:
    from sayso.agent import Agent


K = TypeVar("K")
V = TypeVar("V")

log = logging.getLogger("sayso.adapters.chat")

#: Strong references, because an event loop only keeps weak ones.
_tasks: set[asyncio.Task[None]] = set()


class RunTask:
    """A run or resume of an agent, in its own task."""

    def __init__(self, events: AsyncIterator[Any], words: str = "") -> None:
        self.words = words
        #: The id of the run, as soon as it has one.
        self.run = ""
        self.began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._drain(events))
        _tasks.add(self.task)
        self.task.add_done_callback(self._over)

    async def _drain(self, events: AsyncIterator[Any]) -> None:
        async for event in events:
            if not self.began.done():
                self.run = event.run
                self.began.set_result(event.run)

    def _over(self, task: asyncio.Task[None]) -> None:
        _tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.info("a run ended with %r", error)
        if not self.began.done():
            if error is None:
                self.began.cancel()
            else:
                self.began.set_exception(error)
                self.began.exception()  # mark it as retrieved: there may be no reader

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, if any."""
        task = self.task
        if not task.done():
            return None
        return asyncio.CancelledError() if task.cancelled() else task.exception()


# -- listening to the agent


_MOST_REMEMBERED = 1000
#: Events that report a change in the store. Of the others, only text changes what is shown.
_STORED = frozenset(
    ("ToolCalled", "Requested", "Answered", "ToolEnded", "ToolPaused", "ToolClosed")
)

#: A message: its chat, the id that the client gave it, and its text.
PostedMessage = tuple[str, str, str]


@dataclass(slots=True)
class Draft:
    """A reply that the model is writing: its number within the run, and its text so far."""

    turn: int
    text: str = ""


class _Recent(OrderedDict[K, V]):
    """The last values that were added, up to a limit."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST_REMEMBERED:
            self.popitem(last=False)


class AgentListener:
    """Listen to one agent: replies as they come, and input that is not stored yet."""

    def __init__(self, agent: Agent) -> None:
        self.drafts: dict[str, Draft] = {}
        #: Messages that were posted here. One that is posted twice gets one answer.
        self.posted: _Recent[PostedMessage, RunTask] = _Recent()
        #: The owner of each chat, which never changes.
        self.owners: _Recent[str, str] = _Recent()
        #: The task of each chat whose input is not in the store yet.
        self.opening: dict[str, RunTask] = {}
        self._lock = fork_safe_lock()
        #: The signals of each thread. Tuples are replaced, never changed, so reads need no lock.
        self._signals: dict[str, tuple[ChangeSignal, ...]] = {}
        agent.listeners.append(self.on_event)

    def on_event(self, event: Any) -> None:
        """Handle an event. The agent calls this, in whichever OS thread it runs."""
        kind = type(event).__name__
        if kind == "ModelAsked":
            self.drafts[event.run] = Draft(event.turn)
        elif kind == "Text" and event.run in self.drafts:
            self.drafts[event.run].text += event.text
        elif kind in ("Ended", "Errored"):
            self.drafts.pop(event.run, None)
        if kind in _STORED or kind == "Text":
            for signal in self._signals.get(event.thread, ()):
                signal.notify(kind in _STORED)

    def remember_posted(self, message: PostedMessage, run_task: RunTask) -> None:
        """Remember a posted message, and until its run is over, that it is new input."""
        chat = message[0]
        self.opening[chat] = run_task
        self.posted[message] = run_task

        def over(_: object) -> None:
            if self.opening.get(chat) is run_task:
                del self.opening[chat]

        run_task.task.add_done_callback(over)

    def open(self, signal: ChangeSignal) -> None:
        """Notify a signal of every event in its thread."""
        with self._lock:
            self._signals[signal.thread] = (*self._signals.get(signal.thread, ()), signal)

    def close(self, signal: ChangeSignal) -> None:
        with self._lock:
            left = tuple(b for b in self._signals.pop(signal.thread, ()) if b is not signal)
            if left:
                self._signals[signal.thread] = left


_listeners: WeakKeyDictionary[Any, AgentListener] = WeakKeyDictionary()


def listener_of(agent: Agent) -> AgentListener:
    """Return the agent's listener, creating it on first use."""
    listener = _listeners.get(agent)
    if listener is None:
        listener = _listeners[agent] = AgentListener(agent)
    return listener


# -- waking responses


_QUIET_SECONDS = 0.05
#: Changes within this time are sent together: a screen does not refresh more often.
_TOGETHER_SECONDS = 0.01


class ChangeSignal:
    """Wake a response on its event loop when its thread changes, in this process or through the
    store.

    Subscribing to a store may mean watching a file for other processes, which costs more than a
    whole answer. So it subscribes only when this process is quiet.
    """

    def __init__(self, store: Store, thread: str, listener: AgentListener) -> None:
        self.thread = thread
        self._store = store
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._stale = False
        self._woken = asyncio.Event()
        #: When it may wake again, and the timer for that.
        self._next = self._loop.time() + _TOGETHER_SECONDS
        self._later: asyncio.TimerHandle | None = None
        self._watched: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        listener.open(self)

    def notify(self, stale: bool = True) -> None:
        """Report a change in the store, or else new text, from any OS thread."""
        if asyncio._get_running_loop() is self._loop:  # None outside of a loop
            self._add_change(stale)
            return
        try:
            self._loop.call_soon_threadsafe(self._add_change, stale)
        except RuntimeError:
            self.close()  # the loop was closed, so nothing waits

    def _add_change(self, stale: bool) -> None:
        self._stale = self._stale or stale
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
        self._woken.set()

    def watch(self, task: asyncio.Task[None]) -> None:
        """Also wake, and at once, when the task is over."""
        if task is not self._watched:
            self._watched = task
            task.add_done_callback(self._over)

    def _over(self, _: object) -> None:
        self._stale = True
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Wait for a change. Return whether one came within ``seconds``."""
        if self._subscription is None:
            if await self._woken_within(min(_QUIET_SECONDS, seconds)):
                return True
            self._subscription = self._store.subscribe(self.thread, self.notify)
            self._stale = True  # by changes before the subscription
            return True
        return await self._woken_within(seconds)

    async def _woken_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def was_stale(self) -> bool:
        """Return whether the store has changed since the last call."""
        stale, self._stale = self._stale, False
        return stale

    def close(self) -> None:
        self._listener.close(self)
        if self._later is not None:
            self._later.cancel()
        if self._subscription is not None:
            self._subscription.cancel()
