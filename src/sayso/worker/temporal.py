"""Temporal as the dispatcher of a worker: ``--dispatch temporal://host:port/namespace``.

Each run that is ready or has a deadline is a workflow ``sayso.run``. Its activity ``sayso.step``
lands on some worker for the run's agent. The task queue is named after store and agent, so one
Temporal server serves many stores, and workers with different agents can share it.
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

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
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
from sayso.stores.outage import Outage
from sayso.stores.row_checks import if_readable
from sayso.sync import to_thread
from sayso.types import Micros
from sayso.worker.worker import Relay, Worker, next_look

log = logging.getLogger("sayso.worker")

# --- the workflow of one run ---
#
# It knows nothing about agents: a timer, two signals and one activity. It ends when nothing is left
# to wait for by the clock; a later decision starts it again. Its instances stay open for as long as
# people think, so the order of timers and activities in here must not change.

NAME = "sayso.run"
STEP = "sayso.step"
WAKE = "wake"
AT = "at"
#: A worker that sends no heartbeat for so long is gone, and another one takes over.
SILENCE = timedelta(seconds=15)
_LONGEST = timedelta(days=365)
_RETRY = RetryPolicy(maximum_interval=timedelta(seconds=60))


@workflow.defn(name=NAME)
class RunWorkflow:
    """Has one run resumed whenever it is ready."""

    def __init__(self) -> None:
        self._woken = False
        self._at: float | None = None

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        self._woken = True

    @workflow.signal(name=AT)
    def at(self, seconds: float) -> None:
        """Look in so many seconds, unless an earlier look is planned."""
        time = workflow.time() + max(seconds, 0)
        self._at = time if self._at is None else min(time, self._at)

    @workflow.run
    async def run(self, run: str, seconds: float | None = None) -> None:
        """Look and wait until there is nothing left to wait for."""
        if seconds is not None:
            self.at(seconds)
        await workflow.wait_condition(self._expects)
        while self._expects():
            if not await self._time_has_come():
                continue
            self._woken = False
            self._at = None
            left: float | None = await workflow.execute_activity(
                STEP,
                run,
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=SILENCE,
                retry_policy=_RETRY,
            )
            if left is not None:
                self.at(left)
            if self._expects() and workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[run, self._left()])

    def _expects(self) -> bool:
        return self._woken or self._at is not None

    def _left(self) -> float:
        """Return the seconds until the next look."""
        return 0.0 if self._woken or self._at is None else max(self._at - workflow.time(), 0.0)

    async def _time_has_come(self) -> bool:
        """Wait for the next look. Return False if it was moved meanwhile."""
        at = self._at
        left = self._left()
        if left > 0:
            try:
                await workflow.wait_condition(lambda: self._woken or self._at != at, timeout=left)
            except TimeoutError:
                return True
        return self._woken or self._at == at


# --- dispatching ---

_PORT = 7233
_RPC_TIMEOUT = timedelta(seconds=10)
#: Runs in progress are finished before a worker stops, however long that takes.
_GRACE = timedelta(days=30)
#: A ready run that was not taken is looked at again after so many seconds.
_LOOK_AGAIN = 1.0
_RECONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 0.5
_HEALTH_TIMEOUT = timedelta(seconds=5)


class Address(NamedTuple):
    """The address and namespace of a Temporal server."""

    target: str
    namespace: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse ``temporal://host[:port][/namespace]``. Raises ``InvalidCall``."""
        try:
            parts = urlsplit(url)
            host = parts.hostname
            port = parts.port or _PORT
        except ValueError:
            host = None
            port = 0
        extra = not host or parts.query or parts.fragment or "@" in parts.netloc
        namespace = "" if extra else unquote(parts.path.strip("/"))
        if extra or parts.scheme != "temporal" or "/" in namespace:
            raise InvalidCall(
                f"{url!r:.80} is not a dispatcher: use temporal://host:port or "
                "temporal://host:port/namespace"
            )
        host_name = f"[{host}]" if host and ":" in host else host
        return cls(f"{host_name}:{port}", namespace or "default")


