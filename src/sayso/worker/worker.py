"""``Worker``: resumes runs that are ready and closes requests that are overdue.

A worker holds no state worth keeping. A ready run is a row, working on it is a lease, and the lease
of a killed worker lapses. So any number of workers may share a store, and any may stop at any time.

With a ``Dispatcher``, another engine decides when and where a run is resumed. It only needs to call
at least once, eventually: whether a run may be resumed, and by which worker, is still decided in
the store. A dispatcher that forgets, repeats or is down costs time and nothing else, and ``Relay``
scans the store slowly behind it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from sayso import codec
from sayso.agent import Agent, Resumable
from sayso.agent.agent import nested_stores, store_mismatch
from sayso.agent.events import Ended
from sayso.engine.commands import Note
from sayso.errors import SaysoError, StoreClosed
from sayso.gate.lease import DueRun, leave_if_taken
from sayso.rows import LIVE, Event, Run
from sayso.stores.base import Store
from sayso.stores.event_follower import EventFollower
from sayso.stores.nested_runs import close_overdue, wake_outer
from sayso.stores.outage import Outage, outage_of
from sayso.stores.sql import presence
from sayso.sync import read, to_thread
from sayso.types import Micros
from sayso.worker.steps import OnStep, Step, Steps, listen, recorded

log = logging.getLogger("sayso.worker")

#: How many seconds a worker relies on the store's notifications before it polls.
POLL_SECONDS = 5.0
#: The shortest time between two looks. Every commit notifies, and most concern work in progress.
_LOOK_EVERY = 0.008
#: The same while another part of this process drives a run, whose commits are not news.
_LOOK_EVERY_WHEN_BUSY = 0.025
#: How late a commit may become visible after the time that it made something due, in microseconds.
_LATE_COMMIT = 2_000_000
_SWEEP = 100
_MOST_SWEEPS = 1000
#: How long a look at the store may take after ``stop``: the store may be down.
_STOP_SECONDS = 1.0


class Worker:
    """Resumes ready runs of these agents, up to ``concurrency`` at once, until it is stopped.

    ``on_step`` is called with each step. ``streams`` sends the model's text to the agents'
    listeners as it arrives.
    """

    def __init__(
        self,
        agents: Iterable[Resumable],
        store: Store,
        *,
        concurrency: int = 8,
        on_step: OnStep | None = None,
        streams: bool = False,
    ) -> None:
        if type(concurrency) is not int or concurrency < 0:
            raise ValueError(f"concurrency={concurrency!r}: pass a whole number, or 0 for none")
        self.store = store
        self.concurrency = concurrency
        self._agents = _agents_by_name(agents)
        for agent in self._agents.values():
            if wrong := store_mismatch(agent, store):
                raise ValueError(f"{wrong}: pass it this store, or none")
        self.steps = Steps(on_step)
        #: The agents that report their own steps as events.
        self._reporting = {name for name, agent in self._agents.items() if listen(agent)}
        self._streams = streams
        self._name = secrets.token_hex(8)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: Counter[str] = Counter()
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        #: Set when something may be due, when there is room again, and on ``stop``.
        self._again = asyncio.Event()
        #: Everything due before this time was looked at; the next full look, whatever happens.
        self._seen = 0
        self._look_at = 0.0
        #: Whether something that was due before may still be waiting.
        self._behind = False

    @property
    def busy(self) -> int:
        """The number of runs it is working on."""
        return len(self._tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can resume."""
        return tuple(self._agents)

    @contextmanager
    def leaving(self, thread: str) -> Iterator[None]:
        """Leave the runs of a thread alone while other code in this process drives them."""
        self._left[thread] += 1
        try:
            yield
        finally:
            self._left[thread] -= 1
            if not self._left[thread]:
                del self._left[thread]
                if self._behind:
                    self._again.set()

    async def run(self) -> None:
        """Work until ``stop`` is called, then finish the runs in progress."""
        presence.announce(self.store)
        news = self.store.subscribe(None, partial(self._notified, asyncio.get_running_loop()))
        self._looking = looking = asyncio.create_task(self._look_until_stopped())
        following = [asyncio.create_task(each.run()) for each in self.nested_followers()]
        if "opentelemetry.sdk.trace" in sys.modules:
            from sayso.audit.spans import follow  # needs an extra

            following.append(asyncio.create_task(follow(self.store)))
        try:
            await asyncio.wait({looking})
        finally:
            for task in (looking, *following):
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            news.cancel()
        if not looking.cancelled():
            looking.result()
        await self.drained()

    def nested_followers(self) -> list[EventFollower]:
        """Return what wakes outer runs whose sub-agents keep their runs in another store.

        In one store, the run of a sub-agent wakes its outer run itself.
        """
        pairs = {
            (inner.incarnation, outer.incarnation): (inner, outer)
            for agent in self._agents.values()
            for inner, outer in nested_stores(agent, self.store)
        }
        return [
            # From the first event on: a run may have paused before the first worker started.
            EventFollower(
                inner,
                f"outer:{outer.incarnation}",
                lambda event: event.type in _WAKE_OUTER,
                partial(_wake_outer_runs, inner, outer),
            )
            for inner, outer in pairs.values()
        ]

    def stop(self) -> None:
        """Take no more runs. ``run`` returns when the runs in progress have paused or ended."""
        self._stopping.set()
        self._again.set()
        if self._looking is not None and not self._looking.done():
            self._looking.get_loop().call_later(_STOP_SECONDS, self._looking.cancel)

    def cut_short(self) -> None:
        """Stop and cancel the runs in progress. A call that had started is in doubt."""
        self.stop()
        for task in self._tasks.values():
            task.cancel()

    async def drained(self) -> None:
        """Wait for the runs in progress."""
        if self._tasks:
            runs = "1 run" if len(self._tasks) == 1 else f"{len(self._tasks)} runs"
            log.info("stopping: waiting for %s to pause or end", runs)
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- looking for ready runs

    async def _look_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._again.clear()
            began = time.monotonic()
            patience = await self._look_once()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(patience, 0.001)):
                    await self._again.wait()
            pause = _LOOK_EVERY_WHEN_BUSY if self._left else _LOOK_EVERY
            await asyncio.sleep(max(began + pause - time.monotonic(), 0))

    def _notified(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the worker after a commit. Called from any OS thread."""
        if not self._again.is_set():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._again.set)

    async def _look_once(self) -> float:
        """Start what is ready. Return the seconds until more may become due by the clock."""
        # Some of what is ready may be in progress here already: read past it.
        limit = max(self.concurrency - len(self._tasks), 0)
        skip = {*self._tasks, *self._left, *self._backoff.held()}
        behind = self._behind
        self._behind = False
        try:
            ready, came_due, now, soon = await read(self.store, self._read, limit, skip, behind)
            for run in ready:
                self.begin(run)
            if not limit or any(run.id not in self._tasks for run in ready):
                self._behind = True
            if came_due:
                if await read(self.store, self.store.overdue, 1):
                    await to_thread(self.sweep)
                    self._behind = self._behind or bool(limit)
                    self._again.set()  # calls that were in doubt may be ready again
                # What is due already must not shorten the wait.
                soon = await read(self.store, self.store.next_due, now)
                self._seen, self._look_at = now - _LATE_COMMIT, time.monotonic() + POLL_SECONDS
        except StoreClosed as error:
            log.warning("this worker stops: %s", error)
            self.stop()
            return 0.0
        except SaysoError as error:
            self._behind = True
            outage_of(self.store).failed(error)
            await asyncio.sleep(1)
            return 0.001
        outage_of(self.store).over()
        patience = POLL_SECONDS if soon is None else min((soon - now) / 1_000_000, POLL_SECONDS)
        return min(patience, self._backoff.patience())

    def _read(
        self, limit: int, skip: set[str], behind: bool
    ) -> tuple[list[Run], bool, Micros, Micros | None]:
        """Return the ready runs, whether anything came due, the time, and when more will be due.

        Nearly every commit is work in progress that makes nothing due. What a late commit or a
        clock that was set back hides is found by the next poll.
        """
        now = self.store.now()
        soon = self.store.next_due(self._seen)
        came_due = (soon is not None and soon <= now) or time.monotonic() >= self._look_at
        must_look = limit and self._agents and (came_due or behind)
        reserve = partial(self.store.reserve, self.names, limit, self._name, skip)
        return reserve() if must_look else [], came_due, now, soon

    def sweep(self) -> None:
        """Close overdue requests, and mark the calls of lost processes as in doubt."""
        for closed in close_overdue(self.store, _SWEEP, _MOST_SWEEPS):
            self.steps.swept(closed)

    # -- working on a run

    def begin(self, run: Run) -> asyncio.Task[None] | None:
        """Return the task that works on a run, starting it if needed; None if it must wait."""
        if run.id not in self._tasks:
            if run.thread in self._left or self._backoff.holds(run.id):
                return None
            self._tasks[run.id] = task = asyncio.create_task(self._step(run))
            task.add_done_callback(self._ended)
        return self._tasks[run.id]

    def _ended(self, _: object) -> None:
        self._behind = True
        self._again.set()

    def patience(self, run_id: str) -> float:
        """Return the seconds until a run that failed may be tried again."""
        return self._backoff.left(run_id)

    async def _step(self, run: Run) -> None:
        began = time.monotonic()
        status = "broke"
        self.steps.tell(Step("taken", run.agent, run.id))
        try:
            with self.steps.during(), leave_if_taken(run.id) as due:
                status = await self._watched(run, due)
            if due.belongs_to_other_process(status):
                status = "left"  # another worker was faster
            self._backoff.forget(run.id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            again, times = self._backoff.failed(run.id)
            ours = isinstance(error, SaysoError)  # its message says what to do: no traceback
            reason = f"{type(error).__name__}: {error}" if ours else type(error).__name__
            line = "run %s of %s: %s; trying again in %.0f s"
            log.error(line, run.id, run.agent, reason, again, exc_info=not ours)
            if times > 1 and times & (times - 1) == 0:  # the 2nd, 4th, 8th, … failure
                await self._record_failure(run, reason, times)
        finally:
            self._tasks.pop(run.id, None)
            seconds = time.monotonic() - began
            self.steps.tell(Step(status, run.agent, run.id, seconds=seconds))

    async def _record_failure(self, run: Run, said: str, times: int) -> None:
        """Record that a run keeps failing, because not everyone reads this log."""
        body = {"error": said, "times": times}
        note = Note(thread=run.thread, type="broke", actor="worker", run=run.id, body=body)
        try:
            await to_thread(self.store.transact, note)
        except SaysoError as error:
            log.warning("the failures of run %s could not be recorded: %s", run.id, error)

    async def _watched(self, run: Run, due: DueRun) -> str:
        """Resume a run. If its agent sends no events, report its steps from the record."""
        agent = self._agents[run.agent]
        if run.agent in self._reporting:
            return await self._resumed(agent, run.id)
        thread = await to_thread(self.store.thread, run.thread)
        try:
            return await self._resumed(agent, run.id)
        finally:
            if due.taken:  # else the worker that has it reports them
                with suppress(SaysoError):  # only reporting failed; the run's status is known
                    event_count = 0 if thread is None else thread.seq
                    for step in await to_thread(recorded, self.store, run, event_count):
                        self.steps.tell(step)

    async def _resumed(self, agent: Resumable, run: str) -> str:
        if self._streams and isinstance(agent, Agent):
            async for event in agent.stream_resume(run):
                if isinstance(event, Ended):
                    return event.result.status
        return (await agent.resume(run)).status


#: Events after which the run of a sub-agent is ready or over.
_WAKE_OUTER = frozenset({"decided", "expired", "retried", "finished", "run_cancelled"})


async def _wake_outer_runs(inner: Store, outer: Store, events: Sequence[Event]) -> None:
    """Make the outer runs of these runs due."""
    for name in dict.fromkeys(event.run for event in events):
        run = await to_thread(inner.run, name)
        if run is not None and run.parent_call is not None:
            await to_thread(wake_outer, outer, run.parent_call)


def _agents_by_name(agents: Iterable[Resumable]) -> dict[str, Resumable]:
    """Map each name whose runs an agent can resume to that agent."""
    by_name: dict[str, Resumable] = {}
    for agent in agents:
        for name in getattr(agent, "names", (agent.name,)):
            if name in by_name and name == agent.name:
                raise ValueError(f"two agents are called {name!r}: rename one")
            by_name.setdefault(name, agent)
    return by_name


class Backoff:
    """How long to leave runs alone that failed. In memory only: safety does not depend on it."""

    FIRST = 1.0
    LONGEST = 300.0

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, int]] = {}

    def held(self) -> list[str]:
        """Return the runs that it is too early to try again."""
        return [run for run in self._until if self.holds(run)]

    def failed(self, run: str) -> tuple[float, int]:
        """Count a failure. Return the seconds until the next try and the number of failures."""
        _, times = self._until.get(run, (0.0, 0))
        wait: float = min(self.FIRST * 2**times, self.LONGEST)
        self._until[run] = (time.monotonic() + wait, times + 1)
        return wait, times + 1

    def forget(self, run: str) -> None:
        """Reset a run after a success."""
        self._until.pop(run, None)

    def holds(self, run: str) -> bool:
        """Return whether it is too early to try a run again."""
        return self.left(run) > 0

    def left(self, run: str) -> float:
        """Return the seconds until a run may be tried again."""
        until, _ = self._until.get(run, (0.0, 0))
        return max(until - time.monotonic(), 0.0)

    def patience(self) -> float:
        """Return the seconds until the first run may be tried again."""
        return min(map(self.left, self.held()), default=self.LONGEST)


# --- dispatchers ---

#: Seconds between scans of the store, and how long a ready run is left to the dispatcher.
SCAN_SECONDS = 60.0
_MOST_SCANNED = 1000
#: Events after which a run that no process works on may be ready.
_MAKE_READY = frozenset(
    {"decided", "expired", "cancelled", "superseded", "in_doubt", "retried", "suspended", "woken"}
    | {"held"}
)


class Dispatcher(Protocol):
    """Brings a run to some worker, at least once, eventually. Safety does not depend on it."""

    async def wake(self, run: Run) -> None:
        """Schedule a look at the run soon."""

    async def at(self, run: Run, time: Micros) -> None:
        """Schedule a look at the run for this time, on the store's clock."""


class Relay:
    """Tells a dispatcher which runs of a worker's agents are ready, and when.

    A run that is still ready after ``scan`` seconds is resumed by the worker itself. ``outage`` is
    told while the dispatcher cannot be reached.
    """

    def __init__(
        self,
        worker: Worker,
        dispatcher: Dispatcher,
        *,
        scan: float = SCAN_SECONDS,
        outage: Outage | None = None,
    ) -> None:
        self._worker = worker
        self._store = worker.store
        self._dispatcher = dispatcher
        self._scan = scan
        # Workers with the same agents share a cursor; workers with others need their own.
        agents = codec.sha256(codec.dumps(sorted(worker.names)).encode())[:16]
        self._follower = EventFollower(
            self._store, f"dispatch:{agents}", _may_need_look, self._dispatch, outage
        )

    async def run(self) -> None:
        nested = [follower.run() for follower in self._worker.nested_followers()]
        await asyncio.gather(self._follower.run(), self._scan_store(), *nested)

    async def _dispatch(self, events: Sequence[Event]) -> None:
        for name in dict.fromkeys(event.run for event in events):
            run = await to_thread(self._store.run, name)
            if run is None or run.agent not in self._worker.names:
                continue
            time = await to_thread(next_look, self._store, run)
            if time is None:
                continue
            if time <= self._store.now():
                await self._dispatcher.wake(run)
            else:
                await self._dispatcher.at(run, time)
            self._worker.steps.tell(Step("dispatched", run.agent, run.id))

    async def _scan_store(self) -> None:
        while True:
            try:
                await to_thread(self._worker.sweep)
                ready = await to_thread(self._store.ready, self._worker.names, _MOST_SCANNED)
                late = self._store.now() - round(self._scan * 1_000_000)
                for run in ready:
                    if run.due(late) and self._worker.busy < self._worker.concurrency:
                        log.warning("run %s: the dispatcher is late, resuming without it", run.id)
                        self._worker.begin(run)
            except StoreClosed:
                return
            except Exception as error:
                outage_of(self._store).failed(error)
            await asyncio.sleep(self._scan)


def _may_need_look(event: Event) -> bool:
    """Return whether an event may make a run ready, now or at some time."""
    if event.type in ("asked", "reasked", "escalated", "recorded"):
        body = {} if event.body is None else codec.loads(event.body)
        return any(body.get(name) for name in ("expires", "reminds", "escalates", "late"))
    return event.type in _MAKE_READY


def next_look(store: Store, run: Run) -> Micros | None:
    """Return when a run is ready, its lease ends or a request is due; None if never."""
    if run.status not in LIVE:
        return None
    times = [run.ready_at]
    if run.asked:
        for call in store.calls_of(run.id):
            times += (call.due_at, call.step_at)
    return min((time for time in times if time is not None), default=None)
