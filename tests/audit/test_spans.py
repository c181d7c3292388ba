"""Every approval leaves one span, whichever path asked and whether or not anything ran."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sayso
from sayso.audit import verify
from sayso.audit.spans import ApprovalSpans
from sayso.errors import CallFailed, Refused
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, say
from sayso.worker import Worker

provider = TracerProvider()
exporter = InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("test")


@pytest.fixture
def store() -> Iterator[Store]:
    exporter.clear()
    with contextlib.closing(sayso.open_store("memory://")) as opened:
        yield opened


def following(store: Store) -> AbstractContextManager[ApprovalSpans]:
    return ApprovalSpans(store, tracer)


def made() -> list[ReadableSpan]:
    return list(exporter.get_finished_spans())


def steps(span: ReadableSpan) -> list[str]:
    return [event.name.removeprefix("sayso.") for event in span.events]


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {})[name]


@pytest.fixture
def pay(store: Store) -> Callable[[str], str]:
    gate = sayso.Gate(store, agent="desk", wait=0)

    @gate.guard(not_executed=(ValueError,))
    def pay(to: str) -> str:
        if to == "nobody":
            raise ValueError("secret reason")
        return f"paid {to}"

    return pay


def test_approved_call_has_one_span(store: Store, pay: Callable[[str], str]) -> None:
    inbox = sayso.Inbox(store)
    gate = sayso.Gate(store, agent="desk", wait=0)
    with following(store):
        outer = tracer.start_span("checkout")
        with gate.run("order-1"), trace.use_span(outer), pytest.raises(sayso.Paused):
            pay("ana")
        (request,) = inbox.pending_sync()
        inbox.approve_sync(request, by="bea")
        with gate.run("order-1"):
            assert pay("ana") == "paid ana"
    (span,) = [span for span in made() if span.name == "approval pay"]
    assert steps(span) == ["asked", "decided", "started", "recorded"]
    facts = span.attributes or {}
    assert facts["gen_ai.tool.name"] == "pay"
    assert facts["gen_ai.tool.call.id"] == facts["sayso.request"] == request.id
    assert facts["gen_ai.agent.name"] == "desk"
    assert facts["gen_ai.conversation.id"] == facts["sayso.run"] == "order-1"
    assert (facts["sayso.decision"], facts["sayso.assurance"]) == ("approve", "code")
    assert facts["sayso.status"] == "done"
    assert span.status.is_ok or span.status.is_unset
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id
    assert span.context.trace_id == outer.get_span_context().trace_id
    assert span.start_time == int(request.created_at.timestamp() * 1_000_000) * 1000
    assert span.end_time is not None
    assert [event.timestamp for event in span.events] == sorted(e.timestamp for e in span.events)
    everything = span.to_json()
    assert "ana" not in everything
    assert "bea" not in everything
    assert verify(store).ok


@pytest.mark.parametrize(
    ("how", "status", "events"),
    [
        (lambda inbox, r: inbox.reject_sync(r, "no", by="bea"), "rejected", ["asked", "decided"]),
        (lambda inbox, r: inbox.respond_sync(r, "42", by="bea"), "responded", ["asked", "decided"]),
        (lambda inbox, r: inbox.cancel_sync(r, by="bea"), "cancelled", ["asked", "cancelled"]),
    ],
)
def test_request_without_a_run_has_one_span(
    store: Store,
    pay: Callable[[str], str],
    how: Callable[[sayso.Inbox, sayso.Request], object],
    status: str,
    events: list[str],
) -> None:
    with following(store):
        with pytest.raises(sayso.Paused):
            pay("ana")
        inbox = sayso.Inbox(store)
        (request,) = inbox.pending_sync()
        how(inbox, request)
    (span,) = made()
    assert (attribute(span, "sayso.status"), steps(span)) == (status, events)
    assert span.parent is None


def test_expired_request_has_one_span(store: Store) -> None:
    rules = sayso.Policy([sayso.Rule(expires_in=timedelta(milliseconds=1))])
    gate = sayso.Gate(store, wait=0, policy=rules)

    @gate.guard
    def ask() -> None:
        raise AssertionError

    with following(store):
        with gate.run("r"), pytest.raises(sayso.Paused):
            ask()
        with gate.run("r"), pytest.raises(sayso.SaysoError):
            ask()
    (span,) = made()
    assert (attribute(span, "sayso.status"), steps(span)) == ("expired", ["asked", "expired"])


def test_denied_call_has_a_span(store: Store) -> None:
    gate = sayso.Gate(store, wait=0, policy=sayso.Policy([sayso.Rule("drop", verdict="deny")]))
    outer = tracer.start_span("outer")
    with following(store), trace.use_span(outer), pytest.raises(Refused):
        gate.guard(name="drop")(lambda: None)()
    (span,) = made()
    assert (attribute(span, "sayso.status"), steps(span)) == ("rejected", ["denied"])
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id


def test_repeated_rejected_call_has_its_own_span(store: Store, pay: Callable[[str], str]) -> None:
    gate = sayso.Gate(store, agent="desk", wait=0)
    inbox = sayso.Inbox(store)
    with following(store):
        with gate.run("r"), pytest.raises(sayso.Paused):
            pay("eve")
        inbox.reject_sync(inbox.pending_sync().items[0], "fraud", by="bea")
        with gate.run("r"), pytest.raises(Refused):
            pay("eve")
    assert [steps(span) for span in made()] == [["asked", "decided"]]


def test_failed_and_doubtful_calls_are_errors(store: Store) -> None:
    gate = sayso.Gate(store, wait=0)
    inbox = sayso.Inbox(store)

    @gate.guard(not_executed=(ValueError,))
    def fail() -> None:
        raise ValueError("secret reason")

    @gate.guard
    def vanish() -> None:
        raise TimeoutError("secret reason")

    with following(store):
        for function in (fail, vanish):
            with gate.run(function.__name__), pytest.raises(sayso.Paused):
                function()
            inbox.approve_sync(inbox.pending_sync().items[0], by="bea")
            with (
                gate.run(function.__name__),
                contextlib.suppress(ValueError, CallFailed, sayso.Paused, sayso.SaysoError),
            ):
                function()
        (doubtful,) = inbox.pending_sync()
        inbox.respond_sync(doubtful, None, by="bea")
    failed, doubt, settled = made()
    assert attribute(failed, "sayso.status") == "failed"
    assert attribute(doubt, "sayso.status") == "in_doubt"
    assert not failed.status.is_ok
    assert steps(doubt) == ["asked", "decided", "started", "in_doubt"]
    assert steps(settled) == ["in_doubt", "decided"]
    assert "secret" not in "".join(span.to_json() for span in made())


async def test_agent_approvals_have_spans(store: Store) -> None:
    @sayso.tool(needs_approval=True)
    def send(to: str) -> str:
        """Send."""
        return "sent"

    model = ScriptedModel([call("send", {"to": "ana"}), say("Done.")])
    agent = sayso.Agent("mailer", model=model, tools=[send], store=store)
    with following(store):
        with tracer.start_as_current_span("chat") as outer:
            result = await agent.run("go", thread="t")
        await agent.resume("t", decisions=[result.interruptions[0].approve()], by="bea")
    (span,) = [span for span in made() if span.name == "approval send"]
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id
    assert attribute(span, "sayso.status") == "done"


def test_processes_share_the_spans(store: Store, pay: Callable[[str], str]) -> None:
    inbox = sayso.Inbox(store)
    with following(store), following(store), following(store):
        for name in "abcdefgh":
            with pytest.raises(sayso.Paused):
                pay(name)
        for request in inbox.pending_sync():
            inbox.reject_sync(request, "no", by="bea")
    assert len({attribute(span, "sayso.request") for span in made()}) == len(made()) == 8


def test_later_process_makes_missed_spans(store: Store, pay: Callable[[str], str]) -> None:
    with following(store), pytest.raises(sayso.Paused):
        pay("ana")
    inbox = sayso.Inbox(store)
    inbox.reject_sync(inbox.pending_sync().items[0], "no", by="bea")
    assert made() == []
    with following(store):
        pass
    assert [steps(span) for span in made()] == [["asked", "decided"]]


async def test_worker_follows_its_store_once_configured(
    store: Store, pay: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    worker = Worker([], store)
    working = asyncio.create_task(worker.run())
    while not store.cursor("approval-spans"):
        await asyncio.sleep(0.01)
    inbox = sayso.Inbox(store)

    def reject() -> None:
        with pytest.raises(sayso.Paused):
            pay("ana")
        inbox.reject_sync(inbox.pending_sync().items[0], "no", by="bea")

    await asyncio.to_thread(reject)
    while not made():
        await asyncio.sleep(0.01)
    worker.stop()
    await working
    assert attribute(made()[0], "sayso.status") == "rejected"
