"""What this process has read of conversations, so that only what is new is read again.

A message never changes, and pruning takes the oldest away first. So as long as the first and the
last that were read are still there, so is everything between them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sayso import codec
from sayso.agent.models.wire import known_call_ids
from sayso.forking import fork_safe_lock
from sayso.types import Json

if TYPE_CHECKING:
    from sayso.gate import Gate
    from sayso.stores.base import Store

Row = tuple[int, str]
Said = list[dict[str, Json]]

#: A shorter conversation is as quickly read anew.
_FEW = 20
#: The most that is kept at one gate, and what a message and its copy take beside the text, about.
_MOST_BYTES = 8 * 1024 * 1024
_MESSAGE_BYTES = 1000
_NESTED = (dict, list)

_heard: WeakKeyDictionary[Gate, Heard] = WeakKeyDictionary()


def heard_at(gate: Gate) -> Heard:
    """What was read at this gate."""
    return _heard.setdefault(gate, Heard())


class Talk:
    """The stored part of one conversation; nobody changes its messages."""

    def __init__(self, rows: list[Row]) -> None:
        self.said: Said = []
        #: Those of its calls.
        self.ids: set[str] = set()
        #: Copies of the first of them, as a model was given them.
        self._shown: Said = []
        self.first = rows[0][0] if rows else 0
        self.last: Row = (0, "")
        self.bytes = 0
        self._run, self._counted = "", 0
        self._turns = 0
        self._usage: dict[str, int] = {}
        self.grow(rows)

    def grow(self, rows: list[Row]) -> None:
        """Add what was said since."""
        if rows:
            # One text is read in half the time that many take.
            new = codec.loads(f"[{','.join(body for _, body in rows)}]")
            self.said += new
            self.ids |= known_call_ids(new)
            self.last = rows[-1]
            self.bytes += sum(len(body) + _MESSAGE_BYTES for _, body in rows)

    def follows(self, rows: list[Row]) -> bool:
        """Whether these rows are of the same conversation: its first, its last, and what is new."""
        return len(rows) > 1 and rows[1] == self.last

    def shown(self, said: Said) -> Said:
        """Copies of these messages, which are its own and perhaps newer ones. What a model got is
        given again, unless somebody has changed it."""
        shown = self._shown[: len(said)]
        if shown != said[: len(shown)]:
            shown = []
        shown += copies(said[len(shown) :])
        self._shown = shown
        return shown.copy()

    def counted(self, run: str) -> tuple[int, dict[str, int]]:
        """How many replies a run has had, and what they used."""
        if run != self._run:
            self._run, self._counted = run, self._begins(run)
            self._turns, self._usage = 0, {}
        for message in self.said[self._counted :]:
            if message.get("run") == run:
                self._turns += 1
                add_usage(self._usage, message.get("usage", {}).items())
        self._counted = len(self.said)
        return self._turns, dict(self._usage)

    def _begins(self, run: str) -> int:
        """Where the replies of this run begin: runs of a thread come one after the other."""
        for place in range(len(self.said), 0, -1):
            message = self.said[place - 1]
            if message["role"] == "assistant" and message.get("run") != run:
                return place
        return 0


def copies(said: Said) -> Said:
    """The same messages, for somebody who may change them."""
    return [_copied(message) for message in said]


def _copied(value: Any) -> Any:
    """A deep copy; most values are text, which needs none."""
    if isinstance(value, list):
        return [_copied(part) if isinstance(part, _NESTED) else part for part in value]
    found = value.copy()
    for name, part in found.items():
        if isinstance(part, _NESTED):
            found[name] = _copied(part)
    return found


def add_usage(usage: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    """Count what a reply used."""
    for name, count in more:
        usage[name] = usage.get(name, 0) + count


class Heard:
    """Conversations by their threads; those that were not read for long are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Talk] = OrderedDict()
        self._bytes = 0
        self._lock = fork_safe_lock()

    def read(self, store: Store, thread: str) -> Talk:
        """A conversation as it is stored now; it is the caller's until it is kept."""
        talk = self._take(thread)
        if talk is not None:
            rows = store.messages(thread, after=talk.last[0] - 1, also=talk.first)
            if talk.follows(rows):
                talk.grow(rows[2:])
                return talk
        return Talk(store.messages(thread))

    def _take(self, thread: str) -> Talk | None:
        with self._lock:
            talk = self._kept.pop(thread, None)
            self._bytes -= 0 if talk is None else talk.bytes
            return talk

    def keep(self, thread: str, talk: Talk) -> None:
        """Remember it for the next time."""
        if len(talk.said) < _FEW:
            return
        self._take(thread)
        with self._lock:
            self._kept[thread] = talk
            self._bytes += talk.bytes
            while self._bytes > _MOST_BYTES:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.bytes
