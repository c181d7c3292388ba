"""Prometheus metrics, the health check of the store, and the counts for its insights.

A store waits a long time for a database that is away, so that work continues once it is back.
Probes cannot wait that long and come again and again, so they share one check, which runs in its
own OS thread, and stop waiting for it after two seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

import sayso
from sayso.errors import SaysoError
from sayso.forking import renew_in_child
from sayso.stores.base import Cursor, PoolUse, Store, Tallies, Viewer, Vitals
from sayso.stores.row_checks import if_readable, readable_event
from sayso.types import SECOND, Json, Micros
from sayso.worker.steps import Step

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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
        self.webhooks = counter(
            "sayso_webhooks_total", "Webhook deliveries by outcome", ("outcome",)
        )
        self.hooks = gauge(
            "sayso_hook_last_seen_timestamp_seconds",
            "When a hook of a coding agent last spoke to this server, by agent",
            ("agent",),
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

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def hook_seen(self, agent: str, at: Micros) -> None:
        """Note when a hook spoke."""
        self.hooks.labels(agent).set(at / SECOND)


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
    """Checks whether a store can be read, and its rows verified."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._health = SharedCheck(self._read_health)
        self._readiness = SharedCheck(self._read_readiness)

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


class _Reading(NamedTuple):
    """What one look at a store found."""

    now: Micros
    restored: bool
    waiting: Mapping[str, int]
    vitals: Vitals


#: A look counts so many pages of events, and the next one goes on from there.
_MOST_PAGES = 20
_PAGE = 500
_DAY = 86_400.0


class StoreMetrics:
    """The metrics of a whole store, which are the same from every process that serves them.

    Each scrape reads them anew, along indexes and up to a limit, so that it costs the same at any
    size of the store. A figure that cannot be read is left out. Events are counted from the start
    of the process on.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._check = SharedCheck(self._read)
        self._reading: _Reading | None = None
        self._cursor: Cursor | None = None
        with suppress(SaysoError):
            self._cursor = store.tail()
        self._events = Counter(
            "sayso_events",
            "Events in the store since this process started, by type, such as expired or in_doubt",
            ("type",),
            registry=metrics.registry,
        )
        self._decision_times = Histogram(
            "sayso_decision_seconds",
            "How long after it was asked a request was decided by a person",
            buckets=(5, 15, 60, 300, 900, 3600, 14_400, _DAY, 3 * _DAY, 7 * _DAY),
            registry=metrics.registry,
        )
        metrics.registry.register(self)

    async def refresh(self) -> None:
        """Read the store, for two seconds at most."""
        self._reading = await self._check.result()

    def refresh_sync(self) -> None:
        """Do the same, from an OS thread."""
        self._reading = self._check.result_sync()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last look."""
        reading = self._reading
        yield _gauge("store_up", "Whether the store can be read", reading is not None)
        if reading is None:
            return
        now, restored, waiting, vitals = reading

        def age(since: Micros | None) -> float:
            return 0.0 if since is None else max(now - since, 0) / SECOND

        words = "Whether a backup was restored, so that nothing starts until `sayso recover`"
        yield _gauge("store_restored", words, restored)
        words = "Requests in the store that wait for a person, by status: asked or in_doubt"
        yield _gauges("requests_waiting", words, "status", waiting)
        words = "Age of the oldest request that waits for a person"
        yield _gauge("requests_oldest_seconds", words, age(vitals.oldest_request))
        words = "Requests that expired and that no process has closed"
        yield _gauge("requests_overdue", words, vitals.overdue)
        words = "How long ago the first of them expired"
        yield _gauge("requests_overdue_oldest_seconds", words, age(vitals.overdue_since))
        yield _gauge("runs_due", "Runs that are ready and that no worker has", vitals.runs_due)
        words = "How long the first of them has been ready"
        yield _gauge("runs_due_oldest_seconds", words, age(vitals.runs_due_since))
        yield _gauge("unsealed_events", "Events that no seal covers, up to 1,000", vitals.unsealed)
        words = "Age of the oldest event that no seal covers"
        yield _gauge("seal_lag_seconds", words, age(vitals.unsealed_since))
        words = "Messages and webhooks that failed and are tried again, by channel"
        backlogs = vitals.backlogs
        failing = {name: backlog.failing for name, backlog in backlogs.items()}
        yield _gauges("deliveries_failing", words, "channel", failing)
        words = "Messages and webhooks that should have been sent or updated, by channel"
        due = {name: backlog.due for name, backlog in backlogs.items()}
        yield _gauges("deliveries_due", words, "channel", due)
        words = "How long the first of them has been due"
        ages = {name: age(backlog.since) for name, backlog in backlogs.items()}
        yield _gauges("deliveries_due_oldest_seconds", words, "channel", ages)
        if vitals.pool is not None:
            yield from _pool_metrics(vitals.pool)

    def _read(self) -> _Reading | None:
        store = self._store
        try:
            self._count_events()
            return _Reading(store.now(), store.restored(), store.waiting(), store.vitals())
        except SaysoError:
            return None  # /healthz says why

    def _count_events(self) -> None:
        if self._cursor is None:
            self._cursor = self._store.tail()
        for _ in range(_MOST_PAGES):
            page = self._store.events(self._cursor, _PAGE)
            for event in (readable_event(event) for _, event in page):
                self._events.labels(event.type).inc()
                if event.type == "decided":
                    call = if_readable(self._store.call, event.call)
                    if call is not None and call.decision is not None and call.source == "person":
                        self._decision_times.observe((event.at - call.created) / SECOND)
            if page:
                self._cursor = page[-1][0]
            if len(page) < _PAGE:
                return


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sayso_{name}", words, value=float(value))


def _gauges(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"sayso_{name}", words, labels=(label,))
    for label_value, value in sorted(values.items()):
        family.add_metric((label_value,), value)
    return family


def _pool_metrics(pool: PoolUse) -> Iterator[Metric]:
    """Yield how this process uses its connections to the database."""
    yield _gauge("pool_size", "Connections that this process may open at once", pool.size)
    yield _gauge("pool_in_use", "Connections in use", pool.in_use)
    yield _gauge("pool_waiting", "Callers that wait for a connection", pool.waiting)
    words = "How often callers had to wait for a connection"
    yield CounterMetricFamily("sayso_pool_waits", words, value=pool.waits)
    words = "How long callers waited for a connection, together"
    yield CounterMetricFamily("sayso_pool_wait_seconds", words, value=pool.waited_seconds)


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
