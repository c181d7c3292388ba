"""What a store promises, and the one body that every store shares.

A store keeps rows and runs commands. ``transact`` is the only way to change anything: it takes the
thread's lock, loads the rows that the commands need, lets the pure engine change them, writes what
changed together with its events, and commits; when it returns, the change survives a power cut (as
far as the store promises durability at all). When it raises, nothing was changed.

Everything is synchronous: one text of each statement. Async callers hop a thread once per
transaction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sayso import codec
from sayso.engine import Command, EngineDeps, UnitOfWork, apply
from sayso.engine.command import Needs
from sayso.engine.commands import Note
from sayso.errors import Conflict, InvalidCall, NotFound
from sayso.keys import Keyring
from sayso.rows import Call, EffectKey, Event, Principal, Run, StoredMessage, Thread, Tool
from sayso.stores.seals import Seal
from sayso.types import Grant, Micros

#: A place in the stream of events; "" is before the first. Only its store can read it.
Cursor = str

#: Called before and after each commit with the name of its boundary: a fault test dies in here.
Boundary = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which requests to list. ``status`` is a public name, ``"closed"`` or ``"any"``.

    ``text`` is found where each of its words begins a word of the tool, the agent or the
    description, or where all of it begins the id (three letters or more, ``req_`` left out or not).
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
    #: Made at this time or later.
    created_after: Micros | None = None
    #: ``oldest``, ``newest``, or ``expiring``: soonest end first, which is quick for what waits.
    sort: str = "oldest"
    #: The key of the last row before the page, as ``page`` gave it in the same order.
    after: int | None = None
    limit: int = 50


#: Where a request without an end stands among those that have one.
NEVER: Micros = 1 << 62
_MOST = (1 << 63) - 1


def page_key(query: Query, n: int, expires_at: Micros | None) -> int:
    """What the next page comes after: the row's number, and above it its end, if sorted by that."""
    if query.sort != "expiring":
        return n
    return (NEVER if expires_at is None else expires_at) << 64 | n


def page_start(query: Query) -> tuple[Micros, int]:
    """The end and the number that a page comes after; whatever a client sends is a place."""
    after = max(query.after or 0, 0)
    end, n = divmod(after, 1 << 64) if query.sort == "expiring" else (0, after)
    return min(end, _MOST), min(n, _MOST)


def age_key(at: Micros, name: str) -> str:
    """Where a run or a thread stands in a list by age."""
    return f"{at}.{name}"


def age_start(after: str | None) -> tuple[Micros, str]:
    """The time and the name that a page by age comes after; whatever a client sends is a place."""
    at, _, name = (after or "").partition(".")
    return (min(int(at), _MOST), name) if at.isdecimal() else (_MOST, "")


def place_of(cursor: Cursor) -> int:
    """The number of an event that a cursor means, where events are numbered in commit order."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor) > _MOST:
        raise InvalidCall(f"{cursor!r:.60} is no place among the events: use one you were given")
    return int(cursor)


@dataclass(frozen=True, slots=True)
class Due:
    """Something whose time has come: an overdue request, or a run whose lease has lapsed."""

    thread: str
    run: str
    call: str | None


class ListedCall(NamedTuple):
    """A call with its number, and where the index of the lists has it."""

    n: int
    call: Call
    list_status: str
    search_key: int


class Subscription(Protocol):
    """A listener that can be taken away again."""

    def cancel(self) -> None: ...


class StoreReads(Protocol):
    """What a store can be asked. A row leaves it only if its MAC holds.

    A row that is asked for by its name and was changed by something without the row key raises
    ``Tampered``; in a list (``page``, ``runs``, ``threads_of``, ``grants``, …) it is left out, and
    a warning is logged. So is a thread's conversation, and the calls of one run: they are of use
    only together, so that one bad row refuses them all.
    """

    url: str
    #: Which store this is, whatever its address; a copy that was restored keeps it.
    incarnation: str
    keys: Keyring

    def now(self) -> Micros:
        """The store's clock: the only one that expiry and leases know."""
        ...

    def run(self, run_id: str) -> Run | None: ...
    def live_run(self, thread: str) -> Run | None: ...
    def last_run(self, thread: str) -> Run | None:
        """The live run of a thread, else the one that spoke last in it."""
        ...

    def call(self, call_id: str) -> Call | None: ...
    def call_by_key(self, run: str, key: str) -> Call | None: ...
    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        """The calls of a run, or those of them that have one of these keys."""
        ...

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        """Ids of requests that begin like this, for people who type the first letters."""
        ...

    def tool(self, digest: str) -> Tool | None: ...
    def messages(self, thread: str, after: int = 0, also: int = 0) -> list[tuple[int, str]]:
        """What was said on a thread after a number, and the message with the number ``also``."""
        ...

    def stored_messages(
        self, thread: str, after: int = 0, limit: int = 1000
    ) -> list[StoredMessage]:
        """A page of what was said on a thread, with the run that each message belongs to."""
        ...

    def listed_calls(self, after: int = 0, limit: int = 1000) -> list[ListedCall]:
        """A page of every call, in the order in which they were made: the audit wants them."""
        ...

    def page(self, query: Query) -> list[tuple[int, Call]]:
        """One page of requests, each with the key that the next page comes after."""
        ...

    def waiting(self) -> dict[str, int]:
        """How many requests wait for people: ``asked``, and ``in_doubt``."""
        ...

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Run]]:
        """Runs, newest first, each with the key that the next page comes after."""
        ...

    def threads_of(
        self, owner: str, after: str | None = None, limit: int = 50
    ) -> list[tuple[str, Thread]]:
        """The conversations of whoever first spoke in them, newest first, keyed likewise."""
        ...

    def grants(self, *, live_only: bool = True) -> list[Grant]: ...
    def principals(self) -> list[Principal]: ...
    def principal(self, token_hash: str) -> Principal | None: ...
    def effect(self, key: str) -> EffectKey | None:
        """The call that has the effect with this key, or may have it."""
        ...

    def effects(self, after: str = "", limit: int = 1000) -> list[EffectKey]:
        """The effects that are unique by their key, in the order of their keys."""
        ...

    def overdue(self, limit: int = 100) -> list[Due]:
        """Requests past their end and runs past their lease, on the store's clock."""
        ...

    def next_due(self, after: Micros = 0) -> Micros | None:
        """The first end of a request or lease, or time to go on, that is later than ``after``."""
        ...

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        """Runs of these agents that are due and that nobody holds."""
        ...

    def open_runs(self) -> Iterable[Run]:
        """Every run with a ready or running call: what a restore puts in doubt."""
        ...

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]: ...
    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        """Events before a place, or from the end, the newest first."""
        ...

    def tail(self) -> Cursor: ...
    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]: ...
    def thread(self, thread: str) -> Thread | None: ...
    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]: ...
    def cursor(self, name: str) -> str:
        """How far a named reader of the events has come; "" if it never moved."""
        ...

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]: ...
    def restored(self) -> bool:
        """Whether the store went back in time; nothing may start until ``mark_recovered``."""
        ...


