"""The store contract, and the code that every store shares.

A store keeps rows and runs commands. ``transact`` is the only way to change anything: it takes the
thread's lock, loads the rows that the commands need, lets the pure engine change them, writes what
changed together with its events, and commits. When it returns, the change survives a power cut (as
far as the store promises durability at all). When it raises, nothing was changed.

Stores are synchronous, so each statement exists once. Async callers hand a whole transaction to a
worker thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from sayso import codec
from sayso.engine import Command, EngineDeps, UnitOfWork, apply
from sayso.engine.commands import Needs, Note
from sayso.engine.renewing import Renewal
from sayso.errors import Conflict, InvalidCall, NotFound
from sayso.forking import renew_in_child
from sayso.keys import Keyring
from sayso.rows import (
    Budget,
    Call,
    Credential,
    Delivery,
    EffectKey,
    Event,
    LiveProcess,
    Person,
    Run,
    StoredMessage,
    Thread,
    Tool,
)
from sayso.stores.seals import Seal
from sayso.types import Grant, Micros, Refusal

#: A position in the stream of events, opaque to callers; "" is before the first.
Cursor = str

#: Called before and after each commit with the commands' names; fault tests kill the process here.
Boundary = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which requests to list. ``status`` is a public status, ``"closed"`` or ``"any"``.

    ``text`` matches a request if each of its words starts a word of the tool, agent, description,
    title, short unmasked arguments, run or requester, or if all of it starts the id (at least three
    characters, with or without ``req_``).
    """

    status: str = "pending"
    kind: str | None = None
    agent: str | None = None
    #: Any of these agents.
    agents: tuple[str, ...] | None = None
    tool: str | None = None
    thread: str | None = None
    run: str | None = None
    text: str | None = None
    risk: str | None = None
    #: A part of a name, in lower case, by what it is part of: kind, agent, tool or risk.
    parts: tuple[tuple[str, str], ...] = ()
    #: Created at this time or later.
    created_after: Micros | None = None
    #: Created at this time or earlier.
    created_before: Micros | None = None
    #: Expires at this time or earlier.
    expires_by: Micros | None = None
    #: ``oldest``, ``newest``, or ``expiring`` (soonest first; fast for open requests only).
    sort: str = "oldest"
    #: The key of the last row of the previous page, as ``page`` returned it in the same order.
    after: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Whose requests to count. Without names: all of them."""

    #: The names of a person and of their groups; other people's requests are left out.
    names: frozenset[str] | None = None
    #: With names: leave out requests for everyone, unless one of these names asked for them.
    only_theirs: bool = False


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests that have these four in common, counted."""

    kind: str
    agent: str
    tool: str
    risk: str
    count: int
    #: When the first of them expires; ``None`` if none of them does.
    expires: Micros | None
    #: When the oldest of them was created.
    created: Micros
    #: Whether there may be more: a text is looked for in so many requests, and no more.
    at_least: bool = False

    def joined(self, other: RequestGroup | None) -> RequestGroup:
        """Return the same group with more requests."""
        if other is None:
            return self
        ends = [end for end in (self.expires, other.expires) if end is not None]
        return replace(
            self,
            count=self.count + other.count,
            expires=min(ends, default=None),
            created=min(self.created, other.created),
            at_least=self.at_least or other.at_least,
        )


#: How long other workers leave a due run to the one that has reserved it.
RESERVED_SECONDS = 2.0
#: Sorts requests without an expiry after all others.
NEVER: Micros = 1 << 62
_MOST = (1 << 63) - 1


def page_key(query: Query, n: int, expires_at: Micros | None) -> int:
    """Return the key of a row: its number, with its expiry in the upper bits if sorted by that."""
    if query.sort != "expiring":
        return n
    return (NEVER if expires_at is None else expires_at) << 64 | n % (1 << 64)


def page_start(query: Query) -> tuple[Micros, int]:
    """Return the expiry and the number to continue after. Accepts whatever a client sends."""
    end = 0
    n = query.after or 0
    if query.sort == "expiring":
        end, n = divmod(n, 1 << 64)
        n -= n >> 63 << 64  # the number of a row that was tampered with may be negative
    return max(min(end, _MOST), ~_MOST), max(min(n, _MOST), ~_MOST)


