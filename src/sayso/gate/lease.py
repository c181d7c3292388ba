"""The right of one process to work on a run: claimed, kept by heartbeats, given back.

A lease is two fields of the run's row (``owner`` and ``ready_at``) and a token that goes up each
time the run changes hands. The store's clock decides when a lease ends. The process that holds it
also watches the end on its own monotonic clock, so that it notices however the clocks jump.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing, suppress
from typing import Any

from sayso.engine import Command
from sayso.engine.commands import Cancel, Claim, Finish, Look, Park, Propose, Renew, Reopen
from sayso.errors import Conflict, Leased, SaysoError, StoreError
from sayso.forking import generation, renew_in_child
from sayso.gate.reentrancy import due_here, refuse_own_run, took
from sayso.rows import LIVE, Call, CallStatus, Run, RunStatus
from sayso.stores.base import Store
from sayso.stores.nested_runs import call_off, release_lapsed
from sayso.sync import CommitWaiter, read, to_thread, write
from sayso.types import Micros, moment

log = logging.getLogger("sayso.gate")

#: How long to trust the store's news before looking again.
_LONGEST_NAP = 5.0
#: How long the heartbeat thread sleeps when no lease is due earlier.
_IDLE = 5.0
NEW_INPUT = "the user wrote something new"


class RunLease:
    """The lease of one process on one run, or its wish for one."""

    def __init__(self, store: Store, owner: str, length: float) -> None:
        self.store = store
        self.owner = owner
        self.length = length
        self.thread = ""
        self.run = ""
        #: The token of the last lease that was ours.
        self.token: int | None = None
        self._ends = 0.0
        self._kept = False
        self._kept_in = generation()

    def on(self, thread: str, run: str) -> RunLease:
        """Name the run that the lease is for."""
        self.thread, self.run = thread, run
        return self

    @property
    def micros(self) -> int:
        """The length in the store's unit."""
        return round(self.length * 1_000_000)

    # -- looking

    def current(self) -> Run:
        """The run as it is stored now."""
        run = self.store.run(self.run)
        if run is None:
            raise Conflict(f"run {self.run} is gone from the store: it was pruned")
        return run

    def elsewhere(self, run: Run) -> bool:
        """Whether another process works on the run right now."""
        return run.owner != self.owner and run.leased(self.store.now())

    @property
    def lapsed(self) -> bool:
        """Whether our lease is over by this machine's own measure, or is a parent process's."""
        inherited = self._kept_in != generation()
        return self._kept and (inherited or time.monotonic() >= self._ends)

    async def wait(self, until: float | None = None) -> Run:
        """Wait until no other process works on the run, and return the run.

        ``until`` is a moment on the monotonic clock: raise ``Leased`` if it comes first.
        """
        run = await read(self.store, self.current)
        while run.status in LIVE and self.elsewhere(run):
            if due_here(run.id):
                return run
            refuse_own_run(self.store.incarnation, run.id)
            with closing(CommitWaiter(self.store, run.thread)) as commits:
                run = await read(self.store, self.current)
                if run.status in LIVE and self.elsewhere(run):
                    await commits.wait(nap(self.store, run, until))
            run = await read(self.store, self.current)
        return run

    async def make_room(self, thread: str, by: str) -> None:
        """Wait until the thread has no live run: new input supersedes a paused one."""
        with closing(CommitWaiter(self.store, thread)) as commits:
            while (live := await read(self.store, self.store.live_run, thread)) is not None:
                refuse_own_run(self.store.incarnation, live.id)
                if live.leased(self.store.now()):
                    await commits.wait(nap(self.store, live))
                else:
                    await to_thread(call_off, self.store, live, by, NEW_INPUT, superseded=True)

    # -- taking

    def claim(self) -> Claim:
        """The command that takes the run if no other process holds it."""
        return Claim(
            thread=self.thread, run=self.run, owner=self.owner, lease=self.micros, force=True
        )

    async def take(self) -> Run | None:
        """Take the run; nothing if another process was faster, or the run is over."""
        began = time.monotonic()
        (claimed,) = await write(self.store, self.claim())
        if claimed is not None:
            self.keep(claimed.token, began)
        run: Run | None = claimed
        return run

    async def take_thread(self, agent: str, thread: str, run: str, requester: str) -> Run | None:
        """Take the run of a framework's thread for new input, opening it again if it is over."""
        self.on(thread, run)
        reopen = Reopen(thread=thread, run=run, by=requester)
        propose = Propose(thread=thread, run=run, agent=agent, requester=requester, hold=True)
        began = time.monotonic()
        _, _, claimed = await write(self.store, reopen, propose, self.claim())
        if claimed is not None:
            self.keep(claimed.token, began)
        taken: Run | None = claimed
        return taken

    def keep(self, token: int, began: float) -> None:
        """Renew the lease of this token from now on; it was asked for at ``began``."""
        self.drop()
        self.token, self._ends, self._kept = token, began + self.length, True
        self._kept_in = generation()
        took(self.run)
        KEEPER.keep(self)

    def renew(self) -> None:
        """Push the end out, if the store agrees that the lease is still ours."""
        began, token = time.monotonic(), self.token
        try:
            (ours,) = self.store.transact(self._renewal(self.micros))
        except SaysoError as error:
            log.warning("run %s: lease could not be renewed: %s", self.run, error)
            return
        if ours and token == self.token:
            self._ends = began + self.length

    def _renewal(self, lease: int) -> Renew:
        assert self.token is not None
        return Renew(thread=self.thread, run=self.run, token=self.token, lease=lease)

    # -- giving back

    def drop(self) -> None:
        """Stop renewing; the last commit may have given the row back already."""
        if self._kept:
            self._kept = False
            KEEPER.drop(self)

    async def free_lapsed(self) -> tuple[Call, ...]:
        """Free the run of a process that went away; the calls that are in doubt now."""
        doubted = await to_thread(release_lapsed, self.store, self.thread, self.run)
        if doubted:
            took(self.run)
        return doubted

    async def park(self, run: Run, due_at: Micros | None = None) -> Run:
        """Give the lease back because only people can move the run on.

        ``run`` is the row as it was when the work began: the run stays due if a decision came
        since, or from ``due_at`` on. Raises ``Conflict`` if another process took the run.
        """
        self.drop()
        if _is_parked(run, due_at):  # the commit that asked has given the lease back
            return run
        seen = await read(self.store, self.current)
        ours = seen.status in LIVE and seen.owner in (None, self.owner)
        if _is_parked(seen, due_at) or not ours:
            return seen
        fence = {"token": seen.token, "wake_seen": run.wake}
        command = Park(thread=run.thread, run=run.id, **fence, due_at=due_at)
        (row,) = await write(self.store, command)
        took(run.id)
        parked_run: Run = row
        return parked_run

    def stop(self) -> Run:
        """End a run that was called off while we worked on it, if nothing of it runs any more."""
        self.drop()
        run = self.current()
        if run.stop and run.status in LIVE:
            again = Cancel(thread=run.thread, run=run.id, by="engine", reason=run.stop)
            self.store.transact(again)
        return self.current()

    def finish(self, output: str) -> Run:
        """The agent has come to an end; what it left unasked for nobody will run."""
        self.drop()
        run = self.current()
        if run.stop:
            return self.stop()
        if run.owner in (None, self.owner):  # else another process has taken it meanwhile
            supersede(self.store, run, "agent", "the agent ended without it")
            finish = Finish(
                thread=run.thread, run=run.id, status="done", output=output, token=run.token
            )
            with suppress(Conflict):
                self.store.transact(finish)
        return self.current()

    def release(self) -> None:
        """Something raised: end the lease in the store too, so that nobody waits for its end."""
        self.drop()
        if self.token is None:
            return
        try:
            run = self.store.run(self.run)
            if run is not None and run.status in LIVE and run.owner == self.owner:
                self.store.transact(self._renewal(0))
                release_lapsed(self.store, self.thread, self.run)
        except StoreError:
            return  # then it ends by itself

    def given_back(self, claimed: Run) -> list[Command]:
        """The commands that undo a claim which its caller never heard of."""
        renew = Renew(thread=claimed.thread, run=claimed.id, token=claimed.token, lease=0)
        return [renew]

    def seen(self) -> Look:
        """Read the run as a transaction leaves it."""
        return Look(thread=self.thread, run=self.run)


