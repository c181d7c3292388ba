"""What Prometheus may ask: HTTP, decisions, steps of the worker, readers, what waits."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sayso.worker.steps import Step

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The figures of one server; each app has its own, so that two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "sayso_http_request_seconds",
            "HTTP requests, by route, method and status",
            ("route", "method", "status"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.decisions = Counter(
            "sayso_decisions_total",
            "Decisions taken in through this server, by type",
            ("type",),
            registry=self.registry,
        )
        self.steps = Histogram(
            "sayso_worker_step_seconds",
            "Steps of the worker: one run taken further, by agent and outcome",
            ("agent", "status"),
            registry=self.registry,
        )
        self.step_counts = Counter(
            "sayso_worker_steps_total",
            "What happened to runs while the worker had them, by step and agent",
            ("step", "agent"),
            registry=self.registry,
        )
        self.busy = Gauge(
            "sayso_worker_busy", "Runs that the worker is at right now", registry=self.registry
        )
        self.readers = Gauge(
            "sayso_feed_readers", "Readers of the live feed", registry=self.registry
        )
        self.waiting = Gauge(
            "sayso_requests_waiting",
            "Requests in the store that wait for people: asked, or in doubt",
            ("status",),
            registry=self.registry,
        )
        self.webhooks = Counter(
            "sayso_webhooks_total",
            "Webhook deliveries, by outcome",
            ("outcome",),
            registry=self.registry,
        )

    def step(self, step: Step) -> None:
        """Something happened to a run that the worker has; perhaps the worker let go of it."""
        self.step_counts.labels(step.step, step.agent).inc()
        if step.seconds is not None and not step.request:
            self.steps.labels(step.agent, step.step).observe(step.seconds)

    def wait(self, counts: Mapping[str, int]) -> None:
        """So many requests wait; what is not known is left out."""
        self.waiting.clear()
        for status, count in counts.items():
            self.waiting.labels(status).set(count)

    def page(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)
