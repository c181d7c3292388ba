"""Everything that an agent of Google ADK runs is behind the gate, or refused."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,
    ManagedAgent,
    ParallelAgent,
    SequentialAgent,
)
from google.adk.agents.run_config import RunConfig
from google.adk.code_executors import BuiltInCodeExecutor, UnsafeLocalCodeExecutor
from google.adk.models import LlmRequest, LlmResponse
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import (
    FunctionTool,
    LongRunningFunctionTool,
    ToolContext,
    exit_loop,
    google_search,
    load_memory,
    preload_memory,
    url_context,
)
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types
from google_adk_world import Turns, World, call
from harness_google_adk import reply_of, run_bare

import sayso
from sayso.adapters.google_adk import guard

# ADK uses what it has deprecated itself, and its agents that run others are deprecated too.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PAY = sayso.Rule("pay")
RULES = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="idempotent")])
ONCE = sayso.Policy([PAY, sayso.Rule("*", verdict="allow", effect="once")])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, RULES)
    yield world
    world.gate.close()


async def asks_and_pays(world: World, agent: BaseAgent, output: str = "Done.") -> None:
    """Check that people are asked about the payment, and that it then happens once."""
    guarded = guard(agent, world.gate)
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [])
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
    assert (result.output, world.ran) == (output, ["bob"])


# -- agents of the framework


class TestDeclaredAgents:
    async def test_agent_tool_asks(self, world: World) -> None:
        tool = AgentTool(world.clerk())
        agent = world.agent([call("clerk", "o1", request="pay")], "Done.", tools=[tool])
        await asks_and_pays(world, agent)

    async def test_agent_tool_two_levels_deep_asks(self, world: World) -> None:
        middle = world.agent(
            [call("clerk", "m1", request="pay")],
            "told",
            name="middle",
            tools=[AgentTool(world.clerk())],
        )
        agent = world.agent(
            [call("middle", "o1", request="pay")], "Done.", tools=[AgentTool(middle)]
        )
        await asks_and_pays(world, agent)

    async def test_transfer_to_sub_agent_asks(self, world: World) -> None:
        turn = [call("transfer_to_agent", "o1", agent_name="clerk")]
        await asks_and_pays(world, world.agent(turn, sub_agents=[world.clerk()]), "ana has it")

    async def test_sequential_agents_ask_in_turn(self, world: World) -> None:
        second = world.agent("Done.", name="second")
        agents = [world.clerk("first"), second]
        await asks_and_pays(world, SequentialAgent(name="both", sub_agents=agents))

    async def test_loop_agent_asks_in_every_round(self, world: World) -> None:
        turns = [[call("pay", f"c{n}", to="ana")] for n in range(2)]
        clerk = world.agent(
            *turns, [call("exit_loop", "x")], name="clerk", tools=[world.pay, exit_loop]
        )
        guarded = guard(LoopAgent(name="loop", sub_agents=[clerk], max_iterations=3), world.gate)
        result = await guarded.run("go", thread="t")
        for paid in (1, 2):
            (request,) = result.interruptions
            result = await guarded.resume("t", decisions=[request.approve()])
            assert len(world.ran) == paid
        assert result.status == "done"

    async def test_parallel_agents_ask_without_ending_each_other(self, world: World) -> None:
        clerks = [world.clerk(f"clerk_{to}", to) for to in ("ana", "bob")]
        guarded = guard(ParallelAgent(name="both", sub_agents=clerks), world.gate)
        result = await guarded.run("go", thread="t")
        while result.status == "paused":
            result = await guarded.resume(
                "t", decisions=[request.approve() for request in result.interruptions]
            )
        assert (result.status, sorted(world.ran)) == ("done", ["ana", "bob"])
        assert [clerk.model.script.asked for clerk in clerks] == [2, 2]

    async def test_custom_agent_asks(self, world: World) -> None:
        class Custom(BaseAgent):
            async def _run_async_impl(self, ctx: Any) -> AsyncIterator[Any]:
                async for event in self.sub_agents[0].run_async(ctx):
                    yield event

        agent = Custom(name="custom", sub_agents=[world.clerk()])
        await asks_and_pays(world, agent, "ana has it")

    @pytest.mark.parametrize("on", ["tool", "class", "mixin"])
    async def test_replaced_method_of_tool_asks(self, world: World, on: str) -> None:
        """A copy of the method's attributes, as ``functools.wraps`` makes, is no gate."""

        class Mixin:
            async def run_async(self, *, args: Any, tool_context: Any) -> Any:
                return world.pay(**args)

        class Paying(FunctionTool):
            pass

        class MixedIn(Mixin, FunctionTool):
            pass

        tool = MixedIn(world.pay) if on == "mixin" else Paying(world.pay)
        if on == "tool":

            @functools.wraps(tool.run_async)
            async def run_here(*, args: Any, tool_context: Any) -> Any:
                return world.pay(**args)

            tool.run_async = run_here  # type: ignore[method-assign]
        elif on == "class":
            replaced = functools.wraps(FunctionTool.run_async)(Mixin.run_async)
            Paying.run_async = replaced  # type: ignore[method-assign]
        await asks_and_pays(world, world.agent([call("pay", to="ana")], "Done.", tools=[tool]))

    async def test_agents_passed_in_are_not_changed(self, world: World) -> None:
        clerk = world.clerk()

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return await run_bare(clerk, task)

        agent = world.boss(delegate)
        await asks_and_pays(world, agent)
        world.ran.clear()
        assert await run_bare(agent, "go") == "Done."
        assert world.ran == ["ana"]