class TemporalDispatcher:
    """Starts the workflow of a run, or signals it if it exists."""

    def __init__(self, client: Client, store: Store) -> None:
        self._client = client
        self._store = store

    async def wake(self, run: Run) -> None:
        await self._send(run, WAKE)

    async def at(self, run: Run, time: Micros) -> None:
        await self._send(run, AT, (time - self._store.now()) / 1_000_000)

    async def _send(self, run: Run, signal: str, *args: float) -> None:
        await self._client.start_workflow(
            NAME,
            run.id,
            id=f"sayso:{self._store.incarnation}:{run.id}",
            task_queue=queue_of(self._store, run.agent),
            start_signal=signal,
            start_signal_args=args,
            rpc_timeout=_RPC_TIMEOUT,
        )


class TemporalDispatch:
    """A worker that gets its runs from Temporal, until it is stopped."""

    def __init__(self, worker: Worker, address: Address) -> None:
        self._worker = worker
        self._store = worker.store
        self._address = address
        self._room = asyncio.Semaphore(worker.concurrency)
        self._stopping = asyncio.Event()
        self._outage = Outage(f"Temporal at {address.target}")

    async def run(self) -> None:
        client = await self._client(lazy=True)
        dispatcher = TemporalDispatcher(client, self._store)
        relay = Relay(self._worker, dispatcher, outage=self._outage)
        telling = asyncio.create_task(relay.run())
        watching = asyncio.create_task(self._watch(client))
        serving = [asyncio.create_task(self._serve(name)) for name in self._worker.names]
        try:
            await self._stopping.wait()
        finally:
            telling.cancel()
            watching.cancel()
            await asyncio.gather(telling, watching, *serving, return_exceptions=True)
            await self._worker.drained()

    def stop(self) -> None:
        self._stopping.set()

    def cut_short(self) -> None:
        self.stop()
        self._worker.cut_short()

    async def _client(self, *, lazy: bool) -> Client:
        target, namespace = self._address
        return await Client.connect(target, namespace=namespace, lazy=lazy, runtime=_runtime())

    async def _watch(self, client: Client) -> None:
        """Notice within about a second that the server is away, which workers on it retry."""
        while True:
            try:
                await client.service_client.check_health(timeout=_HEALTH_TIMEOUT)
                self._outage.over()
            except Exception as error:
                self._outage.failed(error)
            await asyncio.sleep(_HEALTH_SECONDS)

    async def _serve(self, agent: str) -> None:
        """Poll the task queue of one agent, and reconnect while the server is down."""
        while not self._stopping.is_set():
            try:
                async with self._polling(agent):
                    await self._stopping.wait()
            except Exception as error:
                self._outage.failed(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RECONNECT_SECONDS):
                        await self._stopping.wait()

    @contextlib.asynccontextmanager
    async def _polling(self, agent: str) -> AsyncIterator[None]:
        worker = TemporalWorker(
            await self._client(lazy=False),
            task_queue=queue_of(self._store, agent),
            workflows=[RunWorkflow],
            activities=[self._step],
            # The workflow is deterministic and imports nothing: a sandbox would only cost time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=self._worker.concurrency,
            graceful_shutdown_timeout=_GRACE,
        )
        async with worker:
            yield

    @activity.defn(name=STEP)
    async def _step(self, run_id: str) -> float | None:
        """Resume a run if it is ready. Return the seconds until the next look."""
        await to_thread(self._worker.sweep)
        run = await to_thread(self._store.run, run_id)
        if run is not None and run.status in LIVE and run.due(self._store.now()):
            # A task of its own: when Temporal gives up on this activity, the run continues.
            task = asyncio.create_task(self._in_turn(run))
            while not task.done():
                activity.heartbeat()
                await asyncio.wait({task}, timeout=SILENCE.total_seconds() / 3)
        return await to_thread(self._seconds, run_id)

    async def _in_turn(self, run: Run) -> None:
        async with self._room:
            if (task := self._worker.begin(run)) is not None:
                await asyncio.wait({task})

    def _seconds(self, run_id: str) -> float | None:
        run = if_readable(self._store.run, run_id)
        time = None if run is None else next_look(self._store, run)
        if time is None:
            return None
        left = (time - self._store.now()) / 1_000_000
        return max(left, self._worker.patience(run_id), _LOOK_AGAIN)


@cache
def _runtime() -> Runtime:
    """Send Temporal's log to ours, without its retries, which are many per second.

    By default it goes to standard output, where a full pipe would block the worker.
    """
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    joined = LogForwardingConfig(logging.getLogger("sayso.temporal"))
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(levels, forwarding=joined)))


def queue_of(store: Store, agent: str) -> str:
    return f"sayso:{store.incarnation}:{agent}"
