"""``RunLease``: the right of one process to work on a run; claimed, renewed, released.

A lease is two fields of the run's row (``owner`` and ``ready_at``) and a token that grows each time
the run changes hands. The store's clock decides when a lease ends. The process that holds it also
watches the end on its own monotonic clock, so that it notices even if a clock jumps.

The end of the module is about re-entrancy: code that waits for the call or run it is part of would
wait forever.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast
from weakref import WeakKeyDictionary

from sayso.engine.commands import Cancel, Claim, EndLease, Finish, Note, Park, Propose, Reopen
from sayso.engine.renewing import Renewal
from sayso.errors import Cancelled, Conflict, Leased, SaysoError, StoreClosed, StoreError
from sayso.forking import fork_safe_lock, process, renew_in_child
from sayso.gate import os_threads
from sayso.rows import LIVE, Call, CallStatus, Run, RunStatus
from sayso.stores.base import Store
from sayso.stores.nested_runs import cancel_with_nested, release_lapsed
from sayso.sync import CommitWaiter, context_value, read, to_thread, write, write_shielded
from sayso.types import Micros, moment

log = logging.getLogger("sayso.gate")

#: How many seconds to rely on the store's notifications before looking again.
_LONGEST_NAP = 5.0
#: How long a renewer's OS thread sleeps if no lease is due earlier, and lives without leases.
_IDLE = 5.0
#: How many seconds after a failed renewal it is tried again, at most.
_LONGEST_RETRY = 1.0
NEW_INPUT = "the user wrote something new"


class RunLease:
    """A process's lease on a run, whether it holds it or not."""

    def __init__(self, store: Store, owner: str, length: float) -> None:
        self.store = store
        self.owner = owner
        self.length = length
        self.thread = ""
        self.run = ""
        #: The token of the last lease that was ours.
        self.token: int | None = None
        #: The run as it was when we took it.
        self.taken: Run | None = None
        #: Whether another process took the thread before us.
        self.overtaken = False
        #: The last messages of the thread, which are stored together with the end of the run.
        self.last_messages: tuple[Propose, ...] = ()
        #: What takes the thread for new input, until that is written.
        self._opening: tuple[Reopen, Propose, tuple[Note, ...]] | None = None
        self._is_free: Callable[[], bool] | None = None
        #: Whether we took it for new input, so that its calls have no rows yet, most likely.
        self.has_new_input = False
        self._ends = 0.0
        self._kept = False
        self._kept_in = process.forks

    def on(self, thread: str, run: str) -> RunLease:
        """Name the run that the lease is for."""
        self.thread = thread
        self.run = run
        return self

    def __enter__(self) -> RunLease:
        return self

    def __exit__(self, *exception: object) -> None:
        self.drop()

    @property
    def micros(self) -> int:
        return round(self.length * 1_000_000)

    # -- looking

    def current(self) -> Run:
        """Return the run as it is stored now. Raise ``Conflict`` if it was pruned."""
        run = self.store.run(self.run)
        if run is None:
            raise Conflict(f"run {self.run} is gone from the store: it was pruned")
        return run

    def elsewhere(self, run: Run) -> bool:
        """Return whether another process works on the run right now."""
        return run.owner != self.owner and run.leased(self.store.now())

    @property
    def lapsed(self) -> bool:
        """Whether our lease is over by this machine's clock, or belongs to a parent process."""
        inherited = self._kept_in != process.forks
        return self._kept and (inherited or time.monotonic() >= self._ends)

    async def wait(self, until: float | None = None) -> Run:
        """Wait until no other process works on the run, and return the run.

        ``until`` is a moment on the monotonic clock: raise ``Leased`` if it comes first.
        """
        run = await read(self.store, self.current)
        while run.status in LIVE and self.elsewhere(run):
            if due_run_here(run.id):
                return run
            refuse_own_run(self.store.incarnation, run.id)
            with closing(CommitWaiter(self.store, run.thread)) as commits:
                run = await read(self.store, self.current)
                if run.status in LIVE and self.elsewhere(run):
                    await commits.wait(nap(self.store, run, until))
            run = await read(self.store, self.current)
        return run

    async def end_live_run(self, thread: str, by: str) -> None:
        """Wait until the thread has no live run: new input supersedes a paused one."""
        with closing(CommitWaiter(self.store, thread)) as commits:
            while (live := await read(self.store, self.store.live_run, thread)) is not None:
                refuse_own_run(self.store.incarnation, live.id)
                if live.leased(self.store.now()):
                    await commits.wait(nap(self.store, live))
                else:
                    await to_thread(
                        cancel_with_nested, self.store, live, by, NEW_INPUT, superseded=True
                    )

    # -- taking

    def claim(self) -> Claim:
        """Return the command that takes the run if no other process holds it."""
        return Claim(
            thread=self.thread, run=self.run, owner=self.owner, lease=self.micros, force=True
        )

    async def take(self) -> Run | None:
        """Take the run. Return None if another process was faster, or the run is over."""
        began = time.monotonic()
        (claimed,) = await write(self.store, self.claim())
        if claimed is not None:
            self._take(claimed, began)
        return cast("Run | None", claimed)

    def open_with(
        self,
        agent: str,
        thread: str,
        run: str,
        requester: str,
        *notes: Note,
        is_free: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare to take the run of a framework's thread for new input: ``open`` takes it.

        A run that is over is reopened. Notes are recorded in the same commit. If it is not known
        yet whether the thread is free for that run, ``is_free`` reads it.
        """
        self.on(thread, run)
        self._is_free = is_free
        reopen = Reopen(thread=thread, run=run, by=requester)
        propose = Propose(thread=thread, run=run, agent=agent, requester=requester, hold=True)
        self._opening = reopen, propose, notes

    def check_free(self) -> None:
        """Read whether the thread is free, if that is not known. Raise ``Conflict`` like ``open``
        if it is not."""
        is_free, self._is_free = self._is_free, None
        if is_free is not None and not is_free():
            self.overtaken = True
            raise Conflict(f"thread {self.thread} has a live run: wait for it")

    async def open(self, messages: Propose | None = None) -> None:
        """Take the thread, unless that was done, and store the first messages in the same commit.

        Raises ``Conflict`` and notes that the lease was ``overtaken`` if another process has used
        the thread since ``open_with``. Nothing is stored then.
        """
        if self._opening is None:
            return
        if self._is_free is not None:
            await to_thread(self.check_free)
        reopen, propose, notes = self._opening
        if messages is not None:
            propose = replace(messages, requester=propose.requester)
        claim = replace(self.claim(), exactly=True)
        began = time.monotonic()
        try:
            *_, claimed = await write(self.store, reopen, propose, *notes, claim)
        except (Conflict, Cancelled) as error:
            self.overtaken = True
            raise Conflict(str(error)) from error
        self._opening = None
        self._take(claimed, began)
        self.has_new_input = True

    @property
    def is_open(self) -> bool:
        """Whether new input has taken the thread, or there was none."""
        return self._opening is None

    def _take(self, run: Run, began: float) -> None:
        self.taken = run
        self.has_new_input = False
        self.keep(run.token, began)

    def keep(self, token: int, began: float) -> None:
        """Renew the lease of this token from now on. Its claim was sent at ``began``."""
        if self._kept:
            self.drop()
        self.token = token
        self._ends = began + self.length
        self._kept = True
        self._kept_in = process.forks
        note_taken(self.run)
        self._renewer = renewer_of(self.store)
        self._renewer.keep(self)

    def renewal(self) -> Renewal:
        """Return what the store needs to extend the lease."""
        assert self.token is not None
        return Renewal(self.run, self.token, self.micros)

    def extend(self, renewal: Renewal, began: float) -> None:
        """Note that this renewal, sent at ``began``, has extended the lease."""
        if renewal.token == self.token:
            self._ends = began + self.length

    # -- giving back

    def drop(self) -> None:
        """Stop renewing. The last commit may have released the row already."""
        if self._kept:
            self._kept = False
            self._renewer.drop(self)

    async def release_lapsed_run(self) -> tuple[Call, ...]:
        """Release the run of a process that died. Return the calls that are in doubt now."""
        doubted = await to_thread(release_lapsed, self.store, self.thread, self.run)
        if doubted:
            note_taken(self.run)
        return doubted

    async def park(self, run: Run, due_at: Micros | None = None) -> Run:
        """Release the lease because only people can advance the run.

        ``run`` is the row as it was when the work began: the run stays due if a decision was made
        since, or from ``due_at`` on. Raises ``Conflict`` if another process took the run.
        """
        self.drop()
        if _is_parked(run, due_at):  # the commit that asked has released the lease
            return run
        stored_run = await read(self.store, self.current)
        ours = stored_run.status in LIVE and stored_run.owner in (None, self.owner)
        if _is_parked(stored_run, due_at) or not ours:
            return stored_run
        fence = {"token": stored_run.token, "wake_seen": run.wake}
        command = Park(thread=run.thread, run=run.id, **fence, due_at=due_at)
        (row,) = await write(self.store, command)
        note_taken(run.id)
        return cast(Run, row)

    def stop(self) -> Run:
        """End a run that was cancelled while we worked on it, if none of its calls still runs."""
        self.drop()
        run = self.current()
        if run.stop and run.status in LIVE:
            again = Cancel(thread=run.thread, run=run.id, by="engine", reason=run.stop)
            self.store.transact(again)
        return self.current()

    async def finish(self, output: str) -> Run:
        """End the run with the agent's output and the last messages of its thread, in one commit.

        Requests that the agent left open are closed.
        """
        self.drop()
        end = Finish(
            thread=self.thread,
            run=self.run,
            status="done",
            output=output,
            token=self.token,
            exactly=True,
        )
        try:
            *_, run = await write_shielded(self.store, *self.last_messages, end)
        except (Conflict, Cancelled):
            return await to_thread(self._finish, end)
        return cast(Run, run)

    def _finish(self, end: Finish) -> Run:
        """End a run that has open calls, was cancelled, or was taken by another process."""
        run = self.current()
        if run.stop:
            return self.stop()
        if run.owner in (None, self.owner):  # otherwise another process has taken it
            supersede(self.store, run, "agent", "the agent ended without it")
            end = replace(end, token=run.token, exactly=False)
            try:
                self.store.transact(*self.last_messages, end)
            except Conflict:
                if self.current().token == run.token:  # the messages conflict
                    raise
        return self.current()

    def release(self) -> None:
        """After an error, end the lease in the store too, so that nothing waits for its end."""
        self.drop()
        if self.token is None:
            return
        try:
            run = self.store.run(self.run)
            if run is not None and run.status in LIVE and run.owner == self.owner:
                end = EndLease(thread=self.thread, run=self.run, token=self.token)
                self.store.transact(end)
                release_lapsed(self.store, self.thread, self.run)
        except StoreError:
            return  # then it expires


class AttemptLease:
    """A process's word that the body of a call still runs, which counts if the call is in doubt."""

    def __init__(self, store: Store, call: Call, length: float) -> None:
        self.store = store
        self.length = length
        self._call = call

    def renewal(self) -> Renewal:
        """Return what the store needs to extend the lease."""
        call = self._call
        return Renewal(call.run, call.token, round(self.length * 1_000_000), call.id)

    def extend(self, renewal: Renewal, began: float) -> None:
        """Do nothing: whether a doubt is renewed is for people to see."""


def nap(store: Store, run: Run, until: float | None = None) -> float:
    """Return how many seconds to wait for a commit: until the lease may be over, and not long.

    Raises ``Leased`` after ``until``, on the monotonic clock.
    """
    now = store.now()
    left = max(((run.ready_at or now) - now) / 1_000_000, 0.0) + 0.01
    if until is not None:
        if time.monotonic() >= until:
            raise leased(run)
        left = min(left, until - time.monotonic())
    return max(min(left, _LONGEST_NAP), 0.001)


def leased(run: Run) -> Leased:
    """Return the error for a caller that does not wait for another process."""
    ends = moment(run.ready_at or 0)
    return Leased(
        f"run {run.id} is leased until {ends:%Y-%m-%d %H:%M:%S} UTC by {run.owner}: another "
        "process works on it, or died; try again then, or wait for it (wait=None)"
    )


def supersede(
    store: Store, run: Run, by: str, reason: str = NEW_INPUT, *, keys: Any = lambda key: True
) -> None:
    """Close the calls of a run that have not started; the run itself continues.

    ``keys`` selects calls by their key.
    """
    for call in store.calls_of(run.id) if run.asked or run.ready else ():
        if call.status in (CallStatus.ASKED, CallStatus.READY) and keys(call.key):
            store.transact(
                Cancel(
                    thread=run.thread,
                    run=run.id,
                    call=call.id,
                    by=by,
                    reason=reason,
                    superseded=True,
                )
            )


class LeaseRenewer:
    """Renews the leases of one store, until they are dropped.

    All leases that are due are renewed in one transaction, which waits for no lock. A lease is due
    after a third of its length, and one try may take another third; so what fails is tried again,
    soon, before the lease ends. Stores are independent: one that does not answer delays no other.

    Its OS thread wakes often enough for a lease of usual length, so that a call that ends at once
    costs no switch between OS threads.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without leases: the parent process renews its own."""
        # A finalizer may drop a lease while this OS thread holds the lock.
        self._lock = threading.RLock()
        self._due_changed = threading.Condition(self._lock)
        #: When each lease is due, on the monotonic clock.
        self._due: dict[RunLease | AttemptLease, float] = {}
        self._worker: threading.Thread | None = None
        self._wakes_at = 0.0
        #: Whether the last try failed.
        self._failing = False

    def keep(self, lease: RunLease | AttemptLease) -> None:
        due = time.monotonic() + lease.length / 3
        with self._lock:
            self._due[lease] = due
            if self._worker is None:
                worker = threading.Thread(target=self._run, name="sayso-lease", daemon=True)
                worker.start()
                self._worker = worker
            elif due < self._wakes_at:
                self._due_changed.notify()

    def drop(self, lease: RunLease | AttemptLease) -> None:
        with self._lock:
            self._due.pop(lease, None)

    def _run(self) -> None:
        try:
            while (leases := self._wait()) is not None:
                if leases:
                    self._renew(leases)
        except BaseException:
            with self._lock:
                self._worker = None
            raise

    def _wait(self) -> list[RunLease | AttemptLease] | None:
        """Sleep until a lease may be due. Return those that are; None if there is none to keep."""
        with self._lock:
            now = time.monotonic()
            self._wakes_at = min([now + _IDLE, *self._due.values()])
            if self._wakes_at > now:
                self._due_changed.wait(self._wakes_at - now)
                now = time.monotonic()
            if not self._due:
                self._worker = None
                return None
            return [lease for lease, due in self._due.items() if due <= now]

    def _renew(self, leases: list[RunLease | AttemptLease]) -> None:
        renewals = {lease: lease.renewal() for lease in leases}
        began = time.monotonic()
        extended: dict[str, bool] = {}
        try:
            patience = min(lease.length for lease in leases) / 3
            extended = leases[0].store.renew(list(renewals.values()), patience)
            self._failing = False
        except StoreClosed:
            with self._lock:
                for lease in leases:
                    self._due.pop(lease, None)
            return
        except SaysoError as error:
            if not self._failing:  # it is tried again soon, and would say the same
                log.warning("leases could not be renewed yet: %s", error)
            self._failing = True
        with self._lock:
            for lease, renewal in renewals.items():
                wait = lease.length / 3
                if extended.get(renewal.row):
                    lease.extend(renewal, began)
                elif renewal.row not in extended and not renewal.call:
                    wait = min(lease.length / 12, _LONGEST_RETRY)
                if lease in self._due:
                    self._due[lease] = time.monotonic() + wait


_renewers: WeakKeyDictionary[Store, LeaseRenewer] = WeakKeyDictionary()
_renewers_lock = fork_safe_lock()


def renewer_of(store: Store) -> LeaseRenewer:
    """Return the one renewer of a store in this process."""
    with _renewers_lock:
        renewer = _renewers.get(store)
        if renewer is None:
            renewer = _renewers[store] = LeaseRenewer()
        return renewer


def _is_parked(run: Run, due_at: Micros | None) -> bool:
    return run.status is RunStatus.PAUSED and run.ready_at == due_at


# --- re-entrancy ---
#
# Kept in the context, so that OS threads, loops and tasks that are started inside a call know it
# too, for as long as the call runs.


class working:
    """Note that this call or run is in progress inside ``with``; ``store_id`` is its store.

    ``lease`` is that of a framework's agent, which holds it for the whole run. ``errors`` gets the
    exceptions of the calls that this call makes.
    """

    __slots__ = ("_token", "call", "errors", "lease", "over", "run", "store_id")

    def __init__(
        self,
        store_id: str,
        run: str,
        call: str = "",
        *,
        lease: RunLease | None = None,
        errors: list[BaseException] | None = None,
    ) -> None:
        self.store_id = store_id
        self.run = run
        self.call = call
        self.lease = lease
        self.errors = errors
        self.over = False

    def __enter__(self) -> None:
        self._token = _around.set((*_around.get(), self))

    def __exit__(self, *exception: object) -> None:
        self.over = True
        _around.reset(self._token)


_around: contextvars.ContextVar[tuple[working, ...]] = os_threads.follow(
    contextvars.ContextVar("sayso_around", default=()), ()
)


def driving_lease(store_id: str, thread: str) -> RunLease | None:
    """Return the lease of the framework's agent that runs this thread here, if there is one."""
    for work in reversed(_around.get()):
        lease = work.lease
        if lease is not None and (work.store_id, lease.thread) == (store_id, thread):
            return None if work.over else lease
    return None


def note_inner_error(error: BaseException) -> None:
    """Pass the exception of a call to the call that made it, if any."""
    for work in reversed(_around.get()):
        if work.errors is not None:
            work.errors.append(error)
            return


def runs_here(call: str) -> bool:
    """Return whether this code is part of that call."""
    return any(work.call == call for work in _around.get() if not work.over)


def refuse_own_call(call: str) -> None:
    """Raise instead of waiting for a call that this code is part of."""
    if runs_here(call):
        raise Conflict(
            f"{call} would wait for itself, because this code is part of it: use another key for "
            "the call inside it, or make that call after it"
        )


def refuse_own_run(store_id: str, run: str) -> None:
    """Raise instead of waiting for a run that this code is part of."""
    around = (work for work in _around.get() if not work.over)
    if any(work.run == run and work.store_id == store_id for work in around):
        raise Conflict(
            f"run {run} would wait for itself, because this code is part of it: use another "
            "thread, or do this after the run"
        )


@dataclass(slots=True)
class DueRun:
    """A run to resume here, unless another process does."""

    run: str
    #: Whether we have worked on it.
    taken: bool = False

    def belongs_to_other_process(self, status: str) -> bool:
        """Return whether another process has brought it to this status, or is about to."""
        return not self.taken and status in _SET_BY_HOLDER


_SET_BY_HOLDER = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.DONE, RunStatus.FAILED)
_due: contextvars.ContextVar[DueRun | None] = contextvars.ContextVar("sayso_due", default=None)


@contextmanager
def leave_if_taken(run: str) -> Iterator[DueRun]:
    """Inside ``with``, leave this run to a process that already works on it; do not wait."""
    due = DueRun(run)
    with context_value(_due, due):
        yield due


def due_run_here(run: str) -> DueRun | None:
    """Return the run, if it is to be left to another process that works on it."""
    due = _due.get()
    return due if due is not None and due.run == run else None


def resume_outer(run: str, *, named: str) -> None:
    """Note that this run is resumed in place of ``named``, which is part of it."""
    if named != run and (due := due_run_here(named)) is not None:
        due.run = run


def note_taken(run: str) -> None:
    if (due := due_run_here(run)) is not None:
        due.taken = True
