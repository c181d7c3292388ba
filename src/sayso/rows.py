"""The rows of the store: one per call, run, thread, tool, person, credential, message and event.

Pure values like ``sayso.types``. Only the engine changes them, and only stores write them. They are
named tuples, not dataclasses, because one transaction makes dozens of them, and a tuple is created
and changed (``_replace``) in a fifth of the time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from operator import attrgetter
from typing import Any, NamedTuple

from sayso.frozen import quickly_made
from sayso.types import (
    GROUP,
    MODEL,
    Decided,
    Grant,
    Micros,
    Refusal,
    Reviewer,
    Risk,
    Terms,
    Verdict,
    Vote,
    look_of,
)

#: The thread for events that belong to no conversation: grants, tokens, recoveries.
SYSTEM_THREAD = "@system"


class CallStatus(StrEnum):
    """The status of a call. The legal moves are in ``sayso.engine.moves``."""

    ASKED = "asked"
    READY = "ready"
    RUNNING = "running"
    RELEASED = "released"
    DONE = "done"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    REJECTED = "rejected"
    RESPONDED = "responded"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


#: The statuses that a call can still leave.
OPEN = frozenset({CallStatus.ASKED, CallStatus.READY, CallStatus.RUNNING, CallStatus.IN_DOUBT})


class RunStatus(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE = frozenset({RunStatus.RUNNING, RunStatus.PAUSED})


#: The start of the id of a grant that is trust in a run.
WINDOW_ID = "win_"
#: The start of the id of a grant that is an approved plan.
PLAN_ID = "pln_"
_GRANT_SOURCES = {WINDOW_ID: "window", PLAN_ID: "plan"}
#: ``Call.caller`` of a call whose caller was told that there is no answer yet.
LATER = "later"
#: The start of ``Call.caller`` if its agent gives each tool use an id of its own.
TOOL_USE = "use:"
#: How many calls of a run are recent: an agent makes few at once.
RECENT_CALLS = 100


#: The possible answers of ``settle=`` about a call in doubt.
SETTLEMENTS: tuple[str, ...] = ("ran", "did_not_run", "unknown")


class Doubt(NamedTuple):
    """What is known about the last doubt of a call, besides its result.

    ``settle=`` of its tool may be called once, from ``ask_at`` on: when the attempt has ended, or
    the process that ran it has certainly lost its lease.
    """

    ask_at: Micros
    #: One of ``SETTLEMENTS``, once ``settle=`` was called.
    answer: str = ""
    #: The evidence, or why there is no answer.
    said: str = ""
    at: Micros = 0
    #: Whether the attempt is known to have ended, with an exception. Otherwise it may still run.
    ended: bool = False
    #: Why the outcome is unknown.
    reason: str = ""
    #: Until when the attempt is known to run: its process renews this while it is in the body.
    running_until: Micros = 0


class Call(NamedTuple):
    """A call that an agent made, from its proposal to its result."""

    id: str
    run: str
    thread: str
    key: str
    kind: str
    agent: str
    tool: str
    tool_digest: str
    args: str
    args_hash: str
    nonce: str
    terms: Terms
    created: Micros
    #: The requester of the run, here too, so that a list of requests reads one table.
    requester: str = ""
    digest: str = ""
    rev: int = 1
    binds: str = ""
    #: The title of the request, made by the tool's template or by the code that asks.
    title: str = ""
    note: str = ""
    preview: str = ""
    status: CallStatus = CallStatus.READY
    asked: bool = False
    original: str | None = None
    #: The arguments as the model or a person's edit wrote them, if a framework's validators make
    #: others of them (``args``, which people see and rules judge). The framework validates these
    #: again when the call runs.
    written: str | None = None
    expires_at: Micros | None = None
    votes: tuple[Vote, ...] = ()
    decision: Decided | None = None
    valid_until: Micros | None = None
    grant: str | None = None
    attempt: int = 0
    token: int = 0
    result: str | None = None
    #: Makes its effect unique in the store; see ``sayso.engine.effects``.
    effect_key: str = ""
    #: Its tool has ``settle=``, so that a doubt makes the run due.
    settles: bool = False
    doubt: Doubt | None = None
    #: Who waits for the answer, if an agent elsewhere asks and runs the call itself: its tool use,
    #: or ``LATER``. Empty for all other calls. See ``engine.proposing``.
    caller: str = ""
    #: The refusals of equal calls that people are shown, newest first.
    refusals: tuple[str, ...] = ()
    #: When people are reminded of the request, and when it escalates; None if never, or no more.
    reminds_at: Micros | None = None
    escalates_at: Micros | None = None
    #: Whether ``escalate_to`` of the terms may decide it too.
    escalated: bool = False
    #: The number of the thread's last event when this row was written.
    seq: int = 0
    mac: str = ""

    @property
    def reviewers(self) -> tuple[str, ...]:
        """The people and groups who may decide it now; empty for everyone."""
        terms = self.terms
        if not self.escalated or not terms.reviewers:
            return terms.reviewers
        return tuple(dict.fromkeys((*terms.reviewers, *terms.escalate_to)))

    @property
    def is_read(self) -> bool:
        """Whether running it changes nothing, so that it may run any number of times."""
        return self.terms.effect == "read"

    @property
    def under_way(self) -> bool:
        """Whether an attempt was started, and neither recorded nor settled since.

        A read may be under way in several processes at once, while its status is ready.
        """
        if self.status is CallStatus.READY:
            return self.attempt > 0 and self.is_read
        return self.status is CallStatus.RUNNING

    @property
    def held(self) -> Decided | None:
        """The decision that was made and has not taken effect, because it can still be undone."""
        return self.decision if self.status is CallStatus.ASKED else None

    @property
    def as_asked(self) -> Call:
        """The row as its agent may see it: a decision that can be undone is not made yet."""
        is_held = self.status is CallStatus.ASKED and self.decision is not None
        return self._replace(decision=None) if is_held else self

    @property
    def due_at(self) -> Micros | None:
        """When the clock changes a request that is asked about: it is decided, or expires."""
        if self.status is not CallStatus.ASKED:
            return None
        return self.expires_at if self.decision is None else self.decision.not_before

    @property
    def step_at(self) -> Micros | None:
        """When people are reminded of a request that nobody has decided, or when it escalates."""
        if self.status is not CallStatus.ASKED or self.decision is not None:
            return None
        if self.reminds_at is None or self.escalates_at is None:
            return self.reminds_at or self.escalates_at
        return min(self.reminds_at, self.escalates_at)

    @property
    def unsettled(self) -> Doubt | None:
        """The doubt of this call, if ``settle=`` was not called about it yet."""
        doubt = self.doubt if self.status is CallStatus.IN_DOUBT else None
        return None if doubt is None or doubt.answer else doubt

    def attempt_runs(self, now: Micros) -> bool:
        """Return whether the attempt in doubt is known to run."""
        doubt = self.doubt if self.status is CallStatus.IN_DOUBT else None
        return doubt is not None and doubt.running_until > now

    def overdue(self, now: Micros) -> bool:
        """Return whether the request has expired, or its decision takes effect now."""
        if self.status is not CallStatus.ASKED:
            return False
        ends = self.expires_at if self.decision is None else self.decision.not_before
        return ends is not None and ends <= now

    def is_due(self, step_at: Micros | None, now: Micros) -> bool:
        """Return whether a step of this request is due: ``reminds_at`` or ``escalates_at``."""
        is_open = self.step_at is not None and not self.overdue(now)
        return is_open and step_at is not None and step_at <= now

    def askable(self, now: Micros) -> bool:
        """Return whether ``settle=`` may be called about this call now, and was not yet."""
        doubt = self.unsettled
        return doubt is not None and doubt.ask_at <= now

    def can_be_joined_by(self, caller: str) -> bool:
        """Return whether a caller that makes the same call again may wait for this one."""
        if self.status is CallStatus.RELEASED:
            return False  # its answer was delivered
        waits = self.status in (CallStatus.ASKED, CallStatus.READY)
        same = caller.startswith(TOOL_USE) and caller == self.caller
        return self.caller == LATER or (waits and same)

    @property
    def source(self) -> str:
        """What decided: a ``person``, a ``model``, a ``grant``, a ``window`` of trust in the run, a
        ``plan``, a ``rule`` of the user, or a ``preset``."""
        decided = "" if self.decision is None else self.decision.type
        if self.decision is not None and self.decision.by.startswith(MODEL):
            return "model"
        if decided in ("allow", "deny"):
            return "preset" if self.terms.preset else "rule"
        if decided == "grant":
            return _GRANT_SOURCES.get((self.grant or "")[: len(PLAN_ID)], "grant")
        return "person"

    @property
    def args_to_run(self) -> str:
        """The arguments that are passed on when it runs, and that a person edits."""
        return self.args if self.written is None else self.written


#: The names of runs that are made for one call, outside of ``gate.run``.
MADE_FOR_ONE = re.compile("run_[0-9a-f]{16}")


class Run(NamedTuple):
    """One execution of an agent; also its own entry in the queue.

    ``ready_at`` is when a process may take it; while ``owner`` works on it, that is the end of the
    lease. The four counters are the numbers of its open calls, so that no command has to count
    rows.
    """

    id: str
    thread: str
    agent: str
    created: Micros
    agent_digest: str = ""
    requester: str = ""
    parent_call: str | None = None
    status: RunStatus = RunStatus.RUNNING
    stop: str = ""
    wake: int = 0
    token: int = 0
    owner: str | None = None
    ready_at: Micros | None = None
    asked: int = 0
    ready: int = 0
    running: int = 0
    in_doubt: int = 0
    snapshot: str | None = None
    output: str | None = None
    #: What its refusals last for (``sayso.engine.refusals``). Empty: until the next user text.
    scope: str = ""
    #: How many calls of a tool people rejected in a row, if its rule limits that: a JSON object.
    rejections: str = ""
    #: The number of the thread's last event when this row was written.
    seq: int = 0
    mac: str = ""

    @property
    def is_open(self) -> bool:
        """Whether one of its calls is open: it waits, may start, runs, or is in doubt."""
        return bool(self.asked or self.ready or self.running or self.in_doubt)

    @property
    def made_for_one(self) -> bool:
        """Whether it was made for a call outside of ``gate.run``, which also ends it."""
        return self.thread == self.id and MADE_FOR_ONE.fullmatch(self.id) is not None

    def leased(self, now: Micros) -> bool:
        """Return whether a process holds the run right now."""
        return self.owner is not None and self.ready_at is not None and self.ready_at > now

    def lapsed(self, now: Micros) -> bool:
        """Return whether a process held the run, and its lease is over."""
        return self.owner is not None and not self.leased(now)

    def due(self, now: Micros) -> bool:
        """Return whether the run can be claimed: it is ready, and no lease is live."""
        return self.ready_at is not None and self.ready_at <= now


def _replace_in(kind: type[Call | Run]) -> Callable[..., Any]:
    """Return a faster ``_replace`` for rows of many fields: it looks only at those that change."""
    places = {name: place for place, name in enumerate(kind._fields)}

    def replace(row: Call | Run, /, **changes: Any) -> Any:
        values: list[Any] = list(row)
        for name, value in changes.items():
            values[places[name]] = value
        return tuple.__new__(kind, values)

    return replace


for _kind in (Call, Run):
    setattr(_kind, "_replace", _replace_in(_kind))  # noqa: B010 - mypy would have it a method


class EffectKey(NamedTuple):
    """An effect that has happened, or may have. No other call with its key starts."""

    key: str
    call: str
    run: str
    thread: str
    agent: str
    requester: str
    created: Micros
    mac: str = ""


class Spent(NamedTuple):
    """What one call added to a budget, and when."""

    at: Micros
    #: The call; "" if several were joined.
    call: str
    #: Stands for a value whose occurrences are counted.
    value: str
    #: A decimal number as text.
    number: str


class Budget(NamedTuple):
    """What calls have added up to, for the limits of a rule or a grant (``engine.budgets``)."""

    key: str
    #: The limits that count it, the newest last, as text.
    limits: tuple[str, ...] = ()
    #: How long an entry counts at most.
    keep: Micros = 0
    entries: tuple[Spent, ...] = ()
    #: When the last entry does not count any more.
    until: Micros = 0
    mac: str = ""


class Thread(NamedTuple):
    """One conversation: the lock that every write takes, and the head of its chain."""

    id: str
    owner: str = ""
    #: The number of the last message, and the numbers of pruned messages, as in ``1-4,9-12``.
    messages: int = 0
    messages_pruned: str = ""
    seq: int = 0
    head: str = ""
    created: Micros = 0
    mac: str = ""
    #: How far the chain is sealed, and 1 if it has moved since. Not under the MAC, because sealing
    #: writes them without the lock.
    sealed: int = 0
    moved: int = 1

    def kept_messages(self, first: int, last: int) -> list[int]:
        """Return the numbers of the messages between two numbers that were not pruned."""
        numbers: list[int] = []
        first = max(first, 1)
        for gone, until in _ranges(self.messages_pruned):
            numbers += range(first, min(gone, last + 1))
            first = max(first, until + 1)
        return [*numbers, *range(first, min(last, self.messages) + 1)]

    def kept_up_to(self, last: int) -> int:
        """Return how many messages up to a number were not pruned."""
        ranges = _ranges(self.messages_pruned)
        pruned = sum(min(until, last) - gone + 1 for gone, until in ranges if gone <= last)
        return min(last, self.messages) - pruned

    def without_messages(self, numbers: Iterable[int]) -> Thread:
        """Return the thread after these messages were pruned."""
        gone: list[tuple[int, int]] = []
        singles = [(number, number) for number in numbers]
        for first, last in sorted([*_ranges(self.messages_pruned), *singles]):
            if gone and first <= gone[-1][1] + 1:
                gone[-1] = (gone[-1][0], max(last, gone[-1][1]))
            else:
                gone.append((first, last))
        return self._replace(messages_pruned=",".join(f"{a}-{b}" for a, b in gone))


def _ranges(text: str) -> list[tuple[int, int]]:
    pairs = (part.split("-") for part in text.split(",") if part)
    return [(int(first), int(last)) for first, last in pairs]


#: The prefix of the digest of a tool that the model's provider hosts. Such a tool has no row.
HOSTED = "hosted:"


class Tool(NamedTuple):
    """A tool as it was when a call was made; stored once per digest.

    It has no MAC: its digest, which calls name and people approve, covers all of it.
    """

    digest: str
    name: str
    schema: str
    description: str = ""
    version: str = ""
    #: The title of its requests: a text with argument names in braces, or empty.
    title: str = ""

    @classmethod
    def of(
        cls, name: str, schema: str, description: str = "", version: str = "", title: str = ""
    ) -> Tool:
        """Make the row of a tool, under its digest."""
        return cls("", name, schema, description, version, title).redigested()

    def redigested(self) -> Tool:
        """Return the tool with the digest that it must have."""
        parts = json.dumps(["tool", 1, *self[1:]]).encode()
        return self._replace(digest=hashlib.sha256(parts).hexdigest())


ROLES: tuple[str, ...] = ("agent", "chat", "reviewer", "admin")
#: The roles of people who may decide what others asked for.
DECIDERS = ("reviewer", "admin")
#: How many people a decision names who could have made it.
MOST_NAMED = 20
_MOST_REMEMBERED = 256


class Person(NamedTuple):
    """A person or an agent. The name identifies them for good: nobody else can have it later."""

    name: str
    #: The name as people see it (``sayso.types.look_of``): no two rows look alike.
    look: str
    role: str
    groups: tuple[str, ...] = ()
    mail: str = ""
    #: ``local``, or the issuer and the subject of an OpenID provider as a JSON array.
    origin: str = "local"
    #: ``active`` or ``removed``.
    status: str = "active"
    created: Micros = 0
    changed: Micros = 0
    #: Credentials and votes from before this time do not count.
    since: Micros = 0
    #: Who decides for this person until ``away_until``.
    stand_in: str = ""
    away_until: Micros | None = None
    #: When messages reach them (``inbox.notices``), as JSON; "" for at once.
    notices: str = ""
    #: Made with the decision key: the row key alone cannot add a person or change their rights.
    signature: str = ""
    mac: str = ""

    @property
    def kind(self) -> str:
        """``agent`` or ``person``."""
        return "agent" if self.role == "agent" else "person"

    @property
    def active(self) -> bool:
        return self.status == "active"

    @property
    def names(self) -> frozenset[str]:
        """The names by which rules can mean this person: their own and ``group:...``."""
        return frozenset((self.name, *(f"{GROUP}{name}" for name in self.groups)))

    def has_stand_in(self, name: str, now: Micros) -> bool:
        """Return whether another person decides for this one at that time."""
        away = self.away_until is not None and now < self.away_until
        return self.active and away and self.stand_in == name


class Directory:
    """The active people of a store, as they were at one event of the system thread."""

    def __init__(self, people: Iterable[Person] = (), seq: int = 0, head: str = "") -> None:
        self.seq = seq
        #: The hash of that event. If it was rolled back, another one has its number.
        self.head = head
        self.by_look = {person.look: person for person in people if person.active}
        self.away = [person for person in self.by_look.values() if person.stand_in]
        self._eligible: dict[object, tuple[tuple[str, ...], str]] = {}

    def later(self, changed: Iterable[Person], seq: int, head: str) -> Directory:
        """Return the people at a later event, of whom these have changed since."""
        people = {**self.by_look, **{person.look: person for person in changed}}
        return Directory(people.values(), seq, head)

    def at(self, seq: int, head: str) -> Directory:
        """Return the same people at a later event, which changed nobody."""
        later = copy(self)
        later.seq = seq
        later.head = head
        return later

    def person(self, name: str) -> Person | None:
        person = self.by_look.get(look_of(name))
        return None if person is None or person.name != name else person

    def eligible(
        self, reviewers: tuple[str, ...], also: set[str], never: set[str]
    ) -> tuple[tuple[str, ...], str]:
        """Return who may decide what is for these people and groups: their names, or a hash.

        A hash stands for too many names; it begins with their number.
        """
        key = (reviewers, frozenset(also), frozenset(never))
        eligible = self._eligible.get(key)
        if eligible is None:
            deciders = {
                person.name
                for person in self.by_look.values()
                if person.role in DECIDERS
                and (not reviewers or not person.names.isdisjoint(reviewers))
            }
            names = tuple(sorted((deciders | also) - never))
            eligible = (names, "")
            if len(names) > MOST_NAMED:
                digest = hashlib.sha256(dumps(names).encode("utf-8", "surrogatepass"))
                eligible = ((), f"{len(names)}:{digest.hexdigest()}")
            if len(self._eligible) >= _MOST_REMEMBERED:
                self._eligible.clear()
            self._eligible[key] = eligible
        return eligible


class Confirmation(NamedTuple):
    """A passkey's signature under one decision. Whoever makes one has checked the signature."""

    #: The hash of the passkey's id, as its credential has it, and the public key.
    hash: str
    public_key: str
    #: What the event keeps, so that anyone can check it again (``sayso.passkeys.Assertion``).
    evidence: dict[str, Any]


