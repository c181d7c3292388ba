"""The stream of events and its listeners: users, logging, OpenTelemetry."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from agent_world import World
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sayso
from sayso.agent import (
    Agent,
    Answered,
    Requested,
    ToolCalled,
    ToolClosed,
    ToolEnded,
    ToolStarted,
)
from sayso.agent.events import log_events
from sayso.agent.models import ModelError
from sayso.agent.tracing import Tracing
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

PAY = call("pay", {"amount": 3, "to": None})
LOOK = call("look", {"what": "x"})


async def test_pause_and_resume_emit_events(world: World) -> None:
    agent = world.agent(calls(PAY, LOOK, call("nope")), say("Done."))
    result = await agent.run("go", thread="t", requester="ana")
    events = list(world.events)
    assert {event.run for event in events} == {result.run}
    assert {(event.thread, event.agent) for event in events} == {("t", "assistant")}
    called = [event for event in events if isinstance(event, ToolCalled)]
    assert [(c.tool, c.args) for c in called] == [
        ("pay", {"amount": 3, "to": "ana"}),
        ("look", {"what": "x"}),
        ("nope", {}),
    ]
    assert world.happened() == [
        *("Started", "ModelAsked", "ModelReplied", "ToolCalled", "ToolCalled", "ToolCalled"),
        *("Requested", "ToolClosed", "ToolStarted", "ToolEnded", "Ended"),
    ]
    (request,) = result.interruptions
    await agent.resume("t", decisions=[request.approve()], by="bea")
    (answered,) = [event for event in world.events if isinstance(event, Answered)]
    assert answered.request.decision is not None
    assert (answered.request.id, answered.request.decision.by) == (request.id, "bea")
    assert world.happened() == [
        *("Started", "Answered", "ToolStarted", "ToolEnded"),
        *("ModelAsked", "Text", "ModelReplied", "Ended"),
    ]


async def test_one_call_has_one_id_in_all_events(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("go", thread="t")
    await agent.resume("t", decisions=[result.interruptions[0].approve()])
    ids = [
        event.request.id if isinstance(event, Requested | Answered) else event.id
        for event in world.events
        if isinstance(event, ToolCalled | ToolStarted | ToolEnded | Requested | Answered)
    ]
    assert (len(ids), set(ids)) == (5, {result.interruptions[0].id})


async def test_closed_call_is_an_event(world: World) -> None:
    agent = world.agent(PAY, say("Done."))
    result = await agent.run("go", thread="t")
    await agent.resume("t", decisions=[result.interruptions[0].reject("no")])
    (closed,) = [event for event in world.events if isinstance(event, ToolClosed)]
    assert (closed.id, closed.status) == (result.interruptions[0].id, "rejected")
    assert "A person rejected" in closed.content


async def test_event_follows_the_stored_row(world: World) -> None:
    stored: list[Any] = []

    def look(event: Any) -> None:
        if isinstance(event, Requested):
            stored.append(world.store.call(event.request.id))

    agent = world.agent(PAY)
    agent.listeners.append(look)
    await agent.run("go", thread="t")
    assert [call.status for call in stored] == ["asked"]


async def test_failed_run_ends_with_errored(world: World) -> None:
    agent = world.agent(ModelError("no key"))
    with pytest.raises(ModelError):
        await agent.run("go", thread="t")
    assert world.happened() == ["Started", "ModelAsked", "Errored"]


async def test_only_interactive_channels_are_notified_again(world: World) -> None:
    told: list[str] = []

    class Channel:
        def __init__(self, name: str, interactive: bool) -> None:
            self.name = name
            self.interactive = interactive

        async def __call__(self, request: sayso.Request) -> None:
            told.append(self.name)

    channels = [Channel("mail", False), Channel("terminal", True)]
    agent = world.agent(PAY, channels=channels)
    await agent.run("go", thread="t")
    assert sorted(told) == ["mail", "terminal"]
    await agent.resume("t")
    assert sorted(told) == ["mail", "terminal", "terminal"]


# -- logging


async def test_logging_with_ids_and_without_contents(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sayso.agent.events")
    agent = world.agent(
        calls(PAY, call("no\nsuch\x1b[31m tool")), say("secret words"), instructions="Hush."
    )
    agent.listeners.append(log_events())
    result = await agent.run("secret wishes", thread="t")
    (request,) = result.interruptions
    await agent.resume("t", decisions=[request.edit({"to": "secret"})], by="bea")
    records = [r for r in caplog.records if r.name == "sayso.agent.events"]
    assert {record.sayso_run for record in records} == {result.run}  # type: ignore[attr-defined]
    assert {r.sayso_request for r in records} >= {request.id, ""}  # type: ignore[attr-defined]
    text = "\n".join(record.getMessage() for record in records)
    assert "secret" not in text
    assert "\x1b" not in text
    assert len(text.splitlines()) == len(records)
    for said in ("began", "pay called", "pay needs a person", "edited by bea", "pay is done"):
        assert said in text
    assert "is paused" in text


async def test_logging_of_a_failure(world: World, caplog: pytest.LogCaptureFixture) -> None:
    agent = world.agent(ModelError("no key"))
    agent.listeners.append(log_events(logging.getLogger("mine"), logging.DEBUG))
    with pytest.raises(ModelError):
        await agent.run("go", thread="t")
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records if r.name == "mine"] == [
        "stopped: ModelError: no key"
    ]


# -- tracing


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.clear()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider.get_tracer("test"))


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


async def test_spans_of_runs_models_and_tools(
    world: World, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    agent = world.agent(calls(PAY, LOOK), say("Done."))
    agent.listeners.append(tracing)
    result = await agent.run("go", thread="t")
    found = by_name(spans)
    assert set(found) == {"invoke_agent assistant", "chat scripted", "execute_tool look"}
    run = found["invoke_agent assistant"]
    assert run.attributes is not None
    assert run.attributes["sayso.run"] == result.run
    assert run.attributes["sayso.status"] == "paused"
    assert run.attributes["gen_ai.conversation.id"] == "t"
    assert [event.name for event in run.events] == ["sayso.requested"]
    for name in ("chat scripted", "execute_tool look"):
        assert found[name].parent is not None
        assert found[name].parent.span_id == run.context.span_id
    spans.clear()
    await agent.resume("t", decisions=[result.interruptions[0].approve()], by="bea")
    found = by_name(spans)
    run = found["invoke_agent assistant"]
    assert run.attributes is not None
    assert (run.attributes["sayso.resumed"], run.attributes["sayso.status"]) == (True, "done")
    assert run.events[0].attributes is not None
    assert run.events[0].attributes["sayso.decision"] == "approve"
    pay = found["execute_tool pay"].attributes
    assert pay is not None
    assert pay["sayso.request"] == result.interruptions[0].id
    # Neither arguments nor results leave the house.
    assert "ana" not in str([dict(span.attributes or {}) for span in found.values()])


async def test_spans_inside_tool_are_its_children(
    world: World, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    seen = []

    @sayso.tool
    def work() -> None:
        """Work, in a thread."""
        seen.append(trace.get_current_span().get_span_context().span_id)

    @sayso.tool
    async def wait() -> None:
        """Work, on the loop."""
        await asyncio.sleep(0)
        seen.append(trace.get_current_span().get_span_context().span_id)

    agent = world.agent(calls(call("work"), call("wait")), say("Done."), tools=[work, wait])
    agent.listeners.append(tracing)
    before = trace.get_current_span()
    await agent.run("go", thread="t")
    found = by_name(spans)
    tools = {found[f"execute_tool {name}"].context.span_id for name in ("work", "wait")}
    assert set(seen) == tools
    assert trace.get_current_span() is before


async def test_sub_agent_span_is_child_of_call(
    world: World, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    inner = Agent(
        "payer", model=ScriptedModel([say("Paid.")]), tools=[world.pay], listeners=[tracing]
    )
    outer = world.agent(call("payer", {"input": "go"}), say("Done."), tools=[inner])
    outer.listeners.append(tracing)
    await outer.run("go", thread="t")
    found = by_name(spans)
    parent = found["invoke_agent payer"].parent
    assert parent is not None
    assert parent.span_id == found["execute_tool payer"].context.span_id


async def test_spans_end_however_it_ends(
    world: World, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    @sayso.tool
    async def asks(ctx: sayso.Context) -> str:
        """Ask."""
        return str(await ctx.ask("Why?"))

    @sayso.tool
    def fails() -> None:
        """Fail."""
        raise OSError("smoke")

    agent = world.agent(calls(call("asks"), call("fails")), ModelError("gone"), tools=[asks, fails])
    agent.listeners.append(tracing)
    result = await agent.run("go", thread="t")
    found = by_name(spans)
    assert found["execute_tool asks"].attributes is not None
    assert found["execute_tool asks"].attributes["sayso.status"] == "suspended"
    assert found["execute_tool fails"].status.is_ok is False
    spans.clear()
    with pytest.raises(ModelError):
        await agent.resume("t", decisions=[result.interruptions[0].respond("so")])
    assert by_name(spans)["invoke_agent assistant"].status.is_ok is False
    assert by_name(spans)["chat scripted"].status.is_ok is False
    assert tracing._spans == {}


async def test_application_tracer_is_the_default(world: World) -> None:
    agent = world.agent(say("Done."))
    agent.listeners.append(Tracing())
    assert (await agent.run("go", thread="t")).status == "done"


def test_missing_opentelemetry_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "sayso.agent.tracing")
    with pytest.raises(ImportError, match=r'pip install "sayso\[otel\]"'):
        importlib.import_module("sayso.agent.tracing")