# -- agents and tools that code in a tool runs

Delegate = Callable[[World], Callable[..., Any]]
SHAPES: dict[str, Delegate] = {}


def shape(make: Delegate) -> Delegate:
    SHAPES[make.__name__] = make
    return make


def bare_tool(world: World) -> FunctionTool:
    return FunctionTool(world.pay)


@shape
def direct_call_of_a_tool(world: World) -> Callable[..., Any]:
    tool = bare_tool(world)

    async def delegate(task: str, tool_context: ToolContext) -> Any:
        return await tool.run_async(args={"to": "ana"}, tool_context=tool_context)

    return delegate


@shape
def unbound_method_of_the_class(world: World) -> Callable[..., Any]:
    tool = bare_tool(world)

    async def delegate(task: str, tool_context: ToolContext) -> Any:
        run: Any = FunctionTool.run_async
        return await run(tool, args={"to": "ana"}, tool_context=tool_context)

    return delegate


@shape
def method_kept_in_a_variable(world: World) -> Callable[..., Any]:
    run = bare_tool(world).run_async

    async def delegate(task: str, tool_context: ToolContext) -> Any:
        return await run(args={"to": "ana"}, tool_context=tool_context)

    return delegate


@shape
def class_defined_in_the_tool(world: World) -> Callable[..., Any]:
    async def delegate(task: str, tool_context: ToolContext) -> Any:
        class Payment(BaseTool):
            async def run_async(self, *, args: Any, tool_context: Any) -> Any:
                return world.pay(**args)

        tool = Payment(name="pay", description="Pay")
        return await tool.run_async(args={"to": "ana"}, tool_context=tool_context)

    return delegate


@shape
def subclass_that_calls_super(world: World) -> Callable[..., Any]:
    class Payment(FunctionTool):
        async def run_async(self, *, args: Any, tool_context: Any) -> Any:
            return await super().run_async(args=args, tool_context=tool_context)

    tool = Payment(world.pay)

    async def delegate(task: str, tool_context: ToolContext) -> Any:
        return await tool.run_async(args={"to": "ana"}, tool_context=tool_context)

    return delegate


@shape
def tool_whose_method_was_replaced(world: World) -> Callable[..., Any]:
    tool = bare_tool(world)

    async def run_async(*, args: Any, tool_context: Any) -> Any:
        return world.pay(**args)

    tool.run_async = run_async  # type: ignore[method-assign]
    clerk = world.agent([call("pay", to="ana")], "told", name="clerk", tools=[tool])

    async def delegate(task: str) -> str:
        return await run_bare(clerk, task)

    return delegate


@shape
def sync_runner_in_its_own_os_thread(world: World) -> Callable[..., Any]:
    clerk = world.clerk()

    def delegate(task: str) -> str:
        runner = InMemoryRunner(agent=clerk, app_name="bare")
        runner.auto_create_session = True
        message = types.UserContent(parts=[types.Part(text=task)])
        events = list(runner.run(user_id="u", session_id="s", new_message=message))
        return str(len(events))

    return delegate


@shape
def runner_in_an_os_thread(world: World) -> Callable[..., Any]:
    clerk = world.clerk()

    def delegate(task: str) -> str:
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(asyncio.run(run_bare(clerk, task))))
        thread.start()
        thread.join()
        return answers[0] if answers else "nothing"

    return delegate


@shape
def runners_in_a_pool(world: World) -> Callable[..., Any]:
    clerk = world.clerk()

    def delegate(task: str) -> str:
        with ThreadPoolExecutor(2) as pool:
            return pool.submit(lambda: asyncio.run(run_bare(clerk, task))).result()

    return delegate


