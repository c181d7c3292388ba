"""A guarded pydantic-ai agent behaves like the bare one where no decision is needed."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai_world import World, call

import sayso
from sayso.adapters.pydantic_ai import guard

ALLOW = sayso.Policy([sayso.Rule("*", verdict="allow")])
READ = sayso.Policy([sayso.Rule("*", verdict="allow", effect="read")])
TURNS = [call("look", "c1", at="ana"), call("look", "c2", at="bob")], "They are there."


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, ALLOW)


def look(at: str) -> str:
    """Look at somebody."""
    return f"seen {at}"


async def in_both(
    world: World, make: Callable[[], Agent[Any, Any]], policy: sayso.Policy = ALLOW, **options: Any
) -> tuple[Any, Any]:
    """Return the results of the framework: of a bare run, and of a guarded one."""
    bare = await make().run("go", **options)
    guarded = guard(make(), world.gate, policy, **options)
    return bare, (await guarded.run("go", thread="t")).raw


def plain(messages: Any) -> list[Any]:
    """Return messages without what differs in every run."""
    dumped: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    for message in dumped:
        for part in (message, *message["parts"]):
            for name in ("timestamp", "run_id", "conversation_id", "state"):
                part.pop(name, None)
    return dumped


async def test_raw_equals_bare_result(world: World) -> None:
    bare, guarded = await in_both(world, lambda: world.agent(*TURNS, tools=[look]))
    assert type(guarded) is type(bare)
    assert guarded.output == bare.output
    assert plain(guarded.all_messages()) == plain(bare.all_messages())
    assert plain(guarded.new_messages()) == plain(bare.new_messages())
    assert plain([guarded.response]) == plain([bare.response])


async def test_guard_reports_the_same_usage(world: World) -> None:
    bare, guarded = await in_both(world, lambda: world.agent(*TURNS, tools=[look]))
    used = [result.usage for result in (bare, guarded)]
    assert used[0] == used[1]
    assert (used[0].requests, used[0].tool_calls) == (2, 2)


async def reply(messages: list[Any], info: Any) -> AsyncIterator[Any]:
    if any(isinstance(message, ModelResponse) for message in messages):
        yield "They "
        yield "are there."
    else:
        yield {0: DeltaToolCall("look", '{"at": ', tool_call_id="c1")}
        yield {0: DeltaToolCall(None, '"ana"}')}


async def test_guard_streams_as_bare(world: World) -> None:
    def agent() -> Agent[Any, Any]:
        return Agent(FunctionModel(stream_function=reply), tools=[look])

    events: list[Any] = []

    async def handler(ctx: Any, given: Any) -> None:
        events.extend([kind(event) async for event in given])

    await agent().run("go", event_stream_handler=handler)
    stream = guard(agent(), world.gate).stream("go", thread="t")
    assert [kind(event) async for event in stream] == events
    assert len(events) > 5


@pytest.mark.parametrize("streamed", [False, True])
async def test_own_handler_sees_the_same(world: World, streamed: bool) -> None:
    seen: list[Any] = []

    async def handler(ctx: Any, events: Any) -> None:
        seen.extend([kind(event) async for event in events])

    def agent() -> Agent[Any, Any]:
        return Agent(FunctionModel(stream_function=reply), tools=[look])

    await agent().run("go", event_stream_handler=handler)
    guarded = guard(agent(), world.gate, event_stream_handler=handler)
    if streamed:
        assert [event async for event in guarded.stream("go", thread="t")]
    else:
        await guarded.run("go", thread="t")
    half = len(seen) // 2
    assert seen[:half] == seen[half:] != []


def kind(event: Any) -> tuple[str, str]:
    return type(event).__name__, str(getattr(event, "delta", ""))


class Hooked(AbstractCapability[Any]):
    """Records what the framework tells a capability."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        self.events.append(("model", len(request_context.messages)))
        return request_context

    async def before_tool_execute(self, ctx: Any, *, call: Any, args: Any, **_: Any) -> Any:
        self.events.append(("tool", call.tool_name, dict(args)))
        return args

    async def after_tool_execute(self, ctx: Any, *, call: Any, result: Any, **_: Any) -> Any:
        self.events.append(("result", result))
        return f"{result}!"


async def test_capabilities_see_the_same(world: World) -> None:
    events: list[Any] = []
    bare, guarded = await in_both(
        world, lambda: world.agent(*TURNS, tools=[look], capabilities=[Hooked(events)])
    )
    half = len(events) // 2
    looks = [("tool", "look", {"at": "ana"}), ("tool", "look", {"at": "bob"})]
    for seen in (events[:half], events[half:]):
        assert seen[:3] == [("model", 1), *looks]
        # The framework runs sync tools in OS threads, so either call may end first.
        assert sorted(seen[3:5]) == [("result", "seen ana"), ("result", "seen bob")]
        assert seen[5:] == [("model", 3)]
    assert plain(guarded.all_messages()) == plain(bare.all_messages())


async def test_guard_traces_as_bare(world: World) -> None:
    spans = []
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = InstrumentationSettings(tracer_provider=provider)

    def agent() -> Agent[Any, Any]:
        traced = Instrumentation(settings=settings)
        return world.agent(*TURNS, tools=[look], capabilities=[traced], name="looker")

    for run in (agent().run("go"), guard(agent(), world.gate).run("go", thread="t")):
        await run
        finished = exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in finished if span.context}
        spans.append(
            sorted((s.name, names.get(s.parent.span_id) if s.parent else None) for s in finished)
        )
        exporter.clear()
    assert spans[0] == spans[1]
    assert len(spans[0]) >= 5


async def test_failed_read_is_retried_as_bare(world: World) -> None:
    ran: list[str] = []

    def agent() -> Agent[Any, Any]:
        failures = [ModelRetry("look again"), ModelRetry("and again")]

        def look(at: str) -> str:
            """Look at somebody."""
            ran.append(at)
            if failures:
                raise failures.pop()
            return f"seen {at}"

        made = [[call("look", f"c{n}", at="ana")] for n in range(3)]
        return world.agent(*made, "She is there.", tools=[look], retries=3)

    bare, guarded = await in_both(world, agent, READ)
    assert ran == ["ana"] * 6
    assert plain(guarded.all_messages()) == plain(bare.all_messages())


async def test_later_turns_equal_bare(world: World) -> None:
    agent = world.agent("Hello.", "Good bye.")
    first = await agent.run("Hi")
    bare = await agent.run("Bye", message_history=first.all_messages())
    guarded = guard(agent, world.gate)
    await guarded.run("Hi", thread="t")
    result = (await guarded.run("Bye", thread="t")).raw
    assert plain(result.all_messages()) == plain(bare.all_messages())
    assert plain(result.new_messages()) == plain(bare.new_messages())


def test_pickling_is_refused_with_a_reason(world: World) -> None:
    guarded = guard(world.agent("Hello."), world.gate)
    with pytest.raises(TypeError, match="cannot be pickled, because they hold an open store"):
        pickle.dumps(guarded)
