"""Several callers on one connection: what they ask is sent together, and their commits are one.

Each caller's function runs in a greenlet of its own, all of them in one OS thread. A function that
waits for an answer lets the next one run. When all of them wait, everything that they have sent is
one round trip. So the functions are written as if each were alone.

``SharedReads`` does this for functions that only read, and ``SharedAttempt`` for transactions:

1. Lock the threads of all callers that nothing else has locked, and read the clock.
2. Let each caller load its rows and run its commands. Its writes are kept until all are done.
3. Send the writes of those that were not refused, and commit.

A shared transaction waits for no lock of another one, and writes only rows that the locks of its
threads cover. So two of them cannot block each other, no caller sees what another one of the same
transaction did, and the order of the callers does not matter. What needs more (a grant, an effect
key, a new tool, a thread that is locked) is ``Apart``: it is left out and gets a transaction of its
own. If the database refuses a shared transaction, all of its callers are apart.

``sayso.sync`` collects the calls of one event loop; ``CallQueue``, those of other OS threads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakMethod

from greenlet import GreenletExit, getcurrent, greenlet

from sayso.engine import UnitOfWork
from sayso.engine.commands import Needs
from sayso.stores.postgres.connections import Pipeline, encoded, took_one
from sayso.stores.postgres.transaction import FREE, Attempt, NotSent, PgTransaction
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Reply
from sayso.stores.sql.transaction import SqlTransaction, StoreParts
from sayso.types import Micros

T = TypeVar("T")
C = TypeVar("C")


class Outcome(NamedTuple, Generic[T]):
    """What a function returned, or what it raised."""

    value: T | None
    error: BaseException | None


def take_turns(
    functions: Sequence[Callable[[], T]], receive: Callable[[], None], reads: object = None
) -> list[Outcome[T]]:
    """Call functions in turn; call ``receive`` when all that are left wait (``wait_turn``)."""
    outcomes: list[Outcome[T]] = [Outcome(None, None)] * len(functions)

    def call(number: int, function: Callable[[], T]) -> None:
        try:
            outcomes[number] = Outcome(function(), None)
        except GreenletExit:
            raise
        except BaseException as error:  # whatever it is, it belongs to the caller
            outcomes[number] = Outcome(None, error)

    waiting = [greenlet(partial(call, *each)) for each in enumerate(functions)]
    for caller in waiting:
        caller.sayso_reads = reads
    try:
        while True:
            for caller in waiting:
                caller.switch()
            waiting = [caller for caller in waiting if not caller.dead]
            if not waiting:
                return outcomes
            receive()
    finally:
        for caller in waiting:
            if not caller.dead:  # ``receive`` failed
                caller.throw(GreenletExit)


def wait_turn() -> None:
    """Let the other functions run, until the answers have been received."""
    getcurrent().parent.switch()


# -- reading


class Read:
    """A statement with its encoded values, and the rows that it selects once they are here."""

    __slots__ = ("rows", "statement", "values")

    def __init__(self, statement: str, values: Sequence[Any]) -> None:
        self.statement = statement
        self.values = encoded(values)
        self.rows: list[Any] | None = None


class SharedReads:
    """The statements of functions that take turns, one round trip after the other.

    ``send`` sends statements and receives their rows. Statements that are sent together succeed or
    fail together; if they have no rows then, each is sent again ``alone`` and gets its own error.
    """

    def __init__(
        self,
        store: object,
        send: Callable[[Sequence[Read]], None],
        alone: Callable[[Read], list[Any]],
    ) -> None:
        self.store = store
        self._send = send
        self._alone = alone
        self._asked: list[Read] = []

    def call(self, functions: Sequence[Callable[[], T]]) -> list[Outcome[T]]:
        """Call functions whose reads share round trips; return the outcome of each."""
        return take_turns(functions, self._receive, self)

    def rows(self, read: Read) -> list[Any]:
        self._asked.append(read)
        wait_turn()
        return self._alone(read) if read.rows is None else read.rows

    def _receive(self) -> None:
        asked, self._asked = self._asked, []
        self._send(asked)


#: What a greenlet has in ``sayso_reads`` while it reads alone.
_ALONE = object()


def shared_reads(store: object) -> SharedReads | None:
    """Return the reads that the current function shares with others, if it takes turns."""
    reads = getattr(getcurrent(), "sayso_reads", None)
    return reads if isinstance(reads, SharedReads) and reads.store is store else None


def reads_alone() -> bool:
    """Return whether the current function is in a block of ``reading_alone``."""
    return getattr(getcurrent(), "sayso_reads", None) is _ALONE


@contextmanager
def reading_alone() -> Iterator[None]:
    """Send what is read in this block at once, and not together with what others read.

    For statements that lock rows or write, because that would last until the others are read, and
    for callers that hold a lock.
    """
    current = getcurrent()
    reads = getattr(current, "sayso_reads", None)
    current.sayso_reads = _ALONE
    try:
        yield
    finally:
        current.sayso_reads = reads


# -- writing


class Apart(Exception):
    """These commands need a transaction of their own."""


class _SharedPipeline(Pipeline):
    """A pipeline in which a caller that waits lets the others send first."""

    #: Whether callers take turns now.
    shared = False

    def wait(self) -> None:
        if self.shared:
            wait_turn()
        else:
            self.receive()


class SharedAttempt(Attempt):
    """A transaction of several callers, each on threads of its own."""

    _pipe: _SharedPipeline
    _pipeline = _SharedPipeline
    #: The time, read after everything was locked.
    at: Micros = 0

    def lock_free(self, threads: Sequence[str]) -> set[str]:
        """Lock those of the threads that nothing else has locked, and return them."""
        self.execute(f"SELECT {', '.join(self._limits())}", ())
        free = self.execute(FREE, (json.dumps(threads), self._store))
        # In a statement of its own: the transaction gets its id after the locks.
        self.at = self.facts(self._locked(()))
        return {name for (name,) in free.fetchall()}

    def take_turns(self, callers: Sequence[Callable[[], Share]]) -> list[Outcome[Share]]:
        """Run the commands of each caller, then send what those write that were not refused."""
        self._pipe.shared = True
        try:
            outcomes = take_turns(callers, self._pipe.receive)
        finally:
            self._pipe.shared = False
        for outcome in outcomes:
            if outcome.value is not None:
                outcome.value.transaction.send(self._pipe)
        return outcomes


class _Unsent(NotSent):
    """A write that is kept until all callers are done."""

    def __init__(self, text: str, values: Sequence[bytes | None]) -> None:
        self.text = text
        self.values = values


class SharedTransaction(PgTransaction):
    """One caller's part of a shared transaction. Raises ``Apart`` if it cannot be shared."""

    def __init__(self, attempt: SharedAttempt, parts: StoreParts) -> None:
        super().__init__(attempt, parts)
        self._at = attempt.at
        self._unsent: list[_Unsent] = []

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Load the rows that the commands need; the thread is locked."""
        if needs.grants or needs.system or needs.principal is not None:
            raise Apart
        # Read without a lock: if there are none, there is nothing to lock.
        grants = [self._execute(sql.LOAD_GRANTS_FOR, pair) for pair in needs.grants_for]
        work = SqlTransaction.load(self, thread, needs._replace(grants_for=()))
        if any(reply.fetchone() for reply in grants):
            raise Apart
        return work

    def _ask_time(self) -> Reply | None:
        return None

    def _read_time(self, reply: Reply | None) -> Micros:
        return self._time(self._at)

    def _ask_spent(self, work: UnitOfWork, needs: Needs) -> list[Reply]:
        if needs.spends and any(call.grant is not None for call in work.calls.values()):
            raise Apart
        return []

    def _load_effects(self, work: UnitOfWork, needs: Needs) -> None:
        spent = needs.spends and any(call.effect_key for call in work.calls.values())
        if needs.effects or spent:
            raise Apart

    def _save_effects(self, work: UnitOfWork) -> None:
        raise Apart

    def save(self, work: UnitOfWork) -> None:
        """Keep what changed, to be sent."""
        if work.touched_grants or work.principals:
            raise Apart
        super().save(work)

    def _send(self, text: str, values: Sequence[Any]) -> Reply:
        unsent = _Unsent(text, encoded(values))
        self._unsent.append(unsent)
        return unsent

    def _send_other(self, text: str, values: Sequence[Any]) -> Reply:
        raise Apart  # a row that many threads have in common, such as a tool

    def send(self, pipe: Pipeline) -> None:
        for unsent in self._unsent:
            answer = pipe.send_encoded(unsent.text, unsent.values)
            if unsent is self._added:
                self._added = answer


class Share(NamedTuple):
    """What one caller did in a shared transaction."""

    results: list[Any]
    work: UnitOfWork
    transaction: SharedTransaction


# -- callers on several OS threads

#: How many calls are made together: each waits for all of them.
_MOST_TOGETHER = 32
#: A batch that takes more seconds does not hold up the next one.
_LONG_SECONDS = 0.05
#: How many batches can be under way.
_WORKERS = 2

#: The result of a call, the error that it raises, or a function that makes the call.
CallOutcome = list[T] | BaseException | Callable[[], list[T]]


class _Queued(Generic[C]):
    """A call whose caller waits for the outcome."""

    __slots__ = ("call", "given_up", "outcome")

    def __init__(self, call: C) -> None:
        self.call = call
        self.given_up = False
        self.outcome: SimpleQueue[CallOutcome[Any]] = SimpleQueue()


class CallQueue(Generic[C]):
    """Makes calls of one kind together, if callers on several OS threads make them at once.

    A few callers make their calls alone. Others queue, and a worker thread makes the calls of all
    of them: an interrupt (Ctrl-C) reaches the main thread only, and so it never comes in the middle
    of what is done for other callers. While it works for many, everyone queues.
    """

    def __init__(
        self, call_each: Callable[[Sequence[C]], Sequence[CallOutcome[Any]]], alone: int
    ) -> None:
        self._call_each = WeakMethod(call_each)
        # Lists, because a finalizer may make a call while this OS thread is inside a semaphore.
        self._alone = [None] * alone
        self._unstarted = [None] * _WORKERS
        self._queue: SimpleQueue[_Queued[C] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        #: How many calls are in each batch under way.
        self._batches: list[int] = []

    def make(self, call: C, alone: Callable[[], list[Any]]) -> list[Any]:
        """Make a call by calling ``alone``, or together with others."""
        if max(self._batches, default=0) <= 1 and took_one(self._alone):
            try:
                return alone()
            finally:
                self._alone.append(None)
        if threading.current_thread() in self._workers:
            return alone()  # a finalizer, or a hook at a boundary
        queued = _Queued(call)
        self._queue.put(queued)
        try:
            outcome = self._outcome(queued)
        except BaseException:
            queued.given_up = True
            raise
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome if isinstance(outcome, list) else outcome()

    def _outcome(self, queued: _Queued[C]) -> CallOutcome[Any]:
        while self._unstarted:
            if (not self._workers or not self._queue.empty()) and took_one(self._unstarted):
                args = (self._queue, self._batches, self._call_each)
                worker = threading.Thread(target=_work, args=args, name="sayso-call", daemon=True)
                try:
                    worker.start()
                except BaseException:  # an interrupt: another caller starts it
                    self._unstarted.append(None)
                    raise
                self._workers.append(worker)
            with suppress(Empty):
                return queued.outcome.get(timeout=_LONG_SECONDS)
        return queued.outcome.get()

    def __del__(self) -> None:
        for _ in self._workers:
            self._queue.put(None)


def _work(
    queue: SimpleQueue[_Queued[C] | None],
    batches: list[int],
    call_each: WeakMethod[Callable[[Sequence[C]], Sequence[CallOutcome[Any]]]],
) -> None:
    """Make the calls that are queued, batch by batch, until there is a ``None``.

    Refers to the store weakly, so that one that nobody closes can still be collected.
    """
    while (first := queue.get()) is not None:
        batch = [first]
        with suppress(Empty):
            while len(batch) < _MOST_TOGETHER:
                following = queue.get_nowait()
                if following is None:
                    queue.put(None)
                    break
                batch.append(following)
        batch = [queued for queued in batch if not queued.given_up]
        make = call_each()
        if make is None:
            return  # nobody can wait for a store that is gone
        batches.append(len(batch))
        try:
            outcomes = make([queued.call for queued in batch]) if batch else ()
        except BaseException as error:  # whatever it is, the callers wait for it
            outcomes = [error for _ in batch]
        batches.remove(len(batch))
        for queued, outcome in zip(batch, outcomes, strict=True):
            queued.outcome.put(outcome)
        del first, batch, make, outcomes  # keep nothing alive while idle
