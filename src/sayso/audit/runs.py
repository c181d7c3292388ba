"""Runs, messages and owners as the chain tells them: rows that change without events of their own.

What a transaction writes to them goes with one of its events, under ``writes``
(``UnitOfWork.close``): the facts of a new run, a new owner, hashes of what a run holds, and of the
messages that were appended. A run moves along ``sayso.engine.moves.RUN_MOVES``. Whether a live run
is paused or running follows from its calls and its lease, so that the chain does not tell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sayso import codec
from sayso.audit.facts import Nonsense
from sayso.engine.moves import RUN_MOVES
from sayso.engine.unit_of_work import COUNTERS, messages_hash
from sayso.rows import LIVE, CallStatus, Event, Run, RunStatus, StoredMessage
from sayso.types import Micros

_R = RunStatus
#: What may follow on the end of a run: it is kept as a fact, and moves nothing.
_FACTS = frozenset({"late", "broke"})
#: A call that was in doubt when its run was cancelled is still settled, by a person or its result.
_SETTLES_DOUBT = frozenset({"decided", "voted", "settled", "recorded"})


@dataclass(slots=True)
class RunFacts:
    """What the row of one run must be."""

    id: str
    thread: str
    seq: int = 0
    pos: int = 0
    at: int = 0
    created: Micros = 0
    #: Agent, its digest, requester, and the call that the run is a part of.
    began: tuple[Any, ...] | None = None
    status: RunStatus = _R.RUNNING
    token: int = 0
    #: SHA-256 of each, where there is one.
    stop: str | None = None
    snapshot: str | None = None
    output: str | None = None
    #: A body was missing: what happened cannot be told any more.
    blind: bool = False
    pruned: bool = False

    def tell(self, event: Event, body: Mapping[str, Any]) -> None:
        """Take in one event; ``Nonsense`` if it cannot stand here."""
        writes = body.get("writes", {})
        if "run" in writes:
            if self.began is not None:
                raise Nonsense(f"run {self.id} begins a second time")
            self.began, self.created = tuple(writes["run"]), event.at
        elif self.began is None:
            raise Nonsense(f"{event.type!r} of run {self.id}, which never began")
        self._move(event, body)
        for name in ("stop", "snapshot", "output"):
            if name in writes:
                setattr(self, name, writes[name])
        if isinstance(body.get("token"), int):
            self.token = max(self.token, body["token"])

    def _move(self, event: Event, body: Mapping[str, Any]) -> None:
        to = self.status
        if event.type == "finished":
            to = _R(body["status"])
        elif event.type == "run_cancelled":
            to = _R.CANCELLED
        elif event.type == "reopened":
            to = _R.RUNNING
        elif self.status not in LIVE and event.type not in _FACTS:
            doubt = self.status is _R.CANCELLED and event.type in _SETTLES_DOUBT
            if not doubt:
                raise Nonsense(f"{event.type!r} follows on the end of run {self.id}")
        same = to is self.status and event.type not in ("finished", "run_cancelled", "reopened")
        if not same and to not in RUN_MOVES[self.status]:
            raise Nonsense(f"run {self.id} is {self.status}, and {event.type!r} cannot follow")
        self.status = to


def run_differences(run: Run, facts: RunFacts, open_calls: Counter[CallStatus]) -> list[str]:
    """The columns in which the row of a run is not what the chain says."""
    ended = facts.status not in LIVE
    same = {
        "thread": run.thread == facts.thread,
        "agent": facts.began == (run.agent, run.agent_digest, run.requester, run.parent_call),
        "created": run.created == facts.created,
        "status": run.status is facts.status if ended else run.status in LIVE,
        "stop": _hash(run.stop or None) == facts.stop,
        "snapshot": _hash(run.snapshot) == facts.snapshot,
        "output": _hash(run.output) == facts.output,
        "token": run.token >= facts.token,
        "lease": not ended or (run.owner, run.ready_at) == (None, None),
        **{name: getattr(run, name) == open_calls[state] for state, name in COUNTERS.items()},
    }
    return [name for name, is_same in same.items() if not is_same]


def _hash(text: str | None) -> str | None:
    return None if text is None else codec.sha256(text.encode())


class Appended(NamedTuple):
    """Messages that one transaction appended, and the event that tells of it."""

    first: int
    last: int
    hash: str
    event: Event


@dataclass(slots=True)
class Conversation:
    """The messages and the owner of one thread."""

    owner: str = ""
    appended: list[Appended] = field(default_factory=list)
    #: Some of it was forgotten, so that what is not told may have been said.
    blind: bool = False

    def tell(self, event: Event, body: Mapping[str, Any]) -> None:
        """Take in one event; ``Nonsense`` if it cannot stand here."""
        writes = body.get("writes", {})
        if "owner" in writes:
            if self.owner:
                raise Nonsense(f"the thread belongs to {self.owner}, and gets another owner")
            self.owner = writes["owner"]
        if "messages" in writes:
            first, last, digest = writes["messages"]
            before = self.appended[-1].last if self.appended else 0
            if first <= before or (first > before + 1 and not self.blind):
                raise Nonsense(f"message {first} cannot follow on message {before}")
            self.appended.append(Appended(first, last, digest, event))


def message_problems(
    told: Sequence[Appended], messages: Iterable[StoredMessage], count: int, *, blind: bool
) -> Iterator[tuple[Event | None, str]]:
    """Name what is wrong with the messages of a thread, each with the event that tells of it.

    ``count`` is how many the thread says that there were, and ``blind`` that some were forgotten.
    """
    rows = {message.seq: message for message in messages}
    for first, last, digest, event in told:
        found = [rows.pop(seq) for seq in range(first, last + 1) if seq in rows]
        if len(found) < last - first + 1:
            yield event, f"of the messages {first} to {last}, some are missing"
        elif messages_hash(found) != digest:
            yield event, f"the messages {first} to {last} were changed"
    if rows:
        yield None, f"message {min(rows)} is in the table, and nobody said it"
    said = told[-1].last if told else 0
    if count != said and not (blind and count > said):
        yield None, f"the thread says that it has {count} messages, and there were {said}"
