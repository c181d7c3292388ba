"""Arguments that the model omits: people see the defaults that the function uses."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import agent_framework_world as af
import pytest
from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from dspy.utils import DummyLM
from harness_dspy import dspy
from langchain.agents import create_agent
from langchain_world import Chat
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel
from pydantic_ai_world import World, call

from sayso import Gate, Policy, Rule
from sayso.adapters import agent_framework as on_af
from sayso.adapters import dspy as on_dspy
from sayso.adapters import langchain as on_langchain
from sayso.adapters import openai_agents as on_openai
from sayso.adapters import pydantic_ai as on_pydantic
from sayso.gate.framework import FrameworkAgent

set_tracing_disabled(True)

Make = Callable[[Gate, Callable[..., Any], dict[str, Any], Path], FrameworkAgent]


class Item(BaseModel):
    name: str
    number: int = 1


def of_pydantic(gate: Gate, tool: Any, args: Any, folder: Path) -> FrameworkAgent:
    agent = World(folder).agent([call(tool.__name__, **args)], "Done.", tools=[tool])
    return on_pydantic.guard(agent, gate)


def of_langchain(gate: Gate, tool: Any, args: Any, folder: Path) -> FrameworkAgent:
    chat = Chat(script=[[("c1", tool.__name__, args)], "Done."], seen=[])
    return on_langchain.guard(create_agent(chat, [tool], checkpointer=InMemorySaver()), gate)


def of_openai(strict: bool) -> Make:
    def make(gate: Gate, tool: Any, args: Any, folder: Path) -> FrameworkAgent:
        made = [function_call(tool.__name__, args, call_id="c1")]
        model = ScriptedModel([made, [assistant_message("Done.")]])
        tools: Any = [function_tool(tool, strict_mode=strict)]
        return on_openai.guard(Agent("A", model=model, tools=tools), gate)

    return make


def of_agent_framework(gate: Gate, tool: Any, args: Any, folder: Path) -> FrameworkAgent:
    agent = af.World(folder).agent([af.call(tool.__name__, **args)], "Done.", tools=[tool])
    return on_af.guard(agent, gate)


def of_dspy(gate: Gate, tool: Any, args: Any, folder: Path) -> FrameworkAgent:
    def step(name: str, args: Any) -> dict[str, str]:
        return {"next_thought": "", "next_tool_name": name, "next_tool_args": json.dumps(args)}

    end = step("finish", {}), {"reasoning": "", "answer": "Done."}
    model = DummyLM([step(tool.__name__, args), *end])
    return on_dspy.guard(dspy.ReAct("question -> answer", tools=[tool]), gate, lm=model)


MAKERS = [of_pydantic, of_langchain, of_openai(True), of_openai(False), of_agent_framework, of_dspy]


@pytest.mark.parametrize("make", MAKERS)
async def test_none_default_is_accepted(make: Make, tmp_path: Path) -> None:
    ran: list[Any] = []

    def pay(to: str, note: str = None, price: Decimal = Decimal("1.50")) -> str:  # type: ignore[assignment]  # noqa: RUF013
        """Pay."""
        ran.append((to, note, price))
        return "paid"

    gate = Gate("memory://", policy=Policy([Rule("*")]), agent="x", wait=0)
    for thread, change in (("a", None), ("b", {"to": "bob"}), ("c", {"note": "hello"})):
        agent = make(gate, pay, {"to": "ana"}, tmp_path)
        (request,) = (await agent.run("go", thread=thread)).interruptions
        assert request.args["note"] is None
        decision = request.approve() if change is None else request.edit(change)
        assert (await agent.resume(thread, decisions=[decision])).output == "Done."
    assert [(to, note) for to, note, _ in ran] == [("ana", None), ("bob", None), ("ana", "hello")]
    assert {Decimal(str(price)) for *_, price in ran} == {Decimal("1.50")}
    gate.close()


@pytest.mark.parametrize("make", MAKERS)
async def test_model_defaults_are_filled_in(make: Make, tmp_path: Path) -> None:
    def order(items: list[Item]) -> str:
        """Order."""
        return "ordered"

    gate = Gate("memory://", policy=Policy([Rule("*")]), agent="x", wait=0)
    agent = make(gate, order, {"items": [{"name": "tea"}]}, tmp_path)
    (request,) = (await agent.run("go", thread="t")).interruptions
    # People see what the function gets: Agent Framework leaves nested defaults out.
    defaults = {} if make is of_agent_framework else {"number": 1}
    assert request.args["items"] == [{"name": "tea", **defaults}]
    assert (await agent.resume("t", decisions=[request.approve()])).status == "done"
    gate.close()
