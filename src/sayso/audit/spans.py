"""OpenTelemetry spans of approvals: from asking to the decision to the run.

Each span is made from the events of a call once the call has ended, also if nothing ran. So it does
not matter which path asked (a guard, an adapter, a hook, the proxy, another machine), nor which
processes asked, decided and ran it. A span belongs to the trace in which the call was made.

Only the API package is used: your application configures where spans go. Arguments, results,
messages and names of people are not included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sayso import codec
from sayso.rows import Call, Event
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.event_follower import EventFollower
from sayso.stores.row_checks import if_readable
from sayso.sync import to_thread

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, Status, StatusCode, Tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError('spans need OpenTelemetry: pip install "sayso[otel]"') from error

#: The name of the stored cursor that all processes share, so that each span is made once.
CURSOR = "approval-spans"

_OPENING = frozenset({"asked", "denied", "refused"})
_CLOSING = frozenset(
    [
        *("denied", "refused", "decided", "expired", "cancelled", "superseded", "released"),
        *("recorded", "read_recorded", "in_doubt"),
    ]
)
#: What an event says, by the names that its body and a span have for it.
_FACTS = {
    "decision": "sayso.decision",
    "channel": "sayso.channel",
    "assurance": "sayso.assurance",
    "attempt": "sayso.attempt",
}


class ApprovalSpans:
    """Makes spans of the approvals in a store, with ``tracer`` or the application's default one.

    ``with ApprovalSpans("sayso.db"):`` follows the store in an OS thread, and on leaving makes the
    spans of all that has ended. ``sayso serve`` and ``sayso worker`` follow their store themselves
    if OpenTelemetry is configured. Processes on one store share the work.
    """

    def __init__(self, store: Store | str | Path, tracer: Tracer | None = None) -> None:
        self._store = open_store(store)
        self._tracer = tracer
        self._follower = EventFollower(self._store, CURSOR, _may_close, self._make)
        self._stopping = threading.Event()
        self._os_thread = threading.Thread(
            target=lambda: asyncio.run(self._follow()), name="sayso-spans", daemon=True
        )

    def __enter__(self) -> Self:
        self._follower.begin_sync()
        self._os_thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._os_thread.join()

    async def run(self) -> None:
        """Make spans until cancelled, or until the store is closed."""
        await self._follower.begin()
        await self._follower.run()

    async def _follow(self) -> None:
        following = asyncio.create_task(self._follower.run())
        await to_thread(self._stopping.wait)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await self._follower.catch_up()

    async def _make(self, events: Sequence[Event]) -> None:
        for event in events:
            call = await to_thread(if_readable, self._store.call, event.call)
            if call is not None:
                history = await to_thread(self._store.call_events, event.call)
                self._make_span(call, event, history)

    def _make_span(self, call: Call, last: Event, history: Sequence[Event]) -> None:
        """Make the span that ends with this event, if people were asked, or asking was refused."""
        episode: list[Event] = []
        for event in history:
            if event.type in _OPENING and not episode:
                episode = [event]
            elif episode:
                episode.append(event)
            if event.seq >= last.seq:
                break
            if _closes(event):
                episode = [event] if event.type == "in_doubt" else []
        if not episode or not _closes(last):
            return
        span = self._begin(call, episode[0])
        for event in episode:
            facts = {name: value for name, value in _facts(event).items() if value is not None}
            span.add_event(f"sayso.{event.type}", facts, event.at * 1000)
            span.set_attributes(facts)
        status = _status(last)
        span.set_attribute("sayso.status", status)
        if status in ("failed", "in_doubt"):
            span.set_status(Status(StatusCode.ERROR, f"the call is {status.replace('_', ' ')}"))
        span.end(last.at * 1000)

    def _begin(self, call: Call, first: Event) -> Span:
        tracer = self._tracer or trace.get_tracer("sayso")
        carrier = {"traceparent": _body(first).get("trace", "")}
        return tracer.start_span(
            f"approval {call.tool or call.kind}",
            TraceContextTextMapPropagator().extract(carrier),
            start_time=first.at * 1000,
            attributes={
                "gen_ai.operation.name": "approval",
                "gen_ai.agent.name": call.agent,
                "gen_ai.conversation.id": call.thread,
                "gen_ai.tool.name": call.tool,
                "gen_ai.tool.call.id": call.id,
                "sayso.request": call.id,
                "sayso.run": call.run,
                "sayso.kind": call.kind,
                "sayso.rule": call.terms.rule,
                "sayso.risk": call.terms.risk.level,
            },
        )


async def follow(store: Store) -> None:
    """Make spans until cancelled, if the application has configured OpenTelemetry."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    await ApprovalSpans(store).run()


def _may_close(event: Event) -> bool:
    return bool(event.call) and event.type in _CLOSING


def _closes(event: Event) -> bool:
    if event.type == "decided":
        return _body(event).get("decision") in ("reject", "respond")
    if event.type == "in_doubt":
        return "ask_at" in _body(event)  # otherwise it runs again without asking
    return event.type in _CLOSING


def _status(event: Event) -> str:
    body = _body(event)
    if event.type in ("denied", "refused"):
        return "rejected"
    if event.type == "decided":
        return "rejected" if body["decision"] == "reject" else "responded"
    if event.type in ("recorded", "read_recorded"):
        return "done" if body.get("ok", True) else "failed"
    return event.type


def _facts(event: Event) -> dict[str, Any]:
    body = _body(event)
    return {name: body.get(key) for key, name in _FACTS.items()}


def _body(event: Event) -> dict[str, Any]:
    return {} if event.body is None else dict(codec.loads(event.body))