@shape
def agent_copied_with_clone(world: World) -> Callable[..., Any]:
    clerk = world.clerk()

    async def delegate(task: str) -> str:
        return await run_bare(clerk.clone(update={"name": "copy"}), task)

    return delegate


@shape
def agent_tool_built_in_the_tool(world: World) -> Callable[..., Any]:
    async def delegate(task: str, tool_context: ToolContext) -> Any:
        tool = AgentTool(world.clerk())
        return await tool.run_async(args={"request": task}, tool_context=tool_context)

    return delegate


@shape
def agent_built_in_a_task(world: World) -> Callable[..., Any]:
    async def delegate(task: str) -> str:
        return await asyncio.create_task(run_bare(world.clerk(), task))

    return delegate


@shape
def transfer_to_a_found_agent(world: World) -> Callable[..., Any]:
    turns = [call("transfer_to_agent", agent_name="clerk")]
    other = world.agent(turns, name="other", sub_agents=[world.clerk()])

    async def delegate(task: str) -> str:
        return await run_bare(other, task)

    return delegate


@shape
def sequential_agents_in_a_tool(world: World) -> Callable[..., Any]:
    async def delegate(task: str) -> str:
        return await run_bare(SequentialAgent(name="s", sub_agents=[world.clerk()]), task)

    return delegate


@shape
def tool_of_a_toolset(world: World) -> Callable[..., Any]:
    class Payments(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
            return [bare_tool(world)]

    clerk = world.agent([call("pay", to="ana")], "told", name="clerk", tools=[Payments()])

    async def delegate(task: str) -> str:
        return await run_bare(clerk, task)

    return delegate


@shape
def before_model_callback_without_a_model(world: World) -> Callable[..., Any]:
    replies = Turns([[call("pay", to="ana")], "told"])

    def reply(callback_context: Any, llm_request: LlmRequest) -> LlmResponse:
        said = sum(content.role == "model" for content in llm_request.contents)
        return reply_of(replies.reply(said, []))

    clerk = world.clerk(before_model_callback=reply)

    async def delegate(task: str) -> str:
        return await run_bare(clerk, task)

    return delegate


class TestUnguardedAgents:
    @pytest.mark.parametrize("name", SHAPES)
    async def test_call_in_tool_asks_and_runs_once(self, world: World, name: str) -> None:
        guarded = guard(world.boss(SHAPES[name](world)), world.gate)
        result = await guarded.run("go", thread="t")
        assert (result.status, world.ran) == ("paused", [])
        (request,) = result.interruptions
        assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("Done.", ["ana"])

    @pytest.mark.parametrize("name", SHAPES)
    async def test_call_in_tool_with_effect_is_denied(self, world: World, name: str) -> None:
        guarded = guard(world.boss(SHAPES[name](world)), world.gate, ONCE)
        result = await guarded.run("go", thread="t")
        assert (result.output, world.ran) == ("Done.", [])

    @pytest.mark.parametrize("name", SHAPES)
    async def test_same_code_without_gate_is_not_disturbed(self, world: World, name: str) -> None:
        guarded = guard(world.clerk(), world.gate)
        assert (await guarded.run("go", thread="other")).status == "paused"
        assert await run_bare(world.boss(SHAPES[name](world)), "go") == "Done."
        assert world.ran == ["ana"]

    async def test_allowed_call_is_recorded(self, world: World) -> None:
        clerk = world.clerk()

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return await run_bare(clerk, task)

        free = sayso.Policy([sayso.Rule("*", verdict="allow")])
        guarded = guard(world.boss(delegate), world.gate, free)
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["ana"]
        assert {row.tool for row in world.gate.store.calls_of("boss:t")} == {"delegate", "pay"}


# -- what cannot come back to the gate


def remote(**config: Any) -> dict[str, Any]:
    return {"generate_content_config": types.GenerateContentConfig(**config)}


def wait(task: str) -> None:
    """Start something that ends later."""


HOSTED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "google search": ({"tools": [google_search]}, ["google_search"]),
    "url context": ({"tools": [url_context]}, ["url_context"]),
    "long-running tool": ({"tools": [LongRunningFunctionTool(wait)]}, ["wait"]),
    "code of the model": (
        {"code_executor": UnsafeLocalCodeExecutor()},
        ["UnsafeLocalCodeExecutor"],
    ),
    "code at the provider": (
        {"code_executor": BuiltInCodeExecutor()},
        ["BuiltInCodeExecutor", "code_execution"],
    ),
    "cached content": (remote(cached_content="cache/1"), ["cached_content"]),
    "extra body": (
        remote(http_options=types.HttpOptions(extra_body={"tools": [{"google_search": {}}]})),
        ["extra_body"],
    ),
    "model setting": (
        {"model": LiteLlm(model="openai/x", web_search_options={"user_location": {}})},
        ["web_search_options"],
    ),
}


