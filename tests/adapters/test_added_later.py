"""Tools and agents that are added after ``guard``, or during a run, ask or are refused.

Nothing may run that no row was made for. Each test changes a real agent behind the gate's back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agent_framework_world as af
import pydantic_ai_world as pydantic
import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import tool as af_tool
from agents import Agent, Handoff, Runner, WebSearchTool, function_tool, handoff
from agents.testing import ScriptedModel
from dspy.utils import DummyLM
from harness_dspy import FakeLM, dspy
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool as langchain_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_world import Chat
from langchain_world import World as LangChain
from langgraph.checkpoint.memory import InMemorySaver
from openai_agents_world import World as OpenAI
from openai_agents_world import call as oa_call
from openai_agents_world import say as oa_say
from pydantic_ai import RunContext, Tool
from pydantic_ai.native_tools import WebSearchTool as NativeSearch
from pydantic_ai.toolsets import FunctionToolset
from store_world import pay_of
from test_openai_agents_tools import Shelf

import sayso
from sayso.adapters import agent_framework as on_af
from sayso.adapters import dspy as on_dspy
from sayso.adapters import langchain as on_langchain
from sayso.adapters import openai_agents as on_openai
from sayso.adapters import pydantic_ai as on_pydantic

RULES = sayso.Policy([sayso.Rule("pay"), sayso.Rule("send"), sayso.Rule("*", verdict="allow")])
LATER: Any = None


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the global name under which the tools of this module look for an agent."""
    return lambda agent: monkeypatch.setattr(f"{__name__}.LATER", agent)


# -- LangChain, LangGraph, deepagents


@langchain_tool
def ask_later(task: str) -> str:
    """Ask the agent that this module has by then."""
    if LATER is None:
        return "nobody is there"
    said = LATER.invoke({"messages": [{"role": "user", "content": task}]})
    return str(said["messages"][-1].text)


