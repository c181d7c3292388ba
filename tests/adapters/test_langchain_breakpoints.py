"""Breakpoints of LangGraph: people decide whether the graph continues."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_world import CONFIG, World
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from sayso import Policy, Rule
from sayso.adapters.langchain import GuardedAgent, guard


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.gate.close()


class Steps(TypedDict):
    done: Annotated[list[str], operator.add]


def steps(*names: str, **options: Any) -> Any:
    """A graph of these nodes, one after the other."""
    graph = StateGraph(Steps)
    before = START
    for name in names:
        graph.add_node(name, lambda _, name=name: {"done": [name]})
        graph.add_edge(before, name)
        before = name
    return graph.compile(**options)


def asked(result: Any) -> list[str]:
    return [request.args["text"] for request in result.interruptions]


def test_breakpoint_asks_people(world: World) -> None:
    script: Any = [[("c1", "look", {"what": "a"})], "Done."]
    for yes in (True, False):
        agent = world.agent(*script, interrupt_before=["tools"])
        guarded = guard(agent, world.gate, Policy([Rule("send")], default="allow"))
        (request,) = guarded.run_sync("go", thread=f"t {yes}").interruptions
        assert (request.kind, request.tool) == ("approval", None)
        assert "stopped before tools" in request.args["text"]
        assert guarded.resume_sync(f"t {yes}").status == "paused"
        said = request.approve() if yes else request.reject("stay")
        result = guarded.resume_sync(f"t {yes}", decisions=[said])
        assert (result.status, result.output) == (("done", "Done.") if yes else ("cancelled", None))
    assert world.ran == [("look", "a")]


@pytest.mark.parametrize("where", [{"interrupt_before": ["b"]}, {"interrupt_after": ["a"]}])
def test_breakpoint_survives_death_before_request(
    world: World, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    guarded = GuardedAgent(steps("a", "b", checkpointer=InMemorySaver(), **where), world.gate)
    with monkeypatch.context() as now:
        now.setattr(world.gate, "confirm", None)  # as if the process had died there
        with pytest.raises(TypeError):
            guarded.run_sync({"done": []}, thread="t")
    assert world.pending() == []
    result = guarded.resume_sync("t")
    assert asked(result) == ["The graph has stopped before b. Continue?"]
    world.decide()
    assert guarded.resume_sync("t").output == {"done": ["a", "b"]}


def test_failed_node_runs_again_on_resume(world: World) -> None:
    broken = [True]

    def c(_: Any) -> Any:
        if broken:
            raise ConnectionError(broken.pop())
        return {"done": ["c"]}

    graph = StateGraph(Steps).add_node("a", lambda _: {"done": ["a"]}).add_node("c", c)
    graph.add_edge(START, "a").add_edge("a", "c")
    compiled = graph.compile(checkpointer=InMemorySaver(), interrupt_before=["a"])
    guarded = GuardedAgent(compiled, world.gate)
    (request,) = guarded.run_sync({"done": []}, thread="t").interruptions
    with pytest.raises(ConnectionError):
        guarded.resume_sync("t", decisions=[request.approve()])
    assert guarded.resume_sync("t").output == {"done": ["a", "c"]}


@pytest.mark.parametrize("yes", [True, False])
def test_changed_state_keeps_the_breakpoint(world: World, yes: bool) -> None:
    compiled = steps("a", "b", checkpointer=InMemorySaver(), interrupt_before=["b"])
    guarded = GuardedAgent(compiled, world.gate)
    (request,) = guarded.run_sync({"done": []}, thread="t").interruptions
    for word in ("by", "hand"):
        guarded.graph.update_state(CONFIG, {"done": [word]})
    said = request.approve() if yes else request.reject("stay")
    result = guarded.resume_sync("t", decisions=[said])
    end = ("done", {"done": ["a", "by", "hand", "b"]}) if yes else ("cancelled", None)
    assert (result.status, result.output) == end


@pytest.mark.parametrize("own", [[], ["d"]])
@pytest.mark.parametrize("saver", ["memory", "sqlite"])
def test_breakpoints_of_subgraph_ask_in_turn(
    world: World, saver: str, own: list[str], tmp_path: Path
) -> None:
    inner = steps("a", "b", "c", interrupt_before=["b", "c"])
    graph = StateGraph(Steps).add_node("inner", inner).add_node("d", lambda _: {"done": ["d"]})
    graph.add_edge(START, "inner").add_edge("inner", "d")
    with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as sqlite:
        checkpointer = InMemorySaver() if saver == "memory" else sqlite
        guarded = guard(graph.compile(checkpointer=checkpointer, interrupt_before=own), world.gate)
        result = guarded.run_sync({"done": []}, thread="t")
        for name in ("inner.b", "inner.c", *own):
            assert asked(result) == [f"The graph has stopped before {name}. Continue?"]
            result = guarded.resume_sync("t", decisions=[result.interruptions[0].approve()])
    assert result.output == {"done": ["a", "b", "c", "d"]}


@pytest.mark.parametrize("make", [guard, GuardedAgent])
def test_breakpoints_of_hidden_graph_ask(world: World, make: Any) -> None:
    hidden = {"inner": steps("a", "b", "c", interrupt_before=["b", "c"])}

    def calls(state: Steps) -> Any:
        return {"done": hidden["inner"].invoke({"done": []})["done"]}

    graph = StateGraph(Steps).add_node("calls", calls).add_edge(START, "calls")
    guarded = make(graph.compile(checkpointer=InMemorySaver()), world.gate)
    result = guarded.run_sync({"done": []}, thread="t")
    for _ in range(2):
        assert asked(result) == ["The graph has stopped before calls. Continue?"]
        result = guarded.resume_sync("t", decisions=[result.interruptions[0].approve()])
    assert result.output == {"done": ["a", "b", "c"]}
