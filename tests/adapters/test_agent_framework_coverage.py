"""Everything that an agent or a workflow can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import agent_framework
import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentResponse,
    AgentSession,
    BaseAgent,
    ChatResponse,
    Content,
    ContextProvider,
    Executor,
    FunctionInvocationLayer,
    FunctionTool,
    MCPStdioTool,
    Message,
    RawAgent,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    chat_middleware,
    executor,
    handler,
    tool,
)
from agent_framework_world import Client, World, call

import sayso
from sayso.adapters.agent_framework import Gated, guard
from sayso.adapters.agent_framework.choke_points import list_agent, list_request
from sayso.gate.coverage import Coverage

RULES = sayso.Policy([sayso.Rule("pay"), sayso.Rule("*", verdict="allow", effect="idempotent")])
#: A function around another agent has effects of its own: it must not be paused in the middle.
ONCE = sayso.Policy([sayso.Rule("pay"), sayso.Rule("*", verdict="allow")])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, RULES)


@pytest.fixture
def once_world(tmp_path: Path) -> World:
    return World(tmp_path, ONCE)


def paying(world: World) -> Any:
    def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(to)
        return f"paid {to}"

    return pay


def clerk(world: World, **options: Any) -> Agent[Any]:
    given: Any = {"name": "clerk", "tools": [paying(world)], **options}
    return world.agent([call("pay", to="ana")], "ana has it", **given)


PAYS: Any = [call("pay", to="ana")], "ana has it"


def state(one: Any) -> dict[str, Any]:
    """Return the attributes of an object of the framework, without what it caches."""
    return {name: value for name, value in vars(one).items() if "_cached_" not in name}


def boss(world: World, tool: Any, **args: str) -> Agent[Any]:
    name = getattr(tool, "name", None) or tool.__name__
    return world.agent([call(name, "o1", **(args or {"task": "x"}))], "Done.", tools=[tool])


async def settled(world: World, guarded: Any) -> None:
    """What a guarded agent has to do: ask about the payment of the inner agent, and pay once."""
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [])
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
    assert (result.status, world.ran) == ("done", ["bob"])


async def denied(world: World, guarded: Any) -> None:
    """The payment of the inner agent is refused before it runs, and its model reads why."""
    assert (await guarded.run("go", thread="t")).status == "done"
    assert world.ran == []
    assert (await world.inbox.pending()).items == ()
    told = [result for shown in world.shown for result in results_in(shown)]
    assert any("guard(agent, gate)" in text and "gate.once(" in text for text in told)


def results_in(messages: Any) -> list[str]:
    contents = [content for message in messages for content in message.contents]
    return [str(content.result) for content in contents if content.type == "function_result"]


GLOBAL: Any = None


async def ask_global(task: str) -> str:
    """Ask the agent of this module."""
    return str((await GLOBAL.run(task)).text)


class TestSubAgents:
    async def test_agent_as_tool_asks(self, world: World) -> None:
        tool = clerk(world).as_tool()
        await settled(world, guard(boss(world, tool, task="pay ana"), world.gate))

    async def test_agent_in_closure_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).text)

        await settled(world, guard(boss(world, delegate), world.gate))

    async def test_streamed_agent_in_closure_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            said = [update.text async for update in inner.run(task, stream=True)]
            return "".join(said)

        await settled(world, guard(boss(world, delegate), world.gate))

    async def test_agent_two_levels_deep_asks(self, world: World) -> None:
        inner = clerk(world)

        async def ask_clerk(task: str) -> str:
            """Ask the clerk."""
            return str((await inner.run(task)).text)

        middle = world.agent(
            [call("ask_clerk", "m1", task="x")], "told", name="aide", tools=[ask_clerk]
        )
        tool = middle.as_tool()
        await settled(world, guard(boss(world, tool, task="pay ana"), world.gate))

    async def test_original_agents_are_not_changed(self, world: World) -> None:
        inner = clerk(world)
        agent = boss(world, inner.as_tool(), task="pay ana")
        before = inner.middleware, agent.middleware, list(agent.default_options["tools"])
        await settled(world, guard(agent, world.gate))
        assert (inner.middleware, agent.middleware, agent.default_options["tools"]) == before
        assert "run" not in vars(inner)
        world.ran.clear()
        await agent.run("go", session=AgentSession())
        assert world.ran == ["ana"]

    async def test_agent_under_global_name_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world))
        await settled(world, guard(boss(world, ask_global), world.gate))

    async def test_agent_without_middleware_support_asks(self, world: World) -> None:
        raw: Any = RawAgent(world.client(*PAYS), name="clerk", tools=[paying(world)])
        await settled(world, guard(boss(world, raw.as_tool(), task="pay"), world.gate))

    async def test_two_inner_runs_ask_in_one_pause(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent twice."""
            told = await asyncio.gather(inner.run("one"), inner.run("two"))
            return str([response.text for response in told])

        guarded = guard(boss(world, delegate), world.gate)
        result = await guarded.run("go", thread="t")
        while result.status == "paused":
            decisions = [request.approve() for request in result.interruptions]
            result = await guarded.resume("t", decisions=decisions)
        assert (result.status, world.ran) == ("done", ["ana", "ana"])

    async def test_two_calls_of_one_reply_share_a_pause(self, world: World) -> None:
        pays = [call("pay", "p1", to="ana"), call("pay", "p2", to="bob")]

        async def delegate(task: str) -> str:
            """Ask a client with functions."""
            client = world.client(pays, "paid")
            options: Any = {"tools": [paying(world)]}
            return str((await client.get_response([Message("user", [task])], options=options)).text)

        guarded = guard(boss(world, delegate), world.gate)
        result = await guarded.run("go", thread="t")
        assert [request.args["to"] for request in result.interruptions] == ["ana", "bob"]
        decisions = [request.approve() for request in result.interruptions]
        assert (await guarded.resume("t", decisions=decisions)).status == "done"
        assert world.ran == ["ana", "bob"]
        # Each model was asked for each of its replies once.
        assert len(world.shown) == 4

    async def test_unguarded_agents_are_not_touched(self, world: World) -> None:
        guard(boss(world, clerk(world).as_tool(), task="x"), world.gate)
        assert (await clerk(world).run("pay")).text == "ana has it"
        assert world.ran == ["ana"]

    async def test_agent_guarded_inside_tool_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Guarded:
            async def run(self, task: str) -> Any:
                inner = guard(clerk(world), world.gate)
                return AgentResponse(
                    messages=[Message("assistant", [(await inner.run(task)).output])]
                )

        monkeypatch.setattr(f"{__name__}.GLOBAL", Guarded())
        await settled(world, guard(boss(world, ask_global), world.gate))

    async def test_agent_with_gate_middleware_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world, middleware=[Gated(world.gate)]))
        await settled(world, guard(boss(world, ask_global), world.gate))

    async def test_guarded_agent_as_tool_asks(self, world: World) -> None:
        inner = guard(clerk(world), world.gate).as_agent()
        await settled(world, guard(boss(world, inner.as_tool(), task="x"), world.gate))


