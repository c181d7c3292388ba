"""Custom graphs and special tools: interrupts of nodes, commands, inner agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import ToolRetryMiddleware, wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langchain_world import CONFIG, World, answer, go, interrupts
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import sayso
from sayso import NotExecuted, Policy, Rule
from sayso.adapters.langchain import GuardedAgent, guard, node, resume
from sayso.agent.agent import Resumable
from sayso.gate.guard import this_call
from sayso.stores.sqlite import SqliteStore
from sayso.sync import ThreadPool
from sayso.types import Request
from sayso.worker import Worker

ONE: Any = [("c1", "send", {"to": "ana"})]


@pytest.fixture
def world() -> World:
    return World()


class Order(TypedDict, total=False):
    dish: str
    size: str
    sure: bool
    number: int


def graph_of(function: Any) -> Any:
    builder: Any = StateGraph(Order)
    builder.add_node("order", function)
    builder.add_edge(START, "order")
    builder.add_edge("order", END)
    return builder.compile(checkpointer=InMemorySaver())


# -- nodes of one's own


def test_interrupt_of_node_is_a_question(world: World) -> None:
    def order(state: Order) -> Order:
        return {"size": interrupt("Which size?")}

    agent = GuardedAgent(graph_of(order), world.gate)
    result = agent.run_sync({"dish": "pizza"}, thread="t")
    (request,) = result.interruptions
    assert (result.status, request.kind) == ("paused", "question")
    assert request.question is not None
    assert request.question.text == "Which size?"
    assert agent.resume_sync("t").status == "paused"
    world.decide(lambda r: r.respond("large"))
    result = agent.resume_sync("t")
    assert (result.status, result.output) == ("done", {"dish": "pizza", "size": "large"})


def test_rejected_interrupt_returns_the_rejection(world: World) -> None:
    def order(state: Order) -> Order:
        said = interrupt({"question": "Sure?", "price": 12})
        return {"sure": said != {"type": "reject", "message": "too dear"}}

    agent = GuardedAgent(graph_of(order), world.gate)
    (request,) = agent.run_sync({"dish": "pizza"}, thread="t").interruptions
    assert request.question is not None
    assert request.question.text.startswith("Sure?")
    assert "12" in request.question.text
    world.decide(lambda r: r.reject("too dear"))
    assert agent.resume_sync("t").output == {"dish": "pizza", "sure": False}


def test_interrupt_answered_in_langgraph_cancels_request(world: World) -> None:
    def order(state: Order) -> Order:
        return {"size": interrupt("Which size?")}

    agent = GuardedAgent(graph_of(order), world.gate)
    (request,) = agent.run_sync({"dish": "pizza"}, thread="t").interruptions
    assert answer(agent.graph, "large") == {"dish": "pizza", "size": "large"}
    result = agent.resume_sync("t")
    assert (result.status, result.output["size"]) == ("done", "large")
    assert world.inbox.get_sync(request.id).status == "cancelled"


def test_second_interrupt_of_node_asks_again(world: World) -> None:
    def order(state: Order) -> Order:
        return {"size": interrupt("Which size?"), "sure": interrupt("Sure?")}

    agent = GuardedAgent(graph_of(order), world.gate)
    agent.run_sync({"dish": "pizza"}, thread="t")
    world.decide(lambda r: r.respond("large"))
    (request,) = agent.resume_sync("t").interruptions
    assert request.question is not None
    assert request.question.text == "Sure?"
    world.decide(lambda r: r.respond("yes"))
    assert agent.resume_sync("t").output["sure"] == "yes"


@pytest.mark.parametrize("native", [True, False])
def test_asking_node_repeats_no_step(world: World, native: bool) -> None:
    done: list[str] = []

    @node(world.gate)
    def order(state: Order) -> Order:
        number = world.gate.once_sync("reserve", lambda: done.append("reserved") or 4711)  # type: ignore[func-returns-value]
        size = world.gate.ask_sync("Which size?")
        sure = world.gate.confirm_sync(f"Order a {size} {state['dish']}?", {"number": number})
        return {"size": size, "sure": sure, "number": number}

    graph = graph_of(order)
    graph.invoke({"dish": "pizza"}, CONFIG)
    for reply in ("large", {"type": "approve"}):
        (shown,) = interrupts(graph)
        (request,) = world.pending()
        assert shown["request_id"] == request.id
        if native:
            result = answer(graph, reply)
        else:
            world.decide(lambda r: r.respond("large") if r.kind == "question" else r.approve())
            result = graph.invoke(None, CONFIG)
    assert result == {"dish": "pizza", "size": "large", "sure": True, "number": 4711}
    assert done == ["reserved"]


async def test_node_asks_again_in_next_turn(world: World) -> None:
    @node(world.gate)
    async def order(state: Order) -> Order:
        return {"size": await world.gate.ask("Which size?")}

    graph = graph_of(order)
    for size in ("small", "large"):
        await graph.ainvoke({"dish": "pizza"}, CONFIG)
        (request,) = (await world.inbox.pending()).items
        await world.inbox.decide(request.id, request.respond(size), by="ana")
        assert (await graph.ainvoke(None, CONFIG))["size"] == size


# -- tool nodes


def test_tool_node_in_custom_graph_asks(world: World) -> None:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(world.tools()))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    builder.add_edge("tools", "model")
    world.agent([*ONE, ("c2", "look", {"what": "sky"})], "Done.")
    chat = world.chat
    agent = guard(builder.compile(checkpointer=InMemorySaver()), world.gate)
    assert len(agent.run_sync("go", thread="t").interruptions) == 2  # one task, both asked
    world.decide()
    assert agent.resume_sync("t").output == "Done."
    assert sorted(world.ran) == [("look", "sky"), ("send", "ana", "Hello")]


def test_stored_results_keep_commands_and_artifacts(world: World) -> None:
    @tool(response_format="content_and_artifact")
    def draw(what: str) -> tuple[str, Any]:
        """Draw."""
        return f"drew {what}", {"pixels": [1, 2]}

    @tool
    def note(
        text: str,
        state: Annotated[Any, InjectedState],
        id: Annotated[str, InjectedToolCallId],
    ) -> Command[Any]:
        """Note."""
        said = ToolMessage(f"noted {text} after {len(state['messages'])}", tool_call_id=id)
        return Command(update={"messages": [said]})

    calls: Any = [("c1", "draw", {"what": "a cat"}), ("c2", "note", {"text": "hi"})]
    agent = guard(world.agent(calls, "Done.", tools=[draw, note]), world.gate)
    asked = agent.run_sync("go", thread="t").interruptions
    assert {r.tool: dict(r.args) for r in asked} == {
        "draw": {"what": "a cat"},
        "note": {"text": "hi"},
    }
    world.decide()
    assert agent.resume_sync("t").output == "Done."
    assert world.tool_results() == ["drew a cat", "noted hi after 2"]
    # An old checkpoint runs the turn again, and gets the same out of the store.
    history = list(agent.graph.get_state_history(agent.config("t")))
    before = [state for state in history if state.next == ("tools", "tools")][-1]
    again = agent.graph.invoke(None, before.config)
    messages = [m for m in again["messages"] if isinstance(m, ToolMessage)]
    assert [m.text for m in messages] == ["drew a cat", "noted hi after 2"]
    assert messages[0].artifact == {"pixels": [1, 2]}


def test_tool_may_interrupt_for_an_answer(world: World) -> None:
    started: list[str] = []

    @tool
    def book(day: str) -> str:
        """Book."""
        started.append(this_call().key)
        return f"{day}, {interrupt('Window or aisle?')}"

    call: Any = [("c1", "book", {"day": "Monday"})]
    agent = guard(world.agent(call, "Done.", tools=[book]), world.gate)
    agent.run_sync("go", thread="t")
    answer(agent.graph, {"type": "approve"})  # through LangGraph, before the tool's own question
    (asked,) = interrupts(agent.graph)
    assert asked == "Window or aisle?"
    result = answer(agent.graph, "aisle")
    assert result["messages"][-1].text == "Done."
    assert world.tool_results() == ["Monday, aisle"]
    assert len(set(started)) == 1


def test_agent_as_tool_pauses_outer_run(world: World) -> None:
    inner = world.agent(ONE, "Mail is out.")
    clerk = guard(inner, world.gate).graph.with_config({})
    clerk.checkpointer = None  # as part of another graph it uses that one's

    @tool
    def ask_clerk(text: str) -> str:
        """Ask the clerk."""
        result = clerk.invoke({"messages": [{"role": "user", "content": text}]})
        return str(result["messages"][-1].text)

    boss_gate = sayso.Gate(world.gate.store, policy=sayso.Policy([]), agent="boss", wait=0)
    outer = world.agent([("k1", "ask_clerk", {"text": "mail ana"})], "Done.", tools=[ask_clerk])
    agent = guard(outer, boss_gate, sayso.Policy([sayso.Rule("*", verdict="allow")]))
    outcome = agent.run_sync("go", thread="t")
    assert [(r.agent, r.tool) for r in outcome.interruptions] == [("mailer", "send")]
    world.decide()
    assert agent.resume_sync("t").output == "Done."
    assert world.ran == [("send", "ana", "Hello")]
    assert world.tool_results() == ["Mail is out."]


def test_agents_as_nodes_are_guarded_too(world: World) -> None:
    inner = world.agent(ONE, "Mail is out.", saver=False)
    builder: Any = StateGraph(MessagesState)
    builder.add_node("clerk", inner)
    builder.add_edge(START, "clerk")
    builder.add_edge("clerk", END)
    agent = guard(builder.compile(checkpointer=InMemorySaver()), world.gate)
    result = agent.run_sync("go", thread="t")
    assert [request.tool for request in result.interruptions] == ["send"]
    assert world.ran == []
    world.decide()
    assert agent.resume_sync("t").output == "Mail is out."
    assert world.ran == [("send", "ana", "Hello")]


# -- what guard gives


async def test_worker_resumes_guarded_graph(world: World) -> None:
    agent = guard(world.agent(ONE, "Done."), world.gate)
    await agent.run("go", thread="t", requester="rita")
    worker = Worker([agent], world.gate.store)
    running = asyncio.create_task(worker.run())
    (request,) = (await world.inbox.pending()).items
    await world.inbox.decide(request.id, request.approve(), by="ana")
    async with asyncio.timeout(60):
        async for event in world.inbox.watch(after=""):
            if event.type == "finished":
                break
    worker.stop()
    await running
    assert world.ran == [("send", "ana", "Hello")]
    assert (await agent.resume("t")).output == "Done."


async def test_new_input_and_cancellation_end_requests(world: World) -> None:
    agent = guard(world.agent(ONE, [("c2", "send", {"to": "bob"})], "Done."), world.gate)
    await agent.run("go", thread="t")
    result = await agent.run("no, bob", thread="t")
    assert [dict(r.args)["to"] for r in result.interruptions] == ["bob"]
    assert [message.type for message in world.chat.seen[-1]] == ["human", "ai", "tool", "human"]
    await agent.cancel("t", by="ana")
    assert (await agent.resume(result.run)).status == "cancelled"
    assert (await agent.run("go on", thread="t")).output == "Done."
    assert world.ran == []


async def test_resume_with_decisions_and_unknown_threads(world: World) -> None:
    agent = guard(world.agent(ONE, "Done."), world.gate)
    result = await agent.run("go", thread="t")
    yes = [Request.approve(request) for request in result.interruptions]
    result = await resume(agent, "t", decisions=yes, by="rita")
    assert (result.status, result.output) == ("done", "Done.")
    with pytest.raises(sayso.NotFound, match="nowhere"):
        await agent.resume("nowhere")
    assert len(world.chat.seen) == 2


async def test_failed_tool_is_not_run_again(world: World) -> None:
    ran: list[str] = []

    def fail(how: str) -> str:
        """Fail."""
        ran.append(how)
        raise RuntimeError("no bank today")

    agent = guard(world.agent([("c1", "fail", {"how": "hard"})], "Done.", tools=[fail]), world.gate)
    await agent.run("go", thread="t")
    (request,) = (await world.inbox.pending()).items
    await world.inbox.decide(request.id, request.approve(), by="ana")
    with pytest.raises(RuntimeError, match="no bank"):
        await agent.resume("t")
    assert (await agent.resume("t")).output == "Done."
    assert ran == ["hard"]
    assert "no bank today" in world.tool_results()[0]


def test_people_see_arguments_of_retrying_middleware(world: World) -> None:
    ran: list[str] = []

    def fail(how: str) -> str:
        """Fail."""
        ran.append(how)
        raise RuntimeError("no bank today")

    @wrap_tool_call
    async def louder(request: Any, handler: Any) -> Any:
        call = request.tool_call
        return await handler(request.override(tool_call={**call, "args": {"how": "HARD"}}))

    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    call: Any = [("c1", "fail", {"how": "hard"})]
    bare = world.agent(call, "Done.", tools=[fail], middleware=[retry, louder])
    agent = guard(bare, world.gate)
    (request,) = agent.run_sync("go", thread="t").interruptions
    assert request.args == {"how": "HARD"}
    world.decide()
    assert agent.resume_sync("t").output == "Done."
    assert ran == ["HARD"]
    assert "no bank today" in world.tool_results()[0]


@pytest.mark.parametrize("verdict", ["allow", "ask"])
@pytest.mark.parametrize("record", ["all", "asked"])
def test_read_by_rule_may_be_retried(world: World, verdict: str, record: Any) -> None:
    ran: list[str] = []

    def web_search(query: str) -> str:
        """Search."""
        ran.append(query)
        if len(ran) < 3:
            raise RuntimeError("no answer")
        return f"found {query}"

    rule = Rule("web_search", verdict=verdict, effect="read", record=record)
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    search: Any = [("c1", "web_search", {"query": "tea"})]
    bare = world.agent(search, "Done.", tools=[web_search], middleware=[retry])
    agent = guard(bare, world.gate, Policy([rule]))
    result = agent.run_sync("go", thread="t")
    if verdict == "ask":
        world.decide()
        result = agent.resume_sync("t")
    assert (result.status, result.output) == ("done", "Done.")
    assert ran == ["tea"] * 3
    assert "found tea" in world.tool_results()[0]
    rows = world.gate.store.calls_of(result.run)
    left_out = record == "asked" and verdict == "allow"
    assert [row.status for row in rows if row.tool == "web_search"] == ["done"] * (not left_out)


def test_exhausted_read_ends_the_run(world: World) -> None:
    ran: list[str] = []

    def web_search(query: str) -> str:
        """Search."""
        ran.append(query)
        raise RuntimeError("no answer")

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    search: Any = [("c1", "web_search", {"query": "tea"})]
    bare = world.agent(search, "Sorry.", tools=[web_search], middleware=[retry])
    agent = guard(bare, world.gate, Policy([Rule("web_search", effect="read")]))
    agent.run_sync("go", thread="t")
    world.decide()
    result = agent.resume_sync("t")
    assert (result.status, result.output, len(ran)) == ("done", "Sorry.", 3)
    assert "no answer" in world.tool_results()[0]


def test_stream_ends_with_the_interrupt(world: World) -> None:
    agent = guard(world.agent(ONE, "Done."), world.gate)
    start: Any = {"messages": [{"role": "user", "content": "go"}]}
    *_, last = agent.graph.stream(start, CONFIG, stream_mode="updates")
    (shown,) = last["__interrupt__"]
    assert shown.value["request_id"] == world.pending()[0].id


def test_guarded_graph_is_resumable(world: World) -> None:
    agent = guard(world.agent(ONE, "Done."), world.gate)
    assert isinstance(agent, Resumable)
    assert (agent.name, agent.names) == ("mailer", ("mailer",))


def test_unguarded_agent_runs_as_bare(world: World) -> None:
    agent = world.agent(ONE, "Done.")
    assert go(agent)["messages"][-1].text == "Done."


# -- exceptions


def _paying(ran: list[str], error: Exception) -> Callable[[str], str]:
    def pay(to: str) -> str:
        """Pay."""
        ran.append(to)
        raise error

    return pay


PAY: Any = [("c1", "pay", {"to": "ana"})]


@pytest.mark.parametrize("handles", ["tool", "node", "retries"])
def test_handled_time_out_is_in_doubt(world: World, handles: str) -> None:
    ran: list[str] = []
    error: Exception = TimeoutError("no reply")
    if handles == "tool":
        error = ToolException("no reply")
        error.__cause__ = TimeoutError()
    pay = tool(_paying(ran, error))
    pay.handle_tool_error = handles == "tool"
    middleware: list[Any] = []
    if handles == "retries":
        middleware = [ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)]
    bare = world.agent(PAY, "Done.", tools=[pay], middleware=middleware)
    if handles == "node":
        bare.nodes["tools"].bound._handle_tool_errors = True
    agent = guard(bare, world.gate)
    agent.run_sync("go", thread="t")
    world.decide()
    for _ in range(2):
        result = agent.resume_sync("t")
        (request,) = result.interruptions
        assert (result.status, request.kind) == ("paused", "in_doubt")
    assert ran == ["ana"]


@pytest.mark.parametrize("error", [ValueError("no such payee"), NotExecuted("no funds")])
def test_handled_failure_reaches_the_model(world: World, error: Exception) -> None:
    ran: list[str] = []
    bare = world.agent(PAY, "Done.", tools=[_paying(ran, error)])
    bare.nodes["tools"].bound._handle_tool_errors = True
    agent = guard(bare, world.gate)
    agent.run_sync("go", thread="t")
    world.decide()
    assert agent.resume_sync("t").output == "Done."
    assert str(error) in world.tool_results()[0]


async def test_allowed_call_costs_four_commits_and_one_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[str] = []
    reads: list[Any] = []
    note: Any = lambda name, when: commits.append(name) if when == "after" else None  # noqa: E731
    run = ThreadPool.run

    def counted(pool: ThreadPool, job: Callable[[], Any]) -> Any:
        reads.append(job)
        return run(pool, job)

    monkeypatch.setattr(ThreadPool, "run", counted)
    with closing(SqliteStore(tmp_path / "sayso.db", boundary=note)) as store:
        gate = sayso.Gate(store, agent="mailer", wait=0)
        rules = Policy([Rule("send", verdict="allow")])
        agent = guard(world.agent(ONE, "Done.", ONE, "Again."), gate, rules)
        assert (await agent.run("go", thread="t")).output == "Done."
        commits.clear()  # the first one opened the file
        reads.clear()
        assert (await agent.run("go on", thread="t")).output == "Again."
        assert commits == ["reopen+propose+claim", "propose", "record", "propose+finish"]
        assert len(reads) == 1
    assert world.ran == [("send", "ana", "Hello")] * 2


def test_tool_may_hand_over_to_another_node(world: World) -> None:
    """A graph inside the tool sends the graph around it elsewhere; the call is recorded."""
    clerk: Any = StateGraph(MessagesState)
    handover = Command(graph=Command.PARENT, goto="boss", update={"messages": [("user", "boss")]})
    clerk.add_node("clerk", lambda _: handover).add_edge(START, "clerk")
    inner = clerk.compile()

    @tool
    def ask_clerk(text: str) -> str:
        """Ask the clerk."""
        inner.invoke({"messages": [("user", text)]})
        return "never"

    outer: Any = StateGraph(MessagesState)
    outer.add_node(
        "agent", world.agent([("k1", "ask_clerk", {"text": "x"})], "Done.").nodes["model"].bound
    )
    outer.add_node("tools", ToolNode([ask_clerk]))
    outer.add_node("boss", lambda _: {"messages": [("ai", "I will do it.")]})
    outer.add_edge(START, "agent").add_edge("agent", "tools").add_edge("boss", END)
    rules = Policy([Rule("*", verdict="allow")])
    guarded = guard(outer.compile(checkpointer=InMemorySaver()), world.gate, rules)
    result = guarded.run_sync("go", thread="t")
    assert (result.status, result.output) == ("done", "I will do it.")
    (row,) = world.gate.store.calls_of(result.run)
    assert (row.status, json.loads(row.result or "")["text"]) == ("done", "handed over")
