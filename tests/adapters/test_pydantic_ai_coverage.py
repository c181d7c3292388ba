"""Everything that a pydantic-ai agent runs is behind the gate, or refused."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, direct
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import CodeExecutionTool, MCPServerTool, WebSearchTool
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from pydantic_ai_world import World, call

import sayso
from sayso.adapters.pydantic_ai import Gated, guard

PAY = sayso.Rule("pay")
RULES = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="idempotent")])
ONCE = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="once")])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, RULES)


def paying(world: World) -> Any:
    def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(to)
        return f"paid {to}"

    return pay


def clerk(world: World, **options: Any) -> Agent[Any, Any]:
    return world.agent([call("pay", to="ana")], "ana has it", tools=[paying(world)], **options)


def boss(world: World, tool: Any) -> Agent[Any, Any]:
    return world.agent([call(tool.__name__, "o1", task="pay ana")], "Done.", tools=[tool])


async def settled(world: World, agent: Agent[Any, Any]) -> None:
    """What a guarded agent has to do: ask about the payment of the inner agent, and pay once."""
    guarded = guard(agent, world.gate)
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [])
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
    assert (result.output, world.ran) == ("Done.", ["bob"])


GLOBAL: Any = None


async def ask_global(ctx: RunContext[Any], task: str) -> str:
    """Delegate to the agent of this module."""
    return str((await GLOBAL.run(task)).output)


class Team:
    def __init__(self, agent: Any) -> None:
        self.agent = agent

    async def ask(self, task: str) -> str:
        """Delegate to the agent of the team."""
        return str((await self.agent.run(task)).output)


class TestDelegation:
    async def test_agent_in_closure_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(ctx: RunContext[Any], task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task, usage=ctx.usage)).output)

        await settled(world, boss(world, delegate))

    async def test_agent_two_levels_deep_asks(self, world: World) -> None:
        inner = clerk(world)

        async def ask_clerk(task: str) -> str:
            """Ask the clerk."""
            return str((await inner.run(task)).output)

        turns = [call("ask_clerk", "m1", task="x")], "told"
        middle = world.agent(*turns, tools=[ask_clerk])

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await middle.run(task)).output)

        await settled(world, boss(world, delegate))

    async def test_agent_in_toolset_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        turns = [call("x_delegate", "o1", task="pay ana")], "Done."
        await settled(
            world, world.agent(*turns, toolsets=[FunctionToolset([delegate]).prefixed("x")])
        )

    async def test_original_agents_are_not_changed(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        agent = boss(world, delegate)
        await settled(world, agent)
        world.ran.clear()
        assert (await agent.run("go")).output == "Done."
        assert world.ran == ["ana"]

    @pytest.mark.parametrize("policy", [RULES, ONCE], ids=["idempotent", "once"])
    async def test_inner_agent_uses_its_gate(
        self, world: World, monkeypatch: pytest.MonkeyPatch, policy: sayso.Policy
    ) -> None:
        """An agent with a gate pauses a call of any effect: its user has chosen that."""
        own = clerk(world, capabilities=[Gated(world.gate, policy)])
        monkeypatch.setattr(f"{__name__}.GLOBAL", own)
        await settled(world, boss(world, ask_global))

    async def test_agent_without_tools_runs(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", world.agent("thought about it"))
        guarded = guard(boss(world, ask_global), world.gate)
        assert (await guarded.run("go", thread="t")).output == "Done."

    async def test_guarded_where_it_is_built(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build a guarded agent, and ask it."""
            return str((await guard(clerk(world), world.gate).run(task)).output)

        await settled(world, boss(world, delegate))


def hire(world: World) -> Any:
    return clerk(world)


def found_in_team(world: World) -> Any:
    return Team(clerk(world)).ask


def found_in_global(world: World) -> Any:
    global GLOBAL
    GLOBAL = clerk(world)
    return ask_global


def built_in_tool(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        return str((await hire(world).run(task)).output)

    return delegate


def streaming_clerk(world: World) -> Any:
    async def reply(messages: list[Any], info: Any) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall("pay", '{"to": "ana"}', tool_call_id="c1")}
        else:
            yield "ana has it"

    return Agent(FunctionModel(stream_function=reply), tools=[paying(world)])


