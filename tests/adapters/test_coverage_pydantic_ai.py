"""Everything that a pydantic-ai agent can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.native_tools import CodeExecutionTool, MCPServerTool, WebSearchTool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai_world import World, call

import sayso
from sayso.adapters.pydantic_ai import Gated, guard

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
    async def test_an_agent_in_a_closure(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(ctx: RunContext[Any], task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task, usage=ctx.usage)).output)

        await settled(world, boss(world, delegate))

    async def test_two_levels_deep(self, world: World) -> None:
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

    async def test_in_a_toolset(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        turns = [call("x_delegate", "o1", task="pay ana")], "Done."
        await settled(
            world, world.agent(*turns, toolsets=[FunctionToolset([delegate]).prefixed("x")])
        )

    async def test_the_agents_passed_in_are_not_changed(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        agent = boss(world, delegate)
        await settled(world, agent)
        world.ran.clear()
        assert (await agent.run("go")).output == "Done."
        assert world.ran == ["ana"]

    async def test_under_a_global_name_it_is_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world, name="clerk"))
        with pytest.raises(sayso.InvalidCall) as refused:
            guard(boss(world, ask_global), world.gate)
        said = str(refused.value)
        assert "- agent 'clerk' of teller: ask_global finds it as the global name 'GLOBAL'" in said
        assert "give it capabilities=[Gated(gate)]" in said

    async def test_unless_it_has_the_gate_itself(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world, capabilities=[Gated(world.gate)]))
        await settled(world, boss(world, ask_global))

    async def test_or_has_no_tools(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", world.agent("thought about it"))
        guarded = guard(boss(world, ask_global), world.gate)
        assert (await guarded.run("go", thread="t")).output == "Done."

    async def test_or_is_named_and_then_that_is_recorded(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world, name="clerk"))
        guarded = guard(boss(world, ask_global), world.gate, ungated=["clerk"])
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["ana"]
        (noted,) = [event for _, event in world.store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == ["clerk"]

    def test_in_an_object_it_is_refused(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match=r"ask finds it as Team\.agent"):
            guard(boss(world, Team(clerk(world)).ask), world.gate)


def hire(world: World) -> Any:
    return Agent("test", tools=[paying(world)])


class Office:
    def __init__(self, world: World) -> None:
        self.world = world

    async def ask(self, task: str) -> str:
        """Hire somebody, and ask them."""
        return str((await self.hire().run(task)).output)

    def hire(self) -> Any:
        return Agent("test", tools=[paying(self.world)])


class TestBuiltWhileAToolRuns:
    """The framework has no hook for an agent that code builds and runs, so the code is read."""

    def refused(self, world: World, tool: Any, name: str = "Agent") -> None:
        holder = tool.__name__
        with pytest.raises(sayso.InvalidCall) as refused:
            guard(boss(world, tool), world.gate)
        said = str(refused.value)
        assert f"- agent '{name} in {holder}' of teller: {holder} builds it while it runs" in said
        assert re.search(r"capabilities=\[Gated\(gate\)\]", said)

    def test_by_its_class(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            inner = Agent("test", tools=[paying(world)])
            return str((await inner.run(task)).output)

        self.refused(world, delegate)

    def test_in_a_module(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            inner = pydantic_ai.Agent("test", tools=[paying(world)])
            return str((await inner.run(task)).output)

        self.refused(world, delegate)

    def test_imported_in_the_tool(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            from pydantic_ai import Agent as Clerk

            return str((await Clerk("test", tools=[paying(world)]).run(task)).output)

        self.refused(world, delegate)

    def test_in_another_function(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return str((await hire(world).run(task)).output)

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

        await settled(world, boss(world, delegate))

    async def test_named_and_then_that_is_recorded(self, world: World) -> None:
        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            return str((await hire(world).run(task)).output)

        self.refused(world, delegate)
        guarded = guard(boss(world, delegate), world.gate, ungated=["Agent in delegate"])
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == ["a"]
        (noted,) = [event for _, event in world.store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == ["Agent in delegate"]


NATIVE: Any = [
    (WebSearchTool(), "web_search"),
    (CodeExecutionTool(), "code_execution"),
    (MCPServerTool(id="git", url="https://x"), "git"),
]


class TestNativeTools:
    @pytest.mark.parametrize(("tool", "name"), NATIVE)
    def test_what_the_provider_runs(self, world: World, tool: Any, name: str) -> None:
        agent = world.agent("Done.", capabilities=[NativeTool(tool)])
        with pytest.raises(sayso.InvalidCall, match=f"native tool '{name}' of teller"):
            guard(agent, world.gate)
        coverage = guard(agent, world.gate, ungated=[name]).coverage()
        assert ("native tool", name, False) in {(c.kind, c.name, c.gated) for c in coverage}

    def test_what_the_options_bring(self, world: World) -> None:
        given = {"capabilities": [NativeTool(WebSearchTool())]}
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
            guard(world.agent("Done."), world.gate, **given)

    async def test_what_a_function_brings_while_the_agent_runs(self, world: World) -> None:
        """Nothing knows of it before the request to the model."""
        late = NativeTool(lambda ctx: WebSearchTool())
        guarded = guard(world.agent("Done.", capabilities=[late]), world.gate)
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of teller"):
            await guarded.run("go", thread="t")
        assert world.shown == []

    async def test_what_an_inner_agent_has(self, world: World) -> None:
        inner = world.agent("found", capabilities=[NativeTool(WebSearchTool())], name="searcher")

        async def delegate(task: str) -> str:
            """Ask another agent."""
            return str((await inner.run(task)).output)

        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search' of searcher"):
            guard(boss(world, delegate), world.gate)


def test_the_table(world: World) -> None:
    inner = clerk(world, name="clerk")

    async def delegate(task: str) -> str:
        """Ask another agent."""
        return str((await inner.run(task)).output)

    coverage = guard(boss(world, delegate), world.gate).coverage()
    found = {(one.where, one.kind, one.name, one.gated) for one in coverage}
    assert found == {
        ("teller", "agent", "teller", True),
        ("teller", "tool", "delegate", True),
        ("clerk", "agent", "clerk", True),
        ("clerk", "tool", "pay", True),
    }


def test_nothing_leads_to_the_agent_without_a_gate(world: World) -> None:
    guarded = guard(clerk(world), world.gate)
    assert not [name for name in dir(guarded) if name == "agent"]
