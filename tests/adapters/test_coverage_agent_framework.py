"""Everything that an agent or a workflow can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentResponse,
    AgentSession,
    BaseAgent,
    Executor,
    MCPStdioTool,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
)
from agent_framework_world import World, call

import sayso
from sayso.adapters.agent_framework import Gated, guard

RULES = sayso.Policy([sayso.Rule("pay"), sayso.Rule("*", verdict="allow")])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, RULES)


def paying(world: World) -> Any:
    def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(to)
        return f"paid {to}"

    return pay


def clerk(world: World, **options: Any) -> Agent[Any]:
    given: Any = {"name": "clerk", "tools": [paying(world)], **options}
    return world.agent([call("pay", to="ana")], "ana has it", **given)


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


GLOBAL: Any = None


async def ask_global(task: str) -> str:
    """Ask the agent of this module."""
    return str((await GLOBAL.run(task)).text)


class TestSubAgents:
    async def test_as_a_tool(self, world: World) -> None:
        tool = clerk(world).as_tool()
        await settled(world, guard(boss(world, tool, task="pay ana"), world.gate))

    async def test_in_a_closure(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).text)

        await settled(world, guard(boss(world, delegate), world.gate))

    async def test_streamed_in_a_closure(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            said = [update.text async for update in inner.run(task, stream=True)]
            return "".join(said)

        await settled(world, guard(boss(world, delegate), world.gate))

    async def test_two_levels_deep(self, world: World) -> None:
        inner = clerk(world)

        async def ask_clerk(task: str) -> str:
            """Ask the clerk."""
            return str((await inner.run(task)).text)

        middle = world.agent(
            [call("ask_clerk", "m1", task="x")], "told", name="aide", tools=[ask_clerk]
        )
        tool = middle.as_tool()
        await settled(world, guard(boss(world, tool, task="pay ana"), world.gate))

    async def test_the_agents_passed_in_are_not_changed(self, world: World) -> None:
        inner = clerk(world)
        agent = boss(world, inner.as_tool(), task="pay ana")
        before = inner.middleware, agent.middleware, list(agent.default_options["tools"])
        await settled(world, guard(agent, world.gate))
        assert (inner.middleware, agent.middleware, agent.default_options["tools"]) == before
        assert "run" not in vars(inner)
        world.ran.clear()
        await agent.run("go", session=AgentSession())
        assert world.ran == ["ana"]

    async def test_under_a_global_name_it_is_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world))
        with pytest.raises(sayso.InvalidCall) as refused:
            guard(boss(world, ask_global), world.gate)
        assert "- agent 'clerk' of teller: ask_global finds it as" in str(refused.value)
        guarded = guard(boss(world, ask_global), world.gate, ungated=["clerk"])
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["ana"]
        (noted,) = [event for _, event in world.store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == ["clerk"]

    async def test_unless_its_run_is_guarded(
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

    def test_that_has_the_gate_itself(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world, middleware=[Gated(world.gate)]))
        guard(boss(world, ask_global), world.gate)


def hire(world: World) -> Any:
    client = world.client([call("pay", to="ana")], "ana has it")
    return Agent(client, tools=[paying(world)])


class Office:
    def __init__(self, world: World) -> None:
        self.world = world

    async def ask(self, task: str) -> str:
        """Hire somebody, and ask them."""
        return str((await self.hire().run(task)).text)

    def hire(self) -> Any:
        return Agent(self.world.client("Done."), tools=[paying(self.world)])


class TestBuiltWhileAToolRuns:
    """The framework has no hook for an agent that code builds and runs, so the code is read."""

    def refused(self, world: World, tool: Any, name: str = "Agent") -> None:
        holder = tool.__name__
        with pytest.raises(sayso.InvalidCall) as refused:
            guard(boss(world, tool), world.gate)
        said = str(refused.value)
        assert f"- agent '{name} in {holder}' of teller: {holder} builds it while it runs" in said
        assert re.search(r"middleware=\[Gated\(gate\)\]", said)

    def test_by_its_class(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            inner = Agent(world.client("Done."), tools=[paying(world)])
            return str((await inner.run(task)).text)

        self.refused(world, delegate)

    def test_in_a_module(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            inner = agent_framework.Agent(world.client("Done."), tools=[paying(world)])
            return str((await inner.run(task)).text)

        self.refused(world, delegate)

    def test_imported_in_the_tool(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            from agent_framework import Agent as Clerk

            return str((await Clerk(world.client("Done."), tools=[paying(world)]).run(task)).text)

        self.refused(world, delegate)

    def test_in_another_function(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return str((await hire(world).run(task)).text)

        self.refused(world, delegate)

    def test_in_a_method(self, world: World) -> None:
        self.refused(world, Office(world).ask)

    def test_in_an_object(self, world: World) -> None:
        office = Office(world)

        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return await office.ask(task)

        self.refused(world, delegate)

    async def test_guarded_where_it_is_built(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build a guarded agent, and ask it."""
            return str((await guard(clerk(world), world.gate).run(task)).output)

        await settled(world, guard(boss(world, delegate), world.gate))

    async def test_named_and_then_that_is_recorded(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return str((await hire(world).run(task)).text)

        self.refused(world, delegate)
        guarded = guard(boss(world, delegate), world.gate, ungated=["Agent in delegate"])
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["ana"]
        (noted,) = [event for _, event in world.store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == ["Agent in delegate"]

    def test_by_a_client(self, world: World) -> None:
        client = world.client("Done.")

        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return str((await client.as_agent(tools=[paying(world)]).run(task)).text)

        self.refused(world, delegate, "as_agent")

    def test_by_a_custom_agent(self, world: World) -> None:
        class Hires(BaseAgent):
            async def run(self, messages: Any = None, **options: Any) -> Any:  # type: ignore[override]
                return await hire(world).run(messages)

        agent: Any = Hires(name="hires")
        with pytest.raises(
            sayso.InvalidCall, match="agent 'Agent in Hires' of hires: Hires builds"
        ):
            guard(agent, world.gate)


class Custom(BaseAgent):
    """An agent of the user's own, around another one."""

    def __init__(self, inner: Any) -> None:
        super().__init__(name="custom")
        self.inner = inner

    async def run(self, messages: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return await self.inner.run(messages)


class TestCustomAgents:
    def test_what_it_holds_is_refused(self, world: World) -> None:
        agent: Any = Custom(clerk(world))
        with pytest.raises(sayso.InvalidCall, match="agent 'clerk' of custom: Custom finds it as"):
            guard(agent, world.gate)

    def test_what_has_no_tools_may_be_held(self, world: World) -> None:
        agent: Any = Custom(world.agent("thought about it"))
        guard(agent, world.gate)


HOSTED: Any = [
    ({"type": "web_search"}, "web_search"),
    ({"type": "code_interpreter", "container": {}}, "code_interpreter"),
    ({"type": "mcp", "server_label": "git", "require_approval": "never"}, "git"),
]


class TestHosted:
    @pytest.mark.parametrize(("tool", "name"), HOSTED)
    def test_what_the_provider_runs(self, world: World, tool: Any, name: str) -> None:
        agent = world.agent("Done.", tools=[tool])
        with pytest.raises(sayso.InvalidCall, match=f"'{name}' of teller"):
            guard(agent, world.gate)
        guard(agent, world.gate, ungated=[name])

    def test_what_the_provider_asks_about(self, world: World) -> None:
        tool = {"type": "mcp", "server_label": "git", "require_approval": "always"}
        coverage = guard(world.agent("Done.", tools=[tool]), world.gate).coverage()
        assert ("hosted MCP server", "git", True) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_what_the_options_bring(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
            guard(world.agent("Done."), world.gate, tools=[{"type": "web_search"}])

    async def test_what_an_agent_gets_later(self, world: World) -> None:
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

    async def test_the_agents_in_it_ask(self, world: World, tmp_path: Path) -> None:
        workflow = self.workflow(clerk(world))
        await settled(world, guard(workflow, world.gate, checkpoints=tmp_path / "c"))

    async def test_and_the_agents_in_their_functions(self, world: World, tmp_path: Path) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).text)

        workflow = self.workflow(boss(world, delegate))
        await settled(world, guard(workflow, world.gate, checkpoints=tmp_path / "c"))

    def test_what_the_provider_runs_is_refused(self, world: World, tmp_path: Path) -> None:
        def workflow() -> Any:
            return self.workflow(world.agent("Done.", tools=[{"type": "web_search"}]))

        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of office/pays"):
            guard(workflow(), world.gate, checkpoints=tmp_path / "c")
        guard(workflow(), world.gate, checkpoints=tmp_path / "c", ungated=["web_search"])

    async def test_also_if_a_function_builds_it(self, world: World, tmp_path: Path) -> None:
        def workflow() -> Any:
            return self.workflow(world.agent("Done.", tools=[{"type": "web_search"}]))

        guarded = guard(workflow, world.gate, checkpoints=tmp_path / "c")
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of office/pays"):
            await guarded.run("go", thread="t")

    async def test_the_workflow_passed_in_is_not_changed(
        self, world: World, tmp_path: Path
    ) -> None:
        inner = WorkflowBuilder(start_executor=AgentExecutor(clerk(world)), name="desk").build()
        agent = clerk(world, name="head")
        start = AgentExecutor(agent, id="pays")
        below = WorkflowExecutor(inner, id="below")
        workflow = WorkflowBuilder(start_executor=start, name="office").add_edge(start, below)
        built = workflow.build()
        before = [dict(vars(one)) for one in (agent, start, below, inner, built)]
        guarded = guard(built, world.gate, checkpoints=tmp_path / "c")
        assert (await guarded.run("go", thread="t")).status == "paused"
        assert [dict(vars(one)) for one in (agent, start, below, inner, built)] == before
        assert start._session.state == {}
        assert start._cache == []
        assert agent.middleware is None
        await agent.run("go")  # and works as before
        assert world.ran == ["ana"]

    async def test_it_runs_two_threads_at_once(self, world: World, tmp_path: Path) -> None:
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
    async def test_agents_in_executors_of_the_users_own_are_refused(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world))
        start = self.executor(world, kind)
        workflow = WorkflowBuilder(start_executor=start, name="office").build()
        name = "Agent in pays" if kind == "built" else "clerk"
        with pytest.raises(sayso.InvalidCall, match=f"agent '{name}' of office/pays: pays "):
            guard(workflow, world.gate, checkpoints=tmp_path / "c")
        options: Any = {"checkpoints": tmp_path / "c", "ungated": [name]}
        assert (await guard(workflow, world.gate, **options).run("go", thread="t")).status == "done"

    def test_a_workflow_in_a_tool_is_refused(self, world: World) -> None:
        workflow = self.workflow(clerk(world))

        async def delegate(task: str) -> str:
            """Run a workflow."""
            return str((await workflow.run(task)).get_outputs()[0])

        with pytest.raises(sayso.InvalidCall, match="workflow 'office' of teller: delegate finds"):
            guard(boss(world, delegate), world.gate)
        guard(boss(world, delegate), world.gate, ungated=["office"])

    def test_the_table(self, world: World, tmp_path: Path) -> None:
        def workflow() -> Any:
            return self.workflow(clerk(world))

        coverage = guard(workflow, world.gate, checkpoints=tmp_path / "c").coverage()
        assert {(one.where, one.kind, one.name, one.gated) for one in coverage} == {
            ("office/pays", "agent", "office/pays", True),
            ("office/pays", "tool", "pay", True),
        }


def test_the_table(world: World) -> None:
    server = MCPStdioTool(name="files", command="none")
    agent = world.agent("Done.", tools=[clerk(world).as_tool(), server])
    coverage = guard(agent, world.gate).coverage()
    assert {(one.where, one.kind, one.name, one.gated) for one in coverage} == {
        ("teller", "agent", "teller", True),
        ("teller", "tool", "clerk", True),
        ("clerk", "agent", "clerk", True),
        ("clerk", "tool", "pay", True),
        ("teller", "MCP server", "files", True),
    }


def test_nothing_leads_to_the_agent_without_a_gate(world: World) -> None:
    assert "agent" not in dir(guard(clerk(world), world.gate))