@quickly_made
@dataclass(frozen=True, slots=True)
class Proven(Reviewer):
    """A person with the rights that they have now. Only ``engine.people.rights_of`` makes one.

    ``proof`` is the hash of a credential's secret, or ``"process"``. The other fields are looked up
    from it again for every decision, so they are not trusted.
    """

    proof: str = ""
    #: The rows of the people for whom this person decides while they are away.
    stands_for: tuple[Person, ...] = ()
    #: When they signed in; 0 if this is no session.
    signed_in: Micros = 0
    #: The passkey with which they confirmed this decision.
    confirmation: Confirmation | None = None


class Credential(NamedTuple):
    """What proves who a person is: a token, a sign-in link, a session, a passkey or an account.

    Secrets are hashed. A passkey has none here: its hash is that of its id; that of a linked
    account (``chat``) is that of its name, and nobody can present it but the account's platform. A
    subscription (``push``) proves nothing: messages are sent to it.
    """

    id: str
    hash: str
    #: The name of the person or agent.
    person: str
    #: ``token``, ``link``, ``session``, ``passkey``, ``chat`` (an account of a chat platform),
    #: ``code`` (which links one) or ``push`` (a browser that gets push messages).
    kind: str
    #: The most that this credential allows, whatever the role of the person.
    role: str
    assurance: str
    #: The credential that opened this one, which ends with it.
    opened_by: str = ""
    #: The browser and the address that opened it, as the server saw them; of a ``chat``, its
    #: account; of a ``push``, its ``Subscription``. ``views.device_of`` is what people may see.
    device: str = ""
    #: Of a passkey: its algorithm and its key.
    public_key: str = ""
    #: Of a session: when the person proved who they are.
    signed_in: Micros = 0
    created: Micros = 0
    #: When it ends at the latest.
    ends: Micros | None = None
    #: How long it stays valid without being used.
    idle: Micros | None = None
    last_used: Micros = 0
    revoked: Micros | None = None
    #: Made with the decision key: the row key alone cannot create a credential. It covers all
    #: fields but ``last_used``.
    signature: str = ""
    mac: str = ""

    @property
    def valid_until(self) -> Micros | None:
        """When it ends if it is not used again; ``None`` for never."""
        idle_end = None if self.idle is None else self.last_used + self.idle
        return min((end for end in (self.ends, idle_end) if end is not None), default=None)

    def live(self, now: Micros) -> bool:
        """Return whether it is still valid at that time."""
        end = self.valid_until
        return self.revoked is None and (end is None or now < end)