def hire(world: World) -> Any:
    return Agent(world.client(*PAYS), tools=[paying(world)])


class Office:
    def __init__(self, world: World) -> None:
        self.world = world

    async def ask(self, task: str) -> str:
        """Hire somebody, and ask them."""
        return str((await self.hire().run(task)).text)

    def hire(self) -> Any:
        return Agent(self.world.client(*PAYS), tools=[paying(self.world)])


def by_its_class(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        inner = Agent(world.client(*PAYS), tools=[paying(world)])
        return str((await inner.run(task)).text)

    return delegate


def in_a_module(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        inner = agent_framework.Agent(world.client(*PAYS), tools=[paying(world)])
        return str((await inner.run(task)).text)

    return delegate


def imported_in_the_tool(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        from agent_framework import Agent as Clerk

        return str((await Clerk(world.client(*PAYS), tools=[paying(world)]).run(task)).text)

    return delegate


def in_another_function(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        return str((await hire(world).run(task)).text)

    return delegate


def in_a_method(world: World) -> Any:
    return Office(world).ask


def guarded_there(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Build a guarded agent, and ask it."""
        return str((await guard(clerk(world), world.gate).run(task)).output)

    return delegate


def by_a_client(world: World) -> Any:
    client = world.client(*PAYS)

    async def delegate(task: str) -> str:
        """Build an agent, and ask it."""
        return str((await client.as_agent(tools=[paying(world)]).run(task)).text)

    return delegate


def client_alone(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask a client with functions."""
        options: Any = {"tools": [paying(world)]}
        messages = [Message("user", [task])]
        return str((await world.client(*PAYS).get_response(messages, options=options)).text)

    return delegate


def streaming_client(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Ask a client with functions."""
        options: Any = {"tools": [paying(world)]}
        messages = [Message("user", [task])]
        stream = world.client(*PAYS).get_response(messages, options=options, stream=True)
        return str((await stream.get_final_response()).text)

    return delegate


def workflow_in_a_tool(world: World) -> Any:
    async def delegate(task: str) -> str:
        """Run a workflow."""
        start = AgentExecutor(clerk(world), id="pays")
        workflow = WorkflowBuilder(start_executor=start, name="office").build()
        return str((await workflow.run(task)).get_outputs()[0].text)

    return delegate


def tool_of_a_tool(world: World) -> Any:
    pay = tool(paying(world))

    async def delegate(task: str) -> str:
        """Invoke another function."""
        return str((await pay.invoke(arguments={"to": "ana"}))[0].text)

    return delegate


def tool_called_directly(world: World) -> Any:
    pay = tool(paying(world))

    async def delegate(task: str) -> str:
        """Call another function."""
        return str(pay(to="ana"))

    return delegate


def wrapped_tool_called_directly(world: World) -> Any:
    pay = tool(tool(paying(world)), name="pay")

    def delegate(task: str) -> str:
        """Call another function, in the OS thread of this one."""
        return str(pay("ana"))

    return delegate


def in_a_context_provider(world: World) -> Any:
    class Pays(ContextProvider):
        async def before_run(self, *, context: Any, **given: Any) -> None:
            await hire(world).run("pay")

    inner = world.agent("paid", name="inner", context_providers=[Pays("pays")])
    return inner.as_tool(name="delegate")


SHAPES = [
    by_its_class,
    in_a_module,
    imported_in_the_tool,
    in_another_function,
    in_a_method,
    guarded_there,
    by_a_client,
    client_alone,
    streaming_client,
    workflow_in_a_tool,
    tool_of_a_tool,
    tool_called_directly,
    wrapped_tool_called_directly,
]


class OwnClient:
    """A client that is none of the framework's classes."""

    additional_properties: ClassVar[dict[str, Any]] = {}

    def __init__(self, given: list[Any]) -> None:
        self.given = given

    def get_response(self, messages: Any, *, options: Any = None, **more: Any) -> Any:
        self.given += (options or {}).get("tools") or ()
        return self._reply()

    async def _reply(self) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message("assistant", ["found"])])


class LayeredClient(FunctionInvocationLayer[Any], OwnClient):
    def __init__(self, given: list[Any]) -> None:
        super().__init__(given=given)


class OwnInvoke(FunctionTool):
    """A function tool that does not use the framework's ``invoke``."""

    async def invoke(self, **given: Any) -> Any:
        assert self.func is not None
        return [Content.from_text(self.func(**given["arguments"]))]


class TestFoundWhileAToolRuns:
    @pytest.mark.parametrize("kind", [OwnClient, LayeredClient])
    async def test_hosted_tool_of_own_client_is_refused(self, world: World, kind: Any) -> None:
        given: list[Any] = []

        async def delegate(task: str) -> str:
            """Run an agent with a tool that the provider runs."""
            inner: Any = RawAgent(kind(given), name="clerk", tools=[{"type": "web_search"}])
            return str((await inner.run(task)).text)

        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of clerk"):
            await guard(boss(world, delegate), world.gate).run("go", thread="t")
        assert given == []

    async def test_own_invoke_is_checked(self, once_world: World) -> None:
        pay = OwnInvoke(name="pay", description="Pay.", func=paying(once_world))
        inner = clerk(once_world, tools=[pay])

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).text)

        await denied(once_world, guard(boss(once_world, delegate), once_world.gate))

    @pytest.mark.parametrize("shape", [*SHAPES, in_a_context_provider])
    async def test_idempotent_function_asks(self, world: World, shape: Any) -> None:
        await settled(world, guard(boss(world, shape(world)), world.gate))

    @pytest.mark.parametrize("shape", [one for one in SHAPES if one is not guarded_there])
    async def test_once_function_is_not_paused(self, once_world: World, shape: Any) -> None:
        guarded = guard(boss(once_world, shape(once_world)), once_world.gate)
        if "directly" not in shape.__name__ and shape is not tool_of_a_tool:
            await denied(once_world, guarded)
            return
        assert (await guarded.run("go", thread="t")).status == "done"
        assert once_world.ran == []
        assert "guard(agent, gate)" in once_world.results["o1"]

    @pytest.mark.parametrize("shape", [one for one in SHAPES if one is not guarded_there])
    async def test_middleware_without_guard_asks(self, world: World, shape: Any) -> None:
        tool = shape(world)
        name = getattr(tool, "name", None) or tool.__name__
        turns: Any = [call(name, "o1", task="x")], "Done."
        agent = world.agent(*turns, tools=[tool], middleware=[Gated(world.gate)])
        response = await agent.run("go", session=AgentSession())
        (request,) = response.user_input_requests
        assert request.additional_properties["sayso"]["request"] == (await world.waits()).id
        assert world.ran == []

    async def test_allowed_call_is_recorded(self, once_world: World) -> None:
        allow = sayso.Policy([sayso.Rule("*", verdict="allow")])
        guarded = guard(boss(once_world, by_its_class(once_world)), once_world.gate, allow)
        assert (await guarded.run("go", thread="t")).status == "done"
        assert once_world.ran == ["ana"]
        calls = once_world.store.calls_of("teller:t")
        assert {one.tool for one in calls if one.status == "done"} == {"delegate", "pay"}

    async def test_hosted_tool_is_refused(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent with a tool that the provider runs."""
            inner = Agent(world.client("found"), tools=[{"type": "web_search"}])
            return str((await inner.run(task)).text)

        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
            await guard(boss(world, delegate), world.gate).run("go", thread="t")
        guarded = guard(boss(world, delegate), world.gate, ungated=["web_search"])
        assert (await guarded.run("go", thread="t-2")).status == "done"


class Custom(BaseAgent):
    """An agent of the user's own, around another one."""

    def __init__(self, inner: Any) -> None:
        super().__init__(name="custom")
        self.inner = inner

    async def run(self, messages: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return await self.inner.run(messages)


class TestCustomAgents:
    async def test_agent_held_by_custom_agent_is_denied(self, world: World) -> None:
        agent: Any = Custom(clerk(world))
        await denied(world, guard(agent, world.gate))

    def test_custom_agent_may_hold_agent_without_tools(self, world: World) -> None:
        agent: Any = Custom(world.agent("thought about it"))
        guard(agent, world.gate)


HOSTED: Any = [
    ({"type": "web_search"}, "web_search"),
    ({"type": "code_interpreter", "container": {}}, "code_interpreter"),
    ({"type": "mcp", "server_label": "git", "require_approval": "never"}, "git"),
]


class TestHosted:
    @pytest.mark.parametrize(("tool", "name"), HOSTED)
    def test_hosted_tool_is_refused_unless_ungated(
        self, world: World, tool: Any, name: str
    ) -> None:
        agent = world.agent("Done.", tools=[tool])
        with pytest.raises(sayso.InvalidCall, match=f"'{name}' of teller"):
            guard(agent, world.gate)
        guard(agent, world.gate, ungated=[name])

    async def test_ungated_names_are_recorded(self, world: World) -> None:
        agent = world.agent("Done.", tools=[{"type": "web_search"}])
        guarded = guard(agent, world.gate, ungated=["web_search"])
        assert (await guarded.run("go", thread="t")).status == "done"
        (noted,) = [event for _, event in world.store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == ["web_search"]

    def test_hosted_tool_with_approval_is_gated(self, world: World) -> None:
        tool = {"type": "mcp", "server_label": "git", "require_approval": "always"}
        coverage = guard(world.agent("Done.", tools=[tool]), world.gate).coverage()
        assert ("hosted MCP server", "git", True) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_hosted_tool_in_options_is_refused(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
            guard(world.agent("Done."), world.gate, tools=[{"type": "web_search"}])

    @pytest.mark.parametrize("name", ["extra_body", "mcp_servers", "prompt", "web_search_options"])
    def test_unlisted_option_is_refused(self, world: World, name: str) -> None:
        refused = f"request option '{name}' of teller: it is unknown what the provider runs"
        agent = world.agent("Done.", default_options={name: {"any": "thing"}})
        with pytest.raises(sayso.InvalidCall, match=refused):
            guard(agent, world.gate)
        guard(agent, world.gate, ungated=[name])
        with pytest.raises(sayso.InvalidCall, match=refused):
            guard(world.agent("Done."), world.gate, options={name: {"any": "thing"}})
        with pytest.raises(sayso.InvalidCall, match=refused):
            guard(world.agent("Done."), world.gate, client_kwargs={name: {"any": "thing"}})

    def test_listed_option_is_accepted(self, world: World) -> None:
        class RawAnthropicClient(Client):
            """Has the name of a client that the adapter knows."""

        client = RawAnthropicClient(lambda messages: ChatResponse(messages=[]))
        options: Any = {"temperature": 0.1, "thinking": {"type": "enabled"}}
        guard(Agent(client, default_options=options), world.gate)
        with pytest.raises(sayso.InvalidCall, match="request option 'thinking'"):
            guard(world.agent("Done.", default_options=options), world.gate)

    async def test_option_added_by_middleware_is_refused(self, world: World) -> None:
        @chat_middleware
        async def adds(context: Any, call_next: Any) -> None:
            context.options = {**(context.options or {}), "extra_body": {"tools": ["search"]}}
            await call_next()

        guarded = guard(world.agent("Done.", middleware=[adds]), world.gate)
        with pytest.raises(sayso.InvalidCall, match="request option 'extra_body' of teller"):
            await guarded.run("go", thread="t")
        assert world.shown == []

    async def test_hosted_tool_added_later_is_refused(self, world: World) -> None:
        agent = world.agent("Done.")
        guarded = guard(agent, world.gate)
        agent.default_options["tools"] = [{"type": "web_search"}]
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
            await guarded.run("go", thread="t")
        assert world.shown == []


class TestWorkflows:
    def workflow(self, agent: Any) -> Any:
        executor = AgentExecutor(agent, id="pays")
        return WorkflowBuilder(start_executor=executor, name="office").build()

    async def test_agents_in_workflow_ask(self, world: World, tmp_path: Path) -> None:
        workflow = self.workflow(clerk(world))
        await settled(world, guard(workflow, world.gate, checkpoints=tmp_path / "c"))

    async def test_agents_in_functions_of_workflow_ask(self, world: World, tmp_path: Path) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).text)

        workflow = self.workflow(boss(world, delegate))
        await settled(world, guard(workflow, world.gate, checkpoints=tmp_path / "c"))

    def test_hosted_tool_in_workflow_is_refused(self, world: World, tmp_path: Path) -> None:
        def workflow() -> Any:
            return self.workflow(world.agent("Done.", tools=[{"type": "web_search"}]))

        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of office/pays"):
            guard(workflow(), world.gate, checkpoints=tmp_path / "c")
        guard(workflow(), world.gate, checkpoints=tmp_path / "c", ungated=["web_search"])

    async def test_hosted_tool_in_built_workflow_is_refused(
        self, world: World, tmp_path: Path
    ) -> None:
        def workflow() -> Any:
            return self.workflow(world.agent("Done.", tools=[{"type": "web_search"}]))

        guarded = guard(workflow, world.gate, checkpoints=tmp_path / "c")
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of office/pays"):
            await guarded.run("go", thread="t")

    async def test_original_workflow_is_not_changed(self, world: World, tmp_path: Path) -> None:
        inner = WorkflowBuilder(start_executor=AgentExecutor(clerk(world)), name="desk").build()
        agent = clerk(world, name="head")
        start = AgentExecutor(agent, id="pays")
        below = WorkflowExecutor(inner, id="below")
        workflow = WorkflowBuilder(start_executor=start, name="office").add_edge(start, below)
        built = workflow.build()
        before = [state(one) for one in (agent, start, below, inner, built)]
        guarded = guard(built, world.gate, checkpoints=tmp_path / "c")
        assert (await guarded.run("go", thread="t")).status == "paused"
        assert [state(one) for one in (agent, start, below, inner, built)] == before
        assert start._session.state == {}
        assert start._cache == []
        assert agent.middleware is None
        await agent.run("go")  # and works as before
        assert world.ran == ["ana"]

    async def test_workflow_runs_two_threads_at_once(self, world: World, tmp_path: Path) -> None:
        guarded = guard(self.workflow(clerk(world)), world.gate, checkpoints=tmp_path / "c")
        started = await asyncio.gather(*(guarded.run("go", thread=name) for name in "ab"))
        assert [one.status for one in started] == ["paused", "paused"]
        decided = [(one.thread, one.interruptions[0].approve()) for one in started]
        ended = await asyncio.gather(*(guarded.resume(t, decisions=[d]) for t, d in decided))
        assert [one.status for one in ended] == ["done", "done"]
        assert world.ran == ["ana", "ana"]

    def executor(self, world: World, kind: str) -> Any:
        """An executor of the user's own that runs an agent."""
        agent = clerk(world)

        class Pays(Executor):
            def __init__(self) -> None:
                super().__init__(id="pays")
                self.agent = agent

            @handler
            async def pay(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
                await ctx.yield_output((await self.agent.run(text)).text)

        @executor(id="pays")
        async def pays(text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output((await agent.run(text)).text)

        @executor(id="pays")
        async def global_name(text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(await ask_global(text))

        @executor(id="pays")
        async def builds(text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output((await hire(world).run(text)).text)

        kinds = {"held": Pays, "closure": lambda: pays, "global": lambda: global_name}
        return {**kinds, "built": lambda: builds}[kind]()

    @pytest.mark.parametrize("kind", ["held", "closure", "global", "built"])
    async def test_agents_in_custom_executors_are_denied(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world))
        start = self.executor(world, kind)
        workflow = WorkflowBuilder(start_executor=start, name="office").build()
        await denied(world, guard(workflow, world.gate, checkpoints=tmp_path / "c"))

    def test_coverage_lists_agents_and_tools(self, world: World, tmp_path: Path) -> None:
        def workflow() -> Any:
            return self.workflow(clerk(world))

        coverage = guard(workflow, world.gate, checkpoints=tmp_path / "c").coverage()
        assert {(one.where, one.kind, one.name, one.gated) for one in coverage} == {
            ("office/pays", "agent", "office/pays", True),
            ("office/pays", "tool", "pay", True),
        }


def test_coverage_lists_agents_and_tools(world: World) -> None:
    server = MCPStdioTool(name="files", command="none")
    agent = world.agent("Done.", tools=[clerk(world).as_tool(), server])
    coverage = guard(agent, world.gate).coverage()
    assert {(one.where, one.kind, one.name, one.gated) for one in coverage} == {
        ("teller", "agent", "teller", True),
        ("teller", "tool", "clerk", True),
        ("teller", "MCP server", "files", True),
    }


def test_guarded_agent_hides_the_original(world: World) -> None:
    assert "agent" not in dir(guard(clerk(world), world.gate))


def missed(coverage: Coverage) -> set[tuple[str, str, str]]:
    return {(one.where, one.kind, one.name) for one in coverage if not one.gated}


def test_agent_that_runs_elsewhere_is_missed() -> None:
    class CopilotStudioAgent:
        """Of a package of the framework, and no agent of this process."""

        name = "bot"

    class OwnAgent:
        name = "own"

    CopilotStudioAgent.__module__ = "agent_framework_copilotstudio._agent"
    coverage = Coverage()
    list_agent(coverage, CopilotStudioAgent(), "office/bot")
    list_agent(coverage, OwnAgent(), "office/own")
    assert missed(coverage) == {("office/bot", "agent", "bot")}


def test_client_with_an_agent_of_the_provider_is_missed() -> None:
    class RawFoundryAgentChatClient:
        """The provider has the agent, and runs its tools."""

    class FoundryAgentChatClient(RawFoundryAgentChatClient):
        """What users make."""

    coverage = Coverage()
    list_request(coverage, FoundryAgentChatClient(), {}, None, "teller")
    assert missed(coverage) == {("teller", "client", "FoundryAgentChatClient")}


def test_agents_of_a_workflow_agent_are_listed(world: World) -> None:
    workflow = WorkflowBuilder(start_executor=AgentExecutor(clerk(world), id="pays")).build()
    coverage = Coverage()
    list_agent(coverage, workflow.as_agent(name="office"), "office")
    assert ("office/pays", "tool", "pay") in {(one.where, one.kind, one.name) for one in coverage}
