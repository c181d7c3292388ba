"""Agents that are tools of one agent, at work at the same time, on one thread."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_world import CONFIG, Chat, World
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from sayso import Policy, Rule, SaysoError
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard

GO: Any = {"messages": [{"role": "user", "content": "go"}]}


@pytest.fixture
def world() -> Any:
    world = World(policy=Policy([Rule("send")], default="allow"))
    yield world
    world.gate.close()


def boss(world: World, mode: Any) -> Any:
    """Two clerks, whose models give their calls the same ids."""
    around = HumanInTheLoopMiddleware({"send": True}, gate=world.gate, interrupt_mode=mode)

    def clerk(name: str) -> Any:
        script = [[("c1", "send", {"to": name}), ("c2", "look", {"what": name})], f"{name} is done"]
        agent = create_agent(Chat(script=script, seen=[]), world.tools(), middleware=[around])

        @tool(name)
        async def delegate(task: str) -> str:
            """Delegate a task."""
            said = {"messages": [{"role": "user", "content": task}]}
            return str((await agent.ainvoke(said))["messages"][-1].text)

        return delegate

    calls = [("c1", "ana", {"task": "a"}), ("c2", "bob", {"task": "b"})]
    chat = Chat(script=[calls, "All done."], seen=[])
    return create_agent(chat, [clerk("ana"), clerk("bob")], checkpointer=InMemorySaver())


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_agents_are_decided_at_different_times(world: World, mode: str) -> None:
    guarded = guard(boss(world, mode), world.gate)
    result = await guarded.run("go", thread="t")
    first, second = result.interruptions
    assert {first.args["to"], second.args["to"]} == {"ana", "bob"}
    result = await guarded.resume("t", decisions=[second.edit({"text": "Bye"})])
    assert [request.id for request in result.interruptions] == [first.id]
    assert [r for r in world.ran if r[0] == "send"] == [("send", second.args["to"], "Bye")]
    result = await guarded.resume("t", decisions=[first.approve()])
    assert (result.status, result.output) == ("done", "All done.")
    assert sorted(r[1] for r in world.ran) == ["ana", "ana", "bob", "bob"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_langgraph_answers_parallel_agents(world: World, mode: str, at_once: bool) -> None:
    agent = boss(world, mode)
    shown = (await agent.ainvoke(GO, CONFIG))["__interrupt__"]
    said: Any = {"type": "approve"} if mode == "per_call" else {"decisions": [{"type": "approve"}]}
    answers = {interrupt.id: said for interrupt in shown}
    assert len(answers) == 2
    if at_once:
        result = await agent.ainvoke(Command(resume=answers), CONFIG)
    else:
        for id, answer in answers.items():
            result = await agent.ainvoke(Command(resume={id: answer}), CONFIG)
    assert result["messages"][-1].text == "All done."
    assert sorted(r[1] for r in world.ran) == ["ana", "ana", "bob", "bob"]
    (run,) = [run for _, run in world.gate.store.runs()]
    assert (str(run.status), (await world.inbox.pending()).items) == ("done", ())


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_new_input_supersedes_request_of_subgraph(world: World, mode: Any) -> None:
    around = HumanInTheLoopMiddleware({"send": True}, gate=world.gate, interrupt_mode=mode)
    script = [[("c1", "send", {"to": "ana"})], [("c1", "send", {"to": "bob"})]]
    clerk = create_agent(Chat(script=script, seen=[]), world.tools(), middleware=[around])
    around_it = StateGraph(MessagesState)
    around_it.add_node("clerk", clerk)
    around_it.add_edge(START, "clerk")
    graph = around_it.compile(checkpointer=InMemorySaver())
    await graph.ainvoke(GO, CONFIG)
    (first,) = (await world.inbox.pending()).items
    await graph.ainvoke(GO, CONFIG)
    (second,) = (await world.inbox.pending()).items
    assert second.id != first.id
    assert (await world.inbox.get(first.id)).status == "superseded"


def keeper(world: World, name: str, guarded: bool, apart: bool, id: str) -> Any:
    """A clerk that remembers what it was told before; its agent in a graph of its own, or not."""
    around = HumanInTheLoopMiddleware({"send": True}, gate=world.gate)
    script = [[(id, "send", {"to": name})], "done", [(id, "send", {"to": name})], "again"]
    chat = Chat(script=script, seen=[])
    middleware = [] if guarded else [around]
    agent: Any = create_agent(chat, world.tools(), middleware=middleware, checkpointer=True)
    agent = guard(agent, world.gate).graph if guarded else agent
    if apart:
        agent = StateGraph(MessagesState).add_node(name, agent).add_edge(START, name).compile()

    @tool(name)
    async def delegate(task: str) -> str:
        """Delegate a task."""
        said: Any = {"messages": [{"role": "user", "content": task}]}
        return str((await agent.ainvoke(said))["messages"][-1].text)

    return delegate


def both(world: World, guarded: bool, apart: bool, ids: tuple[str, str] = ("c1", "c2")) -> Any:
    clerks = [
        keeper(world, n, guarded, apart, id) for n, id in zip(("ana", "bob"), ids, strict=True)
    ]
    script = [
        [("d1", "ana", {"task": "a"}), ("d2", "bob", {"task": "b"})],
        "All done.",
        [("d3", "ana", {"task": "a"})],
        "Once more.",
    ]
    chat = Chat(script=script, seen=[])
    return guard(create_agent(chat, clerks, checkpointer=InMemorySaver()), world.gate)


@pytest.mark.parametrize("guarded", [True, False])
async def test_parallel_agents_with_shared_state_are_refused(world: World, guarded: bool) -> None:
    agent = both(world, guarded, apart=False)

    async def go() -> None:
        result = await agent.run("go", thread="t")
        for _ in range(3):
            result = await agent.resume("t", decisions=[r.approve() for r in result.interruptions])

    with pytest.raises(SaysoError, match="leave out checkpointer=True"):
        await go()
    assert len(world.ran) == len(set(world.ran)) < 2


@pytest.mark.parametrize("guarded", [True, False])
async def test_parallel_agents_with_separate_states_run(world: World, guarded: bool) -> None:
    agent = both(world, guarded, apart=True, ids=("c1", "c1"))
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    result = await agent.resume("t", decisions=[second.approve()])
    assert [r.id for r in result.interruptions] == [first.id]
    result = await agent.resume("t", decisions=[first.approve()])
    assert (result.output, sorted(r[1] for r in world.ran)) == ("All done.", ["ana", "bob"])
    (third,) = (await agent.run("more", thread="t")).interruptions
    assert (await agent.resume("t", decisions=[third.approve()])).output == "Once more."
    assert [r[1] for r in world.ran].count("ana") == 2