def age_key(at: Micros, name: str) -> str:
    """Return the key of a run or thread in a list sorted by age."""
    return f"{at}.{name}"


def age_start(after: str | None) -> tuple[Micros, str]:
    """Return the time and the id to continue after. Accepts whatever a client sends."""
    at, _, name = (after or "").partition(".")
    return (min(int(at), _MOST), name) if at.isdecimal() else (_MOST, "")


def position_of(cursor: Cursor) -> int:
    """Return the position in a cursor of a store that numbers events in commit order."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor) > _MOST:
        raise InvalidCall(f"{cursor!r:.60} is not a cursor: use one that the store returned")
    return int(cursor)


@dataclass(frozen=True, slots=True)
class Due:
    """A request of which something is due, or (``call`` is ``None``) a run past its lease."""

    thread: str
    run: str
    call: str | None


class SearchKey(NamedTuple):
    """What many calls have in common; ``id`` is a hash of all of it."""

    id: int
    kind: str
    agent: str
    tool: str
    risk: str
    words: tuple[str, ...]


class ListedCall(NamedTuple):
    """A call, and what lists and counts show it as."""

    call: Call
    list_status: str
    search_key: int
    #: Kind, agent, tool, risk and reviewers (as JSON) of its group; ``None`` if it is in none.
    group: tuple[str, ...] | None
    decided_by: str | None
    decided_at: Micros | None
    #: See ``listing.ListedDecision``.
    opened_at: Micros | None
    held_until: Micros | None
    #: The words to find it by, separated by spaces; ``None`` if the index lacks one of them.
    words: str | None


class Tally(NamedTuple):
    """How often something happened to the requests of a tool, in each of some periods."""

    #: ``asked``, ``expired``, or how a person decided: a public status.
    what: str
    kind: str
    tool: str
    counts: tuple[int, ...]


class DecisionTime(NamedTuple):
    """Decisions of one person that took about as long; ``listing.took_width`` says how about."""

    person: str
    approved: bool
    #: At least this many seconds.
    seconds: int


class Tallies(NamedTuple):
    """What happened to requests, counted."""

    tallies: list[Tally]
    #: How many decisions were made in all periods together.
    times: dict[DecisionTime, int]


class OpenAges(NamedTuple):
    """Open requests, counted by age."""

    total: int
    #: When the oldest was created.
    oldest: Micros | None
    #: How many were created in each of the periods.
    newer: tuple[int, ...]


class PoolUse(NamedTuple):
    """How this process uses its connections to a database."""

    size: int
    in_use: int
    #: How many callers wait for a connection now.
    waiting: int
    #: How often callers had to wait, and for how many seconds together.
    waits: int
    waited_seconds: float


#: How far vitals count, so that reading them takes milliseconds in a store of any size.
MOST_COUNTED = 10_000


class Backlog(NamedTuple):
    """Messages of a channel: how many failed and are tried again, and how many are due.

    A message is due if it should have been sent or updated ``since`` that time.
    """

    failing: int
    due: int
    since: Micros | None


class Vitals(NamedTuple):
    """Whether someone works on what a store holds. Counts stop at ``MOST_COUNTED``."""

    #: When the oldest open request was created.
    oldest_request: Micros | None
    #: Runs that a worker should resume and that no process has, and since when the first is due.
    runs_due: int
    runs_due_since: Micros | None
    #: Requests that expired and are still open, and when the first of them expired.
    overdue: int
    overdue_since: Micros | None
    #: Events that no seal covers, and when the first of them was written.
    unsealed: int
    unsealed_since: Micros | None
    #: Messages and webhooks that are not delivered yet, by channel.
    backlogs: dict[str, Backlog]
    #: ``None`` if callers never wait for a connection.
    pool: PoolUse | None = None


class Subscription(Protocol):
    """A listener that can be cancelled."""

    def cancel(self) -> None: ...


class StoreReads(Protocol):
    """The reads of a store. A row leaves it only if its MAC holds.

    Reading one row by its id raises ``Tampered`` if something without the row key changed it. A
    list (``page``, ``runs``, ``threads_of``, ``grants``, …) leaves such a row out and logs a
    warning. A thread's conversation and the calls of one run make sense only together, so one bad
    row raises ``Tampered`` for all of them.
    """

    url: str
    #: Identifies the store, whatever its address; a restored copy keeps it.
    incarnation: str
    keys: Keyring

    def now(self) -> Micros:
        """Return the store's time, the only clock that expiry and leases use."""

    def run(self, run_id: str) -> Run | None: ...
    def live_run(self, thread: str) -> Run | None: ...
    def last_run(self, thread: str) -> Run | None:
        """Return the live run of a thread, else the run of its last message."""

    def call(self, call_id: str) -> Call | None: ...
    def call_by_key(self, run: str, key: str) -> Call | None: ...
    def released_call(self, run: str, caller: str) -> Call | None:
        """Return the call of a run that was last released to this caller."""

    def released_use(self, run: str, tool_digest: str, args_hash: str) -> Call | None:
        """Return the last tool use with this content that was released and has no result yet.

        Looks at the ``RECENT_CALLS`` of the run only.
        """

    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        """Return the calls of a run, or those with one of these keys."""

    def calls_since(
        self, since: Micros, agent: str | None = None, tool: str | None = None
    ) -> Iterator[Call]:
        """Read all calls made since a time, newest first, also those that nobody was asked about.

        Or those of one agent, or of one tool. Each page is read when it is needed.
        """

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        """Return the ids that start with a prefix, for people who type the first letters."""

    def tool(self, digest: str) -> Tool | None: ...
    def messages(self, thread: str, after: int = 0) -> list[tuple[int, str]]:
        """Return the messages of a thread after a number."""

    def messages_beyond(self, thread: str, after: int, count: int) -> list[tuple[int, str]] | None:
        """Return the messages after a number, for a caller that has the ``count`` before them.

        Returns ``None`` if there are not that many up to this number: some were pruned since.
        """
        ...

    def stored_messages(
        self, thread: str, after: int = 0, limit: int = 1000
    ) -> list[StoredMessage]:
        """Return a page of a thread's messages with the run of each."""

    def page(self, query: Query) -> list[tuple[int, Call]]:
        """Return a page of requests, each with the key to continue after."""

    def quick_page(self, query: Query) -> tuple[list[tuple[int, Call]], int | None]:
        """Return what a short look finds of a page, and the key to continue after.

        ``None`` if the look was long enough: the page is full, or the list ends with it.
        """

    def groups(self, query: Query, viewer: Viewer) -> list[RequestGroup]:
        """Count the requests of a query in groups; its order, start and limit are ignored."""

    def tallies(self, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
        """Count what happened to requests in periods that begin at these times, in order.

        Each period ends where the next begins, and the last has no end. Times are rounded down to
        15 minutes. Counts the requests for everyone and those for one of the viewer's names; checks
        no MAC.
        """

    def open_ages(self, viewer: Viewer, since: Sequence[Micros]) -> OpenAges:
        """Count the open requests of the same viewer, and those created in each period."""

    def miscounted(self) -> int:
        """Return how many counts of open requests differ from the requests, for the audit."""

    def key_uses(self, most: int) -> dict[str, Counter[str]]:
        """Count the ids of the keys that live rows hold, by what the rows are."""

    def has_signed(self, key_id: str) -> bool:
        """Return whether a key has sealed the store, or the store was created with it."""

    def processes(self) -> list[LiveProcess]:
        """Return the processes that have the store open, as they say themselves."""

    def waiting(self) -> dict[str, int]:
        """Count the requests that need a person, as ``asked`` and ``in_doubt``."""

    def vitals(self) -> Vitals:
        """Return what monitoring wants to know, without a MAC check."""

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Run]]:
        """Return runs, newest first, each with the key to continue after."""

    def threads_of(
        self, owner: str, after: str | None = None, limit: int = 50
    ) -> list[tuple[str, Thread]]:
        """Return an owner's threads, newest first, each with the key to continue after."""

    def grants(self, *, live_only: bool = True) -> list[Grant]: ...
    def budgets(self) -> list[Budget]:
        """Return what the limits of rules and grants have counted."""

    def refusals(
        self, *, after: str | None = None, limit: int = 50, lifted: bool = False
    ) -> list[tuple[str, Refusal]]:
        """Return refusals, newest first, each with the key to continue after.

        With ``lifted``, also those that were lifted.
        """

    def refusal(self, refusal_id: str) -> Refusal | None: ...
    def refusals_of(self, agent: str, tool: str, args_hash: str) -> list[Refusal]:
        """Return the refusals of calls with this content that were not lifted, newest first.

        One bad row raises ``Tampered``: without it, a call might run that was rejected.
        """

    def people(self) -> list[Person]:
        """Return people and agents by name, removed ones too."""

    def person(self, name: str) -> Person | None:
        """Return the person of this name, or of one that looks like it."""

    def absent(self) -> list[Person]:
        """Return the people who have a stand-in."""

    def actor(self, name: str) -> tuple[Person | None, list[Person]]:
        """Return the person of this name, and the people whose stand-in has this name."""

    def credentials(self, person: str | None = None) -> list[Credential]:
        """Return all credentials, or those of a person, in the order in which they were made."""

    def credential(self, hash: str) -> Credential | None: ...
    def effect(self, key: str) -> EffectKey | None:
        """Return the row of an effect key: which call has had the effect, or may have."""

    def effects(self, after: str = "", limit: int = 1000) -> list[EffectKey]:
        """Return effect keys in order."""

    def overdue(self, limit: int = 100) -> list[Due]:
        """Return requests and runs of which something is due, on the store's clock.

        Requests that expired, escalate, or of which people are reminded; runs past their lease.
        """

    def next_due(self, after: Micros = 0) -> Micros | None:
        """Return the next time after ``after`` at which a request or a run is due."""

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        """Return runs of these agents that are due and not leased."""

    def open_runs(self) -> Iterable[Run]:
        """Return every run with a ready or running call: a restore puts these in doubt."""

    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]: ...
    def call_events(self, call_id: str, limit: int = 1000) -> list[Event]:
        """Return the events of one call, oldest first."""

    def thread(self, thread: str) -> Thread | None: ...
    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]: ...
    def cursor(self, name: str) -> str:
        """Return the position of a named cursor; "" if it never moved.

        The saved views of a person are kept like one: they are read and swapped in the same way.
        """

    def delivery(self, delivery_id: str) -> Delivery | None: ...
    def deliveries_of(self, request: str) -> list[Delivery]:
        """Return the messages about a request, oldest first."""

    def next_deliveries(self, channel: str, limit: int) -> list[Delivery]:
        """Return the messages of a channel that wait for something, the next one first."""

    def count_deliveries(self) -> dict[tuple[str, str], int]:
        """Count the messages by channel and state."""

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]: ...

    # -- for the audit, which reads everything

    def chains(self, threads: Sequence[str], limit: int) -> list[Event]:
        """Return the events of some threads, thread by thread."""

    def conversations(self, threads: Sequence[str], limit: int) -> list[StoredMessage]:
        """Return the messages of some threads, thread by thread."""

    def listed_calls(self, ids: Sequence[str]) -> list[ListedCall]:
        """Return calls with their entries in the list index."""

    def call_row(self, call_id: str) -> dict[str, Any] | None:
        """Return the columns of a call as they are stored, also if they cannot be decoded."""

    def has_search_key(self, key: SearchKey) -> bool:
        """Return whether a search key and its words are stored as they must be."""

    def runs_with_ids(self, ids: Sequence[str]) -> list[Run]: ...
    def call_counts(self) -> list[tuple[str, int]]:
        """Return the runs that have calls, each with their number."""

    def all_refusals(self, after: str = "", limit: int = 1000) -> list[Refusal]:
        """Return refusals in the order of their ids, lifted ones too."""

    def run_threads(self, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        """Return the ids of runs in order, each with its thread."""

    def orphan_events(self, limit: int) -> list[tuple[str, int]]:
        """Return threads that have events but no row, each with its first event's number."""


class SnapshotLost(Exception):
    """The connection that held a snapshot is gone: take another one and read again."""


class Store(StoreReads, Protocol):
    """A store. Implementations inherit nothing and pass ``sayso.testing.StoreSuite``."""

    boundary: Boundary | None
    #: Whether reads take microseconds and never block, so that a worker thread is not worth it.
    quick_reads: bool

    def snapshot(self) -> AbstractContextManager[StoreReads]:
        """Read the store as it is at this moment, without MAC checks, for the audit.

        Raises ``SnapshotLost`` from a read if the database ended the snapshot. Keep it short:
        the database cannot clean up meanwhile.
        """

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]: ...
    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        """Return the events before a cursor, or the last ones, newest first."""

    def tail(self) -> Cursor: ...
    def restored(self) -> bool:
        """Return whether the store went back in time; nothing starts until ``mark_recovered``."""

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread (and at most one run) in one durable transaction."""

    def renew(self, renewals: Sequence[Renewal], patience: float) -> dict[str, bool]:
        """Extend leases, in one transaction. Return for each row whether its lease was extended.

        The rows are runs, and calls in doubt whose attempt still runs; other calls are left out.
        False means that the lease is lost. A row that another transaction has locked is left out:
        a renewal waits for nobody, and is tried again. Raises ``StoreError`` if the database does
        not answer within ``patience`` seconds. Adds no event, and calls no listener.
        """

    def reserve(
        self, agents: Sequence[str], limit: int, worker: str, skip: Collection[str] = ()
    ) -> list[Run]:
        """Return due runs like ``ready``, and keep other workers from taking them for a moment.

        Runs that another worker has reserved are left out, until it claims them or
        ``RESERVED_SECONDS`` have passed. Those named in ``skip``, or whose thread is, are returned
        but not reserved, and do not count towards the limit. This is a hint that saves work:
        safety never depends on it, and it need not survive a crash.
        """

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named cursor if it is still at ``expected``; return whether it moved."""

    def put_deliveries(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Add messages (version 0) or change them, in one transaction.

        Returns for each whether it was written: a new one if its id is new, another one if it
        still is of the version that it names. The state ``gone`` deletes a row.
        """

    def seal(self) -> Seal | None:
        """Sign the heads of all chains that moved since their last seal; ``None`` if none did.

        A large backlog becomes several seals, each in a transaction of its own.
        """

    def seal_if_due(self) -> Seal | None:
        """Make a seal if one is due (``sayso.stores.seals``).

        Commits that add events do this too; call it on a timer if the process seldom commits.
        """

    def rekey(self, table: str, after: Sequence[Any] | None) -> Rekeyed:
        """Sign the next rows of a table again with the first key (``stores.sql.rekeying``)."""

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        """Delete the contents of runs that ended before then; the chain stays verifiable."""

    def mark_recovered(self) -> None: ...
    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Subscription:
        """Call ``listener``, from any OS thread, after commits on a thread (``None``: on any)."""

    def close(self) -> None: ...


class Rekeyed(NamedTuple):
    """What became of one batch of rows."""

    #: The key of the last row; ``None`` after the last batch.
    last: tuple[Any, ...] | None
    #: How many rows were signed again.
    changed: int
    #: How many rows still need another key, by its id; "" for rows that fail their check.
    left: Counter[str]


class Transaction(Protocol):
    """What ``run_commands`` needs from an open transaction of a store."""

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Lock the thread, load the rows that are needed, and read the clock, in this order."""

    def save(self, work: UnitOfWork) -> None:
        """Write what changed."""


_name = attrgetter("name")


def commit_name(commands: Sequence[Command]) -> str:
    """Return the name of the boundary at which these commands are committed."""
    return "+".join(filter(None, map(_name, commands)))


def run_commands(
    transaction: Transaction, commands: Sequence[Command]
) -> tuple[list[Any], UnitOfWork]:
    """Lock, load, apply the commands, save: the body of every ``transact``."""
    try:
        needs = commands[0].needs if len(commands) == 1 else _merged(commands)
        work = transaction.load(commands[0].thread, needs)
        run = work.run
        if run is not None and run.thread != work.thread.id:
            raise Conflict(f"run {run.id} belongs to thread {run.thread}, not to {work.thread.id}")
        for call in work.calls.values():
            if run is None or call.run != run.id:
                raise NotFound(f"request {call.id} belongs to run {call.run}: use that run")
        results = []
        for command in commands:
            results.append(apply(work, command))
        work.close()
        transaction.save(work)
        for place, result in enumerate(results):
            results[place] = work.as_written(result)
    except UnicodeEncodeError as error:
        bad = f"{error.object[error.start]!r}" if isinstance(error.object, str) else "?"
        raise InvalidCall(f"the text has half a surrogate pair ({bad}): remove it") from None
    return results, work


def _merged(commands: Sequence[Command]) -> Needs:
    first, *others = commands
    needs = first.needs
    for command in others:
        more = command.needs
        same_run = needs.run == more.run or needs.run is None or more.run is None
        if command.thread != first.thread or not same_run:
            raise Conflict("a transaction covers one thread and one run: send two transactions")
        needs = needs.joined(more)
    return needs


def engine_deps(keys: Keyring) -> EngineDeps:
    """Return the engine's hashing, signing and matching, with this store's keys."""
    return EngineDeps(
        sign=keys.keys[0].sign,
        verify=keys.verify,
        link=keys.keys[0].link,
        check_link=keys.check_link,
        # A keyring without a row key says what to do about it when a row is written.
        mac=keys.row_key.mac if keys.rows else keys.row_mac,
        matches=matches_scope,
        salt=partial(os.urandom, 8),
    )


def matches_scope(scope: str, args: str) -> bool:
    """Return whether arguments match the schema in a grant's scope."""
    from sayso import schema  # imports pydantic; only a store with grants needs it

    try:
        return schema.matches(codec.loads(scope), codec.loads(args))
    except InvalidCall:  # what is no schema matches nothing
        return False


def pruned_note(
    before: Micros,
    by: str,
    forgotten: list[tuple[str, str]],
    counts: dict[str, int],
    spent: Mapping[str, int],
) -> Note:
    """Return the note that names what was pruned; the audit accepts missing bodies only with it.

    It also says how often pruned calls used each grant, so that a spent grant stays spent.
    """
    body = {
        "before": before,
        "runs": sorted(run for _, run in forgotten),
        "counts": counts,
        "spent": dict(sorted(spent.items())),
    }
    return Note(type="pruned", actor=by, body=body)


log = logging.getLogger("sayso.stores")


class Hub:
    """The listeners of one store in this process, by thread. Safe to call from any OS thread.

    A store that other processes write to passes ``start``, which is called on the first
    subscription to start a watcher for their commits.
    """

    def __init__(self, start: Callable[[], object] = lambda: None) -> None:
        self._start = start
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without listeners: a forked child has neither them nor the watcher."""
        # A finalizer may commit, or cancel a listener, while this OS thread holds the lock.
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self.listeners: dict[str | None, list[Listener]] = {}
        self._watched = False

    def subscribe(self, thread: str | None, callback: Callable[[], None]) -> Listener:
        """Add a listener for a thread (``None``: for all); return it, to cancel it later."""
        listener = Listener(self, thread, callback)
        with self._starting:  # return only once a watcher runs
            with self._lock:
                starts = not self._watched
                self._watched = True
                self.listeners.setdefault(thread, []).append(listener)
            try:
                if starts:
                    self._start()
            except BaseException:
                self.unwatched()
                self.remove(listener)
                raise
        return listener

    def remove(self, listener: Listener) -> None:
        """Remove a listener. Idempotent."""
        with self._lock:
            listeners = self.listeners.get(listener.thread, [])
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                self.listeners.pop(listener.thread, None)

    def wanted(self) -> bool:
        """Return whether the watcher should keep running. On ``False`` it must stop."""
        with self._lock:
            self._watched = bool(self.listeners)
            return self._watched

    def unwatched(self) -> None:
        """Note that the watcher stopped: the next listener starts another one."""
        with self._lock:
            self._watched = False

    def publish(self, threads: Iterable[str]) -> None:
        """Call the listeners of these threads, and those of all threads."""
        if not self.listeners:
            return
        with self._lock:
            listeners = list(self.listeners.get(None, ()))
            for thread in threads:
                listeners += self.listeners.get(thread, ())
        self._call(listeners)

    def publish_to_all(self) -> None:
        with self._lock:
            listeners = [listener for some in self.listeners.values() for listener in some]
        self._call(listeners)

    def _call(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            try:
                listener.callback()
            except Exception:
                # The commit is done, and its caller must not see this error.
                log.exception("a listener failed")

    def clear(self) -> None:
        with self._lock:
            self.listeners.clear()


class Listener:
    """One subscription."""

    def __init__(self, hub: Hub, thread: str | None, callback: Callable[[], None]) -> None:
        self._hub = hub
        self.thread = thread
        self.callback = callback

    def cancel(self) -> None:
        """Stop listening. Idempotent."""
        self._hub.remove(self)
