"""Prometheus metrics, the health check of the store, and the counts for its insights.

A store waits a long time for a database that is away, so that work continues once it is back.
Probes cannot wait that long and come again and again, so they share one check, which runs in its
own OS thread, and stop waiting for it after two seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import sayso
from sayso.errors import SaysoError
from sayso.forking import renew_in_child
from sayso.stores.base import Store, Tallies, Viewer
from sayso.types import Json, Micros
from sayso.worker.steps import Step

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The metrics of one server. Each app has its own registry, so that two do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = histogram(
            "sayso_http_request_seconds",
            "HTTP requests by route, method and status",
            ("route", "method", "status"),
            buckets=_BUCKETS,
        )
        self.decisions = counter(
            "sayso_decisions_total", "Decisions made through this server, by type", ("type",)
        )
        self.steps = histogram(
            "sayso_worker_step_seconds",
            "How long the worker took to advance a run, by agent and outcome",
            ("agent", "status"),
        )
        self.step_counts = counter(
            "sayso_worker_steps_total",
            "What happened to runs in the worker, by step and agent",
            ("step", "agent"),
        )
        self.busy = gauge("sayso_worker_busy", "Runs that the worker is advancing now")
        self.readers = gauge("sayso_feed_readers", "Readers of the live feed")
        self.waiting = gauge(
            "sayso_requests_waiting",
            "Requests in the store that wait for a person, by status: asked or in_doubt",
            ("status",),
        )
        self.webhooks = counter(
            "sayso_webhooks_total", "Webhook deliveries by outcome", ("outcome",)
        )

        self.messages = counter(
            "sayso_channel_messages_total",
            "Messages to people by channel and outcome: sent, updated, failed or dead",
            ("channel", "outcome"),
        )
        self.message_delay = histogram(
            "sayso_channel_delay_seconds",
            "How long after the request was asked its message was sent, by channel",
            ("channel",),
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600),
        )
        self.chat_decisions = counter(
            "sayso_channel_decisions_total",
            "Decisions made from a message, by channel and type",
            ("channel", "type"),
        )

    def message(self, channel: str, outcome: str, delay: float | None) -> None:
        """Count a message to a person, and observe how long it took if it was sent."""
        self.messages.labels(channel, outcome).inc()
        if delay is not None:
            self.message_delay.labels(channel).observe(delay)

    def chat_decision(self, channel: str, decision: str) -> None:
        """Count a decision that was made from a message."""
        self.chat_decisions.labels(channel, decision).inc()

    def step(self, step: Step) -> None:
        """Count a step of the worker, and observe its duration if it ended the work on a run."""
        self.step_counts.labels(step.step, step.agent).inc()
        if step.seconds is not None and not step.request:
            self.steps.labels(step.agent, step.step).observe(step.seconds)

    def set_waiting(self, counts: Mapping[str, int]) -> None:
        """Set how many requests wait, by status. Clear statuses that are missing."""
        self.waiting.clear()
        for status, count in counts.items():
            self.waiting.labels(status).set(count)

    def render(self) -> bytes:
        return generate_latest(self.registry)


T = TypeVar("T")

#: Seconds that a probe waits for the check.
WAIT = 2.0
_NO_ANSWER = f"no answer within {WAIT:.0f} s, still trying"
#: A check this many seconds old is stuck in a dead connection; the next probe starts another.
_STUCK = 60.0


class Health(NamedTuple):
    """The HTTP status and body of a health response."""

    status: int
    body: dict[str, Json]


class SharedCheck(Generic[T]):
    """Runs a blocking function in an OS thread, once for all callers that ask meanwhile."""

    def __init__(self, check: Callable[[], T]) -> None:
        self._check = check
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Forget a running check: its OS thread does not exist in a forked child."""
        self._lock = threading.Lock()
        self._started = 0.0
        self._running: Future[T] | None = None

    async def result(self) -> T | None:
        """Return the result, or ``None`` if it takes longer than ``WAIT`` seconds."""
        running = asyncio.wrap_future(self._join())
        await asyncio.wait({running}, timeout=WAIT)  # on a timeout the check continues for others
        return running.result() if running.done() else None

    def result_sync(self) -> T | None:
        """Return the same, from an OS thread."""
        try:
            return self._join().result(WAIT)
        except TimeoutError:
            return None

    def _join(self) -> Future[T]:
        """Return the running check, or start one."""
        with self._lock:
            now = time.monotonic()
            running = self._running
            if running is None or running.done() or now - self._started > _STUCK:
                running = self._running = Future()
                self._started = now
                thread = threading.Thread(
                    target=self._run, args=(running,), name="sayso-health", daemon=True
                )
                thread.start()
            return running

    def _run(self, running: Future[T]) -> None:
        try:
            running.set_result(self._check())
        except BaseException as error:
            running.set_exception(error)