class Delivery(NamedTuple):
    """A message to one target about one request: to be sent, sent, or closed (``channels.kit``).

    It gives no right, so it has no MAC: who clicks a button is authenticated, and the request is
    read again. ``next_at`` is when to send, update or forget it; messages are sent in its order. A
    row with ``next_at`` ``None`` waits for nothing.
    """

    #: A hash of what makes it unique: channel, target, request, digest and step.
    id: str
    channel: str
    #: The platform's address: a chat, a mailbox.
    target: str
    #: The person whose address it is; "" for a shared channel.
    person: str
    request: str
    #: The digest of the request when the message was planned.
    digest: str
    #: Why it is sent: ``asked``, ``reminder-1``, ``escalated``, ``digest``; for a webhook, the
    #: number of the event.
    step: str
    created: Micros
    #: ``due``, ``sent``, ``updating``, ``closed`` or ``dead``; ``seen`` until it is deleted, by
    #: ``gone``.
    state: str = "due"
    #: The platform's ids of the message, as JSON.
    message: str = ""
    #: Random; the buttons of the message repeat it.
    nonce: str = ""
    attempts: int = 0
    next_at: Micros | None = None
    #: Why the last attempt failed.
    error: str = ""
    #: How often the row was written; a write names the version that it replaces.
    version: int = 0


