"""The right to work on a run: taken with a claim, kept by heartbeats, given back at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from sayso.agent.job import Job
from sayso.engine.commands import Claim, Doubt, Look, Propose, Renew, Start
from sayso.errors import Conflict, StoreError
from sayso.gate.begun import take_back
from sayso.gate.inside import refuse_own_run, took
from sayso.gate.leases import KEEPER, Lease
from sayso.rows import LIVE, Call, Run, RunStatus
from sayso.twin import News, look, write, write_start
from sayso.types import Micros

_LONGEST_NAP = 5.0


def nap(run: Run, now: Micros) -> float:
    """How long to trust the news: until the lease may be over, and never for too long."""
    left = ((run.ready_at or now) - now) / 1_000_000
    return min(max(left, 0.0) + 0.01, _LONGEST_NAP)


class Hold:
    """This process's lease on the run of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store = job.store
        #: The token of the last lease: what speaks for an older one is refused.
        self.token: int | None = None
        self._lease: Lease | None = None

    # -- looking

    def the_run(self) -> Run:
        """The run as it stands."""
        run = self.store.run(self.job.run)
        if run is None:
            raise Conflict(f"run {self.job.run} is gone from the store: it was pruned")
        return run

    def elsewhere(self, run: Run) -> bool:
        """Whether somebody else works on it right now."""
        return run.owner not in (None, self.job.owner) and not self.over(run)

    def over(self, run: Run) -> bool:
        """Whether its lease is past its end, so that whoever had it may be dead."""
        return run.owner is not None and (run.ready_at or 0) <= self.store.now()

    @property
    def lapsed(self) -> bool:
        """Whether our own lease is over by this machine's own measure."""
        return self._lease is not None and self._lease.lapsed

    async def wait(self) -> None:
        """Somebody else works on the run: wait for what comes of that, or for a lease's end."""
        with closing(News(self.store, self.job.thread)) as news:
            run = await look(self.store, self.the_run)
            if self.elsewhere(run):
                refuse_own_run(self.store.incarnation, run.id)
                await news.wait(nap(run, self.store.now()))

    # -- taking

    async def take(self, ready: Sequence[Call]) -> tuple[tuple[Call, ...], Run]:
        """Take the run and start these calls, in one commit; Conflict if somebody was faster."""
        job, lease = self.job, self.job.gate.lease_micros
        commands: list[Any] = [self.claim()]
        if ready:
            ids = tuple(call.id for call in ready)
            commands.append(
                Start(thread=job.thread, run=job.run, calls=ids, owner=job.owner, lease=lease)
            )
        began = time.monotonic()
        commands.append(Look(thread=job.thread, run=job.run))
        claimed, *started, run = await write_start(self.store, self._take_back, *commands)
        if claimed is None:
            raise Conflict(f"somebody else works on run {job.run}")
        self.keep(claimed.token, began)
        calls: tuple[Call, ...] = started[0] if started else ()
        return calls, run

    def _take_back(self, results: list[Any]) -> list[Any]:
        """What gives back a run that was taken, and its calls, if we are stopped before we know."""
        claimed, *started, _ = results
        if claimed is None:
            return []
        ours = [call.id for call in started[0] if call.token == claimed.token] if started else []
        renew = Renew(thread=claimed.thread, run=claimed.id, token=claimed.token, lease=0)
        return take_back(ours, started) if ours else [renew]

    def claim(self) -> Claim:
        """The command that takes a run which nobody holds."""
        job = self.job
        lease = job.gate.lease_micros
        return Claim(thread=job.thread, run=job.run, owner=job.owner, lease=lease, force=True)

    def keep(self, token: int, began: float) -> None:
        """Renew the lease of this token from now on."""
        self.drop()
        self.token = token
        job = self.job
        self._lease = Lease(self.store, job.thread, job.run, token, job.gate.lease, began)
        KEEPER.keep(self._lease)

    # -- giving back

    def drop(self) -> None:
        """Renew it no longer; the row may have been let go of already, in the last commit."""
        if self._lease is not None:
            KEEPER.drop(self._lease)
            self._lease = None

    async def doubt(self) -> tuple[Call, ...]:
        """Say what a process that is gone has left behind; nothing if it is still at work."""
        command = Doubt(thread=self.job.thread, run=self.job.run)
        (doubted,) = await write(self.store, command)
        calls: tuple[Call, ...] = doubted
        if calls:
            took(self.job.run)
        return calls

    async def park(self, run: Run) -> bool:
        """Only people can go on: let go. No if a decision came after ``run`` was read; Conflict if
        somebody took it since then."""
        ours = run.owner == self.job.owner
        due = run.owner is None and run.ready_at is not None
        if ours or due:
            job = self.job
            command = Propose(
                thread=job.thread,
                run=job.run,
                agent=job.agent.name,
                waits=True,
                wake_seen=run.wake,
                token=run.token,
            )
            await write(self.store, command)
            took(job.run)
            run = await look(self.store, self.the_run)
        self.drop()
        return run.status is not RunStatus.RUNNING

    def release(self) -> None:
        """Something raised: end the lease in the store too, so that nobody waits for its end."""
        self.drop()
        if self.token is None:
            return
        job, token = self.job, self.token
        renew = Renew(thread=job.thread, run=job.run, token=token, lease=0)
        try:
            run = self.store.run(job.run)
            if run is not None and run.status in LIVE and run.owner == job.owner:
                self.store.transact(renew, Doubt(thread=job.thread, run=job.run))
        except StoreError:
            return  # then it ends by itself