#: A probe looks at so many live rows of each kind.
_PROBED_ROWS = 1000


class HealthCheck:
    """Checks whether a store can be read and its rows verified; counts the requests in it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._health = SharedCheck(self._read_health)
        self._readiness = SharedCheck(self._read_readiness)
        self._waiting = SharedCheck(self._read_waiting)

    async def check(self) -> Health:
        """Return the store's health within two seconds."""
        return await self._health.result() or _unhealthy(_NO_ANSWER)

    def check_sync(self) -> Health:
        """Return the same, from an OS thread."""
        return self._health.result_sync() or _unhealthy(_NO_ANSWER)

    async def check_ready(self) -> Health:
        """Return within two seconds whether the store can be read, and its rows verified."""
        return await self._readiness.result() or _unhealthy(_NO_ANSWER)

    def check_ready_sync(self) -> Health:
        """Return the same, from an OS thread."""
        return self._readiness.result_sync() or _unhealthy(_NO_ANSWER)

    async def count_waiting(self) -> dict[str, int]:
        """Return how many requests wait for people, by status; empty if that is unknown."""
        return await self._waiting.result() or {}

    def _read_health(self) -> Health:
        try:
            self._store.tail()
            restored = self._store.restored()
        except SaysoError as error:
            return _unhealthy(str(error))
        status = "waiting for `sayso recover`" if restored else "ok"
        body: dict[str, Json] = {"status": status, "store": "restored" if restored else "ok"}
        return Health(503 if restored else 200, {**body, "version": sayso.__version__})

    def _read_readiness(self) -> Health:
        health = self._read_health()
        if health.status != 200:
            return health
        keys = self._store.keys
        try:
            uses = self._store.key_uses(_PROBED_ROWS)
        except SaysoError as error:
            return _unhealthy(str(error))
        missing = {id for counts in uses.values() for id in counts}
        missing -= {key.id for key in (*keys.keys, *keys.rows)}
        if missing:
            return _unhealthy(
                f"rows were signed with {', '.join(sorted(missing))}, which is not among the keys "
                "of this process: see `sayso keys list`"
            )
        return health

    def _read_waiting(self) -> dict[str, int]:
        try:
            return self._store.waiting()
        except SaysoError:
            return {}  # /healthz says why


def _unhealthy(reason: str) -> Health:
    body = {"status": "unwell", "store": reason, "version": sayso.__version__}
    return Health(503, body)


#: An answer that took longer to count is slow, and kept for so long.
_SLOW_SECONDS = 0.05
_KEPT_SECONDS = 60.0


class TallyCache:
    """Counts what happened to the requests of a store, and keeps an answer that took long."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._kept: dict[tuple[Viewer, tuple[Micros, ...]], tuple[float, Tallies]] = {}

    def tallies(self, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
        """Return the tallies of the store; those of a large store are up to a minute old."""
        key = (viewer, tuple(since))
        began = time.monotonic()
        kept_until, tallies = self._kept.get(key, (0.0, None))
        if tallies is not None and began < kept_until:
            return tallies
        tallies = self.store.tallies(viewer, since)
        now = time.monotonic()
        if now - began > _SLOW_SECONDS:
            fresh = {key: entry for key, entry in self._kept.items() if entry[0] > now}
            self._kept = {**fresh, key: (now + _KEPT_SECONDS, tallies)}
        return tallies
