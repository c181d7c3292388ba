"""Code inside a guarded run calls agents and tools of the SDK past the gate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    HostedMCPTool,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    ShellTool,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.realtime import RealtimeAgent, RealtimeModel, RealtimeSession
from agents.realtime.model_events import RealtimeModelToolCallEvent
from agents.run import AgentRunner
from agents.run_internal.run_steps import ToolRunShellCall
from agents.run_internal.tool_actions import ShellAction
from agents.testing import ScriptedModel
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext
from openai.types.responses.response_output_item import McpApprovalRequest
from openai_agents_world import World, call, outputs, pay_of, say

import sayso
from sayso.adapters.openai_agents import guard


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def clerk(world: World, to: str = "ana", name: str = "Clerk", **more: Any) -> Agent[Any]:
    model = ScriptedModel([[call("pay", "p1", to=to)], [say(f"{to} has it")]])
    return Agent(name, model=model, tools=[pay_of(world)], **more)


def boss(body: Callable[[], Any]) -> Agent[Any]:
    """Return an agent whose tool ``delegate`` runs this code."""

    async def delegate() -> str:
        """Let another agent do it."""
        value = body()
        return str(await value if asyncio.iscoroutine(value) else value)

    model = ScriptedModel([[call("delegate", "o1")], [say("Done.")]])
    return Agent("Boss", model=model, tools=[function_tool(delegate)])


def policy(effect: str, pay: str = "ask") -> sayso.Policy:
    delegate = sayso.Rule("delegate", verdict="allow", effect=effect)
    return sayso.Policy([delegate, sayso.Rule("pay", verdict=pay)])


def tool_context(name: str, arguments: str, id: str = "x1") -> ToolContext[Any]:
    return ToolContext(context=None, tool_name=name, tool_call_id=id, tool_arguments=arguments)


def own_tool(world: World) -> FunctionTool:
    """Return a tool with a function of the user's own, without the SDK's decorator."""

    async def invoke(context: Any, arguments: str) -> str:
        world.ran.append("ana")
        return "paid ana"

    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    return FunctionTool("pay", "Pay somebody.", schema, invoke, strict_json_schema=False)


def with_own_tool(world: World) -> Agent[Any]:
    agent = clerk(world)
    agent.tools = [own_tool(world)]
    return agent


class OwnRunner(AgentRunner):
    """A runner that a program has made its own."""


def run_in_thread(agent: Agent[Any], task: str = "x") -> Any:
    """Run an agent in an OS thread; the SDK's ``run_sync`` would leave its event loop open."""
    return asyncio.run(Runner.run(agent, task))


