"""A worker: it takes runs that are due further, and closes what is overdue.

It holds nothing that is worth keeping. A run that is due is a row; taking it is a lease; a worker
that is killed leaves a lease that lapses. So any number of workers may look at one store, and any
of them may go away at any time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from sayso.agent import Agent
from sayso.agent.events import Ended
from sayso.agent.resumable import Resumable, Standing, elsewhere
from sayso.engine.commands import Note
from sayso.errors import SaysoError
from sayso.gate.reentrancy import Due, unless_taken
from sayso.rows import Run
from sayso.stores.base import Store
from sayso.stores.nested_runs import close_overdue
from sayso.twin import hop, look
from sayso.types import Micros
from sayso.worker.backoff import Backoff
from sayso.worker.steps import Hear, Step, Steps, listen, recorded

log = logging.getLogger("sayso.worker")

#: How long a worker trusts the news of the store before it looks by itself.
LOOK_AGAIN = 5.0
#: Every commit is news, and most are of work in progress: it looks this often, and no more.
_BREATH = 0.008
#: The same while somebody in this process is at work, whose commits are no news.
_LONG_BREATH = 0.025
#: How long a commit may take until others see what came due in it, in microseconds.
_LATE = 2_000_000
_SWEEP = 100
_MOST_SWEEPS = 1000
#: How long a look at the store may still take when it has to stop: the store may be away.
_GRACE = 1.0


class Worker:
    """Resumes due runs of these agents, a few at a time, until it is stopped.

    ``on_step`` hears of each step. ``streams`` lets the agents' listeners hear the model's words
    as they come.
    """

    def __init__(
        self,
        agents: Iterable[Resumable],
        store: Store,
        *,
        concurrency: int = 8,
        on_step: Hear | None = None,
        streams: bool = False,
    ) -> None:
        if type(concurrency) is not int or concurrency < 0:
            raise ValueError(f"concurrency={concurrency!r}: give 0 for none, or a whole number")
        self.store = store
        self.concurrency = concurrency
        self._agents = _by_name(agents)
        for agent in self._agents.values():
            if wrong := elsewhere(agent, store):
                raise ValueError(f"{wrong}: give it this one, or let it name none")
        self.steps = Steps(on_step)
        #: The agents that say themselves what they do.
        self._speak = {name for name, agent in self._agents.items() if listen(agent)}
        self._streams = streams
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: Counter[str] = Counter()
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        #: Something may have become due, or there is room again, or it has to stop.
        self._again = asyncio.Event()
        #: Up to when everything was looked at, on the store's clock, and when to do so anyway.
        self._seen, self._look_at = 0, 0.0
        #: Whether something may be due that came due before.
        self._behind = False

    @property
    def busy(self) -> int:
        """How many runs it works on right now."""
        return len(self._tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can take further."""
        return tuple(self._agents)

    @contextmanager
    def leaving(self, thread: str) -> Iterator[None]:
        """Leave the runs of a thread to somebody else in this process, who is at them."""
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
        """Work until ``stop``; what was begun by then is finished first."""
        news = self.store.subscribe(None, partial(self._heard, asyncio.get_running_loop()))
        self._looking = looking = asyncio.create_task(self._look_on())
        try:
            await asyncio.wait({looking})
        finally:
            looking.cancel()
            news.cancel()
        if not looking.cancelled():
            looking.result()
        await self.drained()

    async def _look_on(self) -> None:
        while not self._stopping.is_set():
            self._again.clear()
            began = time.monotonic()
            await self._rest(await self._safely())
            breath = _LONG_BREATH if self._left else _BREATH
            await asyncio.sleep(max(began + breath - time.monotonic(), 0))

    def _heard(self, loop: asyncio.AbstractEventLoop) -> None:
        """From any thread: something was committed."""
        if not self._again.is_set():
            with suppress(RuntimeError):  # the loop is gone, and nobody waits any more
                loop.call_soon_threadsafe(self._again.set)

    def stop(self) -> None:
        """Take nothing more; ``run`` returns when what is being worked on has paused or ended."""
        self._stopping.set()
        self._again.set()
        if self._looking is not None and not self._looking.done():
            self._looking.get_loop().call_later(_GRACE, self._looking.cancel)

    def cut_short(self) -> None:
        """Stop, and end what is being worked on: a call that had started is in doubt."""
        self.stop()
        for task in self._tasks.values():
            task.cancel()

    async def _safely(self) -> float:
        """Look at everything once; gives how long nothing more can become due by the clock."""
        # Some of what is due may be at work here already: look past it.
        room = self.concurrency - len(self._tasks)
        beyond = len(self._tasks) + len(self._left) + self._backoff.waiting
        limit = room + beyond if room > 0 else 0
        behind, self._behind = self._behind, False
        try:
            due, come, now, soon = await look(self.store, self._look, limit, behind)
            self._take(due, limit, room)
            if come:
                if await look(self.store, self.store.overdue, 1):
                    await hop(self.sweep)
                    self._behind = self._behind or bool(limit)
                    self._again.set()  # what was in doubt may be ready again
                # What is due already does not shorten the rest.
                soon = await look(self.store, self.store.next_due, now)
                self._seen, self._look_at = now - _LATE, time.monotonic() + LOOK_AGAIN
        except SaysoError as error:
            self._behind = True
            log.warning("the store cannot be read now, trying again: %s", error)
            await asyncio.sleep(1)
            return 0.001
        patience = LOOK_AGAIN if soon is None else min((soon - now) / 1_000_000, LOOK_AGAIN)
        return min(patience, self._backoff.patience())

    def _look(self, limit: int, behind: bool) -> tuple[list[Run], bool, Micros, Micros | None]:
        """What is due, whether anything has come due since the last time, the time, and when more
        may be.

        Nearly every commit is somebody's work in progress, and brings nothing due. What is
        committed late, or under a clock that was set back, is found after a while.
        """
        now, soon = self.store.now(), self.store.next_due(self._seen)
        come = (soon is not None and soon <= now) or time.monotonic() >= self._look_at
        wanted = limit and self._agents and (come or behind)
        return self.store.ready(self.names, limit) if wanted else [], come, now, soon

    def _take(self, due: list[Run], limit: int, room: int) -> None:
        """Begin at once, as far as there is room: somebody waits for it."""
        for run in [run for run in due if self._may_take(run)][: max(room, 0)]:
            self.begin(run)
        if not limit or any(run.id not in self._tasks for run in due):
            self._behind = True

    def sweep(self) -> None:
        """Close what is overdue, and show what a lost process left in doubt."""
        for closed in close_overdue(self.store, _SWEEP, _MOST_SWEEPS):
            self.steps.swept(closed)

    async def _rest(self, patience: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(patience, 0.001)):
                await self._again.wait()

    # -- runs

    def begin(self, run: Run) -> asyncio.Task[None] | None:
        """Take a run further, or join who is at it here; nothing if it is better left for now."""
        if run.id not in self._tasks:
            if not self._may_take(run):
                return None
            self._tasks[run.id] = task = asyncio.create_task(self._step(run))
            task.add_done_callback(self._over)
        return self._tasks[run.id]

    def _over(self, _: object) -> None:
        """There is room again, and it may be due still."""
        self._behind = True
        self._again.set()

    def patience(self, run_id: str) -> float:
        """Seconds for which a run that broke is left alone."""
        return self._backoff.left(run_id)

    def _may_take(self, run: Run) -> bool:
        return (
            run.id not in self._tasks
            and run.thread not in self._left
            and not self._backoff.holds(run.id)
        )

    async def _step(self, run: Run) -> None:
        began = time.monotonic()
        status = "broke"
        self.steps.tell(Step("taken", run.agent, run.id))
        try:
            with self.steps.during(), unless_taken(run.id) as due:
                status = await self._watched(run, due)
            if due.is_others(status):
                status = "left"  # another worker was faster
            self._backoff.forget(run.id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            again, times = self._backoff.failed(run.id)
            ours = isinstance(error, SaysoError)  # which says what to do, and not where it was
            said = f"{type(error).__name__}: {error}" if ours else type(error).__name__
            words = "run %s of %s: %s; again in %.0f s"
            log.error(words, run.id, run.agent, said, again, exc_info=not ours)
            if times > 1 and times & (times - 1) == 0:
                await self._put_on_record(run, said, times)
        finally:
            self._tasks.pop(run.id, None)
            seconds = time.monotonic() - began
            self.steps.tell(Step(status, run.agent, run.id, seconds=seconds))

    async def _put_on_record(self, run: Run, said: str, times: int) -> None:
        """Leave word of a run that keeps breaking: people look elsewhere than in this log.

        After the second failure, the fourth, the eighth: so that the record does not fill with it.
        """
        body = {"error": said, "times": times}
        note = Note(thread=run.thread, type="broke", actor="worker", run=run.id, body=body)
        try:
            await hop(self.store.transact, note)
        except SaysoError as error:
            log.warning("that run %s keeps breaking is not on record: %s", run.id, error)

    async def _watched(self, run: Run, due: Due) -> str:
        """Take it further; what the agent does not say of itself, the record does."""
        agent = self._agents[run.agent]
        if run.agent in self._speak:
            return await self._resumed(agent, run.id)
        thread = await hop(self.store.thread, run.thread)
        try:
            return await self._resumed(agent, run.id)
        finally:
            if due.taken:  # else whoever has it tells
                with suppress(SaysoError):  # it is only told; how the run stands is known already
                    seen = 0 if thread is None else thread.seq
                    for step in await hop(recorded, self.store, run, seen):
                        self.steps.tell(step)

    async def _resumed(self, agent: Resumable, run: str) -> str:
        if self._streams and isinstance(agent, Agent):
            async for event in agent.stream_resume(run):
                if isinstance(event, Ended):
                    return event.result.status
        standing: Standing = await agent.resume(run)
        return standing.status

    async def drained(self) -> None:
        """Wait for what is being worked on."""
        if self._tasks:
            log.info("stopping: %d runs are still at work", len(self._tasks))
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _by_name(agents: Iterable[Resumable]) -> dict[str, Resumable]:
    """Whose runs each agent can take further: its own, and those of agents that are its tools."""
    named: dict[str, Resumable] = {}
    for agent in agents:
        for name in getattr(agent, "names", (agent.name,)):
            if name in named and name == agent.name:
                raise ValueError(f"two agents are called {name!r}: rename one")
            named.setdefault(name, agent)
    return named
