"""What is heard of an agent in this process: replies as they come, and words not stored yet.

Everything else is read from the store, whichever process wrote it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sayso.adapters.ai_sdk.driving import Drive
from sayso.forking import fork_safe_lock

if TYPE_CHECKING:
    from sayso.adapters.ai_sdk.bell import Bell
    from sayso.agent import Agent

_MOST_REMEMBERED = 1000
#: The events of an agent that tell of a new reply in the store, and of calls that moved.
_SAID = frozenset(("ToolCalled", "Requested"))
_MOVED = frozenset(("ToolEnded", "ToolPaused", "ToolClosed"))
#: Of the others, only words and answers change what is shown.
_RINGS = _SAID | _MOVED | {"Text", "Answered"}

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
        #: Who opened each chat, which never changes.
        self.owners: OrderedDict[str, str] = OrderedDict()
        #: The drive of each chat whose words are not in the store yet.
        self.opening: dict[str, Drive] = {}
        self._lock = fork_safe_lock()
        #: The bells of each thread; a tuple is replaced and never changed, so it is read unlocked.
        self._bells: dict[str, tuple[Bell, ...]] = {}
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
        if kind in _RINGS:
            answered = event.request.id if kind == "Answered" else ""
            for bell in self._bells.get(event.thread, ()):
                bell.ring(kind in _SAID, kind in _MOVED, answered)

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

    def owned(self, chat: str, owner: str) -> None:
        """Keep whose chat it is, up to a limit."""
        self.owners[chat] = owner
        while len(self.owners) > _MOST_REMEMBERED:
            self.owners.popitem(last=False)

    def open(self, bell: Bell) -> None:
        """Ring a bell at every word in its thread."""
        with self._lock:
            self._bells[bell.thread] = (*self._bells.get(bell.thread, ()), bell)

    def close(self, bell: Bell) -> None:
        """Ring it no more."""
        with self._lock:
            left = tuple(b for b in self._bells.pop(bell.thread, ()) if b is not bell)
            if left:
                self._bells[bell.thread] = left


_ears: WeakKeyDictionary[Any, Ear] = WeakKeyDictionary()


def ear_of(agent: Agent) -> Ear:
    """The agent's listener; it is given one when it is first asked for."""
    ear = _ears.get(agent)
    if ear is None:
        ear = _ears[agent] = Ear(agent)
    return ear
