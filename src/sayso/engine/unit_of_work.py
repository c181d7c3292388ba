"""The rows of one transaction while the engine changes them.

A store fills a ``UnitOfWork`` with the rows that a command needs, the engine changes rows and adds
events, and the store writes what changed. Nothing here reads a clock or a disk: the time is a
field, and hashing, signing and schema matching are passed in as ``EngineDeps``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from sayso.engine.moves import IllegalMove, moved, run_moved
from sayso.engine.row_macs import row_mac, values_mac
from sayso.errors import NotFound, Tampered
from sayso.rows import (
    SYSTEM_THREAD,
    Budget,
    Call,
    CallStatus,
    Credential,
    Directory,
    EffectKey,
    Event,
    Message,
    Person,
    Run,
    RunStatus,
    StoredMessage,
    Thread,
    Tool,
    call_values,
    dumps,
    sorted_dumps,
)
from sayso.types import Grant, Micros, Refusal, look_of

T = TypeVar("T", Budget, EffectKey, Person, Credential)

NOBODY = Directory()

#: The counter of a run for each open status of its calls.
COUNTERS = {
    CallStatus.ASKED: "asked",
    CallStatus.READY: "ready",
    CallStatus.RUNNING: "running",
    CallStatus.IN_DOUBT: "in_doubt",
}


@dataclass(frozen=True, slots=True)
class EngineDeps:
    """What the engine needs, and must not do itself."""

    sign: Callable[[bytes], str]
    #: Returns whether one of the keys signed this; old keys count too.
    verify: Callable[[bytes, str], bool]
    link: Callable[[bytes], str]
    check_link: Callable[[bytes, str], bool]
    #: The MAC under the row key.
    mac: Callable[[bytes], str]
    matches: Callable[[str, str], bool]
    salt: Callable[[], bytes]


class PendingEvent(NamedTuple):
    """An event before it is chained: its content is complete only at the end of a transaction."""

    type: str
    actor: str
    run: str
    call: str
    body: dict[str, Any]
    system: bool = False


@dataclass(slots=True)
class UnitOfWork:
    """The rows of one transaction, and the changes to write."""

    now: Micros
    deps: EngineDeps
    thread: Thread
    run: Run | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    #: People and agents, by the look of their names.
    people: dict[str, Person] = field(default_factory=dict)
    #: Everyone, for the record of who could decide. It gives nobody a right.
    directory: Directory = NOBODY
    #: Credentials, by the hash of their secret.
    credentials: dict[str, Credential] = field(default_factory=dict)
    #: The taken effect keys among those of the calls that may start; and the calls of other runs
    #: that have them.
    effects: dict[str, EffectKey] = field(default_factory=dict)
    effect_owners: dict[str, Call] = field(default_factory=dict)
    #: What the limits of the calls that may start count, by key.
    budgets: dict[str, Budget] = field(default_factory=dict)
    #: The refusals of calls that are equal to these calls, and were not lifted.
    refusals: dict[str, Refusal] = field(default_factory=dict)
    system: Thread | None = None
    # What the store has to write:
    touched_calls: dict[str, Call] = field(default_factory=dict)
    new_calls: set[str] = field(default_factory=set)
    touched_grants: dict[str, Grant] = field(default_factory=dict)
    touched_refusals: dict[str, Refusal] = field(default_factory=dict)
    taken_effects: dict[str, EffectKey] = field(default_factory=dict)
    touched_budgets: dict[str, Budget] = field(default_factory=dict)
    #: Released keys, with the call that had each.
    freed_effects: dict[str, str] = field(default_factory=dict)
    new_run: bool = False
    run_touched: bool = False
    touched_people: dict[str, Person] = field(default_factory=dict)
    touched_credentials: dict[str, Credential] = field(default_factory=dict)
    new_credentials: set[str] = field(default_factory=set)
    #: Sessions and links that are over: their rows are deleted.
    dropped_credentials: list[str] = field(default_factory=list)
    #: The passkey's signature under the decision that is being made, for its event.
    passkey: dict[str, Any] | None = None
    tools: list[Tool] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)
    pending_events: list[PendingEvent] = field(default_factory=list)
    #: Changes of rows without events of their own, for the chain (``_add_row_changes``).
    writes: dict[str, Any] = field(default_factory=dict)
    #: The events as they are written, once the work is closed.
    events: list[Event] = field(default_factory=list)
    #: The columns of the touched calls, once the work is closed.
    call_values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: Whether the thread's row has to be written, once the work is closed.
    moves_thread: bool = False

    def require_run(self) -> Run:
        """Return the run of the command. Raise ``NotFound`` if there is none."""
        if self.run is None:
            raise NotFound("no such run in this store")
        return self.run

    def require_call(self, call_id: str) -> Call:
        """Return a loaded call. Raise ``NotFound`` if there is none."""
        try:
            return self.calls[call_id]
        except KeyError:
            raise NotFound(f"no request {call_id} in this store") from None

    def person(self, name: str) -> Person | None:
        """Return the loaded person of this name, or of one that looks like it."""
        return self.people.get(look_of(name))

    def by_key(self, key: str) -> Call | None:
        for call in self.calls.values():
            if call.key == key:
                return call
        return None

    def put_run(self, run: Run) -> Run:
        was = self.run
        if run == was:
            return run
        self.run = run
        self.run_touched = True
        for name in ("stop", "snapshot", "output", "scope"):
            text = getattr(run, name)
            if text != getattr(was, name, None) and text != "":
                self.writes[name] = None if text is None else sha256_hex(text)
        return run

    def set_run(self, status: RunStatus, **changes: Any) -> Run:
        return self.put_run(run_moved(self.run or self.require_run(), status, **changes))

    def put_call(self, call: Call) -> Call:
        """Change a call without moving it."""
        self.calls[call.id] = self.touched_calls[call.id] = call
        return call

    def add_call(self, call: Call) -> Call:
        self.new_calls.add(call.id)
        self._count(None, call.status)
        return self.put_call(call)

    def move(self, call: Call, to: CallStatus, **changes: Any) -> Call:
        """Move a call along the table, and update the run's counters."""
        self._count(call.status, to)
        call = moved(call, to, **changes)
        self.calls[call.id] = self.touched_calls[call.id] = call
        return call

    def _count(self, left: CallStatus | None, entered: CallStatus) -> None:
        run = self.run or self.require_run()
        changes: dict[str, Any] = {}
        if left in COUNTERS:
            changes[COUNTERS[left]] = getattr(run, COUNTERS[left]) - 1
        if entered in COUNTERS:
            changes[COUNTERS[entered]] = getattr(run, COUNTERS[entered]) + 1
        if changes and left is not entered:
            self.run = run._replace(**changes)
            self.run_touched = True

    def add_message(self, message: Message) -> None:
        count = self.thread.messages + 1
        self.thread = self.thread._replace(messages=count)
        self.messages.append(StoredMessage(self.thread.id, count, message.run, message.body))

    def emit(self, type: str, *, actor: str, call: Call | None = None, **body: Any) -> None:
        """Add a fact to the thread's chain."""
        # The rows are written again, so that each knows of the last event about it
        # (``check_not_put_back``).
        self.run_touched = self.run_touched or self.run is not None
        if call is not None:
            self.touched_calls.setdefault(call.id, call)
        run_id = "" if self.run is None else self.run.id
        about = (run_id, "") if call is None else (call.run, call.id)
        fact = (type, actor, *about, body, False)
        self.pending_events.append(tuple.__new__(PendingEvent, fact))

    def emit_system(self, type: str, *, actor: str, **body: Any) -> None:
        """Add a fact that belongs to no conversation."""
        if self.thread.id == SYSTEM_THREAD:
            self.emit(type, actor=actor, **body)
        else:
            self.pending_events.append(PendingEvent(type, actor, "", "", body, system=True))

    def set_owner(self, owner: str) -> None:
        """Give the thread to a person, for good."""
        self.thread = self.thread._replace(owner=owner)
        if owner:
            self.writes["owner"] = owner

    def _add_row_changes(self) -> None:
        """Put messages, runs and owners into the chain: they change without events of their own.

        They are added to the first fact of the transaction, or to a new one if there is none.
        """
        run = self.run
        if self.new_run and run is not None:
            self.writes["run"] = [run.agent, run.agent_digest, run.requester, run.parent_call]
        if self.messages:
            first = self.messages[0].seq
            last = self.messages[-1].seq
            self.writes["messages"] = [first, last, messages_hash(self.messages)]
        for fact in self.pending_events:
            if not fact.system:
                break
        else:
            type = "began" if self.new_run else "said" if self.messages else "saved"
            self.emit(type, actor=f"agent:{run.agent}" if run is not None else "engine")
            fact = self.pending_events[-1]
        fact.body["writes"] = self.writes

    def _chained(self, thread: Thread, facts: Iterable[PendingEvent]) -> Thread:
        """Add facts to a chain. Return its thread, authenticated."""
        seq = thread.seq
        head = thread.head
        for type, actor, run, call, body, _ in facts:
            seq += 1
            # The salt keeps a nulled body from being guessed by its digest. It is nulled with it.
            body["salt"] = self.deps.salt().hex()
            text = sorted_dumps(body)
            digest = hashlib.sha256(text.encode()).hexdigest()
            covered = (head, thread.id, seq, self.now, type, run, call, actor, digest)
            head = self.deps.link(dumps(covered).encode("utf-8", "surrogatepass"))
            event = (thread.id, seq, self.now, type, actor, text, digest, head, run, call, 0)
            self.events.append(tuple.__new__(Event, event))
        created = thread.created or self.now
        fields = (thread.id, thread.owner, thread.messages, thread.messages_pruned, seq, head)
        mac = values_mac(Thread, (*fields, created), self.deps.mac)
        return tuple.__new__(Thread, (*fields, created, mac, thread.sealed, 1))

    def _chain_events(self) -> None:
        # Without an event, a change that is undone by putting the old row back goes undetected.
        silent = set(self.touched_calls)
        facts: list[PendingEvent] = []
        system_facts: list[PendingEvent] = []
        for fact in self.pending_events:
            silent.discard(fact.call)
            (system_facts if fact.system else facts).append(fact)
        if silent:
            raise IllegalMove(f"call {min(silent)} changed without an event: report this bug")
        if facts:
            self.moves_thread = True
            self.thread = self._chained(self.thread, facts)
        if system_facts:
            self.system = self._chained(self.system or Thread(id=SYSTEM_THREAD), system_facts)

    def close(self) -> None:
        """Chain the events and authenticate every row to be written. Call this once, at the end.

        Each row contains the number of the chain's last event, which is known only here.
        """
        if self.writes or self.messages or self.new_run:
            self._add_row_changes()
        self._chain_events()
        mac = self.deps.mac
        seq = self.thread.seq
        if self.run is not None and self.run_touched:
            run_mac = values_mac(Run, self.run, mac, seq)
            self.run = tuple.__new__(Run, (*self.run[:-2], seq, run_mac))
        for call_id, call in self.touched_calls.items():
            values = call_values(call)
            call_mac = values_mac(Call, values, mac, seq)
            call = tuple.__new__(Call, (*call[:-2], seq, call_mac))
            self.touched_calls[call_id] = self.calls[call_id] = call
            self.call_values[call_id] = (*values[:-2], seq, call_mac)
        for grant_id, grant in self.touched_grants.items():
            self.touched_grants[grant_id] = replace(grant, mac=row_mac(grant, mac))
        self.grants.update(self.touched_grants)
        for refusal_id, refusal in self.touched_refusals.items():
            self.touched_refusals[refusal_id] = replace(refusal, mac=row_mac(refusal, mac))
        self.refusals.update(self.touched_refusals)
        if self.taken_effects:
            self.taken_effects = _with_macs(self.taken_effects, mac)
        if self.touched_budgets:
            self.touched_budgets = _with_macs(self.touched_budgets, mac)
        if self.touched_people or self.touched_credentials:
            self.touched_people = _with_macs(self.touched_people, mac)
            self.touched_credentials = _with_macs(self.touched_credentials, mac)
        if self.messages:
            self.messages = [m._replace(mac=row_mac(m, mac)) for m in self.messages]

    def as_written(self, value: Any) -> Any:
        """Return the result of a command as its row was written, with ``seq`` and MAC."""
        kind = type(value)
        if kind is Call:
            return self.touched_calls.get(value.id, value)
        if kind is Run:
            same = self.run_touched and self.run is not None and self.run.id == value.id
            return self.run if same else value
        if kind is tuple:
            return tuple(map(self.as_written, value))
        if kind is Grant:
            return self.touched_grants.get(value.id, value)
        if kind is Refusal:
            return self.touched_refusals.get(value.id, value)
        if kind is Person:
            return self.touched_people.get(value.name, value)
        if kind is Credential:
            return self.touched_credentials.get(value.id, value)
        return value