class Store(StoreReads, Protocol):
    """Where all is kept. Stores inherit nothing and pass ``sayso.testing.StoreSuite``."""

    boundary: Boundary | None
    #: Whether a read takes microseconds and waits for nobody, so that no thread is worth its while.
    quick_reads: bool

    def unchecked(self) -> StoreReads:
        """The same rows as they are, whether their MAC holds or not: only for the audit, which
        says what is wrong with them."""
        ...

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands of one thread (and at most one run) in one durable transaction."""
        ...

    def transact_now(self, *commands: Command) -> list[Any] | None:
        """The same where it takes less time than handing it to a thread and waits for nobody;
        ``None`` where it may take longer, and then nothing was done."""
        ...

    def move_cursor(self, name: str, to: str, *, expected: str) -> bool:
        """Move a named reader, unless somebody else has moved it from where it was expected."""
        ...

    def seal(self) -> Seal | None:
        """Sign the heads of all chains that moved since their last seal; ``None`` if none did.

        A large backlog becomes several seals, each in a transaction of its own.
        """
        ...

    def seal_if_due(self) -> Seal | None:
        """Make a seal if the store's unsealed events demand one (``sayso.stores.seals``).

        Every commit does this too; call it on a timer where a process commits too rarely.
        """
        ...

    def prune(self, before: Micros, by: str) -> dict[str, int]:
        """Forget the contents of what ended before then; the chain stays verifiable."""
        ...

    def mark_recovered(self) -> None: ...
    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Subscription:
        """Call ``listener``, from any thread, after commits on that thread (``None``: on any)."""
        ...

    def close(self) -> None: ...


class Transaction(Protocol):
    """What ``run_commands`` needs of a store inside one of its transactions."""

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Lock the thread, load what is needed, and read the clock, in this order."""
        ...

    def save(self, work: UnitOfWork) -> None:
        """Write what changed."""
        ...


def run_commands(
    transaction: Transaction, commands: Sequence[Command]
) -> tuple[list[Any], UnitOfWork]:
    """Lock, load, ask the engine, write: the body of every ``transact``."""
    try:
        work = transaction.load(commands[0].thread, _merged(commands))
        _check_place(work)
        results = [apply(work, command) for command in commands]
        work.close()
        transaction.save(work)
        results = [work.as_written(result) for result in results]
    except UnicodeEncodeError as error:
        bad = f"{error.object[error.start]!r}" if isinstance(error.object, str) else "?"
        raise InvalidCall(f"half a surrogate pair ({bad}) is no text: leave it out") from None
    return results, work


def _check_place(work: UnitOfWork) -> None:
    """The lock is the thread's: whatever a command touches must belong to it."""
    run = work.run
    if run is not None and run.thread != work.thread.id:
        raise Conflict(f"run {run.id} belongs to thread {run.thread}, not to {work.thread.id}")
    for call in work.calls.values():
        if run is None or call.run != run.id:
            raise NotFound(f"request {call.id} belongs to run {call.run}: name that one")


def _merged(commands: Sequence[Command]) -> Needs:
    first, *others = commands
    needs = first.needs
    for command in others:
        more = command.needs
        same_run = needs.run == more.run or needs.run is None or more.run is None
        if command.thread != first.thread or not same_run:
            raise Conflict("one transaction is for one thread and one run: send two")
        needs = needs.joined(more)
    return needs


def engine_deps(keys: Keyring) -> EngineDeps:
    """The engine's hashing, signing and matching, with this store's keys."""
    return EngineDeps(
        digest=codec.digest,
        sign=keys.sign,
        verify=keys.verify,
        link=keys.link,
        check_link=keys.check_link,
        # A keyring without a row key says what to do about it when a row is written.
        mac=keys.row_key.mac if keys.rows else keys.row_mac,
        matches=_matches,
        salt=lambda: os.urandom(8).hex(),
    )


def _matches(scope: str, args: str) -> bool:
    from sayso import schema  # imports pydantic; only a store with grants needs it

    return schema.matches(codec.loads(scope), codec.loads(args))


def pruned_note(
    before: Micros, by: str, forgotten: list[tuple[str, str]], counts: dict[str, int]
) -> Note:
    """The fact that names what was forgotten; the audit accepts a missing body only with it."""
    body = {"before": before, "runs": sorted(run for _, run in forgotten), "counts": counts}
    return Note(type="pruned", actor=by, body=body)
