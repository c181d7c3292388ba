"""The drop-in middleware on a gate: LangChain's shapes, and the gate's additions."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_world import CONFIG, MODES, World, answer, go, in_mode, interrupts, says
from langgraph.checkpoint.memory import InMemorySaver

from sayso import Gate, InvalidPolicy, Policy, Rule
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard
from sayso.schema import errors
from sayso.types import Request
from sayso_testing.adapter_suite import MALFORMED

TWO: Any = [("c1", "send", {"to": "ana"}), ("c2", "send", {"to": "bob"})]
ONE: Any = [("c1", "send", {"to": "ana"})]


@pytest.fixture
def world() -> World:
    return World()


def hitl(world: World, **options: Any) -> list[Any]:
    on = options.pop("interrupt_on", {"send": True})
    return [HumanInTheLoopMiddleware(on, gate=world.gate, **options)]


def test_interrupt_has_langchain_shape(world: World) -> None:
    agent = world.agent(TWO, "Done.", middleware=hitl(world, description_prefix="Look"))
    result = go(agent)
    (interrupt,) = result["__interrupt__"]
    first, second = interrupt.value["action_requests"]
    assert first["name"] == second["name"] == "send"
    assert first["args"] == {"to": "ana", "text": "Hello"}  # with its default, as it will run
    assert first["description"].startswith("Look\n\nTool: send")
    decisions = ["approve", "edit", "reject", "respond"]
    config = {"action_name": "send", "allowed_decisions": decisions}
    assert interrupt.value["review_configs"] == [config, config]
    assert interrupt.value["request_ids"] == [request.id for request in world.pending()]
    assert [dict(request.args)["to"] for request in world.pending()] == ["ana", "bob"]
    assert world.ran == []


@pytest.mark.parametrize("mode", MODES)
def test_langgraph_passes_all_four_decisions(world: World, mode: Any) -> None:
    calls: Any = [(f"c{n}", "send", {"to": to}) for n, to in enumerate("abcd")]
    agent = world.agent(calls, "Done.", middleware=hitl(world, **in_mode(mode)))
    go(agent)
    action = {"name": "send", "args": {"to": "x"}}
    decisions: list[Any] = [
        {"type": "approve"},
        {"type": "edit", "edited_action": action},
        {"type": "reject", "message": "not c"},
        {"type": "respond", "message": "d knows"},
    ]
    if mode == "batched":
        result = answer(agent, {"decisions": decisions}, {"configurable": {"thread_id": "t"}})
    else:
        state = agent.get_state(CONFIG)
        by_call = {f"{i.value['args']['to']}": i.id for i in state.interrupts}
        result = answer(agent, dict(zip((by_call[to] for to in "abcd"), decisions, strict=True)))
    assert result["messages"][-1].text == "Done."
    assert sorted(world.ran) == [("send", "a", "Hello"), ("send", "x", "Hello")]
    approved, edited, rejected, responded = world.tool_results()
    assert (approved, responded) == ("sent to a", "d knows")
    assert "not c" in rejected
    assert "sent to x" in edited
    assert "Do not re-issue" in edited
    kinds = [request.decision.type for request in world.inbox.history_sync().items]  # type: ignore[union-attr]
    assert sorted(kinds) == ["approve", "edit", "reject", "respond"]


def test_config_names_the_reviewer(world: World) -> None:
    agent = world.agent(ONE, "Done.", middleware=hitl(world))
    go(agent)
    answer(agent, says("approve"), {"configurable": {"thread_id": "t", "sayso_by": "rita"}})
    (request,) = world.inbox.history_sync().items
    assert request.decision is not None
    assert (request.decision.by, request.decision.channel) == ("rita", "langgraph")


def test_inbox_decision_resumes_the_thread(world: World) -> None:
    agent = world.agent(TWO, "Done.", middleware=hitl(world))
    go(agent)
    first, second = world.pending()
    world.inbox.decide_sync(first.id, first.approve(), by="ana")
    assert "__interrupt__" in agent.invoke(None, CONFIG)
    assert [v["request_ids"] for v in interrupts(agent)] == [[second.id]]
    world.inbox.decide_sync(second.id, second.reject("no"), by="ana")
    assert agent.invoke(None, CONFIG)["messages"][-1].text == "Done."
    assert world.ran == [("send", "ana", "Hello")]
    run = world.gate.store.run("mailer:t")
    assert run is not None
    assert run.status == "done"


def test_inbox_and_langgraph_decide_together(world: World) -> None:
    agent = world.agent(TWO, "Done.", middleware=hitl(world))
    go(agent)
    first, _ = world.pending()
    world.inbox.decide_sync(first.id, first.reject("no"), by="ana")
    answer(agent, says("approve", "approve"))  # one too many by now: refused, asked again
    assert (world.ran, len(world.pending())) == ([], 1)
    assert "1 requests" in interrupts(agent)[0]["error"]
    assert answer(agent, says("approve"))["messages"][-1].text == "Done."
    assert world.ran == [("send", "bob", "Hello")]


def test_kept_wrong_answer_decides_nothing(world: World) -> None:
    """LangGraph keeps the one answer for two and hands it out again; it must not count for one."""
    agent = world.agent(TWO, "Done.", middleware=hitl(world))
    go(agent)
    answer(agent, says("approve"))
    first, second = world.pending()
    world.inbox.decide_sync(first.id, first.reject("no"), by="ana")
    agent.invoke(None, CONFIG)
    assert [request.id for request in world.pending()] == [second.id]
    assert world.ran == []


def test_wrong_answers_leave_thread_usable(world: World) -> None:
    on = {"pay": True}
    strict = Policy([Rule("pay", where="amount > 100", allowed=["approve", "reject"])])
    world.gate = Gate(world.gate.store, policy=strict, agent="mailer", wait=0)
    ran: list[str] = []

    def pay(to: str, amount: int) -> str:
        """Pay."""
        ran.append(to)
        return "paid"

    two: Any = [
        ("c1", "pay", {"to": "ana", "amount": 5}),
        ("c2", "pay", {"to": "bob", "amount": 700}),
    ]
    agent = world.agent(two, "Done.", tools=[pay], middleware=hitl(world, interrupt_on=on))
    go(agent)
    for name, value in MALFORMED.items():
        try:
            answer(agent, value)
        except UnboundLocalError:
            assert value is None  # LangGraph's own words for an answer of nothing
        assert (ran, len(world.pending())) == ([], 2), name
    assert len(interrupts(agent)) == 1
    assert len(world.chat.seen) == 1
    assert answer(agent, says("approve", "approve"))["messages"][-1].text == "Done."
    assert sorted(ran) == ["ana", "bob"]


@pytest.mark.parametrize("mode", MODES)
def test_unknown_tool_name_is_refused(world: World, mode: Any) -> None:
    middleware = hitl(world, interrupt_on={"sned": True}, **in_mode(mode))
    agent = world.agent(ONE, "Done.", middleware=middleware)
    with pytest.raises(InvalidPolicy, match=r"sned.*look, send"):
        go(agent)
    assert (world.pending(), world.ran) == ([], [])


def test_hidden_tool_may_be_named(world: World) -> None:
    class Fewer(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=request.tools[:1]))

    middleware = [Fewer(), *hitl(world, interrupt_on={"send": True, "look": True})]
    agent = world.agent(ONE, "Done.", middleware=middleware)
    go(agent)
    assert [request.tool for request in world.pending()] == ["send"]


@pytest.mark.parametrize("mode", MODES)
def test_another_process_resumes_the_thread(world: World, mode: Any) -> None:
    saver = InMemorySaver()
    for script in ((TWO, "Done."), (TWO, "Done.")):
        agent = world.agent(*script, saver=saver, middleware=hitl(world, **in_mode(mode)))
        if not world.pending():
            go(agent)
    if mode == "batched":
        result = answer(agent, says("approve", "approve"))
    else:
        ids = [interrupt.id for interrupt in agent.get_state(CONFIG).interrupts]
        result = answer(agent, {id: {"type": "approve"} for id in ids})
    assert result["messages"][-1].text == "Done."
    assert sorted(to for _, to, _ in world.ran) == ["ana", "bob"]


def test_per_call_interrupts_have_answer_schema(world: World) -> None:
    on = {"send": {"allowed_decisions": ["edit", "reject"]}}
    middleware = hitl(world, interrupt_on=on, interrupt_mode="per_call")
    agent = world.agent(ONE, "Done.", middleware=middleware)
    (interrupt,) = go(agent)["__interrupt__"]
    shown = interrupt.value
    assert (shown["type"], shown["tool_call_id"], shown["name"]) == ("tool_approval", "c1", "send")
    assert shown["args"] == {"to": "ana", "text": "Hello"}
    schema = interrupt.response_schema
    action = {"name": "send", "args": {"to": "x"}}
    assert not errors(schema, {"type": "edit", "edited_action": action})
    assert not errors(schema, {"type": "reject"})
    assert errors(schema, {"type": "approve"})
    assert errors(schema, {"type": "edit", "edited_action": {"name": "send", "args": {"to": 1}}})


def test_subclass_changes_the_description(world: World) -> None:
    class Louder(HumanInTheLoopMiddleware):
        def _create_action_and_config(self, *args: Any) -> Any:
            action, config = super()._create_action_and_config(*args)
            return {**action, "description": "LOOK HERE"}, config

    agent = world.agent(ONE, "Done.", middleware=[Louder({"send": True}, gate=world.gate)])
    go(agent)
    (request,) = world.pending()
    assert request.description == "LOOK HERE"
    assert world.ran == []


@pytest.mark.parametrize("mode", MODES)
def test_condition_is_evaluated_before_pause_only(world: World, mode: Any) -> None:
    asked: list[Any] = []

    def when(request: Any) -> bool:
        asked.append(request.tool_call["args"])
        return len(asked) == 1

    on = {"send": {"allowed_decisions": ["approve", "reject"], "when": when}}
    middleware = hitl(world, interrupt_on=on, **in_mode(mode))
    agent = world.agent(ONE, "Done.", middleware=middleware)
    go(agent)
    (request,) = world.pending()
    assert request.allowed == ("approve", "reject")
    world.decide(lambda r: r.reject("no"))
    agent.invoke(None, CONFIG)
    assert (world.ran, len(asked)) == ([], 1)


@pytest.mark.parametrize("way", ["guard", *MODES])
def test_empty_call_ids_are_accepted(world: World, way: str) -> None:
    script = [[("", "send", {"to": "ana"}), ("", "send", {"to": "bob"})], "Done."]
    if way == "guard":
        agent = guard(world.agent(*script), world.gate).graph
    else:
        agent = world.agent(*script, middleware=hitl(world, **in_mode(way)))
    go(agent)
    assert (len(world.pending()), world.ran) == (2, [])
    world.decide()
    agent.invoke(None, CONFIG)
    assert sorted(world.ran) == [("send", "ana", "Hello"), ("send", "bob", "Hello")]
    assert world.tool_results() == ["sent to ana", "sent to bob"]


def test_policy_of_gate_comes_first(world: World) -> None:
    never = Policy([Rule("send", verdict="deny", description="no mail today")])
    world.gate = Gate(world.gate.store, policy=never, agent="mailer", wait=0)
    agent = world.agent(ONE, "Done.", middleware=hitl(world))
    assert go(agent)["messages"][-1].text == "Done."
    assert (world.ran, world.pending()) == ([], [])
    assert "no mail today" in world.tool_results()[0]


@pytest.mark.parametrize("gated", [True, False])
def test_edit_cannot_change_the_tool(world: World, gated: bool) -> None:
    """LangChain runs it; at a gate it is refused, because nobody looked at that tool's rules."""
    on = {"send": True}
    middleware = hitl(world) if gated else [HumanInTheLoopMiddleware(on)]
    agent = world.agent(ONE, "Done.", middleware=middleware)
    go(agent)
    action = {"name": "look", "args": {"what": "sky"}}
    answer(agent, {"decisions": [{"type": "edit", "edited_action": action}]})
    if not gated:
        assert world.ran == [("look", "sky")]
        return
    assert world.ran == []
    assert "cannot change the tool" in interrupts(agent)[0]["error"]
    world.decide()
    agent.invoke(None, CONFIG)
    assert world.ran == [("send", "ana", "Hello")]