def _with_macs(rows: dict[str, T], mac: Callable[[bytes], str]) -> dict[str, T]:
    return {name: row._replace(mac=row_mac(row, mac)) for name, row in rows.items()}


def check_not_put_back(
    deps: EngineDeps, thread: Thread, rows: Sequence[Call | Run], events: Sequence[Event]
) -> None:
    """Raise ``Tampered`` if one of these stored rows is older than an event about it.

    A row with a valid MAC may still be an old one that was put back: a call that was recorded
    is ready again, a run that finished is due. But each row says how many events its thread had
    (``seq``), and every event about a call or a run writes its row. So the events since then, up to
    the head that the thread's MAC proves, must be whole, and none of them may name the row.
    ``events`` begin with the one that the oldest row names.
    """
    last = None
    oldest = min(row.seq for row in rows)
    for event in events:
        expected = oldest if last is None else last.seq + 1
        chained = last is None or deps.check_link(link_bytes(last.hash, event), event.hash)
        if event.seq != expected or not chained:
            break
        for row in rows:
            subject = event.call if isinstance(row, Call) else event.run
            if subject == row.id and event.seq > row.seq:
                raise Tampered(
                    f"{row.id} was not used: its row was put back to an earlier state, before "
                    f"event {event.seq} ({event.type}) of thread {thread.id}. Run `sayso audit "
                    "verify`, then bring the row back from a backup, or ask again in a new run"
                )
        last = event
    if last is None or (last.seq, last.hash) != (thread.seq, thread.head):
        where = oldest if last is None else last.seq + 1
        raise Tampered(
            f"{rows[0].id} was not used: the events of thread {thread.id} were changed or deleted "
            f"from {where} on, so its state is unknown. Run `sayso audit verify`, then bring them "
            "back from a backup, or ask again in a new run"
        )


def messages_hash(messages: Iterable[StoredMessage]) -> str:
    """Return what the chain stores of messages: a hash over their numbers, runs and bodies."""
    return sha256_hex(dumps([[message.seq, message.run, message.body] for message in messages]))


def sha256_hex(text: str) -> str:
    """Return the hash of a text as it is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def link_bytes(previous: str, event: Event) -> bytes:
    """Return what the hash of an event covers: the event and the hash before it."""
    e = event
    covered = (previous, e.thread, e.seq, e.at, e.type, e.run, e.call, e.actor, e.digest)
    return dumps(covered).encode("utf-8", "surrogatepass")