def in_pool(agent: Agent[Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_in_thread, agent).result()


async def streamed(agent: Agent[Any]) -> Any:
    stream = Runner.run_streamed(agent, "x")
    async for _ in stream.stream_events():
        pass
    return stream.final_output


async def invoked(agent: Agent[Any]) -> Any:
    (tool,) = agent.tools
    arguments = '{"to": "ana"}'
    assert isinstance(tool, FunctionTool)
    return await tool.on_invoke_tool(tool_context("pay", arguments), arguments)


async def invoked_by_the_sdk(agent: Agent[Any]) -> Any:
    (tool,) = agent.tools
    arguments = '{"to": "ana"}'
    assert isinstance(tool, FunctionTool)
    context = tool_context("pay", arguments)
    return await invoke_function_tool(function_tool=tool, context=context, arguments=arguments)


class SilentModel(RealtimeModel):
    """A realtime model that is never connected."""

    async def connect(self, options: Any) -> None: ...
    def add_listener(self, listener: Any) -> None: ...
    def remove_listener(self, listener: Any) -> None: ...
    async def send_event(self, event: Any) -> None: ...
    async def close(self) -> None: ...


async def in_a_realtime_session(agent: Agent[Any]) -> Any:
    speaker: Any = RealtimeAgent(agent.name, tools=agent.tools)
    session = RealtimeSession(SilentModel(), speaker, None)
    event = RealtimeModelToolCallEvent(name="pay", call_id="p1", arguments='{"to": "ana"}')
    await session._handle_tool_call(event)


async def as_a_tool(agent: Agent[Any]) -> Any:
    tool = agent.as_tool("clerk", "Pays.")
    arguments = '{"input": "x"}'
    return await tool.on_invoke_tool(tool_context("clerk", arguments), arguments)


async def in_gathered_tasks(agent: Agent[Any]) -> Any:
    return await asyncio.gather(Runner.run(agent, "x"), asyncio.sleep(0))


async def with_other_model(agent: Agent[Any]) -> Any:
    model, agent.model = agent.model, None
    return await Runner.run(agent, "x", run_config=RunConfig(model=model))


WAYS: dict[str, Callable[[Agent[Any]], Any]] = {
    "runner": lambda agent: Runner.run(agent, "x"),
    "agent runner": lambda agent: AgentRunner().run(agent, "x"),
    "own runner": lambda agent: OwnRunner().run(agent, "x"),
    "pool": in_pool,
    "new loop in OS thread": lambda agent: asyncio.to_thread(run_in_thread, agent),
    "stream": streamed,
    "clone": lambda agent: Runner.run(agent.clone(name="Other"), "x"),
    "handoff": lambda agent: Runner.run(
        Agent(
            "Desk",
            model=ScriptedModel([[call(f"transfer_to_{agent.name.lower()}", "h1")]]),
            handoffs=[agent],
        ),
        "x",
    ),
    "gathered tasks": in_gathered_tasks,
    "other model": with_other_model,
    "invoked tool": invoked,
    "invoked by the SDK": invoked_by_the_sdk,
    "invoked in a realtime session": in_a_realtime_session,
    "invoked agent": as_a_tool,
}


@pytest.mark.parametrize("build", [clerk, with_own_tool])
@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("invoked")])
async def test_inner_agent_asks(world: World, way: str, build: Any) -> None:
    agent = build(world)
    world.policy = policy("idempotent")
    guarded = guard(boss(lambda: WAYS[way](agent)), world.gate(), world.policy)
    result = await guarded.run("go", thread="t-1")
    assert (result.status, world.ran) == ("paused", [])
    assert [str(request.tool) for request in result.interruptions] == ["pay"]
    await world.approve()
    assert (await guarded.resume("t-1")).output == "Done."
    assert world.ran == ["ana"]


#: A function of the user's own that the user's own code calls is not a call of the SDK.
INVOKED = [(way, build) for way in WAYS for build in (clerk, with_own_tool) if "invoked" in way]
INVOKED.remove(("invoked tool", with_own_tool))


@pytest.mark.parametrize(("way", "build"), INVOKED)
async def test_invoked_tool_asks(world: World, way: str, build: Any) -> None:
    agent = build(world)
    rules = [*policy("idempotent").rules, sayso.Rule("clerk", verdict="allow")]
    guarded = guard(boss(lambda: WAYS[way](agent)), world.gate(), sayso.Policy(rules))
    assert (await guarded.run("go", thread="t-1")).status == "paused"
    assert world.ran == []
    await world.approve()
    assert (await guarded.resume("t-1")).output == "Done."
    assert world.ran == ["ana"]


ONCE = [(way, build) for way in WAYS for build in (clerk, with_own_tool)]
ONCE.remove(("invoked tool", with_own_tool))


@pytest.mark.parametrize(("way", "build"), ONCE)
async def test_once_call_is_not_paused(world: World, way: str, build: Any) -> None:
    agent = build(world)
    model = agent.model
    charged: list[str] = []

    def body() -> Any:
        charged.append("ana")
        return WAYS[way](agent)

    rules = [*policy("once").rules, sayso.Rule("clerk", verdict="allow")]
    guarded = guard(boss(body), world.gate(), sayso.Policy(rules))
    result = await guarded.run("go", thread="t-1")
    assert (result.status, world.ran, charged) == ("done", [], ["ana"])
    assert await world.pending() == ()
    if not way.startswith("invoked"):
        assert isinstance(model, ScriptedModel)
        assert "gate.once(" in outputs(model)["p1"]


async def test_allowed_inner_call_is_recorded(world: World) -> None:
    agent = clerk(world)
    rules = policy("once", pay="allow")
    guarded = guard(boss(lambda: Runner.run(agent, "x")), world.gate(), rules)
    assert (await guarded.run("go", thread="t-1")).output == "Done."
    calls = world.inbox.store.calls_of("teller:t-1")
    assert (world.ran, {str(one.tool) for one in calls}) == (["ana"], {"delegate", "pay"})


