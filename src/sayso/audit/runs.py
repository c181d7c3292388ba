"""Replay runs, messages and thread owners: rows that change without events of their own.

A transaction that writes to them says so in one of its events, under ``writes``
(``UnitOfWork.close``): the fields of a new run, a new owner, and hashes of the run's contents and
of appended messages. A run follows ``sayso.engine.moves.RUN_MOVES``. Whether a live run is paused
or running depends on its calls and its lease, so the chain does not say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sayso import codec
from sayso.audit.calls import ImpossibleEvent
from sayso.engine.moves import RUN_MOVES
from sayso.engine.unit_of_work import COUNTERS, messages_hash
from sayso.rows import LIVE, CallStatus, Event, Run, RunStatus, StoredMessage
from sayso.types import Micros

_R = RunStatus
#: Events that may follow the end of a run; they move nothing.
_AFTER_END = frozenset({"late", "broke", "reported"})
#: A call in doubt when its run was cancelled is still settled, by a person or by its result.
_SETTLES_DOUBT = frozenset({"decided", "voted", "settled", "recorded"})


@dataclass(slots=True)
class ExpectedRun:
    """What a run's row must be, according to its events."""

    id: str
    thread: str
    seq: int = 0
    pos: int = 0
    at: int = 0
    created: Micros = 0
    #: The agent, its digest, the requester, and the call that the run belongs to.
    began: tuple[Any, ...] | None = None
    status: RunStatus = _R.RUNNING
    token: int = 0
    #: The SHA-256 of each, if it is set.
    stop: str | None = None
    snapshot: str | None = None
    output: str | None = None
    #: An event had no body, so the row can no longer be derived.
    body_missing: bool = False
    pruned: bool = False

    def apply(self, event: Event, body: Mapping[str, Any]) -> None:
        """Apply an event. Raise ``ImpossibleEvent`` if it cannot follow."""
        writes = body.get("writes", {})
        if "run" in writes:
            if self.began is not None:
                raise ImpossibleEvent(f"run {self.id} starts a second time")
            self.began, self.created = tuple(writes["run"]), event.at
        elif self.began is None:
            raise ImpossibleEvent(f"{event.type!r} for run {self.id}, which never started")
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
        elif self.status not in LIVE and event.type not in _AFTER_END:
            doubt = self.status is _R.CANCELLED and event.type in _SETTLES_DOUBT
            if not doubt:
                raise ImpossibleEvent(f"{event.type!r} follows the end of run {self.id}")
        same = to is self.status and event.type not in ("finished", "run_cancelled", "reopened")
        if not same and to not in RUN_MOVES[self.status]:
            raise ImpossibleEvent(f"{event.type!r} cannot follow: run {self.id} is {self.status}")
        self.status = to


def run_mismatches(run: Run, facts: ExpectedRun, open_calls: Counter[CallStatus]) -> list[str]:
    """Return the columns in which a run's row does not match its events."""
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
    """The messages that one transaction appended, and the event that says so."""

    first: int
    last: int
    hash: str
    event: Event


@dataclass(slots=True)
class ExpectedConversation:
    """What a thread's messages and owner must be, according to its events."""

    owner: str = ""
    appended: list[Appended] = field(default_factory=list)
    #: Some events have no body, so there may be more messages than those listed.
    body_missing: bool = False

    def apply(self, event: Event, body: Mapping[str, Any]) -> None:
        """Apply an event. Raise ``ImpossibleEvent`` if it cannot follow."""
        writes = body.get("writes", {})
        if "owner" in writes:
            if self.owner:
                raise ImpossibleEvent(f"the thread belongs to {self.owner} and gets another owner")
            self.owner = writes["owner"]
        if "messages" in writes:
            first, last, digest = writes["messages"]
            before = self.appended[-1].last if self.appended else 0
            if first <= before or (first > before + 1 and not self.body_missing):
                raise ImpossibleEvent(f"message {first} cannot follow message {before}")
            self.appended.append(Appended(first, last, digest, event))


def message_problems(
    told: Sequence[Appended], messages: Iterable[StoredMessage], count: int, *, body_missing: bool
) -> Iterator[tuple[Event | None, str]]:
    """Yield what is wrong with a thread's messages, each with the event that appended them.

    ``count`` is the number of messages in the thread's row. ``body_missing`` says that events with
    messages may have been pruned.
    """
    rows = {message.seq: message for message in messages}
    for first, last, digest, event in told:
        found = [rows.pop(seq) for seq in range(first, last + 1) if seq in rows]
        if len(found) < last - first + 1:
            yield event, f"some of the messages {first} to {last} are missing"
        elif messages_hash(found) != digest:
            yield event, f"the messages {first} to {last} were changed"
    if rows:
        yield None, f"message {min(rows)} is in the table, but no event appended it"
    said = told[-1].last if told else 0
    if count != said and not (body_missing and count > said):
        yield None, f"the thread's row counts {count} messages, its events {said}"