class LiveProcess(NamedTuple):
    """A process that has the store open, as it says itself (``stores.sql.presence``).

    It gives no right, so it has no MAC: who can write to the table can hide a process.
    """

    id: str
    host: str
    pid: int
    #: ``sayso serve``, or the name of a script.
    program: str
    #: The version of Sayso.
    version: str
    #: The version of the tables that it reads and writes.
    schema_version: int
    #: The ids of its keys; the first one signs.
    keys: tuple[str, ...]
    #: The ids of its row keys; the first one authenticates what it writes.
    row_keys: tuple[str, ...]
    started: Micros
    #: Its last heartbeat.
    seen: Micros

    @property
    def title(self) -> str:
        """What people look for on a machine."""
        return f"{self.program} on {self.host} (process {self.pid})"


class Event(NamedTuple):
    """A fact that is only added, never changed: one link of its thread's chain."""

    thread: str
    seq: int
    at: Micros
    type: str
    actor: str
    body: str | None
    digest: str
    hash: str
    run: str = ""
    call: str = ""
    pos: int = 0


class Message(NamedTuple):
    """One entry of a conversation, appended and never rewritten."""

    run: str
    body: str


class StoredMessage(NamedTuple):
    """A message with its thread and number."""

    thread: str
    seq: int
    run: str
    body: str
    mac: str = ""


