"""No store call on the event loop, in any path of any adapter: that loop is the framework's.

The check is the one that ``langgraph dev`` makes: it raises wherever code blocks on a loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agent_framework_world as af
import google_adk_world as adk
import pytest
from agent_framework import AgentExecutor, InMemoryCheckpointStorage, Message, WorkflowBuilder
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from blockbuster import BlockingError, blockbuster_ctx
from dspy.utils import DummyLM
from harness_dspy import dspy
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_world import Chat
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai_world import World, call

import sayso
from sayso.adapters import agent_framework as on_af
from sayso.adapters import dspy as on_dspy
from sayso.adapters import google_adk as on_adk
from sayso.adapters import langchain as on_langchain
from sayso.adapters import openai_agents as on_openai
from sayso.adapters import pydantic_ai as on_pydantic
from sayso.adapters.langchain import HumanInTheLoopMiddleware
from sayso.gate.framework import FrameworkAgent

set_tracing_disabled(True)

RULES = sayso.Policy([sayso.Rule("*")])


async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[sayso.Gate]:
    gate = sayso.Gate(f"sqlite:///{tmp_path}/sayso.db", policy=RULES, agent="teller", wait=0)
    yield gate
    gate.close()


@pytest.fixture
def checked() -> Iterator[None]:
    """Raise where our code blocks on an event loop."""
    with blockbuster_ctx(scanned_modules=["sayso"]) as found:
        for function in found.functions.values():
            # The SDK's own code, which looks for its program and writes its transcript there.
            function.can_block_in("claude_agent_sdk/client.py", "connect")
            function.can_block_in("claude_agent_sdk/client.py", "disconnect")
        yield


async def test_blocking_store_call_is_detected(gate: sayso.Gate, checked: None) -> None:
    with pytest.raises(BlockingError):
        gate.store.run("some")


def of_pydantic(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    agent = World(folder).agent([call("pay", to="ana")], "Done.", tools=[pay])
    return on_pydantic.guard(agent, gate)


def of_google_adk(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    agent = adk.World(folder, None).agent([adk.call("pay", to="ana")], "Done.", tools=[pay])
    return on_adk.guard(agent, gate)


def of_langchain(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    chat = Chat(script=[[("c1", "pay", {"to": "ana"})], "Done."], seen=[])
    return on_langchain.guard(create_agent(chat, [tool(pay)], checkpointer=InMemorySaver()), gate)


def of_openai(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    made = [function_call("pay", {"to": "ana"}, call_id="c1")]
    model = ScriptedModel([made, [assistant_message("Done.")]])
    return on_openai.guard(Agent("A", model=model, tools=[function_tool(pay)]), gate)


def of_agent_framework(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    agent = af.World(folder).agent([af.call("pay", to="ana")], "Done.", tools=[pay])
    return on_af.guard(agent, gate)


def of_dspy(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    def step(name: str, args: Any) -> dict[str, str]:
        return {"next_thought": "", "next_tool_name": name, "next_tool_args": json.dumps(args)}

    end = step("finish", {}), {"reasoning": "", "answer": "Done."}
    model = DummyLM([step("pay", {"to": "ana"}), *end])
    return on_dspy.guard(dspy.ReAct("question -> answer", tools=[pay]), gate, lm=model)


def of_claude(gate: sayso.Gate, folder: Path) -> FrameworkAgent:
    pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]"')
    from claude_agent_world import paying

    from sayso.adapters import claude_agent as on_claude

    return on_claude.guard(gate=gate, **paying(folder, pay))


MAKERS = [
    of_pydantic,
    of_google_adk,
    of_langchain,
    of_openai,
    of_agent_framework,
    of_dspy,
    of_claude,
]
Make = Callable[[sayso.Gate, Path], FrameworkAgent]


@pytest.fixture
async def guarded(
    request: pytest.FixtureRequest, gate: sayso.Gate, tmp_path: Path
) -> FrameworkAgent:
    """The agent is built on the loop; only the test's own worlds are not."""
    (tmp_path / "other").mkdir()
    make: Make = request.param
    return make(gate, tmp_path / "other")


every_framework = pytest.mark.parametrize("guarded", MAKERS, indirect=True)


@every_framework
async def test_run_and_resume_do_not_block(guarded: FrameworkAgent, checked: None) -> None:
    (request,) = (await guarded.run("go", thread="t")).interruptions
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
    assert (result.status, result.output) == ("done", "Done.")
    assert (await guarded.resume("t")).output == "Done."


@every_framework
async def test_new_input_does_not_block(guarded: FrameworkAgent, checked: None) -> None:
    assert (await guarded.run("go", thread="t")).status == "paused"
    assert (await guarded.run("no, wait", thread="t")).output == "Done."


@every_framework
async def test_cancel_does_not_block(guarded: FrameworkAgent, checked: None) -> None:
    result = await guarded.run("go", thread="t")
    await guarded.cancel(result.state)
    assert (await guarded.resume(result.state)).status == "cancelled"


# -- without run and resume: the framework's own flow


