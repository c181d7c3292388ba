"""Everything that a guarded graph runs passes the gate, however its code finds it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langchain_world import CONFIG, Chat, World, go
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.pregel.remote import RemoteGraph

import sayso
from sayso.adapters.langchain import GuardedAgent, HumanInTheLoopMiddleware, guard

RULES = sayso.Policy([sayso.Rule("send"), sayso.Rule("*", verdict="allow", effect="idempotent")])
ONCE = sayso.Policy([sayso.Rule("send"), sayso.Rule("*", verdict="allow")])
SEND = [("i1", "send", {"to": "ana"})]


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


@pytest.fixture
def world() -> World:
    return World()


def inner_agent(world: World, **options: Any) -> Any:
    """An agent without a gate that sends a mail and says so."""
    script = Chat(script=[SEND, "Inner done."], seen=[])
    return create_agent(script, tools=world.tools(), **options)


def outer_agent(world: World, *tools: Any) -> Any:
    """An agent that calls ``ask_inner`` and is done."""
    chat = Chat(script=[[("o1", "ask_inner", {"question": "mail ana"})], "Done."], seen=[])
    return create_agent(chat, tools=list(tools), checkpointer=InMemorySaver())


def in_a_closure(agent: Any) -> Any:
    @tool
    def ask_inner(question: str) -> str:
        """Ask the inner agent."""
        said = agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(said["messages"][-1].text)

    return ask_inner


def in_an_async_closure(agent: Any) -> Any:
    @tool
    async def ask_inner(question: str) -> str:
        """Ask the inner agent."""
        said = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
        return str(said["messages"][-1].text)

    return ask_inner


def in_a_function_of_a_function(agent: Any) -> Any:
    agents = {"inner": [agent]}

    def chosen(name: str) -> Any:
        return agents[name][0]

    @tool
    def ask_inner(question: str) -> str:
        """Ask the inner agent."""
        said = chosen("inner").invoke({"messages": [{"role": "user", "content": question}]})
        return str(said["messages"][-1].text)

    return ask_inner


def in_a_partial(agent: Any) -> Any:
    def ask(agent: Any, question: str) -> str:
        said = agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(said["messages"][-1].text)

    bound = functools.partial(ask, agent)

    @tool
    def ask_inner(question: str) -> str:
        """Ask the inner agent."""
        return bound(question)

    return ask_inner


class AskInner(BaseTool):
    name: str = "ask_inner"
    description: str = "Ask the inner agent."
    agent: Any

    def _run(self, question: str) -> str:
        said = self.agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(said["messages"][-1].text)


HOLDERS = [
    in_a_closure,
    in_an_async_closure,
    in_a_function_of_a_function,
    in_a_partial,
    lambda agent: AskInner(agent=agent),
]


async def settled(world: World, guarded: GuardedAgent) -> None:
    """What a guarded agent has to do: ask about the mail of the inner agent, then send it once."""
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("paused", [])
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("send", {"to": "ana", "text": "Hello"})
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob", "text": "Hi"})])
    assert (result.status, result.output) == ("done", "Done.")
    assert world.ran == [("send", "bob", "Hi")]


class TestSubAgents:
    @pytest.mark.parametrize("held", HOLDERS)
    async def test_agent_held_by_tool_asks(self, world: World, held: Callable[[Any], Any]) -> None:
        await settled(world, guard(outer_agent(world, held(inner_agent(world))), world.gate, RULES))

    async def test_original_agent_is_not_changed(self, world: World) -> None:
        """It shares nothing with the guarded copy that asks."""
        agent = outer_agent(world, in_a_closure(inner_agent(world)))
        await settled(world, guard(agent, world.gate, RULES))
        world.ran.clear()
        go(agent, {"configurable": {"thread_id": "other"}})
        assert world.ran == [("send", "ana", "Hello")]

    async def test_tool_keeps_its_closure_variables(self, world: World) -> None:
        inner, asked = inner_agent(world), 0

        @tool
        def ask_inner(question: str) -> str:
            """Ask the inner agent."""
            nonlocal asked
            asked += 1
            said = inner.invoke({"messages": [{"role": "user", "content": question}]})
            return str(said["messages"][-1].text)

        await settled(world, guard(outer_agent(world, ask_inner), world.gate, RULES))
        assert asked == 2  # LangGraph starts the tool again after the pause

    async def test_guarded_inner_agent_asks(self, world: World) -> None:
        inner = guard(inner_agent(world), world.gate, RULES).graph
        await settled(world, guard(outer_agent(world, in_a_closure(inner)), world.gate, RULES))


class TestDeepAgents:
    def agent(self, world: World, *, compiled: bool = False) -> Any:
        task = {"description": "mail ana", "subagent_type": "mailer"}
        chat = Chat(script=[[("o1", "task", task)], "Done."], seen=[])
        mailer: Any = {
            "name": "mailer",
            "description": "Sends mail.",
            "system_prompt": "Send mail.",
            "model": Chat(script=[SEND, "Inner done."], seen=[]),
            "tools": world.tools(),
        }
        if compiled:
            mailer = {"name": "mailer", "description": "x", "runnable": inner_agent(world)}
        return create_deep_agent(model=chat, subagents=[mailer], checkpointer=InMemorySaver())

    @pytest.mark.parametrize("compiled", [False, True])
    async def test_sub_agent_asks(self, world: World, compiled: bool) -> None:
        await settled(world, guard(self.agent(world, compiled=compiled), world.gate, RULES))

    def test_sub_agent_asks_in_native_flow(self, world: World) -> None:
        graph = guard(self.agent(world), world.gate, RULES).graph
        go(graph)
        assert world.ran == []
        (interrupt,) = graph.get_state(CONFIG).interrupts
        assert interrupt.value["name"] == "send"
        world.decide()
        graph.invoke(None, CONFIG)
        assert world.ran == [("send", "ana", "Hello")]

    def test_table_lists_declared_tools(self, world: World) -> None:
        coverage = guard(self.agent(world), world.gate, RULES).coverage()
        found = {(one.where, one.kind, one.name) for one in coverage}
        assert {("LangGraph/tools", "tool", "task"), ("LangGraph/tools", "tool", "ls")} <= found
        assert all(one.gated for one in coverage)
        table = str(coverage)
        assert table.splitlines()[0].split() == ["agent", "what", "name", "gated", "note"]
        assert any({"LangGraph/tools", "task", "yes"} <= set(s.split()) for s in table.splitlines())

    async def test_delegation_by_deepagents_may_pause(self, world: World) -> None:
        """Its ``task`` tool has no effect itself, so no rule has to say so."""
        await settled(world, guard(self.agent(world), world.gate, ONCE))

    async def test_sub_agent_compiled_during_run_asks(self, world: World) -> None:
        """With a response format in the config, deepagents builds the sub-agent for the call."""
        from deepagents.middleware.subagents import SUBAGENT_RESPONSE_FORMAT_CONFIG_KEY

        wanted = {"title": "Answer", "type": "object", "properties": {"a": {"type": "string"}}}
        config = {"configurable": {SUBAGENT_RESPONSE_FORMAT_CONFIG_KEY: wanted}}
        guarded = guard(self.agent(world), world.gate, RULES, config=config)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("send", [])


class TestSubgraphs:
    def graph(self, node: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("inner", node)
        builder.add_node("tools", ToolNode([]))
        builder.add_node("end", lambda state: {"messages": [AIMessage("Done.")]})
        builder.add_edge(START, "inner")
        builder.add_edge("inner", "end")
        builder.add_edge("end", END)
        return builder.compile(checkpointer=InMemorySaver())

    async def test_subgraph_as_node_asks(self, world: World) -> None:
        await settled(world, guard(self.graph(inner_agent(world)), world.gate, RULES))

    async def test_graph_called_by_node_asks(self, world: World) -> None:
        inner = inner_agent(world)

        def call_inner(state: State) -> dict[str, Any]:
            return {"messages": inner.invoke({"messages": "mail ana"})["messages"]}

        await settled(world, guard(self.graph(call_inner), world.gate, RULES))

    async def test_graph_in_sequence_asks(self, world: World) -> None:
        inner = inner_agent(world)
        steps = RunnableLambda(lambda state: {"messages": state["messages"]}) | inner
        await settled(world, guard(self.graph(steps), world.gate, RULES))

    @pytest.mark.parametrize("as_call", [False, True])
    async def test_tool_called_in_node_is_gated(self, world: World, as_call: bool) -> None:
        """A call of the model interrupts the node. A plain call in its code is refused."""
        send, _ = world.tools()
        made: Any = {"type": "tool_call", "id": "n1", "name": "send", "args": {"to": "ana"}}

        def call_tool(state: State) -> dict[str, Any]:
            result = send.invoke(made if as_call else made["args"])
            return {"messages": [AIMessage(result.text if as_call else result)]}

        guarded = guard(self.graph(call_tool), world.gate, RULES)
        if as_call:
            await settled(world, guarded)
        else:
            with pytest.raises(sayso.Refused, match=r"guard\(agent, gate\).*gate.once"):
                await guarded.run("go", thread="t")
            assert world.ran == []
        world.ran.clear()
        allows = sayso.Policy([sayso.Rule("*", verdict="allow")])
        assert (await guard(self.graph(call_tool), world.gate, allows).run("go")).status == "done"
        assert world.ran == [("send", "ana", "Hello")]
        (row,) = [row for row in rows(world) if row.status == "done" and row.run != "mailer:t"]
        assert row.tool == "send"

    async def test_tool_called_by_tool_asks(self, world: World) -> None:
        send, _ = world.tools()

        @tool
        def ask_inner(question: str) -> str:
            """Send a mail."""
            return str(send.invoke({"to": "ana"}))

        await settled(world, guard(outer_agent(world, ask_inner), world.gate, RULES))

    async def test_agent_built_during_run_asks(self, world: World) -> None:
        @tool
        def ask_inner(question: str) -> str:
            """Build an agent, and ask it."""
            said = inner_agent(world).invoke({"messages": question})
            return str(said["messages"][-1].text)

        await settled(world, guard(outer_agent(world, ask_inner), world.gate, RULES))

    async def test_subclass_of_tool_node_asks(self, world: World) -> None:
        class Odd(ToolNode):
            def _run_one(self, call: Any, *rest: Any) -> Any:
                return self.tools_by_name[call["name"]].invoke({**call, "type": "tool_call"})

        odd = Odd(world.tools())

        def call_tools(state: State) -> Any:
            made = [{"id": "n1", "name": "send", "args": {"to": "ana"}}]
            return odd.invoke({"messages": [AIMessage("", tool_calls=made)]})

        await settled(world, guard(self.graph(call_tools), world.gate, RULES))


def rows(world: World) -> list[Any]:
    store = world.gate.store
    runs = {event.run for _, event in store.events(0, 1000) if event.run}
    return [row for run in sorted(runs) for row in store.calls_of(run)]


RESEARCHER: Any = None
WORKER = ToolNode([])


@tool
def ask_global(question: str) -> str:
    """Ask the agent of this module."""
    return str(RESEARCHER.invoke({"messages": question})["messages"][-1].text)


class Team:
    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def ask(self, question: str) -> str:
        """Ask the agent of the team."""
        return str(self.agent.invoke({"messages": question})["messages"][-1].text)


class TestRefused:
    def agent(self, called: Any) -> Any:
        chat = Chat(script=[[("o1", called.name, {"question": "mail ana"})], "Done."], seen=[])
        return create_agent(chat, tools=[called], checkpointer=InMemorySaver())

    async def test_agent_under_global_name_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.RESEARCHER", inner_agent(world, name="researcher"))
        await settled(world, guard(self.agent(ask_global), world.gate, RULES))

    async def test_delegating_once_call_is_not_paused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would start from its top again, and repeat what it did before."""
        inner = inner_agent(world, name="researcher")
        monkeypatch.setattr(f"{__name__}.RESEARCHER", inner)
        guarded = guard(self.agent(ask_global), world.gate, ONCE)
        assert (await guarded.run("go", thread="t")).status == "done"
        assert (world.ran, (await world.inbox.pending()).items) == ([], ())
        (denied,) = [row for row in rows(world) if row.tool == "send"]
        assert denied.status == "rejected"

    async def test_allowed_call_inside_is_recorded(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.RESEARCHER", inner_agent(world, name="researcher"))
        allows = sayso.Policy([sayso.Rule("*", verdict="allow")])
        guarded = guard(self.agent(ask_global), world.gate, allows)
        assert (await guarded.run("go", thread="t")).status == "done"
        assert world.ran == [("send", "ana", "Hello")]
        assert [row.tool for row in rows(world)] == ["ask_global", "send"]

    async def test_agent_guarded_where_created_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inner = guard(inner_agent(world), world.gate, RULES).graph
        monkeypatch.setattr(f"{__name__}.RESEARCHER", inner)
        await settled(world, guard(self.agent(ask_global), world.gate, RULES))

    async def test_agent_with_middleware_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asks = HumanInTheLoopMiddleware({}, gate=world.gate, policy=RULES)
        inner = inner_agent(world, middleware=[asks])
        monkeypatch.setattr(f"{__name__}.RESEARCHER", inner)
        guarded = guard(self.agent(ask_global), world.gate, RULES)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, world.ran) == ("send", [])

    async def test_agent_in_object_asks(self, world: World) -> None:
        team = Team(inner_agent(world, name="researcher"))
        asks = tool(team.ask)
        await settled(world, guard(self.agent(asks), world.gate, RULES))

    async def test_tool_node_under_global_name_asks(self, world: World) -> None:
        def call_tools(state: State) -> Any:
            made = [{"id": "n1", "name": "send", "args": {"to": "ana"}}]
            return {"messages": WORKER.invoke([AIMessage("", tool_calls=made)])}

        WORKER.tools_by_name.update({one.name: one for one in world.tools()})
        await settled(world, guard(TestSubgraphs().graph(call_tools), world.gate, RULES))

    def test_hosted_tool_is_refused_unless_ungated(self, world: World) -> None:
        search = {"type": "web_search_20250305", "name": "web_search"}
        chat = Chat(script=["Done."], seen=[])

        def agent() -> Any:
            tools = [*world.tools(), search, {"google_search": {}}]
            return create_agent(chat, tools=tools, checkpointer=InMemorySaver())

        with pytest.raises(sayso.InvalidCall) as refused:
            guard(agent(), world.gate, RULES)
        assert "hosted tool 'web_search'" in str(refused.value)
        assert "hosted tool 'google_search'" in str(refused.value)
        with pytest.raises(sayso.InvalidCall, match=r"ungated=\['google_search'\]"):
            guard(agent(), world.gate, RULES, ungated=["web_search"])
        guard(agent(), world.gate, RULES, ungated=["web_search", "google_search"])

    def test_hosted_tool_of_bound_model_is_refused(self, world: World) -> None:
        class Bindable(Chat):
            def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
                return self.bind(tools=tools, **kwargs)

        search = {"type": "web_search"}
        model = Bindable(script=["Done."], seen=[]).bind_tools([search])

        def ask(state: State) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of"):
            guard(TestSubgraphs().graph(model), world.gate, RULES)
        with pytest.raises(sayso.InvalidCall, match="hosted tool web_search: "):
            guard(TestSubgraphs().graph(ask), world.gate, RULES).run_sync("go")

    def test_remote_graph_is_refused(self, world: World) -> None:
        remote: Any = RemoteGraph("mailer", url="http://localhost:1")
        with pytest.raises(sayso.InvalidCall, match="remote graph 'mailer' of"):
            guard(TestSubgraphs().graph(remote), world.gate, RULES)
        called = TestSubgraphs().graph(lambda state: remote.invoke(state))
        with pytest.raises(sayso.InvalidCall, match=r"'mailer' was not run: .* guard it"):
            guard(called, world.gate, RULES).run_sync("go")

    def test_gated_name_cannot_be_ungated(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match="its calls go through the gate"):
            guard(world.agent("Done."), world.gate, RULES, ungated=["send"])

    def test_ungated_must_be_a_list(self, world: World) -> None:
        with pytest.raises(TypeError, match=r"ungated=\['web_search'\]"):
            guard(world.agent("Done."), world.gate, RULES, ungated="web_search")
