"""Temporal as the dispatcher of a worker: ``--dispatch temporal://host:port/namespace``.

Each run that is due, or of which something ends by the clock, is a workflow ``sayso.run``; its
activity ``sayso.step`` lands on some worker for the run's agent. The queue is named after store
and agent, so one Temporal serves many stores, and workers with different agents share one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as TemporalWorker

from sayso.errors import InvalidCall
from sayso.rows import LIVE, Run
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable
from sayso.twin import hop
from sayso.types import Micros
from sayso.worker.dispatch import Relay, next_look
from sayso.worker.dispatch_workflow import AT, NAME, SILENCE, STEP, WAKE, RunLife
from sayso.worker.worker import Worker

log = logging.getLogger("sayso.worker")

_PORT = 7233
_PATIENCE = timedelta(seconds=10)
#: What was begun is finished before a worker stops, however long that takes.
_GRACE = timedelta(days=30)
#: A run that is due and was not taken just now is looked at again after so many seconds.
_BREATH = 1.0
_AGAIN = 5.0


class Address(NamedTuple):
    """Where a Temporal server is."""

    target: str
    namespace: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read ``temporal://host[:port][/namespace]``."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            host, port = None, 0
        extra = not host or parts.query or parts.fragment or "@" in parts.netloc
        namespace = "" if extra else unquote(parts.path.strip("/"))
        if extra or parts.scheme != "temporal" or "/" in namespace:
            raise InvalidCall(
                f"{url!r:.80} is no dispatcher: write temporal://host:port, or "
                "temporal://host:port/namespace"
            )
        named = f"[{host}]" if host and ":" in host else host
        return cls(f"{named}:{port}", namespace or "default")


class TemporalDispatcher:
    """Starts the workflow of a run, or signals the one that is there already."""

    def __init__(self, client: Client, store: Store) -> None:
        self._client = client
        self._store = store

    async def wake(self, run: Run) -> None:
        """Have it looked at soon."""
        await self._send(run, WAKE)

    async def at(self, run: Run, time: Micros) -> None:
        """Have it looked at then."""
        await self._send(run, AT, (time - self._store.now()) / 1_000_000)

    async def _send(self, run: Run, signal: str, *args: float) -> None:
        await self._client.start_workflow(
            NAME,
            run.id,
            id=f"sayso:{self._store.incarnation}:{run.id}",
            task_queue=queue_of(self._store, run.agent),
            start_signal=signal,
            start_signal_args=args,
            rpc_timeout=_PATIENCE,
        )


class TemporalDispatch:
    """A worker whose runs Temporal brings to it, until it is stopped."""

    def __init__(self, worker: Worker, address: Address) -> None:
        self._worker = worker
        self._store = worker.store
        self._address = address
        self._room = asyncio.Semaphore(worker.concurrency)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Work until ``stop``; what was begun by then is finished first."""
        client = await self._client(lazy=True)
        relay = Relay(self._worker, TemporalDispatcher(client, self._store))
        telling = asyncio.create_task(relay.run())
        serving = [asyncio.create_task(self._serve(name)) for name in self._worker.names]
        try:
            await self._stopping.wait()
        finally:
            telling.cancel()
            await asyncio.gather(telling, *serving, return_exceptions=True)
            await self._worker.drained()

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping.set()

    def cut_short(self) -> None:
        """Stop, and end what is being worked on: a call that had started is in doubt."""
        self.stop()
        self._worker.cut_short()

    async def _client(self, *, lazy: bool) -> Client:
        target, namespace = self._address
        return await Client.connect(target, namespace=namespace, lazy=lazy, runtime=_runtime())

    async def _serve(self, agent: str) -> None:
        """Poll the queue of one agent; without a server, or when it goes away, try again."""
        while not self._stopping.is_set():
            try:
                async with self._polling(agent):
                    await self._stopping.wait()
            except Exception as error:
                where = self._address.target
                log.warning("Temporal at %s cannot be used now, trying again: %s", where, error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN):
                        await self._stopping.wait()

    @contextlib.asynccontextmanager
    async def _polling(self, agent: str) -> AsyncIterator[None]:
        worker = TemporalWorker(
            await self._client(lazy=False),
            task_queue=queue_of(self._store, agent),
            workflows=[RunLife],
            activities=[self._step],
            # Our own few lines, which import nothing: a sandbox would only cost time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=self._worker.concurrency,
            graceful_shutdown_timeout=_GRACE,
        )
        async with worker:
            yield

    @activity.defn(name=STEP)
    async def _step(self, run_id: str) -> float | None:
        """Look at a run, and take it further if it is due; the seconds until the next look."""
        await hop(self._worker.sweep)
        run = await hop(self._store.run, run_id)
        if run is not None and self._due(run):
            # The worker's own task: when Temporal gives up on this activity, the run goes on.
            taken = asyncio.create_task(self._in_turn(run))
            while not taken.done():
                activity.heartbeat()
                await asyncio.wait({taken}, timeout=SILENCE.total_seconds() / 3)
        return await hop(self._seconds, run_id)

    async def _in_turn(self, run: Run) -> None:
        async with self._room:
            if (task := self._worker.begin(run)) is not None:
                await asyncio.wait({task})

    def _due(self, run: Run) -> bool:
        ready = run.ready_at
        return run.status in LIVE and ready is not None and ready <= self._store.now()

    def _seconds(self, run_id: str) -> float | None:
        run = if_readable(self._store.run, run_id)
        time = None if run is None else next_look(self._store, run)
        if time is None:
            return None
        left = (time - self._store.now()) / 1_000_000
        return max(left, self._worker.patience(run_id), _BREATH)


@cache
def _runtime() -> Runtime:
    """Temporal's own log joins ours, without the retries, of which it would tell many a second.

    Left alone it goes to standard output, and who does not read that stops the worker in the end.
    """
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    joined = LogForwardingConfig(logging.getLogger("sayso.temporal"))
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(levels, forwarding=joined)))


def queue_of(store: Store, agent: str) -> str:
    """The task queue for the runs of an agent in a store."""
    return f"sayso:{store.incarnation}:{agent}"