def test_new_input_supersedes_the_pause(world: World) -> None:
    agent = world.agent(ONE, "Something else, then.", middleware=hitl(world))
    go(agent)
    result = go(agent)
    assert result["messages"][-1].text == "Something else, then."
    assert (world.pending(), world.ran) == ([], [])
    (request,) = world.inbox.history_sync().items
    assert request.status == "superseded"
    # Every call of the conversation has an answer: a provider would refuse it otherwise.
    shown = world.chat.seen[-1]
    kinds = [message.type for message in shown]
    assert kinds == ["human", "ai", "tool", "human"]
    assert "something new" in shown[2].text


async def test_async_graph_resumes(world: World) -> None:
    agent = world.agent(TWO, "Done.", middleware=hitl(world))
    start: Any = {"messages": [{"role": "user", "content": "go"}]}
    await agent.ainvoke(start, CONFIG)
    for request in (await world.inbox.pending()).items:
        await world.inbox.decide(request.id, request.approve(), by="ana")
    result = await agent.ainvoke(None, CONFIG)
    assert result["messages"][-1].text == "Done."
    assert len(world.ran) == 2


async def test_sync_graph_resumes_on_running_loop(world: World) -> None:
    agent = world.agent(ONE, "Done.", middleware=hitl(world))
    go(agent)
    (request,) = (await world.inbox.pending()).items
    await world.inbox.decide(request.id, request.approve(), by="ana")
    assert agent.invoke(None, CONFIG)["messages"][-1].text == "Done."
    assert world.ran == [("send", "ana", "Hello")]


def test_guard_around_the_middleware_asks_once(world: World) -> None:
    agent = guard(world.agent(ONE, "Done.", middleware=hitl(world)), world.gate)
    result = agent.run_sync("go", thread="t")
    assert [request.tool for request in result.interruptions] == ["send"]
    result = agent.resume_sync("t", decisions=[r.approve() for r in result.interruptions])
    assert (result.status, result.output) == ("done", "Done.")
    assert world.ran == [("send", "ana", "Hello")]


def test_policy_without_gate_is_refused() -> None:
    with pytest.raises(TypeError, match="gate"):
        HumanInTheLoopMiddleware({"send": True}, policy=Policy([]))


def test_custom_description_is_shown(world: World) -> None:
    def describe(tool_call: Any, state: Any, runtime: Any) -> str:
        return f"Mail to {tool_call['args']['to']}, after {len(state['messages'])} messages"

    on = {"send": {"allowed_decisions": ["approve"], "description": describe}}
    go(world.agent(ONE, "Done.", middleware=hitl(world, interrupt_on=on)))
    (request,) = world.pending()
    assert request.description == "Mail to ana, after 2 messages"
    assert Request.approve(request).seen_digest == request.digest