class TestRefused:
    @pytest.mark.parametrize("case", HOSTED)
    def test_hosted_tool_is_refused_unless_ungated(self, world: World, case: str) -> None:
        options, names = HOSTED[case]
        agent = LlmAgent(name="boss", **{"model": world.model("x"), **options})
        with pytest.raises(sayso.InvalidCall) as refused:
            guard(agent, world.gate)
        assert all(repr(name) in str(refused.value) for name in names)
        assert guard(agent, world.gate, ungated=names).coverage().ungated == tuple(names)

    def test_agent_as_tool_is_searched(self, world: World) -> None:
        searcher = world.agent("x", name="searcher", tools=[google_search])
        with pytest.raises(sayso.InvalidCall, match="searcher"):
            guard(world.agent("x", tools=[AgentTool(searcher)]), world.gate)

    def test_managed_agent_is_refused(self, world: World) -> None:
        agent = ManagedAgent(name="elsewhere", agent_id="agents/1")
        with pytest.raises(sayso.InvalidCall, match="do not run here"):
            guard(SequentialAgent(name="s", sub_agents=[agent]), world.gate)

    def test_live_function_calling_is_refused(self, world: World) -> None:
        config = RunConfig(support_cfc=True)
        with pytest.raises(sayso.InvalidCall, match="support_cfc"):
            guard(world.agent("x"), world.gate, run_config=config)

    def test_tools_of_the_prompt_are_not_refused(self, world: World) -> None:
        guard(world.agent("x", tools=[preload_memory, load_memory]), world.gate)

    async def test_tool_of_provider_in_callback_is_refused(self, world: World) -> None:
        def search(callback_context: Any, llm_request: LlmRequest) -> None:
            tool = types.Tool(google_search=types.GoogleSearch())
            llm_request.config.tools = [tool]

        guarded = guard(world.agent("x", before_model_callback=search), world.gate)
        with pytest.raises(sayso.InvalidCall, match="google_search"):
            await guarded.run("go", thread="t")
        assert guarded.agent.model.script.asked == 0  # type: ignore[union-attr]

    async def test_tool_of_provider_in_found_agent_is_refused(self, world: World) -> None:
        searcher = world.agent("found", name="searcher", tools=[google_search])

        async def delegate(task: str) -> str:
            return await run_bare(searcher, task)

        guarded = guard(world.boss(delegate), world.gate)
        await guarded.run("go", thread="t")
        assert searcher.model.script.asked == 0  # type: ignore[union-attr]

    async def test_code_of_found_agent_is_refused(self, world: World, tmp_path: Path) -> None:
        code = f"```python\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n```"
        coder = world.agent(code, "told", name="coder", code_executor=UnsafeLocalCodeExecutor())

        async def delegate(task: str) -> str:
            return await run_bare(coder, task)

        with pytest.raises(sayso.InvalidCall, match="runs code that the model writes"):
            await guard(world.boss(delegate), world.gate).run("go", thread="t")
        assert not (tmp_path / "ran").exists()

    async def test_hosted_tool_added_later_is_refused(self, world: World) -> None:
        agent = world.agent("x")
        guarded = guard(agent, world.gate)
        agent.tools.append(google_search)
        with pytest.raises(sayso.InvalidCall, match="google_search"):
            await guarded.run("go", thread="t")

    async def test_tool_added_after_guard_asks(self, world: World) -> None:
        agent = world.agent([call("pay", to="ana")], "Done.")
        guarded = guard(agent, world.gate)
        agent.tools.append(world.pay)
        assert (await guarded.run("go", thread="t")).status == "paused"
        assert world.ran == []

    def test_table_lists_declared_tools(self, world: World) -> None:
        agent = world.agent("x", tools=[world.pay, AgentTool(world.clerk())])
        table = str(guard(agent, world.gate).coverage())
        assert [line.split()[:3] for line in table.splitlines()[2:]] == [
            ["boss", "agent", "boss"],
            ["boss", "tool", "pay"],
            ["boss", "tool", "clerk"],
            ["clerk", "agent", "clerk"],
            ["clerk", "tool", "pay"],
        ]
