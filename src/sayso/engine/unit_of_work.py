"""The rows of one transaction while the engine changes them.

A store fills a ``UnitOfWork`` with the rows that a command needs, the engine changes rows and adds
events, and the store writes what changed. Nothing here reads a clock or a disk: the time is a
field, and hashing, signing and schema matching come in as ``EngineDeps``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sayso.engine.moves import moved, run_moved
from sayso.errors import NotFound
from sayso.rows import (
    SYSTEM_THREAD,
    Call,
    CallStatus,
    Event,
    Message,
    Principal,
    Run,
    RunStatus,
    Thread,
    Tool,
)
from sayso.types import Grant, Micros

# Made once: ``json.dumps`` with options makes an encoder for every call.
_body = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
_parts = json.JSONEncoder(ensure_ascii=False).encode

#: Which counter of a run follows which open status of its calls.
COUNTERS = {
    CallStatus.ASKED: "asked",
    CallStatus.READY: "ready",
    CallStatus.RUNNING: "running",
    CallStatus.IN_DOUBT: "in_doubt",
}


@dataclass(frozen=True, slots=True)
class EngineDeps:
    """What the engine is handed instead of doing it itself."""

    digest: Callable[[Mapping[str, object]], str]
    sign: Callable[[bytes], str]
    link: Callable[[bytes], str]
    matches: Callable[[str, str], bool]
    salt: Callable[[], str]
    #: Old keys verify too; without it, only what the signing key itself would write again.
    verify: Callable[[bytes, str], bool] | None = None

    def signed(self, data: bytes, signature: str) -> bool:
        """Whether one of our keys signed this."""
        if self.verify is None:
            return self.sign(data) == signature
        return self.verify(data, signature)


class Fact(NamedTuple):
    """An event before it is chained: only at the end of a transaction is it known what is in it."""

    type: str
    actor: str
    run: str
    call: str
    body: dict[str, Any]
    system: bool = False


@dataclass(slots=True)
class UnitOfWork:
    """One transaction's rows, and what became of them."""

    now: Micros
    deps: EngineDeps
    thread: Thread
    run: Run | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    #: The tokens of whoever decides; their groups count.
    people: tuple[Principal, ...] = ()
    principal: Principal | None = None
    system: Thread | None = None
    # What the store has to write:
    touched_calls: dict[str, Call] = field(default_factory=dict)
    new_calls: set[str] = field(default_factory=set)
    touched_grants: dict[str, Grant] = field(default_factory=dict)
    new_run: bool = False
    run_touched: bool = False
    principals: list[Principal] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    messages: list[tuple[int, Message]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    #: What the chain has to tell of rows that have no events of their own (``_tell_of_rows``).
    writes: dict[str, Any] = field(default_factory=dict)
    #: The facts as they are written, once the work is closed.
    events: list[Event] = field(default_factory=list)

    @property
    def moves_thread(self) -> bool:
        """Whether the thread's row is to be written."""
        return bool(self.events or self.messages or self.new_run)

    def the_run(self) -> Run:
        """The run of the command; it must be there."""
        if self.run is None:
            raise NotFound("no such run in this store")
        return self.run

    def the_call(self, call_id: str) -> Call:
        """A loaded call; it must be there."""
        try:
            return self.calls[call_id]
        except KeyError:
            raise NotFound(f"no request {call_id} in this store") from None

    def by_key(self, key: str) -> Call | None:
        """The call that was made before under this natural key."""
        return next((call for call in self.calls.values() if call.key == key), None)

    def put_run(self, run: Run) -> Run:
        """Change the run."""
        self.run_touched = self.run_touched or run != self.run
        for name in ("stop", "snapshot", "output"):
            now = getattr(run, name)
            if now != (getattr(self.run, name) if self.run is not None else None) and now != "":
                self.writes[name] = None if now is None else _sha256(now)
        self.run = run
        return run

    def set_run(self, status: RunStatus, **changes: Any) -> Run:
        """Move the run and change it."""
        return self.put_run(run_moved(self.the_run(), status)._replace(**changes))

    def put_call(self, call: Call) -> Call:
        """Change a call without moving it."""
        self.calls[call.id] = call
        self.touched_calls[call.id] = call
        return call

    def add_call(self, call: Call) -> Call:
        """A call that was not there before."""
        self.new_calls.add(call.id)
        self._count(call.status, +1)
        return self.put_call(call)

    def move(self, call: Call, to: CallStatus, **changes: Any) -> Call:
        """Move a call along the table, keeping the run's counters in step."""
        self._count(call.status, -1, to)
        return self.put_call(moved(call, to)._replace(**changes))

    def _count(self, status: CallStatus, step: int, to: CallStatus | None = None) -> None:
        run = self.the_run()
        changes: dict[str, Any] = {}
        for state, by in ((status, step), (to, +1)):
            name = COUNTERS.get(state) if state is not None else None
            if name is not None:
                changes[name] = changes.get(name, getattr(run, name)) + by
        if changes:
            self.put_run(run._replace(**changes))

    def say(self, message: Message) -> None:
        """Append a message to the conversation."""
        count = self.thread.messages + 1
        self.thread = self.thread._replace(messages=count)
        self.messages.append((count, message))

    def emit(self, type: str, *, actor: str, call: Call | None = None, **body: Any) -> None:
        """Add a fact to the thread's chain."""
        run = call.run if call is not None else (self.run.id if self.run is not None else "")
        self.facts.append(Fact(type, actor, run, call.id if call is not None else "", body))

    def emit_system(self, type: str, *, actor: str, **body: Any) -> None:
        """Add a fact that belongs to no conversation."""
        if self.thread.id == SYSTEM_THREAD:
            self.emit(type, actor=actor, **body)
        else:
            self.facts.append(Fact(type, actor, "", "", body, system=True))

    def own(self, owner: str) -> None:
        """Give the thread to a person, for good."""
        self.thread = self.thread._replace(owner=owner)
        if owner:
            self.writes["owner"] = owner

    def _tell_of_rows(self) -> None:
        """Put messages, runs and owners into the chain: they change without events of their own.

        They go with the first fact of the transaction. Where there is none, they are one.
        """
        run = self.run
        if self.new_run and run is not None:
            self.writes["run"] = [run.agent, run.agent_digest, run.requester, run.parent_call]
        if self.messages:
            first, last = self.messages[0][0], self.messages[-1][0]
            self.writes["messages"] = [first, last, messages_hash(self.messages)]
        if not self.writes:
            return
        place = next((n for n, fact in enumerate(self.facts) if not fact.system), None)
        if place is None:
            type = "began" if self.new_run else "said" if self.messages else "saved"
            self.emit(type, actor=f"agent:{run.agent}" if run is not None else "engine")
            place = len(self.facts) - 1
        fact = self.facts[place]
        self.facts[place] = fact._replace(body={**fact.body, "writes": self.writes})

    def _chain(self, thread: Thread, fact: Fact) -> Thread:
        seq = thread.seq + 1
        # The salt keeps a nulled body from being guessed by its digest; it is nulled with the body.
        text = _body({**fact.body, "salt": self.deps.salt()})
        event = Event(
            *(thread.id, seq, self.now, fact.type, fact.actor, text, _sha256(text)),
            hash="",
            run=fact.run,
            call=fact.call,
        )
        event = event._replace(hash=self.deps.link(link_bytes(thread.head, event)))
        self.events.append(event)
        return thread._replace(seq=seq, head=event.hash)

    def close(self) -> None:
        """Chain the facts and prove the new heads; called once, after the last command."""
        self._tell_of_rows()
        for fact in self.facts:
            if fact.system:
                self.system = self._chain(self.system or Thread(id=SYSTEM_THREAD), fact)
            else:
                self.thread = self._chain(self.thread, fact)
        if self.events:
            self.thread = self._proved(self.thread)
            self.system = self.system and self._proved(self.system)

    def _proved(self, thread: Thread) -> Thread:
        return thread._replace(mac=self.deps.link(head_bytes(thread)))


def messages_hash(messages: Iterable[tuple[int, Message]]) -> str:
    """What the chain holds of messages: a hash over their numbers, runs and bodies."""
    return _sha256(_parts([[seq, message.run, message.body] for seq, message in messages]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def link_bytes(previous: str, event: Event) -> bytes:
    """What the hash of an event covers: itself and the hash before it."""
    parts = [
        previous,
        event.thread,
        event.seq,
        event.at,
        event.type,
        event.run,
        event.call,
        event.actor,
        event.digest,
    ]
    return _parts(parts).encode("utf-8", "surrogatepass")


def head_bytes(thread: Thread) -> bytes:
    """What proves that a chain ends where its thread says that it ends."""
    return json.dumps(["head", thread.id, thread.seq, thread.head]).encode()
