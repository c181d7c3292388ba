"""Everything that an agent of the SDK can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    GuardrailFunctionOutput,
    HostedMCPTool,
    InputGuardrail,
    Runner,
    ShellTool,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel
from openai_agents_world import World, call, outputs, pay_of, say

import sayso
from sayso.adapters.openai_agents import guard


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    others = sayso.Rule("*", verdict="allow", effect="idempotent")
    world.policy = sayso.Policy([sayso.Rule("pay"), others])
    yield world
    world.close()


def clerk(world: World, name: str = "Clerk", to: str = "ana") -> Agent[Any]:
    model = ScriptedModel([[call("pay", "p1", to=to)], [say(f"{to} has it")]])
    return Agent(name, model=model, tools=[pay_of(world)])


def boss(tool: Any) -> Agent[Any]:
    (argument,) = tool.params_json_schema["properties"]
    model = ScriptedModel([[call("delegate", "o1", **{argument: "pay ana"})], [say("Done.")]])
    return Agent("Boss", model=model, tools=[tool])


async def settled(world: World, agent: Agent[Any]) -> None:
    """What a guarded agent has to do: ask about the payment of the inner agent, and pay once."""
    world.build = lambda: agent
    result = await world.run()
    assert (result.status, world.ran) == ("paused", [])
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
    await world.inbox.decide(request.id, request.edit({"to": "bob"}), by="ana")
    result = await world.resume()
    assert (result.output, world.ran) == ("Done.", ["bob"])


GLOBAL: Any = None


@function_tool
async def delegate_to_global(task: str) -> str:
    """Run the agent of this module."""
    return str((await Runner.run(GLOBAL, task)).final_output)


class TestAgentsInTools:
    """However the code of a tool comes by an agent: inside a guarded run, the agent is guarded."""

    async def test_agent_in_closure_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Run an agent."""
            return str((await Runner.run(inner, task)).final_output)

        await settled(world, boss(function_tool(delegate)))

    async def test_agent_under_global_name_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.GLOBAL", clerk(world))
        delegate = delegate_to_global
        model = ScriptedModel([[call(delegate.name, "o1", task="x")], [say("Done.")]])
        await settled(world, Agent("Boss", model=model, tools=[delegate]))

    async def test_agent_built_during_run_asks(self, world: World) -> None:
        model = ScriptedModel([[call("pay", "p1", to="ana")], [say("ana has it")]])

        async def delegate(task: str) -> str:
            """Build an agent, and run it."""
            inner = Agent("Clerk", model=model, tools=[pay_of(world)])
            return str((await Runner.run(inner, task)).final_output)

        await settled(world, boss(function_tool(delegate)))

    async def test_streamed_agent_asks(self, world: World) -> None:
        inner = clerk(world)

        async def delegate(task: str) -> str:
            """Run an agent."""
            streamed = Runner.run_streamed(inner, task)
            async for _ in streamed.stream_events():
                pass
            return str(streamed.final_output)

        await settled(world, boss(function_tool(delegate)))

    async def test_agent_as_tool_asks(self, world: World) -> None:
        await settled(world, boss(clerk(world).as_tool("delegate", "Does the paying.")))

    async def test_parallel_agents_keep_their_replies(self, world: World) -> None:
        first, second = clerk(world, "Clerk", "ana"), clerk(world, "Aide", "bob")

        async def delegate(task: str) -> str:
            """Run two agents."""
            runs = [Runner.run(one, task) for one in (first, second)]
            return ", ".join([str(done.final_output) for done in await asyncio.gather(*runs)])

        agent = boss(function_tool(delegate))
        world.build = lambda: agent
        result = await world.run()
        for _ in range(2):  # the first pause ends the body, so the second agent may ask later
            for request in result.interruptions:
                await world.inbox.approve(request, by="ana")
            result = await world.resume()
        assert (result.output, sorted(world.ran)) == ("Done.", ["ana", "bob"])
        assert [len(one.model.calls) for one in (first, second)] == [2, 2]