class Binding(Chat):
    """A model that is told which tools there are, as those of the providers are."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        told = [one if isinstance(one, dict) else convert_to_openai_tool(one) for one in tools]
        return self.bind(tools=told, **options)


PAUSES = sayso.Policy([sayso.Rule("ask_*", verdict="allow", effect="idempotent"), *RULES.rules])


class TestLangChain:
    @pytest.fixture
    def world(self) -> LangChain:
        return LangChain()

    def inner(self, world: LangChain) -> Any:
        script = [[("i1", "send", {"to": "ana"})], "Inner done."]
        return create_agent(Chat(script=script, seen=[]), tools=world.tools())

    def outer(self, *tools: Any, name: str = "ask_later") -> Any:
        script = [[("o1", name, {"task": "mail ana"})], "Done."]
        return create_agent(
            Chat(script=script, seen=[]), tools=list(tools), checkpointer=InMemorySaver()
        )

    async def asked(self, world: LangChain, guarded: Any) -> None:
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("send", [])
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.status, world.ran) == ("done", [("send", "ana", "Hello")])

    async def test_agent_under_global_name_asks(self, world: LangChain, later: Any) -> None:
        guarded = on_langchain.guard(self.outer(ask_later), world.gate, PAUSES)
        later(self.inner(world))
        await self.asked(world, guarded)

    async def test_agent_set_after_first_run_asks(self, world: LangChain, later: Any) -> None:
        guarded = on_langchain.guard(self.outer(ask_later), world.gate, PAUSES)
        assert (await guarded.run("go", thread="first")).status == "done"
        later(self.inner(world))
        await self.asked(world, guarded)

    async def test_agent_registered_later_asks(self, world: LangChain) -> None:
        known: dict[str, Any] = {}

        @langchain_tool
        def ask_known(task: str) -> str:
            """Ask an agent that is registered."""
            said = known["late"].invoke({"messages": [{"role": "user", "content": task}]})
            return str(said["messages"][-1].text)

        guarded = on_langchain.guard(self.outer(ask_known, name="ask_known"), world.gate, PAUSES)
        known["late"] = self.inner(world)
        await self.asked(world, guarded)

    async def test_tool_added_to_tool_node_asks(self, world: LangChain) -> None:
        chat = Chat(script=[[("o1", "send", {"to": "ana"})], "Done."], seen=[])
        agent = create_agent(chat, tools=[ask_later], checkpointer=InMemorySaver())
        guarded = on_langchain.guard(agent, world.gate, RULES)
        (send,) = [one for one in world.tools() if one.name == "send"]
        agent.nodes["tools"].bound.tools_by_name["send"] = send
        await self.asked(world, guarded)

    @pytest.mark.parametrize("named", [False, True])
    async def test_hosted_tool_of_middleware_is_refused(
        self, world: LangChain, named: bool
    ) -> None:
        class Searches(AgentMiddleware[Any, Any]):
            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                search = {"type": "web_search_preview"}
                return await handler(request.override(tools=[*request.tools, search]))

        chat = Binding(script=["I have searched."], seen=[])
        agent: Any = create_agent(
            chat, tools=[ask_later], middleware=[Searches()], checkpointer=InMemorySaver()
        )
        ungated = ["web_search_preview"] if named else []
        guarded = on_langchain.guard(agent, world.gate, RULES, ungated=ungated)
        if named:
            assert (await guarded.run("go", thread="t")).output == "I have searched."
            return
        with pytest.raises(sayso.SaysoError, match=r"ungated=\['web_search_preview'\]"):
            await guarded.run("go", thread="t")
        assert chat.seen == []


# -- OpenAI Agents


class TestOpenAI:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[OpenAI]:
        world = OpenAI(tmp_path)
        world.policy = RULES
        yield world
        world.close()

    def paying(self, world: OpenAI, **options: Any) -> Any:
        async def pay(to: str) -> str:
            """Pay somebody."""
            world.ran.append(to)
            return f"paid {to}"

        return function_tool(pay, **options)

    def clerk(self, world: OpenAI, **options: Any) -> Agent[Any]:
        model = ScriptedModel([[oa_call("pay", "p1", to="ana")], [oa_say("ana has it")]])
        return Agent("Clerk", model=model, tools=[self.paying(world)], **options)

    def boss(self, *turns: Any, **options: Any) -> Agent[Any]:
        return Agent("Boss", model=ScriptedModel([*turns]), **options)

    def chosen(self, declared: Agent[Any], choose: Any) -> Handoff[Any, Any]:
        """A handoff whose agent a function chooses when the model asks for it."""
        made = handoff(declared)

        async def invoke(context: Any, arguments: str) -> Agent[Any]:
            return choose()

        made.on_invoke_handoff = invoke
        return made

    async def test_handoff_chosen_at_run_time_asks(self, world: OpenAI) -> None:
        declared = Agent("Declared", model=ScriptedModel([[oa_say("never")]]))
        clerk = self.clerk(world)
        turn = [oa_call("transfer_to_declared", "h1")]
        boss = self.boss(turn, handoffs=[self.chosen(declared, lambda: clerk)])
        guarded = on_openai.guard(boss, world.gate(), RULES)
        result = await guarded.run("go", thread="t")
        (request,) = result.interruptions
        assert (request.tool, world.ran) == ("pay", [])
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("ana has it", ["ana"])
        assert ("Clerk", "tool", "pay") in [(o.where, o.kind, o.name) for o in guarded.coverage()]

    @pytest.mark.parametrize(
        ("options", "name"),
        [
            ({"tools": [WebSearchTool()]}, "web_search"),
            ({"prompt": {"id": "pmpt_1"}}, "pmpt_1"),
        ],
        ids=["hosted tool", "stored prompt"],
    )
    async def test_chosen_agent_with_hosted_tools_is_refused(
        self, world: OpenAI, options: Any, name: str
    ) -> None:
        declared = Agent("Declared", model=ScriptedModel([[oa_say("never")]]))
        model = ScriptedModel([[oa_say("I have searched.")]])
        late = Agent("Late", model=model, **options)
        turn = [oa_call("transfer_to_declared", "h1")]
        boss = self.boss(turn, handoffs=[self.chosen(declared, lambda: late)])
        guarded = on_openai.guard(boss, world.gate(), RULES)
        with pytest.raises(sayso.InvalidCall, match=name):
            await guarded.run("go", thread="t")

    async def test_chosen_agent_resumes_in_another_process(self, world: OpenAI) -> None:
        """It is chosen again there."""
        model = self.clerk(world).model

        def build() -> Any:
            declared = Agent("Declared", model=ScriptedModel([[oa_say("never")]]))
            turn = [oa_call("transfer_to_declared", "h1")]
            clerk = Agent("Clerk", model=model, tools=[self.paying(world)])
            choice = self.chosen(declared, lambda: clerk)
            return on_openai.guard(self.boss(turn, handoffs=[choice]), world.gate(), RULES)

        (request,) = (await build().run("go", thread="t")).interruptions
        result = await build().resume("t", decisions=[request.edit({"to": "bob"})])
        assert (result.output, world.ran) == ("ana has it", ["bob"])

    @pytest.mark.parametrize("what", ["tools", "handoffs"])
    async def test_change_of_original_agent_has_no_effect(self, world: OpenAI, what: str) -> None:
        """The guarded copy does not see it."""
        boss = self.boss([oa_call("pay", "p1", to="ana")], [oa_say("Done.")])
        guarded = on_openai.guard(boss, world.gate(), RULES)
        getattr(boss, what).append(self.paying(world) if what == "tools" else self.clerk(world))
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert world.ran == []

    async def test_tool_of_guarded_agent_asks(self, world: OpenAI) -> None:
        boss = self.boss([oa_call("pay", "p1", to="ana")], [oa_say("Done.")])
        guarded = on_openai.guard(boss, world.gate(), RULES)
        guarded.agent.tools.append(self.paying(world))
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])

    @pytest.mark.parametrize("what", ["handoffs", "wrapped", "hosted"])
    async def test_tool_appended_to_guarded_agent_asks(self, world: OpenAI, what: str) -> None:
        boss = self.boss([oa_call("pay", "p1", to="ana")], [oa_say("Done.")])
        guarded = on_openai.guard(boss, world.gate(), RULES)
        added: dict[str, Any] = {
            "handoffs": self.clerk(world),
            "wrapped": handoff(self.clerk(world)),
            "hosted": WebSearchTool(),
        }
        held = guarded.agent.tools if what == "hosted" else guarded.agent.handoffs
        held.append(added[what])
        with pytest.raises(sayso.InvalidCall, match=r"after guard\(|web_search"):
            await guarded.run("go", thread="t")
        assert world.ran == []

    async def test_tool_appended_by_a_tool_asks(self, world: OpenAI) -> None:
        @function_tool
        async def learn() -> str:
            """Learn how to pay."""
            guarded.agent.tools.append(self.paying(world))
            return "learned"

        turns = [oa_call("learn", "l1")], [oa_call("pay", "p1", to="ana")], [oa_say("Done.")]
        guarded = on_openai.guard(self.boss(*turns, tools=[learn]), world.gate(), RULES)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])

    async def test_tool_enabled_later_asks(self, world: OpenAI) -> None:
        enabled: list[bool] = []
        pay = self.paying(world, is_enabled=lambda context, agent: bool(enabled))

        @function_tool
        async def unlock() -> str:
            """Enable payments."""
            enabled.append(True)
            return "unlocked"

        turns = [oa_call("unlock", "u1")], [oa_call("pay", "p1", to="ana")], [oa_say("Done.")]
        guarded = on_openai.guard(self.boss(*turns, tools=[unlock, pay]), world.gate(), RULES)
        assert "pay" in [one.name for one in guarded.coverage()]
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])

    @pytest.mark.parametrize("on", ["given", "guarded"])
    async def test_mcp_server_added_later_asks(self, world: OpenAI, on: str) -> None:
        boss = self.boss([oa_call("remove", "r1", path="a")], [oa_say("Done.")])
        rules = sayso.Policy([sayso.Rule("*")])
        guarded = on_openai.guard(boss, world.gate(), rules)
        (boss if on == "given" else guarded.agent).mcp_servers.append(Shelf(world))
        result = await guarded.run("go", thread="t")
        assert world.ran == []
        assert result.status == ("done" if on == "given" else "paused")

    async def test_agent_set_after_first_run_asks(self, world: OpenAI, later: Any) -> None:
        @function_tool
        async def ask(task: str) -> str:
            """Ask the agent that this module has by then."""
            return "nobody" if LATER is None else str((await Runner.run(LATER, task)).final_output)

        turn = [oa_call("ask", "a1", task="pay ana")]
        boss = self.boss(turn, [oa_say("Done.")], turn, [oa_say("Done.")], tools=[ask])
        ask_rule = sayso.Rule("ask", verdict="allow", effect="idempotent")
        guarded = on_openai.guard(boss, world.gate(), sayso.Policy([ask_rule, *RULES.rules]))
        assert (await guarded.run("go", thread="first")).status == "done"
        later(self.clerk(world))
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])


# -- pydantic-ai


async def ask_pydantic(ctx: RunContext[Any], task: str) -> str:
    """Ask the agent that this module has by then."""
    return "nobody" if LATER is None else str((await LATER.run(task)).output)


class TestPydanticAI:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[pydantic.World]:
        delegates = sayso.Rule(["ask_pydantic", "delegate"], verdict="allow", effect="idempotent")
        world = pydantic.World(tmp_path, sayso.Policy([delegates, *RULES.rules]))
        yield world
        world.close()

    def paying(self, world: pydantic.World) -> Any:
        def pay(to: str) -> str:
            """Pay somebody."""
            world.ran.append(to)
            return f"paid {to}"

        return pay

    async def asks(self, world: pydantic.World, guarded: Any) -> None:
        result = await guarded.run("go", thread="t")
        assert (result.status, world.ran) == ("paused", [])
        (request,) = result.interruptions
        assert request.tool == "pay"
        result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
        assert (result.output, world.ran) == ("Done.", ["bob"])

    async def test_changing_toolset_asks(self, world: pydantic.World) -> None:
        turns = [pydantic.call("look")], [pydantic.call("pay", "c2", to="ana")], "Done."

        def look() -> str:
            """Look around."""
            return "seen"

        agent = world.agent(*turns)

        @agent.toolset(per_run_step=True)
        def changing(ctx: RunContext[Any]) -> FunctionToolset[Any]:
            return FunctionToolset([self.paying(world) if len(ctx.messages) > 2 else look])

        await self.asks(world, on_pydantic.guard(agent, world.gate))

    async def test_tool_prepared_later_asks(self, world: pydantic.World) -> None:
        turns = [pydantic.call("look")], [pydantic.call("pay", "c2", to="ana")], "Done."
        agent = world.agent(*turns)

        @agent.tool_plain
        def look() -> str:
            """Look around."""
            return "seen"

        async def prepare(ctx: RunContext[Any], definition: Any) -> Any:
            return definition if len(ctx.messages) > 2 else None

        agent.tool_plain(self.paying(world), prepare=prepare)
        await self.asks(world, on_pydantic.guard(agent, world.gate))

    async def test_tool_added_later_asks(self, world: pydantic.World) -> None:
        toolset: FunctionToolset[Any] = FunctionToolset([])
        agent = world.agent([pydantic.call("pay", to="ana")], "Done.", toolsets=[toolset])
        guarded = on_pydantic.guard(agent, world.gate)
        toolset.add_function(self.paying(world))
        await self.asks(world, guarded)

    async def test_delegate_set_after_first_run_asks(
        self, world: pydantic.World, later: Any
    ) -> None:
        turn = [pydantic.call("ask_pydantic", "o1", task="pay ana")]
        guarded = on_pydantic.guard(world.agent(turn, "Done.", tools=[ask_pydantic]), world.gate)
        assert (await guarded.run("go", thread="first")).output == "Done."
        inner = [pydantic.call("pay", to="ana")], "ana has it"
        later(world.agent(*inner, tools=[self.paying(world)]))
        await self.asks(world, guarded)

    @pytest.mark.parametrize("other", [False, True], ids=["alone", "with another"])
    async def test_delegate_set_in_closure_later_asks(
        self, world: pydantic.World, other: bool
    ) -> None:
        def clerk(to: str) -> Any:
            turns = [pydantic.call("pay", to=to)], f"{to} has it"
            return world.agent(*turns, tools=[self.paying(world)])

        known = clerk("eve") if other else None
        helper: Any = None

        async def delegate(task: str) -> str:
            """Ask an agent."""
            assert known is not None or not other
            return "nobody" if helper is None else str((await helper.run(task)).output)

        turn = [pydantic.call("delegate", "o1", task="pay ana")]
        guarded = on_pydantic.guard(world.agent(turn, "Done.", tools=[delegate]), world.gate)
        assert (await guarded.run("go", thread="first")).output == "Done."
        helper = clerk("ana")
        await self.asks(world, guarded)

    @pytest.mark.parametrize("at_once", [False, True])
    async def test_delegate_set_by_another_tool_asks(
        self, world: pydantic.World, later: Any, at_once: bool
    ) -> None:
        async def hire() -> str:
            """Hire somebody."""
            inner = [pydantic.call("pay", to="ana")], "ana has it"
            later(world.agent(*inner, tools=[self.paying(world)]))
            return "hired"

        calls = [pydantic.call("hire", "h1"), pydantic.call("ask_pydantic", "o1", task="x")]
        turns = [calls] if at_once else [calls[:1], calls[1:]]
        tools = [Tool(hire, sequential=True), Tool(ask_pydantic, sequential=True)]
        agent = world.agent(*turns, "Done.", tools=tools)
        await self.asks(world, on_pydantic.guard(agent, world.gate))

    async def test_native_tool_added_later_is_refused(self, world: pydantic.World) -> None:
        agent = world.agent("Done.")
        guarded = on_pydantic.guard(agent, world.gate)
        guarded.options["capabilities"] = [_native()]
        with pytest.raises(sayso.InvalidCall, match="native tool 'web_search'"):
            await guarded.run("go", thread="t")


def _native() -> Any:
    from pydantic_ai.capabilities import NativeTool

    return NativeTool(NativeSearch())


# -- Agent Framework


@af_tool
async def ask_framework(task: str) -> str:
    """Ask the agent that this module has by then."""
    return "nobody" if LATER is None else (await LATER.run(task)).text


class TestAgentFramework:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[af.World]:
        delegates = sayso.Rule(["ask_framework", "delegate"], verdict="allow", effect="idempotent")
        world = af.World(tmp_path, sayso.Policy([delegates, *RULES.rules]))
        yield world
        world.close()

    def clerk(self, world: af.World) -> FrameworkAgent[Any]:
        turns = [af.call("pay", to="ana")], "ana has it"
        return world.agent(*turns, name="clerk", tools=[pay_of(world)])

    async def test_function_added_later_asks(self, world: af.World) -> None:
        agent = world.agent([af.call("pay", to="ana")], "Done.", tools=[ask_framework])
        guarded = on_af.guard(agent, world.gate)
        agent.default_options["tools"].append(af_tool(pay_of(world)))
        result = await guarded.run("go", thread="t")
        assert (result.status, world.ran) == ("paused", [])

    async def test_agent_set_after_first_run_asks(self, world: af.World, later: Any) -> None:
        turn = [af.call("ask_framework", "o1", task="pay ana")]
        guarded = on_af.guard(world.agent(turn, "Done.", tools=[ask_framework]), world.gate)
        assert (await guarded.run("go", thread="first")).output == "Done."
        later(self.clerk(world))
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])

    @pytest.mark.parametrize("other", [False, True], ids=["alone", "with another"])
    async def test_agent_set_in_closure_later_asks(self, world: af.World, other: bool) -> None:
        known = self.clerk(world) if other else None
        helper: Any = None

        @af_tool
        async def delegate(task: str) -> str:
            """Ask an agent."""
            assert known is not None or not other
            return "nobody" if helper is None else (await helper.run(task)).text

        turn = [af.call("delegate", "o1", task="pay ana")]
        guarded = on_af.guard(world.agent(turn, "Done.", tools=[delegate]), world.gate)
        assert (await guarded.run("go", thread="first")).output == "Done."
        helper = self.clerk(world)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])
        result = await guarded.resume("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("Done.", [("ana", 1)])

    async def test_agent_set_by_another_function_asks(self, world: af.World, later: Any) -> None:
        @af_tool
        async def hire() -> str:
            """Hire somebody."""
            later(self.clerk(world))
            return "hired"

        turns = [af.call("hire", "h1")], [af.call("ask_framework", "o1", task="pay ana")], "Done."
        guarded = on_af.guard(world.agent(*turns, tools=[hire, ask_framework]), world.gate)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("pay", [])


# -- DSPy


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


END = [step("finish"), {"reasoning": "It is over.", "answer": "Done."}]


class TestDSPy:
    ran: list[str]

    @pytest.fixture(autouse=True)
    def _payments(self) -> None:
        self.ran = []

    def pay(self, to: str) -> str:
        """Pay somebody."""
        self.ran.append(to)
        return f"paid {to}"

    def guarded(self, kind: Any, name: str) -> tuple[Any, Any]:
        """An agent that can only look, and its guarded copy, whose model calls this tool."""

        def look(to: str) -> str:
            """Look at somebody."""
            return "seen"

        gate = sayso.Gate("memory://", agent="teller", wait=0)
        made = {"tool_calls": [{"id": "c1", "name": name, "args": {"to": "ana"}}]}
        v2 = FakeLM(lambda messages: {"next_thought": "Hm.", "tool_calls": made})
        model = DummyLM([step(name, to="ana"), *END]) if kind is dspy.ReAct else v2
        agent = kind("question -> answer", tools=[look])
        return agent, on_dspy.guard(agent, gate, RULES, lm=model)

    @pytest.mark.parametrize("kind", [dspy.ReAct, dspy.ReActV2])
    async def test_replaced_tool_is_refused(self, kind: Any) -> None:
        _, guarded = self.guarded(kind, "look")
        guarded.agent.tools["look"] = dspy.Tool(self.pay, name="look")
        with pytest.raises(sayso.SaysoError, match=r"look was added to the agent after guard\("):
            await guarded.run("go", thread="t")
        assert self.ran == []

    async def test_added_tool_is_refused(self) -> None:
        """A ReAct's model can only choose from the names that it was built with."""
        _, guarded = self.guarded(dspy.ReActV2, "pay")
        guarded.agent.tools["pay"] = dspy.Tool(self.pay, name="pay")
        with pytest.raises(sayso.SaysoError, match=r"pay was added to the agent after guard\("):
            await guarded.run("go", thread="t")
        assert self.ran == []

    async def test_replaced_tool_of_original_does_not_run(self) -> None:
        """The guarded copy does not see it: the tool that was guarded runs."""
        agent, guarded = self.guarded(dspy.ReAct, "look")
        agent.tools["look"] = dspy.Tool(self.pay, name="look")
        assert (await guarded.run("go", thread="t")).output == "Done."
        assert self.ran == []

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("how", ["configured", "set"])
    async def test_hosted_tool_of_later_model_is_refused(self, named: bool, how: str) -> None:
        """Its provider runs a tool, and ``guard`` has not seen the model."""
        model = DummyLM(END)
        model.kwargs["tools"] = [{"type": "web_search"}]
        gate = sayso.Gate("memory://", agent="teller", wait=0)
        agent = dspy.ReAct("question -> answer", tools=[self.pay])
        guarded = on_dspy.guard(agent, gate, RULES, ungated=["web_search"] if named else [])
        if how == "set":
            agent.set_lm(model)
        with dspy.context(lm=model if how == "configured" else DummyLM([])):
            if named:
                assert (await guarded.run("go", thread="t")).output == "Done."
                return
            with pytest.raises(sayso.SaysoError, match=r"ungated=\['web_search'\]"):
                await guarded.run("go", thread="t")