async def test_agents_in_pool_keep_their_replies(world: World) -> None:
    """Both agents have one name: each finds its replies by what it was asked."""
    first, second = clerk(world, "ana"), clerk(world, "bob")

    def body() -> str:
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(run_in_thread, agent, task)
                for agent, task in ((first, "pay ana"), (second, "pay bob"))
            ]
        return ", ".join(str(job.result().final_output) for job in jobs)

    model = ScriptedModel([[call("delegate", "o1")], [say("Done.")]])
    tool = function_tool(body, name_override="delegate")
    guarded = guard(Agent("Boss", model=model, tools=[tool]), world.gate(), policy("idempotent"))
    result = await guarded.run("go", thread="t-1")
    assert {str(request.args["to"]) for request in result.interruptions} == {"ana", "bob"}
    await world.approve()
    assert (await guarded.resume("t-1")).output == "Done."
    assert sorted(world.ran) == ["ana", "bob"]
    assert outputs(model)["o1"] == "ana has it, bob has it"
    assert [len(agent.model.calls) for agent in (first, second)] == [2, 2]  # type: ignore[union-attr]


async def test_left_over_os_thread_runs_nothing(world: World) -> None:
    ended = threading.Event()
    errors: list[BaseException] = []
    agent = clerk(world)

    def later() -> None:
        ended.wait(20)
        try:
            run_in_thread(agent)
        except sayso.InvalidCall as error:
            errors.append(error)

    left_over = threading.Thread(target=later)
    guarded = guard(boss(left_over.start), world.gate(), policy("idempotent"))
    await guarded.run("go", thread="t-1")
    ended.set()
    await asyncio.to_thread(left_over.join)
    assert "has ended" in str(errors[0])
    assert world.ran == []


@pytest.mark.parametrize("tool", [WebSearchTool(), ShellTool(executor=lambda request: "")])
@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_inner_agent_without_gate_is_refused(world: World, tool: Any, effect: str) -> None:
    agent = clerk(world)
    agent.tools.append(tool)
    guarded = guard(boss(lambda: Runner.run(agent, "x")), world.gate(), policy(effect))
    await guarded.run("go", thread="t-1")
    assert world.ran == []
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.calls == ()


@pytest.mark.parametrize("ungated", [(), ("shell",)])
async def test_shell_of_the_sdk_runs_only_ungated(world: World, ungated: tuple[str, ...]) -> None:
    """The SDK runs tools of its own without a hook. Code inside a run can run them, too."""

    def shell(request: Any) -> str:
        world.ran.append("shell")
        return "a list"

    tool = ShellTool(executor=shell)
    item = {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}}
    answers: list[str] = []

    async def run_shell() -> str:
        try:
            await ShellAction.execute(
                agent=agent,
                call=ToolRunShellCall(tool_call=item, shell_tool=tool),
                hooks=RunHooks(),
                context_wrapper=RunContextWrapper(None),
                config=RunConfig(),
            )
        except sayso.InvalidCall as error:
            answers.append(str(error))
        return "tried"

    agent = boss(run_shell)
    if ungated:
        agent.tools.append(tool)
    guarded = guard(agent, world.gate(), policy("once"), ungated=ungated)
    await guarded.run("go", thread="t-1")
    assert world.ran == (["shell"] if ungated else [])
    assert ["shell was not run" in answer for answer in answers] == ([] if ungated else [True])


async def test_unguarded_agents_are_not_touched(world: World) -> None:
    """They run as they are outside, also while a guarded run is open."""
    agent = clerk(world)
    inside = asyncio.Event()
    leave = asyncio.Event()

    async def body() -> None:
        inside.set()
        await leave.wait()

    guarded = guard(boss(body), world.gate(), policy("once"))
    running = asyncio.create_task(guarded.run("go", thread="t-1"))
    await inside.wait()
    assert (await Runner.run(agent, "x")).final_output == "ana has it"
    leave.set()
    assert (await running).output == "Done."
    assert world.ran == ["ana"]


class Searches(Agent[Any]):
    """An agent that adds a hosted tool whenever its tools are listed."""

    async def get_all_tools(self, run_context: Any) -> Any:
        return [*await super().get_all_tools(run_context), WebSearchTool()]