def streamed(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Stream an agent's answer."""
        async with streaming_clerk(world).run_stream(task) as stream:
            return str(await stream.get_output())

    return delegate


def streamed_events(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Stream an agent's events."""
        async with streaming_clerk(world).run_stream_events(task) as events:
            return str([event async for event in events][-1])

    return delegate


def iterated(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Iterate over the steps of an agent."""
        async with hire(world).iter(task) as steps:
            async for _ in steps:
                pass
        return str(steps.result and steps.result.output)

    return delegate


def wrapped(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask an agent in a wrapper."""
        return str((await WrapperAgent(hire(world)).run(task)).output)

    return delegate


def overridden(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask an agent whose tools are replaced."""
        agent = clerk(world)
        with agent.override(tools=[paying(world)]):
            return str((await agent.run(task)).output)

    return delegate


def copied(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask a copy of an agent."""
        return str((await copy.copy(hire(world)).run(task)).output)

    return delegate


def in_new_loop(world: World) -> Any:
    def delegate(task: str) -> str:
        """Ask an agent on another event loop."""
        return str(asyncio.run(hire(world).run(task)).output)

    return delegate


def in_pool(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask an agent on another OS thread."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(lambda: asyncio.run(hire(world).run(task)))
            return str((await asyncio.wrap_future(future)).output)

    return delegate


def in_thread(world: World) -> Any:
    def delegate(task: str) -> str:
        """Ask an agent on another OS thread, and ignore what it raises."""
        asking = threading.Thread(target=lambda: asyncio.run(hire(world).run(task)))
        asking.start()
        asking.join()
        return "asked"

    return delegate


def swallowed(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask an agent, and ignore what it raises."""
        try:
            return str((await hire(world).run(task)).output)
        except BaseException:
            return "ignored"

    return delegate


def with_own_toolset(world: World) -> Any:
    class Own(WrapperToolset[Any]):
        async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
            world.ran.append(tool_args["to"])
            return "paid"

    async def delegate(task: str) -> str:
        """Ask an agent with a toolset that runs its tools itself."""
        toolset = Own(FunctionToolset([paying(world)]))
        turns = [call("pay", to="ana")], "ana has it"
        return str((await world.agent(*turns, toolsets=[toolset]).run(task)).output)

    return delegate


def in_deps(world: World) -> Any:
    async def delegate(ctx: RunContext[Any], task: str) -> str:
        """Ask the agent in the dependencies."""
        return str((await ctx.deps.run(task)).output)

    return delegate


def by_toolset(world: World) -> Any:
    toolset = FunctionToolset([paying(world)])

    async def delegate(ctx: RunContext[Any], task: str) -> str:
        """Call a tool of a toolset by hand."""
        tools = await toolset.get_tools(ctx)
        inner = dataclasses.replace(ctx, tool_call_id="by-hand", tool_name="pay")
        return str(await toolset.call_tool("pay", {"to": "ana"}, inner, tools["pay"]))

    return delegate


def by_toolset_with_id(world: World) -> Any:
    toolset = FunctionToolset([paying(world)])

    async def delegate(ctx: RunContext[Any], task: str) -> str:
        """Call a tool of a toolset under the id of this call."""
        tools = await toolset.get_tools(ctx)
        return str(await toolset.call_tool("pay", {"to": "ana"}, ctx, tools["pay"]))

    return delegate


SHAPES = [
    found_in_team,
    found_in_global,
    built_in_tool,
    streamed,
    streamed_events,
    iterated,
    wrapped,
    overridden,
    copied,
    in_new_loop,
    in_pool,
    in_thread,
    swallowed,
    with_own_toolset,
    in_deps,
    by_toolset,
    by_toolset_with_id,
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
class TestUnguardedAgents:
    """Code in a tool runs an agent that nobody guarded."""

    async def test_idempotent_call_is_paused(self, world: World, shape: Any) -> None:
        guarded = guard(boss(world, shape(world)), world.gate, deps=clerk(world))
        result = await guarded.run("go", thread="t")
        assert (result.status, world.ran) == ("paused", [])
        (request,) = result.interruptions
        assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("Done.", ["ana"])

    async def test_once_call_is_not_paused(self, world: World, shape: Any) -> None:
        guarded = guard(boss(world, shape(world)), world.gate, ONCE, deps=clerk(world))
        result = await guarded.run("go", thread="t")
        assert (result.output, world.ran) == ("Done.", [])
        assert (await world.inbox.pending()).items == ()
        told = [str(row.decision) for row in world.store.calls_of("teller:t") if row.tool == "pay"]
        assert "gate.once(" in told[0]

    async def test_allowed_call_is_recorded(self, world: World, shape: Any) -> None:
        allow = sayso.Policy([sayso.Rule("*", verdict="allow", effect="once")])
        guarded = guard(boss(world, shape(world)), world.gate, allow, deps=clerk(world))
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["ana"]
        tools = [row.tool for row in world.store.calls_of("teller:t") if row.status == "done"]
        assert "pay" in tools

    async def test_unguarded_agent_is_not_touched(self, world: World, shape: Any) -> None:
        guard(clerk(world), world.gate)
        assert (await boss(world, shape(world)).run("go", deps=clerk(world))).output == "Done."
        assert world.ran == ["ana"]


class TestEscapes:
    """Code in a tool leaves the context of its call, and runs an agent that nobody guarded."""

    def delegate(self, world: World, run_elsewhere: Any) -> Any:
        def delegate(task: str) -> str:
            """Run an agent somewhere else."""
            run_elsewhere(lambda: asyncio.run(clerk(world).run(task)))
            return "started"

        return delegate

    @pytest.mark.parametrize("policy", [RULES, ONCE], ids=["idempotent", "once"])
    async def test_call_without_decision_does_not_run(
        self, world: World, run_elsewhere: Any, policy: sayso.Policy
    ) -> None:
        guarded = guard(boss(world, self.delegate(world, run_elsewhere)), world.gate, policy)
        result = await guarded.run("go", thread="t")
        assert (result.status in ("paused", "done"), world.ran) == (True, [])

    async def test_unguarded_agent_is_not_touched(self, world: World, run_elsewhere: Any) -> None:
        guard(clerk(world), world.gate)
        await boss(world, self.delegate(world, run_elsewhere)).run("go")
        assert world.ran == ["ana"]


class Composite(WrapperToolset[Any]):
    """A toolset of the user's own, one of whose tools runs another one in the same context."""

    async def get_tools(self, ctx: RunContext[Any]) -> Any:
        tools = await super().get_tools(ctx)
        return {"look": tools["look"]}

    async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
        tools = await self.wrapped.get_tools(ctx)
        await self.wrapped.call_tool("pay", {"to": "ana"}, ctx, tools["pay"])
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_allowed_call_does_not_allow_inner_calls(world: World, effect: str) -> None:
    def look() -> str:
        """Look."""
        world.ran.append("look")
        return "seen"

    toolset = Composite(FunctionToolset([paying(world), look]))
    agent = world.agent([call("look")], "Done.", toolsets=[toolset])
    rules = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect=effect)])
    result = await guard(agent, world.gate, rules).run("go", thread="t")
    assert result.status == ("paused" if effect == "idempotent" else "done")
    assert "ana" not in world.ran


async def test_read_is_paused(world: World) -> None:
    rules = sayso.Policy([PAY, sayso.Rule("delegate", verdict="allow", effect="read")])
    guarded = guard(boss(world, built_in_tool(world)), world.gate, rules)
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [])
    decisions = [request.approve() for request in result.interruptions]
    result = await guarded.resume("t", decisions=decisions)
    assert (result.output, world.ran) == ("Done.", ["ana"])


async def test_parallel_agents_keep_their_replies(world: World) -> None:
    """Each agent gets its own stored replies, in whatever order they start again."""
    order = [0.02, 0.0]

    async def delegate(task: str) -> str:
        """Ask two agents at the same time."""

        async def ask(name: str, delay: float) -> str:
            await asyncio.sleep(delay)
            turns = [call("pay", to=name)], f"{name} has it"
            agent = world.agent(*turns, tools=[paying(world)])
            return str((await agent.run(f"pay {name}")).output)

        outputs = await asyncio.gather(ask("ana", order[0]), ask("bob", order[1]))
        order.reverse()
        return " ".join(outputs)

    guarded = guard(boss(world, delegate), world.gate)
    result = await guarded.run("go", thread="t")
    while result.status == "paused":
        decisions = [request.approve() for request in result.interruptions]
        result = await guarded.resume("t", decisions=decisions)
    assert sorted(world.ran) == ["ana", "bob"]
    assert world.returns["o1"].content == "ana has it bob has it"


async def test_left_over_task_is_refused(world: World) -> None:
    """An agent that outlives the call that started it cannot run its tools."""
    ended = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def delegate(task: str) -> str:
        """Start an agent, and do not wait for it."""

        async def later() -> None:
            async with clerk(world).iter(task) as steps:
                await ended.wait()
                async for _ in steps:
                    pass

        tasks.append(asyncio.create_task(later()))
        await asyncio.sleep(0.01)
        return "started"

    guarded = guard(boss(world, delegate), world.gate)
    assert (await guarded.run("go", thread="t")).output == "Done."
    ended.set()
    with pytest.raises(sayso.InvalidCall, match="has ended"):
        await tasks[0]
    assert world.ran == []


NATIVE: Any = [
    (WebSearchTool(), "web_search"),
    (CodeExecutionTool(), "code_execution"),
    (MCPServerTool(id="git", url="https://x"), "git"),
]


class TestNativeTools:
    @pytest.mark.parametrize(("tool", "name"), NATIVE)
    def test_native_tool_is_refused_unless_ungated(
        self, world: World, tool: Any, name: str
    ) -> None:
        agent = world.agent("Done.", capabilities=[NativeTool(tool)])
        with pytest.raises(sayso.InvalidCall, match=f"native tool '{name}' of teller"):
            guard(agent, world.gate)
        coverage = guard(agent, world.gate, ungated=[name]).coverage()
        assert ("native tool", name, False) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_native_tool_in_options_is_refused(self, world: World) -> None:
        given = {"capabilities": [NativeTool(WebSearchTool())]}
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
            guard(world.agent("Done."), world.gate, **given)

    async def test_native_tool_added_during_run_is_refused(self, world: World) -> None:
        """Nothing knows of it before the request to the model."""
        late = NativeTool(lambda ctx: WebSearchTool())
        guarded = guard(world.agent("Done.", capabilities=[late]), world.gate)
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
            await guarded.run("go", thread="t")
        assert world.shown == []

    async def test_native_tool_of_inner_agent_is_refused(self, world: World) -> None:
        inner = world.agent("found", capabilities=[NativeTool(WebSearchTool())], name="searcher")

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        guarded = guard(boss(world, delegate), world.gate)
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
            await guarded.run("go", thread="t")
        assert len(world.shown) == 1
        guarded = guard(boss(world, delegate), world.gate, ungated=["web_search"])
        assert (await guarded.run("go", thread="t-2")).output == "Done."


MESSAGES = [ModelRequest(parts=[UserPromptPart("Find it.")])]


class Provider(TestModel):
    """A model whose provider runs tools; it counts the requests that reach the provider."""

    sent = 0

    def __init__(self) -> None:
        super().__init__(profile={"supported_native_tools": frozenset([WebSearchTool])})

    async def request(self, messages: Any, model_settings: Any, parameters: Any) -> Any:
        self.prepare_request(model_settings, parameters)
        self.sent += 1
        return await TestModel().request(messages, None, ModelRequestParameters())


async def search_directly(model: Provider) -> None:
    parameters = ModelRequestParameters(native_tools=[WebSearchTool()])
    await direct.model_request(model, MESSAGES, model_request_parameters=parameters)


async def search_by_method(model: Provider) -> None:
    await model.request(MESSAGES, None, ModelRequestParameters(native_tools=[WebSearchTool()]))


async def search_by_setting(model: Provider) -> None:
    settings: Any = {"extra_body": {"tools": [{"type": "web_search"}]}}
    await direct.model_request(model, MESSAGES, model_settings=settings)


@pytest.mark.parametrize("search", [search_directly, search_by_method, search_by_setting])
class TestDirectRequests:
    """Code in a tool asks a model, whose provider would run tools, without an agent."""

    async def test_request_is_not_sent(self, world: World, search: Any) -> None:
        model = Provider()

        async def delegate(task: str) -> str:
            """Ask a model."""
            await search(model)
            return "found"

        with pytest.raises(sayso.InvalidCall, match=r"(native tool|model setting) '\w+' of teller"):
            await guard(boss(world, delegate), world.gate).run("go", thread="t")
        assert model.sent == 0
        named = guard(boss(world, delegate), world.gate, ungated=["web_search", "extra_body"])
        assert (await named.run("go", thread="t-2")).output == "Done."
        assert model.sent == 1

    async def test_unguarded_request_is_not_touched(self, world: World, search: Any) -> None:
        model = Provider()
        await search(model)
        assert model.sent == 1


async def test_inner_agent_may_name_ungated_tool(world: World) -> None:
    inner = world.agent("found", capabilities=[NativeTool(WebSearchTool())])

    async def delegate(task: str) -> str:
        """Ask a guarded agent."""
        guarded = guard(inner, world.gate, ungated=["web_search"])
        return str((await guarded.run(task)).output)

    assert (await guard(boss(world, delegate), world.gate).run("go", thread="t")).output == "Done."


SETTINGS: Any = [
    ("extra_body", {"tools": [{"type": "web_search"}]}),
    ("openai_native_tools", [{"type": "web_search"}]),
    ("bedrock_additional_model_requests_fields", {"tools": []}),
    ("google_cached_content", "cachedContents/1"),
    ("openrouter_preset", "researcher"),
    ("anthropic_mcp_servers", [{"url": "https://x"}]),
    ("invented_later", True),
]


class TestSettings:
    """A setting of the request that may bring tools of the provider is refused."""

    @pytest.mark.parametrize(("name", "value"), SETTINGS)
    def test_unlisted_setting_is_refused(self, world: World, name: str, value: Any) -> None:
        agent = world.agent("Done.", model_settings={name: value})
        with pytest.raises(sayso.InvalidCall, match=f"model setting '{name}' of teller"):
            guard(agent, world.gate)
        coverage = guard(agent, world.gate, ungated=[name]).coverage()
        assert ("model setting", name, False) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_settings_of_options_are_refused(self, world: World) -> None:
        settings: Any = {"extra_body": {"tools": []}}
        with pytest.raises(sayso.InvalidCall, match="model setting 'extra_body'"):
            guard(world.agent("Done."), world.gate, model_settings=settings)

    def test_settings_of_models_are_refused(self, world: World) -> None:
        settings: Any = {"extra_body": {"tools": []}}
        model = FallbackModel(TestModel(), WrapperModel(TestModel(settings=settings)))
        with pytest.raises(sayso.InvalidCall, match="model setting 'extra_body'"):
            guard(Agent(model), world.gate)

    @pytest.mark.parametrize("where", ["agent", "inner agent"])
    async def test_late_settings_are_refused(self, world: World, where: str) -> None:
        settings: Any = {"extra_body": {"tools": []}}
        agent = world.agent("Done.", model_settings=lambda ctx: settings)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await agent.run(task)).output)

        guarded = guard(agent if where == "agent" else boss(world, delegate), world.gate)
        with pytest.raises(sayso.InvalidCall, match="model setting 'extra_body'"):
            await guarded.run("go", thread="t")

    def test_plain_settings_are_accepted(self, world: World) -> None:
        settings: Any = {"temperature": 0, "openai_reasoning_effort": "low", "extra_body": None}
        assert guard(world.agent("Done.", model_settings=settings), world.gate)


async def test_wrapped_agent_is_guarded(world: World) -> None:
    guarded = guard(WrapperAgent(clerk(world)), world.gate)
    assert (await guarded.run("go", thread="t")).status == "paused"
    assert world.ran == []


@pytest.mark.parametrize("where", ["agent", "options"])
async def test_capability_of_function_is_accepted(world: World, where: str) -> None:
    given: Any = {"capabilities": [lambda ctx: NativeTool(WebSearchTool())]}
    agent = clerk(world, **(given if where == "agent" else {}))
    guarded = guard(agent, world.gate, **(given if where == "options" else {}))
    with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
        await guarded.run("go", thread="t")


def test_table_lists_declared_tools(world: World) -> None:
    coverage = guard(boss(world, built_in_tool(world)), world.gate).coverage()
    assert {(one.where, one.kind, one.name, one.gated) for one in coverage} == {
        ("teller", "agent", "teller", True),
        ("teller", "tool", "delegate", True),
    }


def test_guarded_agent_hides_the_original(world: World) -> None:
    guarded = guard(clerk(world), world.gate)
    assert not [name for name in dir(guarded) if name == "agent"]
