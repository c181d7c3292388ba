"""A guarded agent of the SDK behaves like the bare one: stream, usage, hooks, trace."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunHooks, Runner, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel
from agents.tracing import TracingProcessor, set_trace_processors
from agents.usage import Usage
from openai_agents_world import World, call, pay_of, say

import sayso
from sayso.adapters.openai_agents import guard

ALLOW = sayso.Policy([sayso.Rule("*", verdict="allow")])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.policy = ALLOW
    yield world
    world.close()


@pytest.fixture
def spans() -> Iterator[list[Any]]:
    """What the SDK traces during the test."""
    recorder = Recorder()
    set_trace_processors([recorder])
    set_tracing_disabled(False)
    yield recorder.spans
    set_tracing_disabled(True)
    set_trace_processors([])


class Recorder(TracingProcessor):
    def __init__(self) -> None:
        self.spans: list[Any] = []

    def on_trace_start(self, trace: Any) -> None:
        self.spans.append(("start", trace.name))

    def on_trace_end(self, trace: Any) -> None:
        self.spans.append(("end", trace.name))

    def on_span_start(self, span: Any) -> None:
        data = span.span_data
        self.spans.append(("start", data.type, getattr(data, "name", None)))

    def on_span_end(self, span: Any) -> None:
        self.spans.append(("end", span.span_data.type, span.error))

    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


class Hooks(RunHooks[Any]):
    """Hooks that note when they are called."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.heard.append(("agent", agent.name))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.heard.append(("agent ended", agent.name, output))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.heard.append(("handoff", from_agent.name, to_agent.name))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.heard.append(("tool", agent.name, tool.name, context.tool_arguments))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.heard.append(("tool ended", tool.name, result))

    async def on_llm_start(self, context: Any, agent: Any, prompt: Any, items: Any) -> None:
        self.heard.append(("model", agent.name, prompt, len(items)))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.heard.append(("model ended", agent.name))


def build(world: World) -> Agent[Any]:
    """Return an agent that hands off to another one, which pays."""
    usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
    replies = [call("pay", "p1", to="ana")], [say("Done.")]
    model = ScriptedModel([ModelStep(output=reply, usage=usage) for reply in replies])
    clerk = Agent("Clerk", instructions="Pay.", model=model, tools=[pay_of(world)])
    first = ScriptedModel([ModelStep(output=[call("transfer_to_clerk", "h1")], usage=usage)])
    return Agent("Boss", instructions="Delegate.", model=first, handoffs=[clerk])


async def run_both(world: World) -> tuple[Any, Any]:
    """Return the results of the bare agent and of the guarded one."""
    bare = await Runner.run(build(world), "go")
    guarded = await guard(build(world), world.gate(), ALLOW).run("go", thread="t-1")
    return bare, guarded


def shown(event: Any) -> Any:
    if event.type == "raw_response_event":
        return event.type, event.data.type
    if event.type == "run_item_stream_event":
        return event.name, event.item.type, event.item.agent.name
    return event.type, event.new_agent.name


async def test_stream_has_the_bare_events(world: World) -> None:
    stream = Runner.run_streamed(build(world), "go")
    bare = [shown(event) async for event in stream.stream_events()]
    guarded = guard(build(world), world.gate(), ALLOW).stream("go", thread="t-1")
    assert [shown(event) async for event in guarded] == bare
    assert len(bare) > 10


async def test_usage_is_the_bare_usage(world: World) -> None:
    bare, guarded = await run_both(world)
    assert guarded.context_wrapper.usage == bare.context_wrapper.usage
    assert guarded.context_wrapper.usage.total_tokens == 45


@pytest.mark.parametrize("streamed", [False, True])
async def test_hooks_are_called_as_bare(world: World, streamed: bool) -> None:
    bare, hooks = Hooks(), Hooks()
    await Runner.run(build(world), "go", hooks=bare)
    guarded = guard(build(world), world.gate(), ALLOW, hooks=hooks)
    if streamed:
        async for _ in guarded.stream("go", thread="t-1"):
            pass
    else:
        await guarded.run("go", thread="t-1")
    assert hooks.heard == bare.heard
    assert ("tool", "Clerk", "pay", '{"to":"ana"}') in hooks.heard


async def test_trace_is_the_bare_trace(world: World, spans: list[Any]) -> None:
    await Runner.run(build(world), "go")
    bare = list(spans)
    spans.clear()
    await guard(build(world), world.gate(), ALLOW).run("go", thread="t-1")
    assert spans == bare
    assert ("start", "function", "pay") in bare


async def test_pickling_is_refused_with_a_reason(world: World) -> None:
    """The SDK's own agents and results cannot be pickled either."""
    guarded = guard(build(world), world.gate(), ALLOW)
    with pytest.raises(TypeError, match=r"cannot be pickled.*open store"):
        pickle.dumps(guarded)
    result = await guarded.run("go", thread="t-1")
    with pytest.raises(TypeError, match=r"use state\.to_json\(\)"):
        pickle.dumps(result.state)


@pytest.mark.parametrize("effect", ["read", "once"])
async def test_only_reads_are_retried(world: World, effect: Any) -> None:
    """The SDK retries no tool; what a model calls again has a new id, and is another call."""
    calls: list[str] = []

    async def look(what: str) -> str:
        calls.append(what)
        raise ConnectionError("the line is dead")

    replies = [[call("look", "l1", what="sky")], [call("look", "l2", what="sky")], [say("Done.")]]
    world.one(ScriptedModel(replies), function_tool(look))
    world.policy = sayso.Policy([sayso.Rule("look", verdict="allow", effect=effect)])
    result = await world.run()
    expected = {"read": (["sky", "sky"], "done"), "once": (["sky"], "paused")}
    assert (calls, result.status) == expected[effect]


async def test_raw_equals_bare_result(world: World) -> None:
    bare, guarded = await run_both(world)
    assert type(guarded.raw) is type(bare)
    assert [item.type for item in guarded.new_items] == [item.type for item in bare.new_items]
    assert guarded.to_input_list() == bare.to_input_list()
    assert len(guarded.raw_responses) == len(bare.raw_responses) == 3
    assert guarded.last_agent.name == bare.last_agent.name == "Clerk"
    assert guarded.final_output == bare.final_output == "Done."
