"""A function with ``gate.guard`` that is also the tool of a guarded agent is asked about once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_framework_world as af
import google_adk_world as adk
import pytest
from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from dspy.utils import DummyLM
from harness_dspy import dspy
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_world import Chat
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai_world import World, call

import sayso
from sayso.adapters import agent_framework as on_af
from sayso.adapters import dspy as on_dspy
from sayso.adapters import google_adk as on_adk
from sayso.adapters import langchain as on_langchain
from sayso.adapters import openai_agents as on_openai
from sayso.adapters import pydantic_ai as on_pydantic
from sayso.gate.framework import FrameworkAgent

set_tracing_disabled(True)
ARGS = {"to": "ana"}


def of_pydantic(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    agent = World(folder).agent([call("pay", **ARGS)], "Done.", tools=[pay])
    return on_pydantic.guard(agent, gate, rules)


def of_google_adk(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    agent = adk.World(folder, None).agent([adk.call("pay", **ARGS)], "Done.", tools=[pay])
    return on_adk.guard(agent, gate, rules)


def of_langchain(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    chat = Chat(script=[[("c1", "pay", ARGS)], "Done."], seen=[])
    agent = create_agent(chat, [tool(pay)], checkpointer=InMemorySaver())
    return on_langchain.guard(agent, gate, rules)


def of_openai(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    made = [function_call("pay", ARGS, call_id="c1")]
    model = ScriptedModel([made, [assistant_message("Done.")]])
    return on_openai.guard(Agent("A", model=model, tools=[function_tool(pay)]), gate, rules)


def of_agent_framework(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    agent = af.World(folder).agent([af.call("pay", **ARGS)], "Done.", tools=[pay])
    return on_af.guard(agent, gate, rules)


def of_dspy(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    def step(name: str, args: Any) -> dict[str, str]:
        return {"next_thought": "", "next_tool_name": name, "next_tool_args": json.dumps(args)}

    end = step("finish", {}), {"reasoning": "", "answer": "Done."}
    model = DummyLM([step("pay", ARGS), *end])
    return on_dspy.guard(dspy.ReAct("question -> answer", tools=[pay]), gate, rules, lm=model)


def of_claude(gate: sayso.Gate, pay: Any, rules: Any, folder: Path) -> FrameworkAgent:
    pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]"')
    from claude_agent_world import paying

    from sayso.adapters import claude_agent as on_claude

    return on_claude.guard(gate=gate, policy=rules, **paying(folder, pay))


MAKERS = [
    of_pydantic,
    of_google_adk,
    of_langchain,
    of_openai,
    of_agent_framework,
    of_dspy,
    of_claude,
]
Make = Callable[[sayso.Gate, Any, Any, Path], FrameworkAgent]

every_framework = pytest.mark.parametrize("make", MAKERS)
ASK = sayso.Policy([sayso.Rule("*")])


@pytest.fixture
def gate() -> sayso.Gate:
    return sayso.Gate("memory://", agent="teller", wait=0)


@every_framework
async def test_guarded_function_as_tool_asks_once(
    make: Make, gate: sayso.Gate, tmp_path: Path
) -> None:
    ran: list[str] = []

    @gate.guard(needs_approval=True)
    async def pay(to: str, euros: int = 5) -> str:
        """Pay somebody."""
        ran.append(f"{to} {euros}")
        return f"paid {to}"

    guarded = make(gate, pay, ASK, tmp_path)
    (request,) = (await guarded.run("go", thread="t")).interruptions
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob", "euros": 7})])
    assert (result.status, ran) == ("done", ["bob 7"])
    events = [event for _, event in gate.store.events(0, 100)]
    assert [event.type for event in events].count("asked") == 1
    (allowed,) = [event for event in events if event.type == "allowed"]
    assert allowed.actor == f"policy:approved as {request.id}"


@every_framework
async def test_guarded_function_asks_although_tool_allowed(
    make: Make, gate: sayso.Gate, tmp_path: Path
) -> None:
    """What the function requires counts, whatever the agent's policy lets through."""
    ran: list[str] = []

    @gate.guard(needs_approval=True)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return f"paid {to}"

    allow = sayso.Policy([sayso.Rule("*", verdict="allow")])
    guarded = make(gate, pay, allow, tmp_path)
    (request,) = (await guarded.run("go", thread="t")).interruptions
    assert (request.tool, ran) == ("pay", [])
    result = await guarded.resume("t", decisions=[request.approve()])
    assert (result.status, ran) == ("done", ["ana"])


@every_framework
async def test_stricter_function_asks_again(make: Make, gate: sayso.Gate, tmp_path: Path) -> None:
    ran: list[str] = []

    @gate.guard(needs_approval=True, reviewers=["bob"])
    async def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return f"paid {to}"

    guarded = make(gate, pay, ASK, tmp_path)
    (first,) = (await guarded.run("go", thread="t")).interruptions
    result = await guarded.resume("t", decisions=[first.approve()], by="ana")
    (second,) = result.interruptions
    assert (second.reviewers, ran) == (("bob",), [])


async def test_function_with_other_arguments_asks(gate: sayso.Gate, tmp_path: Path) -> None:
    ran: list[str] = []

    @gate.guard(needs_approval=True, name="pay")
    async def really(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return f"paid {to}"

    async def pay(to: str) -> str:
        """Pay somebody, and somebody else."""
        return await really(to) + await really("eve")

    guarded = of_pydantic(gate, pay, ASK, tmp_path)
    (first,) = (await guarded.run("go", thread="t")).interruptions
    result = await guarded.resume("t", decisions=[first.approve()])
    (second,) = result.interruptions
    assert (dict(second.args), ran) == ({"to": "eve"}, ["ana"])
    result = await guarded.resume("t", decisions=[second.approve()])
    assert (result.status, ran) == ("done", ["ana", "eve"])  # the tool started over, ana's did not