def scripted() -> Chat:
    return Chat(script=[[("c1", "pay", {"to": "ana"})], "Done."], seen=[])


CONFIG: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [{"role": "user", "content": "go"}]}


@pytest.mark.parametrize("mode", ["guard", "batched", "per_call"])
async def test_native_langgraph_flow_does_not_block(
    gate: sayso.Gate, checked: None, mode: Any
) -> None:
    options: dict[str, Any] = {"checkpointer": InMemorySaver()}
    if mode != "guard":
        asks = HumanInTheLoopMiddleware({"pay": True}, gate=gate, interrupt_mode=mode)
        options["middleware"] = [asks]
    graph = create_agent(scripted(), [tool(pay)], **options)
    if mode == "guard":
        graph = on_langchain.guard(graph, gate).graph
    said = await graph.ainvoke(GO, CONFIG)
    assert said["__interrupt__"]
    yes: Any = {"decisions": [{"type": "approve"}]} if mode == "batched" else {"type": "approve"}
    said = await graph.ainvoke(Command(resume=yes), CONFIG)
    assert said["messages"][-1].text == "Done."


async def test_asking_nodes_do_not_block(gate: sayso.Gate, checked: None) -> None:
    @on_langchain.node(gate)
    async def order(state: dict[str, Any]) -> dict[str, Any]:
        number = await gate.once("reserve", lambda: 7)
        return {"size": await gate.ask("Which size?"), "number": number}

    def own(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "sure": interrupt("Sure?")}

    builder = StateGraph(dict)
    builder.add_node("order", order)
    builder.add_node("own", own)
    builder.add_edge(START, "order")
    builder.add_edge("order", "own")
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["own"])
    guarded = on_langchain.GuardedAgent(graph, gate)
    result = await guarded.run({}, thread="t")
    for answer in ("large", None, "yes"):
        (request,) = result.interruptions
        made = request.approve() if answer is None else request.respond(answer)
        result = await guarded.resume("t", decisions=[made])
    assert result.output == {"size": "large", "number": 7, "sure": "yes"}


async def test_manual_openai_runner_does_not_block(gate: sayso.Gate, checked: None) -> None:
    guarded: Any = of_openai(gate, Path())
    async with guarded.thread("t", by="ana") as agent:
        result = await Runner.run(agent, "go")
        state = result.to_state()
        state.approve(result.interruptions[0])
    async with guarded.thread("t", by="ana") as agent:
        assert (await Runner.run(agent, state)).final_output == "Done."


async def test_pydantic_ai_capability_does_not_block(
    gate: sayso.Gate, tmp_path: Path, checked: None
) -> None:
    with_gate = {"capabilities": [on_pydantic.Gated(gate)], "tools": [pay]}
    output: Any = [str, DeferredToolRequests]
    world = await asyncio.to_thread(World, tmp_path)
    agent = world.agent([call("pay", to="ana")], "Done.", output_type=output, **with_gate)
    first = await agent.run("go", conversation_id="t")
    inbox = await asyncio.to_thread(sayso.Inbox, gate.store)
    (request,) = await inbox.pending()
    await inbox.approve(request, by="ana")
    given = {"message_history": first.all_messages(), "conversation_id": "t"}
    results = DeferredToolResults(approvals={"c1": True})
    assert (await agent.run(deferred_tool_results=results, **given)).output == "Done."


@pytest.mark.parametrize("own", [True, False])
async def test_native_agent_framework_flow_does_not_block(
    gate: sayso.Gate, tmp_path: Path, checked: None, own: bool
) -> None:
    (tmp_path / "other").mkdir()
    world = await asyncio.to_thread(af.World, tmp_path / "other")
    options: dict[str, Any] = {"middleware": [on_af.Gated(gate)]} if own else {}
    agent: Any = world.agent([af.call("pay", to="ana")], "Done.", tools=[pay], **options)
    if not own:
        agent = on_af.guard(agent, gate).as_agent(by="ana")
    session = agent.create_session()
    response = await agent.run("go", session=session)
    (asked,) = response.user_input_requests
    if own:
        inbox = await asyncio.to_thread(sayso.Inbox, gate.store)
        (request,) = await inbox.pending()
        await inbox.approve(request, by="ana")
    answer = Message("user", [asked.to_function_approval_response(True)])
    assert (await agent.run(answer, session=session)).text == "Done."


async def test_workflow_does_not_block(gate: sayso.Gate, tmp_path: Path, checked: None) -> None:
    (tmp_path / "other").mkdir()
    world = await asyncio.to_thread(af.World, tmp_path / "other")
    agent = world.agent([af.call("pay", to="ana")], "Done.", tools=[pay])
    workflow = WorkflowBuilder(start_executor=AgentExecutor(agent, id="pays"), name="w").build()
    storage = InMemoryCheckpointStorage()
    guarded = on_af.guard(workflow, gate, checkpoints=lambda name: storage)
    (request,) = (await guarded.run("go", thread="t")).interruptions
    assert (await guarded.resume("t", decisions=[request.approve()])).output == "Done."
