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
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from assent.agent import Agent
from assent.agent.events import Ended
from assent.agent.resumable import Resumable, Standing
from assent.engine.commands import Doubt, Expire
from assent.errors import AssentError
from assent.rows import Run
from assent.stores.base import Store
from assent.twin import News, hop
from assent.worker.backoff import Backoff

log = logging.getLogger("assent.worker")

#: How long a worker trusts the news of the store before it looks by itself.
LOOK_AGAIN = 5.0
#: Every commit is news, and most are of work in progress: it looks this often, and no more.
_BREATH = 0.008
_SWEEP = 100

Step = Callable[[str, str, float], None]


class Worker:
    """Resumes due runs of these agents, a few at a time, until it is stopped.

    ``on_step`` hears of each step: the agent, how it ended, and the seconds it took. ``streams``
    lets the agents' listeners hear the model's words as they come.
    """

    def __init__(
        self,
        agents: Iterable[Resumable],
        store: Store,
        *,
        concurrency: int = 8,
        on_step: Step | None = None,
        streams: bool = False,
    ) -> None:
        if concurrency < 0:
            raise ValueError(f"concurrency={concurrency}: give 0 for none, or a whole number")
        self.store = store
        self.concurrency = concurrency
        self._agents = _by_name(agents)
        self._on_step = on_step
        self._streams = streams
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: Counter[str] = Counter()
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._again = asyncio.Event()

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
                self._again.set()

    async def run(self) -> None:
        """Work until ``stop``; what was begun by then is finished first."""
        with closing(News(self.store, None)) as news:
            while not self._stopping.is_set():
                self._again.clear()
                began = time.monotonic()
                await self._rest(news, await self._safely())
                await asyncio.sleep(max(began + _BREATH - time.monotonic(), 0))
        await self.drained()

    def stop(self) -> None:
        """Take nothing more; ``run`` returns when what is being worked on has paused or ended."""
        self._stopping.set()

    async def _safely(self) -> float:
        """Look at everything once; gives how long nothing more can become due by the clock."""
        # Some of what is due may be at work here already: look past it.
        room = self.concurrency - len(self._tasks)
        beyond = len(self._tasks) + len(self._left) + self._backoff.waiting
        try:
            due, patience = await hop(self._look, room + beyond if room > 0 else 0)
        except AssentError as error:
            log.warning("the store cannot be read now, trying again: %s", error)
            await asyncio.sleep(1)
            return 0.001
        for run in [run for run in due if self._may_take(run)][: max(room, 0)]:
            self.begin(run)
        return min(patience, self._backoff.patience())

    def _look(self, limit: int) -> tuple[list[Run], float]:
        """In a thread: sweep, and what is due; what is due already does not shorten the rest."""
        self.sweep()
        now = self.store.now()
        due = self.store.ready(self.names, limit) if limit and self._agents else []
        soon = self.store.next_due(now)
        return due, LOOK_AGAIN if soon is None else min((soon - now) / 1_000_000, LOOK_AGAIN)

    def sweep(self) -> None:
        """Close what is overdue, and show what a lost process left in doubt."""
        while found := self.store.overdue(_SWEEP):
            for due in found:
                command = (
                    Doubt(thread=due.thread, run=due.run)
                    if due.call is None
                    else Expire(thread=due.thread, run=due.run, call=due.call)
                )
                self.store.transact(command)
            if len(found) < _SWEEP:
                return

    async def _rest(self, news: News, patience: float) -> None:
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(news.wait(max(patience, 0.001))),
            asyncio.ensure_future(self._stopping.wait()),
            asyncio.ensure_future(self._again.wait()),
        ]
        try:
            await asyncio.wait([*waits, *self._tasks.values()], return_when="FIRST_COMPLETED")
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # -- runs

    def begin(self, run: Run) -> asyncio.Task[None] | None:
        """Take a run further, or join who is at it here; nothing if it is better left for now."""
        if run.id not in self._tasks:
            if not self._may_take(run):
                return None
            self._tasks[run.id] = asyncio.create_task(self._step(run))
        return self._tasks[run.id]

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
        try:
            status = await self._resumed(self._agents[run.agent], run.id)
            self._backoff.forget(run.id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            again = self._backoff.failed(run.id)
            log.exception(
                "run %s of %s: %s; again in %.0f s", run.id, run.agent, type(error).__name__, again
            )
        finally:
            self._tasks.pop(run.id, None)
            seconds = time.monotonic() - began
            log.info("run %s of %s: %s in %.3f s", run.id, run.agent, status, seconds)
            if self._on_step is not None:
                self._on_step(run.agent, status, seconds)

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
