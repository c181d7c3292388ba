"""Ways around a pause that LangGraph offers: none of them runs a call unapproved."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import hook_config
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBranch, RunnableLambda
from langchain_core.tools import tool
from langchain_world import CONFIG, MODES, World, answer, go, in_mode, interrupts, needs_modes, says
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send

import sayso
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard

ONE: Any = [("c1", "send", {"to": "ana"})]
SENT = ("send", "ana", "Hello")


@pytest.fixture
def world() -> World:
    return World()


def with_hitl(world: World, *others: Any, gated: bool = True, mode: Any = "batched") -> Any:
    options: Any = {"gate": world.gate} if gated else {}
    on: Any = {"send": {"allowed_decisions": ["approve", "reject"]}}
    middleware = HumanInTheLoopMiddleware(on, **in_mode(mode), **options)
    return world.agent(ONE, "Done.", middleware=[middleware, *others])


def evil() -> dict[str, Any]:
    """The model's message, changed behind the reviewer's back."""
    made: Any = [{"id": "c1", "name": "send", "args": {"to": "eve"}}]
    return {"messages": [AIMessage("", id="made", tool_calls=made)]}


def rename_message(agent: Any) -> str:
    """The id of the message that made the call."""
    last = agent.get_state(CONFIG).values["messages"][-1]
    return str(last.id)


def test_arguments_changed_with_answer_are_ignored(world: World) -> None:
    """Bare LangChain runs what nobody saw (the second half shows it); a gate runs what was seen."""
    for gated, ran in ((True, [SENT]), (False, [("send", "eve", "Hello")])):
        world.ran.clear()
        agent = with_hitl(world, gated=gated)
        config: Any = {"configurable": {"thread_id": f"changed {gated}"}}
        go(agent, config)
        update = evil()
        update["messages"][0].id = agent.get_state(config).values["messages"][-1].id
        agent.invoke(Command(resume=says("approve"), update=update), config)
        assert world.ran == ran


def test_arguments_changed_in_the_state(world: World) -> None:
    agent = with_hitl(world)
    go(agent)
    update = evil()
    update["messages"][0].id = rename_message(agent)
    world.decide()
    agent.update_state(CONFIG, update, as_node="model")
    agent.invoke(None, CONFIG)
    assert world.ran == [SENT]
    assert "the call that was approved" in world.tool_results()[0]


@pytest.mark.parametrize("way", ["goto", "send", "as_node"])
def test_straight_to_the_tools(world: World, way: str) -> None:
    agent = with_hitl(world)
    go(agent)
    if way == "goto":
        agent.invoke(Command(goto="tools"), CONFIG)
    elif way == "send":
        made = {"id": "c1", "name": "send", "args": {"to": "ana"}, "type": "tool_call"}
        agent.invoke(Command(goto=Send("tools", [made])), CONFIG)
    else:
        agent.update_state(CONFIG, None, as_node="HumanInTheLoopMiddleware.after_model")
        agent.invoke(None, CONFIG)
    assert world.ran == []
    assert [request.tool for request in world.pending()] == ["send"]


class Jumps(AgentMiddleware[Any, Any]):
    """Another middleware that sends every turn to the tools."""

    @hook_config(can_jump_to=["tools"])
    def after_model(self, state: AgentState[Any], runtime: Any) -> dict[str, Any] | None:
        last = state["messages"][-1]
        return {"jump_to": "tools"} if isinstance(last, AIMessage) and last.tool_calls else None


@pytest.mark.parametrize("yes", [True, False])
def test_jump_to_tools_asks(world: World, yes: bool) -> None:
    agent = with_hitl(world, Jumps())
    go(agent)
    assert world.ran == []
    world.decide(lambda r: r.approve() if yes else r.reject("no"))
    agent.invoke(None, CONFIG)
    assert world.ran == ([SENT] if yes else [])


@pytest.mark.parametrize("mode", MODES)
def test_old_checkpoint_does_not_run_call_again(world: World, mode: Any) -> None:
    agent = with_hitl(world, mode=mode)
    go(agent)
    paused = agent.get_state(CONFIG).config
    yes = says("approve") if mode == "batched" else {"type": "approve"}
    answer(agent, yes)
    assert world.ran == [SENT]
    answer(agent, yes, paused)
    agent.invoke(None, paused)
    assert world.ran == [SENT]


@pytest.mark.parametrize("mode", MODES)
def test_approved_four_times_at_once(world: World, mode: Any) -> None:
    agent = with_hitl(world, mode=mode)
    go(agent)
    world.decide()
    start = threading.Barrier(4)
    ended: list[str] = []

    def resume() -> None:
        start.wait()
        ended.append(agent.invoke(None, CONFIG)["messages"][-1].text)

    threads = [threading.Thread(target=resume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == ["Done."] * 4
    assert world.ran == [SENT]


class PowerCut(BaseException):
    """Ends a tool in the middle, as no error of its own would."""


@needs_modes
@pytest.mark.parametrize("hitl", [True, False])
def test_kept_answer_does_not_settle_doubt(world: World, hitl: bool) -> None:
    """The same ``approve`` would mean "run it again" there."""
    ran: list[str] = []

    def pay(to: str) -> str:
        """Pay."""
        ran.append(to)
        if len(ran) == 1:
            raise PowerCut
        return "paid"

    on: Any = {"pay": True}
    middleware = HumanInTheLoopMiddleware(on, gate=world.gate, interrupt_mode="per_call")
    pays: Any = [("c1", "pay", {"to": "ana"})]
    agent = world.agent(pays, "Done.", tools=[pay], middleware=[middleware] if hitl else [])
    agent = agent if hitl else guard(agent, world.gate).graph
    go(agent)
    with pytest.raises(PowerCut):
        answer(agent, {"type": "approve"})
    agent.invoke(None, CONFIG)
    (shown,) = interrupts(agent)
    assert (shown["type"], ran) == ("in_doubt", ["ana"])
    answer(agent, {"type": "approve"})
    (shown,) = interrupts(agent)
    assert "digest" in shown["error"]
    assert ran == ["ana"]
    again = {"type": "approve", "digest": shown["digest"]}
    assert answer(agent, again)["messages"][-1].text == "Done."
    assert ran == ["ana", "ana"]


@pytest.mark.parametrize("mode", MODES)
def test_inner_agent_with_repeated_id_asks(world: World, mode: Any) -> None:
    """It has the thread of the agent around it, whose call is running."""
    ask = HumanInTheLoopMiddleware({"send": True}, gate=world.gate, **in_mode(mode))
    inner = world.agent([("c1", "send", {"to": "ana"})], "Done.", middleware=[ask], saver=False)

    @tool
    def delegate(task: str) -> str:
        """Let somebody else do it."""
        return str(go(inner, None)["messages"][-1].text)

    free = HumanInTheLoopMiddleware({}, gate=world.gate, **in_mode(mode))
    script = [("c1", "delegate", {"task": "write"})], "Done."
    go(world.agent(*script, tools=[delegate], middleware=[free]))
    assert world.ran == []


def test_run_without_thread_is_refused(world: World) -> None:
    agent = with_hitl(world)
    with pytest.raises(Exception, match="thread"):
        agent.invoke({"messages": [{"role": "user", "content": "go"}]})
    assert world.ran == []


def test_graph_without_checkpointer_cannot_run(world: World) -> None:
    """It can be guarded, because a server may bring the checkpointer."""
    agent = world.agent(ONE, "Done.")
    agent.checkpointer = None
    guarded = guard(agent, world.gate)
    with pytest.raises(sayso.SaysoError, match="checkpointer"):
        guarded.run_sync("go", thread="t")
    assert guarded.graph.checkpointer is None
    guarded.graph.checkpointer = InMemorySaver()
    assert guarded.run_sync("go", thread="t").status == "paused"


def test_original_agent_is_not_changed(world: World) -> None:
    agent = world.agent(ONE, "Done.")
    guarded = guard(agent, world.gate)
    assert go(agent, {"configurable": {"thread_id": "other"}})["messages"][-1].text == "Done."
    assert (world.ran, world.pending()) == ([SENT], [])
    assert guarded.run_sync("go", thread="t").status == "paused"
    assert world.ran == [SENT]


AROUND: dict[str, Any] = {
    "a config": lambda node: node.with_config(tags=["mail"]),
    "a retry": lambda node: node.with_retry(),
    "a next step": lambda node: node | RunnableLambda(lambda state: state),
    "a step before": lambda node: RunnableLambda(lambda state: state) | node,
    "a fallback": lambda node: node.with_fallbacks([node]),
    "a branch": lambda node: RunnableBranch((lambda state: True, node), node),
    "several": lambda node: (node.with_retry() | RunnableLambda(lambda state: state)).with_config(
        tags=["mail"]
    ),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_tool_node_inside_runnable_asks(world: World, around: Any) -> None:
    """Beside a plain one, so that there is something to guard in any case."""
    send, look = world.tools()
    world.agent(ONE, "Done.")
    chat = world.chat
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
    builder.add_node("tools", around(ToolNode([send])))
    builder.add_node("looking", ToolNode([look]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    builder.add_edge("looking", "model")
    plain = builder.compile(checkpointer=InMemorySaver())
    agent = guard(plain, world.gate)
    assert agent.run_sync("go", thread="t").status == "paused"
    assert world.ran == []
    world.decide()
    assert (agent.resume_sync("t").output, world.ran) == ("Done.", [SENT])
