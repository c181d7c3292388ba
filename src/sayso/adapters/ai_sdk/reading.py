"""A chat as the store has it: what was said, and which rows each answer's calls have become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayso import codec
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus
from sayso.stores.base import Store
from sayso.views import is_request

_PENDING = (CallStatus.ASKED, CallStatus.IN_DOUBT)


@dataclass(slots=True)
class Slot:
    """One call of a reply: its row, or why it has none."""

    id: str
    name: str
    arguments: str
    error: str = ""
    call: Call | None = None
    #: What the call asked by itself while it ran, and what agents behind it asked.
    asks: list[Call] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether its row is to be looked at."""
        return not self.error and (self.call is None or self.call.status in OPEN)

    @property
    def over(self) -> bool:
        """Whether nothing of it can change any more."""
        return self.call is None or (self.call.status not in OPEN and not self.waiting)

    @property
    def waiting(self) -> list[Call]:
        """What people are asked here."""
        own = [] if self.call is None else [self.call]
        return [call for call in (*own, *self.asks) if call.status in _PENDING]


@dataclass(slots=True)
class Reply:
    """One reply of the model: a step of the answer."""

    text: str
    turn: int
    slots: list[Slot]
    #: The text says that the model will not do what it was asked.
    refused: bool = False


@dataclass(slots=True)
class Exchange:
    """What the user said, and the run that answers it."""

    words: str
    run: str
    replies: list[Reply] = field(default_factory=list)


def exchanges(store: Store, thread: str) -> list[Exchange]:
    """The whole chat; the calls' rows are not looked at yet."""
    found: list[Exchange] = []
    words = ""
    for _, body in store.messages(thread):
        message = codec.loads(body)
        if message["role"] == "user":
            words = message["content"]
        elif message["role"] == "assistant":
            run = message.get("run", "")
            # Words in the middle of a run are the agent's own, to its model.
            if not found or found[-1].run != run:
                found.append(Exchange(words, run))
            found[-1].replies.append(_reply(message))
    return found


def _reply(message: Mapping[str, Any]) -> Reply:
    errors = message.get("errors", {})
    calls = [(c["id"], c["name"], c["arguments"]) for c in message.get("calls", ())]
    calls += [(h["id"], h["name"], h["arguments"]) for h in message.get("hosted", ())]
    slots = [Slot(*call, error=errors.get(str(n), "")) for n, call in enumerate(calls)]
    refusal = message.get("refusal", "")
    text = message["content"] or refusal
    return Reply(text, message.get("turn", 0), slots, refused=bool(refusal))


class RunView:
    """One run, read again and again: only what may have changed is looked at anew."""

    def __init__(self, store: Store, thread: str, run_id: str, asking: Sequence[str] = ()) -> None:
        self.store = store
        self.thread = thread
        self.id = run_id
        self.run: Run | None = None
        self.replies: list[Reply] = []
        #: The tools that may ask by themselves; nobody else's steps are searched for.
        self._asking = frozenset(asking)
        self._seen = 0
        self._settled = 0
        #: Whether nothing will happen by itself: it is over, or only people can go on.
        self.still = False

    def refresh(self, run: Run | None = None) -> None:
        """Look at the run (unless it was read just now), what was said in it since, its calls."""
        self.run = run or self.store.run(self.id)
        if self.run is None:
            return
        mark = f'"run":{codec.dumps(self.id)}'
        for seq, body in self.store.messages(self.thread, self._seen):
            self._seen = seq
            if mark in body:
                message = codec.loads(body)
                if message.get("run") == self.id and message["role"] == "assistant":
                    self.replies.append(_reply(message))
        self.refresh_calls()
        self.still = self._is_still(self.run)

    def refresh_calls(self) -> None:
        """Look at the calls that are still open, and at nothing else."""
        for reply in self.replies[self._settled :]:
            self.fill(reply)
            if all(slot.over for slot in reply.slots):
                self._settled += 1

    def _is_still(self, run: Run) -> bool:
        if run.status not in LIVE:
            return True
        if run.status is not RunStatus.PAUSED or run.ready_at is not None:
            return False
        now = self.store.now()
        overdue = any(c.expires_at is not None and c.expires_at <= now for c in self.waiting)
        return not overdue and not self._is_due_behind()

    def _is_due_behind(self) -> bool:
        """Whether the run of an agent behind a tool can go on: it wakes its own run only."""
        asks = [a for r in self.replies[self._settled :] for slot in r.slots for a in slot.asks]
        behind = {ask.run for ask in asks if ask.run != self.id}
        runs = [run for run in map(self.store.run, behind) if run is not None]
        return any(run.status in LIVE and run.ready_at is not None for run in runs)

    def fill(self, reply: Reply) -> None:
        """Put the rows into a reply's slots."""
        slots = {f"{reply.turn}.{index}": slot for index, slot in enumerate(reply.slots)}
        moving = [key for key, slot in slots.items() if slot.moves]
        for call in self.store.calls_of(self.id, moving) if moving else ():
            slots[call.key].call = call
        for slot in slots.values():
            if slot.call is not None and slot.call.attempt and slot.call.tool in self._asking:
                slot.asks = list(_asked_by(self.store, slot.call))

    @property
    def waiting(self) -> list[Call]:
        """What people are asked, in this run and in the runs of agents behind it."""
        return [call for r in self.replies for slot in r.slots for call in slot.waiting]


def _asked_by(store: Store, call: Call) -> Iterator[Call]:
    """The requests that a call made while it ran, and those of the agent behind it."""
    for step in store.calls_of(call.run):
        if step.key.startswith(f"{call.key}/") and is_request(step):
            yield step
    yield from _asked_behind(store, call)


def _asked_behind(store: Store, call: Call) -> Iterator[Call]:
    """The requests of the agent behind a call: its thread stands under the call."""
    inner = store.last_run(f"{call.thread}/{call.id}")
    for step in [] if inner is None else store.calls_of(inner.id):
        if is_request(step):
            yield step
        yield from _asked_behind(store, step)