def changed_clone(world: World, model: ScriptedModel) -> Agent[Any]:
    agent = guard(Agent("Clerk", model=model), world.gate()).agent
    return agent.clone(tools=[WebSearchTool()])


def unknown_handoff(world: World, model: ScriptedModel) -> Agent[Any]:
    declared = handoff(Agent("Aide", model=model))

    async def choose(context: Any, arguments: str) -> Agent[Any]:
        return Agent("Other", model=model, tools=[WebSearchTool()])

    declared.on_invoke_handoff = choose
    first = ScriptedModel([[call("transfer_to_aide", "h1")]])
    return Agent("Clerk", model=first, handoffs=[declared])


class AddsField(RunHooks[Any]):
    async def on_llm_start(self, context: Any, agent: Any, *args: Any) -> None:
        agent.model_settings = ModelSettings(extra_args={"tools": []})


HOSTED: Any = [
    (lambda world, model: Searches("Clerk", model=model), None),
    (changed_clone, None),
    (unknown_handoff, None),
    (lambda world, model: Agent("Clerk", model=model), AddsField()),
]


@pytest.mark.parametrize(("build", "hooks"), HOSTED)
@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_request_with_hosted_tool_is_refused(
    world: World, build: Any, hooks: Any, effect: str
) -> None:
    """However the tool came into the request."""
    lookup = call("look_up", "l1")
    model = ScriptedModel([[lookup], [say("Done.")]] if hooks else [[say("Done.")]])
    agent = build(world, model)
    if hooks:
        agent.tools = [function_tool(lambda: "found", name_override="look_up")]
    look_up = sayso.Rule("look_up", verdict="allow", effect="read")
    rules = sayso.Policy([*policy(effect).rules, look_up])
    guarded = guard(boss(lambda: Runner.run(agent, "x", hooks=hooks)), world.gate(), rules)
    await guarded.run("go", thread="t-1")
    assert not any(request.model_settings.extra_args for request in model.calls)
    assert not any(isinstance(tool, WebSearchTool) for one in model.calls for tool in one.tools)


async def test_code_cannot_approve_hosted_call(world: World) -> None:
    asked = McpApprovalRequest(
        id="r1", type="mcp_approval_request", name="pay", arguments="{}", server_label="git"
    )
    config: Any = {"type": "mcp", "server_label": "git", "server_url": "https://x"}
    model = ScriptedModel([[asked], [say("paid")]])
    agent = Agent("Clerk", model=model, tools=[HostedMCPTool(config)])

    async def body() -> Any:
        result = await Runner.run(agent, "x")
        state = result.to_state()
        state.approve(result.interruptions[0])
        return await Runner.run(agent, state)

    guarded = guard(boss(body), world.gate(), policy("once"))
    await guarded.run("go", thread="t-1")
    assert len(model.calls) == 1


UNKNOWN: Any = [
    ({"extra_body": {"tools": [{"type": "web_search"}]}}, "extra_body"),
    ({"extra_args": {"mcp_servers": []}}, "extra_args"),
]


@pytest.mark.parametrize(("settings", "name"), UNKNOWN)
@pytest.mark.parametrize("of_run", [False, True])
def test_unknown_request_field_is_refused(
    world: World, settings: Any, name: str, of_run: bool
) -> None:
    given = ModelSettings(**settings)
    agent = Agent("Boss") if of_run else Agent("Boss", model_settings=given)
    options: Any = {"run_config": RunConfig(model_settings=given)} if of_run else {}
    with pytest.raises(sayso.InvalidCall, match=f"request field '{name}'"):
        guard(agent, world.gate(), **options)
    guard(agent, world.gate(), ungated=[name], **options)


def test_known_request_fields_are_accepted(world: World) -> None:
    settings = ModelSettings(temperature=0.1, extra_body={"top_k": 3}, extra_args={"seed": 7})
    guard(Agent("Boss", model_settings=settings), world.gate())


async def test_request_field_added_later_is_refused(world: World) -> None:
    world.one(ScriptedModel([[say("Done.")]]))
    guarded = world.guarded()
    guarded.agent.model_settings = ModelSettings(extra_body={"tools": []})
    with pytest.raises(sayso.InvalidCall, match="request field 'extra_body'"):
        await guarded.run("go", thread="t-1")
