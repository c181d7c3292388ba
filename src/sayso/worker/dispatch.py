"""Letting an engine that a company runs anyway say when a run is taken further, and where.

By itself a ``Worker`` looks at the store and takes what is due. With a ``Dispatcher`` that look is
left to somebody else, who is only asked to come by at least once, eventually: whether a run may
be taken, and by whom, is still decided in the store. So a dispatcher that forgets, repeats or is
away costs time and nothing else, and ``Relay`` has a slow scan of the store behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from sayso import codec
from sayso.rows import LIVE, Event, Run
from sayso.stores.base import Query, Store
from sayso.stores.event_follower import EventFollower
from sayso.twin import hop
from sayso.types import Micros
from sayso.worker.steps import Step
from sayso.worker.worker import Worker

log = logging.getLogger("sayso.worker")

#: How often the store is looked through, and how long a due run is left to the dispatcher.
SCAN = 60.0
_MOST = 1000
#: What people, the clock and lost processes do to a run that nobody works on.
_MAKE_DUE = frozenset(
    {"decided", "expired", "cancelled", "superseded", "in_doubt", "retried", "suspended"}
)


class Dispatcher(Protocol):
    """Brings a run to some worker: at least once, eventually. Nothing is believed of it."""

    async def wake(self, run: Run) -> None:
        """Have it looked at soon."""

    async def at(self, run: Run, time: Micros) -> None:
        """Have it looked at then, on the store's clock."""


class Relay:
    """Tells a dispatcher what the store says of the runs of a worker's agents.

    What is due for longer than ``scan`` seconds all the same, the worker here takes by itself.
    """

    def __init__(self, worker: Worker, dispatcher: Dispatcher, *, scan: float = SCAN) -> None:
        self._worker = worker
        self._store = worker.store
        self._dispatcher = dispatcher
        self._scan = scan
        # Workers for the same agents share a place; those for others must not run ahead of them.
        agents = codec.sha256(codec.dumps(sorted(worker.names)).encode())[:16]
        self._follower = EventFollower(self._store, f"dispatch:{agents}", _matters, self._hand_on)

    async def run(self) -> None:
        """Tell until cancelled."""
        await asyncio.gather(self._follower.run(), self._look_behind())

    async def _hand_on(self, events: Sequence[Event]) -> None:
        for name in dict.fromkeys(event.run for event in events):
            run = await hop(self._store.run, name)
            if run is None or run.agent not in self._worker.names:
                continue
            time = await hop(next_look, self._store, run)
            if time is None:
                continue
            if time <= self._store.now():
                await self._dispatcher.wake(run)
            else:
                await self._dispatcher.at(run, time)
            self._worker.steps.tell(Step("dispatched", run.agent, run.id))

    async def _look_behind(self) -> None:
        while True:
            try:
                await hop(self._worker.sweep)
                due = await hop(self._store.ready, self._worker.names, _MOST)
                late = self._store.now() - round(self._scan * 1_000_000)
                for run in due:
                    if run.due(late) and self._worker.busy < self._worker.concurrency:
                        log.warning("run %s is due for long: taken without the dispatcher", run.id)
                        self._worker.begin(run)
            except Exception as error:
                log.warning("the store cannot be looked through now: %s", error)
            await asyncio.sleep(self._scan)


def _matters(event: Event) -> bool:
    """Whether a run may have become due by it, or has something new that ends by the clock."""
    if event.type in ("asked", "reasked", "recorded"):
        body = {} if event.body is None else codec.loads(event.body)
        return bool(body.get("expires") or body.get("late"))
    return event.type in _MAKE_DUE


def next_look(store: Store, run: Run) -> Micros | None:
    """When there is something to do: it is due, its lease ends, or one of its requests does."""
    if run.status not in LIVE:
        return None
    times = [run.ready_at]
    if run.asked:
        query = Query(status="pending", run=run.id, sort="expiring", limit=1)
        times += [call.expires_at for _, call in store.page(query)]
    return min((time for time in times if time is not None), default=None)
