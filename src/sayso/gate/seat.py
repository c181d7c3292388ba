"""The right to drive one thread of somebody else's agent: a lease on its run in the store."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.engine.commands import Cancel, Claim, Doubt, Finish, Propose, Renew
from sayso.errors import Cancelled, Conflict, NotFound, StoreError
from sayso.gate.foreign import MOST_WAITING, run_of, runs_of
from sayso.gate.inside import refuse_own_run
from sayso.gate.leases import KEEPER, Lease
from sayso.gate.scope import RunScope
from sayso.rows import LIVE, Call, CallStatus, Run
from sayso.stores.base import Query, Store
from sayso.stores.inner import expire
from sayso.twin import News, hop, look, write

if TYPE_CHECKING:
    from sayso.gate.gate import Gate

_LONGEST_NAP = 5.0
_NEW_WORDS = "the user wrote something new"


class Seat:
    """Taken by one process at a time; the others wait for it, or for the end of the lease."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.store = gate.store
        self.owner = f"{gate.owner}:{secrets.token_hex(4)}"
        self._lease: Lease | None = None

    # -- looking

    def find(self, where: str) -> Run:
        """The run of this agent that a run's id or a thread means."""
        agent = self.gate.agent
        named = self.store.run(where)
        runs = [named] if named is not None else runs_of(self.store, agent, where)
        if not runs:
            raise NotFound(f"no run and no thread {where!r} of {agent!r} in {self.store.url}")
        run = runs[-1]
        if run.agent != agent:
            raise Conflict(
                f"run {run.id} belongs to agent {run.agent!r}, not to {agent!r}: resume it with "
                "the agent that began it"
            )
        return run

    def taken(self, run: Run) -> bool:
        """Whether somebody drives the thread right now."""
        return run.owner is not None and (run.ready_at or 0) > self.store.now()

    def open_calls(self, run: Run) -> list[Call]:
        """The calls of a run that wait for people."""
        if not (run.asked or run.in_doubt):
            return []
        query = Query(status="pending", run=run.id, limit=MOST_WAITING)
        return [call for _, call in self.store.page(query)]

    def look_at_the_clock(self, run: Run) -> Run:
        """Close what is overdue."""
        for call in self.open_calls(run):
            ends = call.expires_at
            if call.status is CallStatus.ASKED and ends is not None and ends <= self.store.now():
                expire(self.store, call)
        return self.find(run.id)

    async def wait(self, run: Run) -> None:
        """Wait for what comes of somebody else's drive, or for the end of its lease."""
        with closing(News(self.store, run.thread)) as news:
            seen = await look(self.store, self.find, run.id)
            if self.taken(seen):
                refuse_own_run(self.store.incarnation, seen.id)
                left = ((seen.ready_at or 0) - self.store.now()) / 1_000_000
                await news.wait(min(max(left, 0.0) + 0.01, _LONGEST_NAP))

    # -- taking

    async def take(self, run: Run) -> Run | None:
        """Take a run that nobody has; nothing if somebody was faster, or it is over."""
        began = time.monotonic()
        (claimed,) = await write(self.store, self._claim(run.thread, run.id))
        return self._keep(claimed, began)

    async def take_thread(self, thread: str, requester: str) -> Run:
        """Take a thread for new words: over a pause they supersede, over a drive they wait."""
        while True:
            live = await look(self.store, self.store.live_run, thread)
            if live is not None and live.agent != self.gate.agent:
                raise Conflict(
                    f"thread {thread!r} is in use by agent {live.agent!r} ({live.id}): threads are "
                    "shared by all agents of a store, so give this one another name"
                )
            if live is not None and self.taken(live):
                await self.wait(live)
                continue
            if live is not None and live.stop:
                live = await hop(self.stop, live)
            if live is not None and live.status in LIVE:
                await hop(supersede, self.store, live, requester or "user")
            run = await look(self.store, run_of, self.store, self.gate.agent, thread)
            agent = self.gate.agent
            # Whoever took it since that look has it: their lease stays, and is waited for.
            propose = Propose(thread=thread, run=run, agent=agent, requester=requester, hold=True)
            began = time.monotonic()
            _, claimed = await write(self.store, propose, self._claim(thread, run))
            if (taken := self._keep(claimed, began)) is not None:
                return taken

    def _claim(self, thread: str, run: str) -> Claim:
        lease = self.gate.lease_micros
        return Claim(thread=thread, run=run, owner=self.owner, lease=lease, force=True)

    def _keep(self, run: Run | None, began: float) -> Run | None:
        if run is not None:
            self._lease = Lease(self.store, run.thread, run.id, run.token, self.gate.lease, began)
            KEEPER.keep(self._lease)
        return run

    def scope(self, run: Run) -> RunScope:
        """The run, for everything that asks at the gate while it is driven."""
        return RunScope(
            self.gate, run.id, run.requester, thread=run.thread, owner=self.owner, hold=True
        )

    # -- giving back

    def _drop(self) -> None:
        if self._lease is not None:
            KEEPER.drop(self._lease)
            self._lease = None

    def _ours(self, run: Run) -> bool:
        """Whether nobody else has taken the run meanwhile."""
        seen = self.store.run(run.id)
        return seen is not None and seen.owner in (None, self.owner)

    def park(self, run: Run) -> Run:
        """Only people can go on: let go. The run stays due if a decision came meanwhile."""
        self._drop()
        seen = self.find(run.id)
        if seen.owner in (None, self.owner):
            command = Propose(
                thread=run.thread,
                run=run.id,
                agent=self.gate.agent,
                waits=True,
                wake_seen=run.wake,
                token=seen.token,
            )
            try:
                self.store.transact(command)
            except Cancelled:
                self.stop(run)
            except Conflict:
                pass  # somebody took it since that look, and has it
        return self.find(run.id)

    def stop(self, run: Run) -> Run:
        """It was called off while it was driven: let it end so, if nothing of it runs any more."""
        self._drop()
        seen = self.find(run.id)
        if seen.stop and seen.status in LIVE:
            again = Cancel(thread=seen.thread, run=seen.id, by="engine", reason=seen.stop)
            self.store.transact(again)
        return self.find(run.id)

    def finish(self, run: Run, output: Any) -> Run:
        """The framework has come to an end."""
        self._drop()
        if self.find(run.id).stop:
            return self.stop(run)
        if self._ours(run):
            # What the framework has left behind nobody will run, so nobody need decide it.
            supersede(self.store, self.find(run.id), "agent", "the agent ended without it")
            text = codec.dumps(output)
            finish = Finish(thread=run.thread, run=run.id, status="done", output=text)
            self.store.transact(finish)
        return self.find(run.id)

    def release(self, run: Run) -> None:
        """Something raised: the run stands where it stood, and whoever likes may take it."""
        self._drop()
        renew = Renew(thread=run.thread, run=run.id, token=run.token, lease=0)
        try:
            seen = self.store.run(run.id)
            if seen is not None and seen.status in LIVE and seen.owner == self.owner:
                self.store.transact(renew, Doubt(thread=run.thread, run=run.id))
        except StoreError:
            return  # then the lease ends by itself


def supersede(
    store: Store,
    run: Run,
    by: str,
    reason: str = _NEW_WORDS,
    *,
    over: Callable[[str], bool] = lambda key: True,
) -> None:
    """Close what a run has asked and not started; the run itself goes on. Where not all of it is
    meant, ``over`` tells by a call's key."""
    for call in store.calls_of(run.id) if run.asked or run.ready else ():
        if call.status in (CallStatus.ASKED, CallStatus.READY) and over(call.key):
            command = Cancel(
                thread=run.thread,
                run=run.id,
                call=call.id,
                by=by,
                reason=reason,
                superseded=True,
            )
            store.transact(command)