def nap(store: Store, run: Run, until: float | None = None) -> float:
    """How long to trust the news: until the lease may be over, and never for long.

    Raises ``Leased`` if ``until``, on the monotonic clock, is over.
    """
    now = store.now()
    left = max(((run.ready_at or now) - now) / 1_000_000, 0.0) + 0.01
    if until is not None:
        if time.monotonic() >= until:
            raise leased(run)
        left = min(left, until - time.monotonic())
    return max(min(left, _LONGEST_NAP), 0.001)


def leased(run: Run) -> Leased:
    """The error for a caller that does not wait for another process."""
    ends = moment(run.ready_at or 0)
    return Leased(
        f"run {run.id} is leased until {ends:%Y-%m-%d %H:%M:%S} UTC by {run.owner}: another "
        "process works on it, or died; come back then, or wait for it (wait=None)"
    )


def supersede(
    store: Store, run: Run, by: str, reason: str = NEW_INPUT, *, keys: Any = lambda key: True
) -> None:
    """Close what a run has asked and not started; the run itself goes on.

    ``keys`` tells by a call's key whether it is meant.
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


class Keeper:
    """Renews leases at a third of their length for as long as they are kept.

    The thread wakes by itself often enough for a lease of usual length, so that a call that ends at
    once costs no hand-over between OS threads.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without leases: those of a parent are renewed there."""
        self._condition = threading.Condition()
        self._leases: dict[RunLease, float] = {}
        self._worker: threading.Thread | None = None
        self._wakes_at = 0.0

    def keep(self, lease: RunLease) -> None:
        """Renew this lease from now on."""
        due = time.monotonic() + lease.length / 3
        with self._condition:
            self._leases[lease] = due
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(target=self._run, name="sayso-lease", daemon=True)
                self._worker.start()
            elif due < self._wakes_at:
                self._condition.notify()

    def drop(self, lease: RunLease) -> None:
        """Stop renewing it."""
        with self._condition:
            self._leases.pop(lease, None)

    def _run(self) -> None:
        while True:
            with self._condition:
                now = time.monotonic()
                due = [lease for lease, at in self._leases.items() if at <= now]
                if not due:
                    self._wakes_at = min([now + _IDLE, *self._leases.values()])
                    self._condition.wait(self._wakes_at - now)
                    continue
                for lease in due:
                    self._leases[lease] = now + lease.length / 3
            for lease in due:
                lease.renew()


KEEPER = Keeper()


def _is_parked(run: Run, due_at: Micros | None) -> bool:
    return run.status is RunStatus.PAUSED and run.ready_at == due_at