class TestHandoffs:
    @pytest.mark.parametrize("wrap", [lambda agent: agent, handoff])
    async def test_handoff_target_asks(self, world: World, wrap: Any) -> None:
        inner = clerk(world)
        inner.model = ScriptedModel([[call("pay", "p1", to="ana")], [say("Done.")]])
        model = ScriptedModel([[call("transfer_to_clerk", "o1")]])
        await settled(world, Agent("Boss", model=model, handoffs=[wrap(inner)]))

    async def test_mutual_handoffs_are_copied_once(self, world: World) -> None:
        """Agents may hand off to each other; each is copied once."""
        first = Agent("First", model=ScriptedModel([[call("transfer_to_second", "h1")]]))
        second = Agent("Second", model=ScriptedModel([[say("Done.")]]), handoffs=[first])
        first.handoffs.append(second)
        guarded = guard(first, world.gate())
        assert (await guarded.run("go", thread="t-1")).output == "Done."
        (copied,) = guarded.agent.handoffs
        assert isinstance(copied, Agent)
        assert copied.handoffs == [guarded.agent]


class TestNotChanged:
    async def test_original_agent_is_not_changed(self, world: World) -> None:
        inner = clerk(world)
        agent = boss(inner.as_tool("delegate", "Does the paying."))
        before = dict(vars(agent)), dict(vars(inner)), list(agent.tools)
        guarded = guard(agent, world.gate(), world.policy)
        assert guarded.agent is not agent
        assert (dict(vars(agent)), dict(vars(inner)), list(agent.tools)) == before
        result = await Runner.run(agent, "go")
        assert (result.final_output, world.ran) == ("Done.", ["ana"])