# -- the fields that hold structure, as text

_DEFAULTS = {field.name: getattr(Terms(), field.name) for field in fields(Terms)}
_TUPLES = [name for name, default in _DEFAULTS.items() if type(default) is tuple]
#: The fields of these are stored in their order.
_FIELDS = {kind: [field.name for field in fields(kind)] for kind in (Vote, Decided, Grant, Refusal)}
_fields_of = {kind: attrgetter(*names) for kind, names in _FIELDS.items()}


def json_encoder(*, sort_keys: bool = False) -> Callable[[object], str]:
    """Return a function that writes JSON without spaces. It does not look for cycles.

    ``JSONEncoder.encode`` makes its C encoder again for each value, which takes longer than most
    values do.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        check_circular=False,
        separators=(",", ":"),
        sort_keys=sort_keys,
    )
    if c_make_encoder is None:
        return encoder.encode
    parts = c_make_encoder(
        None, encoder.default, encode_basestring, None, ":", ",", sort_keys, False, False
    )
    return lambda value: "".join(parts(value, 0))


#: Writes compact JSON for a row of our own.
dumps = json_encoder()
#: The same, with keys in order.
sorted_dumps = json_encoder(sort_keys=True)


def names_text(names: tuple[str, ...]) -> str:
    return dumps(names)


# Rows are written and read several times while their terms, votes and decision stay as they are, so
# each of these keeps its text.


def _fields_text(value: Vote | Decided) -> str:
    text = dumps(_fields_of[type(value)](value))
    object.__setattr__(value, "text", text)
    return text


def terms_text(terms: Terms) -> str:
    """Return terms as text, without those that have their default value."""
    changed: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(terms, name)
        if value != default:
            changed[name] = value
    if "risk" in changed:
        changed["risk"] = [terms.risk.level, *terms.risk.reasons]
    object.__setattr__(terms, "text", dumps(changed))
    return terms.text


@lru_cache(maxsize=1024)
def terms_from(text: str) -> Terms:
    values = json.loads(text)
    for name in _TUPLES:
        if name in values:
            values[name] = tuple(values[name])
    if "risk" in values:
        level, *reasons = values["risk"]
        values["risk"] = Risk(level, tuple(reasons))
    if "verdict" in values:
        values["verdict"] = Verdict(values["verdict"])
    return Terms(**values)


def votes_text(votes: tuple[Vote, ...]) -> str:
    texts = []
    for vote in votes:
        texts.append(getattr(vote, "text", "") or _fields_text(vote))
    return f"[{','.join(texts)}]"


@lru_cache(maxsize=256)
def votes_from(text: str) -> tuple[Vote, ...]:
    if not text:
        return ()
    return tuple(Vote(**_named(Vote, values)) for values in json.loads(text))


def _named(kind: type[Vote] | type[Decided], values: Sequence[Any]) -> dict[str, Any]:
    fields = dict(zip(_FIELDS[kind], values, strict=True))
    return {**fields, "eligible": tuple(fields["eligible"])}


@lru_cache(maxsize=256)
def decision_from(text: str | None) -> Decided | None:
    if text is None:
        return None
    return Decided(**_named(Decided, json.loads(text)))


def doubt_text(doubt: Doubt | None) -> str | None:
    return None if doubt is None else dumps(list(doubt))


def doubt_from(text: str | None) -> Doubt | None:
    return None if text is None else Doubt(*json.loads(text))


# -- rows as the values of their columns, in the order of their fields

#: The values of one row; a SELECT may have more columns after those of the table.
Row = Sequence[Any]

_THREAD, _RUN, _CALL, _EVENT = map(len, (Thread._fields, Run._fields, Call._fields, Event._fields))
_RUN_STATUS = Run._fields.index("status")
_TERMS, _STATUS, _ASKED, _VOTES, _DECISION, _SETTLES, _DOUBT, _REFUSALS, _ESCALATED = map(
    Call._fields.index,
    ("terms", "status", "asked", "votes", "decision", "settles", "doubt", "refusals", "escalated"),
)
_GROUPS = Person._fields.index("groups")
_PERSON = len(Person._fields)


def thread_from(row: Row) -> Thread:
    return Thread._make(row[:_THREAD])


def run_from(row: Row) -> Run:
    values = list(row[:_RUN])
    values[_RUN_STATUS] = RunStatus(values[_RUN_STATUS])
    return Run._make(values)


def run_values(run: Run) -> tuple[Any, ...]:
    values: list[Any] = list(run)
    values[_RUN_STATUS] = run.status._value_  # a plain str binds faster than an enum
    return tuple(values)


def call_from(row: Row) -> Call:
    values = list(row[:_CALL])
    values[_TERMS] = terms_from(values[_TERMS])
    values[_STATUS] = CallStatus(values[_STATUS])
    values[_ASKED] = bool(values[_ASKED])
    values[_VOTES] = votes_from(values[_VOTES])
    values[_DECISION] = decision_from(values[_DECISION])
    values[_SETTLES] = bool(values[_SETTLES])
    values[_DOUBT] = doubt_from(values[_DOUBT])
    values[_REFUSALS] = tuple(json.loads(values[_REFUSALS])) if values[_REFUSALS] else ()
    values[_ESCALATED] = bool(values[_ESCALATED])
    return Call._make(values)


def call_values(call: Call) -> tuple[Any, ...]:
    values: list[Any] = list(call)
    values[_TERMS] = getattr(call.terms, "text", "") or terms_text(call.terms)
    values[_STATUS] = call.status._value_
    values[_ASKED] = int(call.asked)
    values[_VOTES] = votes_text(call.votes) if call.votes else ""
    if call.decision is not None:
        values[_DECISION] = getattr(call.decision, "text", "") or _fields_text(call.decision)
    values[_SETTLES] = int(call.settles)
    values[_DOUBT] = None if call.doubt is None else dumps(list(call.doubt))
    values[_REFUSALS] = dumps(call.refusals) if call.refusals else ""
    values[_ESCALATED] = int(call.escalated)
    return tuple(values)


def event_from(row: Row) -> Event:
    return Event._make(row[:_EVENT])


def person_from(row: Row) -> Person:
    values = list(row[:_PERSON])
    values[_GROUPS] = tuple(json.loads(values[_GROUPS]))
    return Person._make(values)


def person_values(person: Person) -> tuple[Any, ...]:
    values: list[Any] = list(person)
    values[_GROUPS] = dumps(person.groups)
    return tuple(values)


credential_from = Credential._make


_STEPS = _FIELDS[Grant].index("steps")


def grant_values(grant: Grant) -> tuple[Any, ...]:
    values: list[Any] = list(_fields_of[Grant](grant))
    values[_STEPS] = dumps(grant.steps) if grant.steps else ""
    return tuple(values)


def grant_from(row: Row) -> Grant:
    values = dict(zip(_FIELDS[Grant], row, strict=True))
    values["steps"] = tuple(json.loads(values["steps"])) if values["steps"] else ()
    return Grant(**values)


refusal_values = _fields_of[Refusal]


def refusal_from(row: Row) -> Refusal:
    return Refusal(**dict(zip(_FIELDS[Refusal], row, strict=True)))


effect_from = EffectKey._make


def budget_from(row: Row) -> Budget:
    key, limits, keep, entries, until, mac = row
    spent = tuple(Spent(*entry) for entry in json.loads(entries))
    return Budget(key, tuple(json.loads(limits)), keep, spent, until, mac)


def budget_values(budget: Budget) -> tuple[Any, ...]:
    key, limits, keep, entries, until, mac = budget
    return key, dumps(list(limits)), keep, dumps([list(e) for e in entries]), until, mac


message_from = StoredMessage._make
