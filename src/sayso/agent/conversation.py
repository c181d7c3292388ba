"""The conversation of a thread: what is stored of it, and what was said since."""

from __future__ import annotations

from sayso import codec
from sayso.agent import messages
from sayso.agent.heard import Talk, add_usage, copies, heard_at
from sayso.agent.job import Job
from sayso.agent.models.base import ModelReply
from sayso.rows import Message
from sayso.types import Json


class Conversation:
    """What the model is shown: stored messages, then those that the next commit will add."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.said: list[dict[str, Json]] = []
        self.unsaved: list[dict[str, Json]] = []
        #: The ids of all its calls.
        self.ids: set[str] = set()
        self.usage: dict[str, int] = {}
        #: How many replies this run has had.
        self.turns = 0
        #: How far the thread had come when it was read; unknown where it was pruned.
        self.seen: int | None = None
        self._talk = Talk([])

    def load(self) -> None:
        """Read the thread; what was not saved is forgotten."""
        store, thread = self.job.store, self.job.thread
        heard = heard_at(self.job.gate)
        talk = self._talk = heard.read(store, thread)
        self.said, self.ids = list(talk.said), set(talk.ids)
        self.unsaved = []
        if talk.said:
            self.seen = talk.last[0]
        else:
            self.seen = None if store.chain(thread, 0, 1) else 0
        self.turns, self.usage = talk.counted(self.job.run)
        heard.keep(thread, talk)

    @property
    def visible(self) -> list[dict[str, Json]]:
        """Everything so far, for a tool that may change it."""
        return copies(self.said + self.unsaved)

    def shown(self) -> list[dict[str, Json]]:
        """Everything so far, for the model, which may change it too."""
        return self._talk.shown(self.said) + copies(self.unsaved)

    @property
    def last(self) -> dict[str, Json]:
        """The last stored message, or an empty one."""
        return self.said[-1] if self.said else {}

    def reply(self, reply: ModelReply) -> dict[str, Json]:
        """The reply as it will be stored; it counts as a turn of this run."""
        self.turns += 1
        self.ids.update(call.id for call in reply.calls)
        message = _storable({**reply.message, "run": self.job.run})
        if reply.usage:
            message["usage"] = dict(reply.usage)
        add_usage(self.usage, reply.usage.items())
        return message

    def rows(self) -> tuple[Message, ...]:
        """What the next commit adds."""
        return messages.stored(self.job.run, self.unsaved)

    def saved(self) -> None:
        """The commit is there."""
        if self.seen is not None:
            self.seen += len(self.unsaved)
        self.said += self.unsaved
        self.unsaved = []


def _storable(message: dict[str, Json]) -> dict[str, Json]:
    """The same message; half a surrogate pair, which is no text, becomes a question mark."""
    text = codec.dumps(message)
    whole: dict[str, Json] = codec.loads(text.encode(errors="replace"))
    return whole