class TestGuardrails:
    def agent(self, judge: Agent[Any]) -> Agent[Any]:
        async def judged(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
            result = await Runner.run(judge, input, context=context.context)
            return GuardrailFunctionOutput(result.final_output, tripwire_triggered=False)

        model = ScriptedModel([[say("Done.")]])
        return Agent("Boss", model=model, input_guardrails=[InputGuardrail(judged)])

    async def test_guardrail_agent_without_tools_runs(self, world: World) -> None:
        agent = self.agent(Agent("Judge", model=ScriptedModel([[say("fine")]])))
        guarded = guard(agent, world.gate())
        assert (await guarded.run("go", thread="t-1")).output == "Done."

    async def test_guardrail_agent_cannot_ask(self, world: World) -> None:
        """A guardrail runs between the calls of the agent, where nothing can pause."""
        judge = clerk(world, "Judge")
        guarded = guard(self.agent(judge), world.gate(), world.policy)
        assert (await guarded.run("go", thread="t-1")).output == "Done."
        assert (world.ran, await world.pending()) == ([], ())
        assert "guard(agent, gate)" in outputs(judge.model)["p1"]

    async def test_allowed_call_of_guardrail_is_recorded(self, world: World) -> None:
        policy = sayso.Policy([sayso.Rule("pay", verdict="allow")])
        guarded = guard(self.agent(clerk(world, "Judge")), world.gate(), policy)
        assert (await guarded.run("go", thread="t-1")).output == "Done."
        (recorded,) = world.inbox.store.calls_of("teller:t-1")
        assert (world.ran, recorded.tool, recorded.status) == (["ana"], "pay", "done")

    async def test_ungated_guardrail_agent_runs(self, world: World) -> None:
        guarded = guard(self.agent(clerk(world, "Judge")), world.gate(), ungated=["Judge"])
        assert (await guarded.run("go", thread="t-1")).output == "Done."
        assert world.ran == ["ana"]


def hosted(**options: Any) -> HostedMCPTool:
    config: Any = {"type": "mcp", "server_label": "git", "server_url": "https://x", **options}
    return HostedMCPTool(tool_config=config)


class Novel:
    """A tool of a later version of the SDK."""

    def __init__(self, name: str = "novel") -> None:
        self.name = name


MISSED: Any = [
    (Novel(), "novel"),
    (WebSearchTool(), "web_search"),
    (FileSearchTool(vector_store_ids=["v"]), "file_search"),
    (CodeInterpreterTool({"type": "code_interpreter", "container": "c"}), "code_interpreter"),
    (ShellTool(executor=lambda request: ""), "shell"),
    (hosted(require_approval="never"), "git"),
    (hosted(require_approval={"never": {"tool_names": ["read"]}}), "git"),
]


class TestMissed:
    @pytest.mark.parametrize(("tool", "name"), MISSED)
    async def test_hosted_tool_is_refused_unless_ungated(
        self, world: World, tool: Any, name: str
    ) -> None:
        inner = Agent("Clerk", model=ScriptedModel([[say("Done.")]]), tools=[tool])

        def agent() -> Agent[Any]:
            return Agent("Boss", model=ScriptedModel([[say("Done.")]]), handoffs=[inner])

        with pytest.raises(sayso.InvalidCall) as refused:
            guard(agent(), world.gate())
        assert f"{name!r} of Clerk: " in str(refused.value)
        assert f"guard(..., ungated=[{name!r}])" in str(refused.value)
        guarded = guard(agent(), world.gate(), ungated=[name])
        await guarded.run("go", thread="t-1")
        store = guarded.gate.store
        (noted,) = [event for _, event in store.events(0, 100) if event.type == "ungated"]
        assert json.loads(noted.body or "")["names"] == [name]

    def test_refusal_names_all_missed_tools(self, world: World) -> None:
        tools = [WebSearchTool(), hosted(require_approval="never")]
        with pytest.raises(sayso.InvalidCall, match=r"ungated=\['web_search', 'git'\]"):
            guard(Agent("Boss", tools=tools), world.gate())

    def test_long_refusal_lists_the_first_tools(self, world: World) -> None:
        tools: list[Any] = [Novel(f"tool_{number}") for number in range(25)]
        with pytest.raises(sayso.InvalidCall, match=r"(?s)tool 'tool_19' .*- and 5 more"):
            guard(Agent("Boss", tools=tools), world.gate())

    def test_stored_prompt_is_refused(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match="stored prompt 'pmpt_1' of Boss"):
            guard(Agent("Boss", prompt={"id": "pmpt_1"}), world.gate())

    async def test_hosted_tool_added_later_is_refused(self, world: World) -> None:
        world.build = lambda: Agent("Boss", model=ScriptedModel([[say("Done.")]]))
        guarded = world.guarded()
        guarded.agent.tools.append(WebSearchTool())
        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search'"):
            await guarded.run("go", thread="t-1")


def test_coverage_lists_agents_and_tools(world: World) -> None:
    server = MCPServerStdio({"command": "none"}, name="files")
    inner = Agent("Aide", tools=[pay_of(world)], mcp_servers=[server])
    tools = [WebSearchTool(), hosted(), clerk(world).as_tool("delegate", "Pays.")]
    agent = Agent("Boss", tools=tools, handoffs=[inner])
    coverage = guard(agent, world.gate(), ungated=["web_search"]).coverage()
    found = {(one.where, one.kind, one.name, one.gated) for one in coverage}
    assert found == {
        ("Boss", "agent", "Boss", True),
        ("Boss", "hosted tool", "web_search", False),
        ("Boss", "hosted MCP server", "git", True),
        ("Boss", "tool", "delegate", True),
        ("Clerk", "agent", "Clerk", True),
        ("Clerk", "tool", "pay", True),
        ("Aide", "agent", "Aide", True),
        ("Aide", "tool", "pay", True),
        ("Aide", "MCP server", "files", True),
    }
    lines = [line.split()[:4] for line in str(coverage).splitlines()]
    assert ["Clerk", "tool", "pay", "yes"] in lines
    assert ["Boss", "hosted", "tool", "web_search"] in lines
