"""``guard`` refuses unsuitable objects and options with advice, before the first call."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import agent_framework
import agents
import dspy
import pydantic_ai
import pytest
from agent_framework_world import Client
from google.adk.agents import LlmAgent
from langchain_world import World

import sayso
from sayso import InvalidCall, InvalidPolicy, Rule

NAMES = ["agent_framework", "dspy", "google_adk", "langchain", "openai_agents", "pydantic_ai"]


def look(what: str) -> str:
    """Look at something."""
    return what


def _silent(messages: Any) -> Any:
    raise NotImplementedError


def right(name: str) -> Any:
    """An agent that can be guarded."""
    made: dict[str, Any] = {
        "agent_framework": lambda: agent_framework.Agent(Client(_silent), tools=[look]),
        "dspy": lambda: dspy.ReAct("question -> answer", tools=[look]),
        "google_adk": lambda: LlmAgent(name="looker", tools=[look]),
        "langchain": lambda: World().agent("Done."),
        "openai_agents": lambda: agents.Agent("Looker"),
        "pydantic_ai": lambda: pydantic_ai.Agent("test", tools=[look]),
    }
    return made[name]()


@pytest.fixture(params=NAMES)
def name(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def guard(name: str) -> Any:
    return importlib.import_module(f"sayso.adapters.{name}").guard


@pytest.fixture
def gate() -> Iterator[sayso.Gate]:
    with sayso.Gate("memory://", agent="looker", wait=0) as gate:
        yield gate


def test_guard_refuses_other_objects(guard: Any, gate: sayso.Gate) -> None:
    for wrong in (None, "agent", object(), sayso.Agent("mine", model="openai:x", tools=[])):
        with pytest.raises((TypeError, InvalidCall), match="guard"):
            guard(wrong, gate)


def test_guard_refuses_guarded_agent(name: str, guard: Any, gate: sayso.Gate) -> None:
    with pytest.raises((TypeError, InvalidCall), match="guard"):
        guard(guard(right(name), gate), gate)


@pytest.mark.parametrize("wrong", [None, "sqlite:///sayso.db"])
def test_guard_refuses_other_gates(name: str, guard: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a sayso\.Gate"):
        guard(right(name), wrong)


@pytest.mark.parametrize("wrong", [[Rule("*")], "policy.toml", {"look": True}])
def test_guard_refuses_other_policies(name: str, guard: Any, gate: sayso.Gate, wrong: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r"a sayso.Policy\(\[...\]\)"):
        guard(right(name), gate, wrong)


def test_unknown_option_is_refused(name: str, guard: Any, gate: sayso.Gate) -> None:
    with pytest.raises(TypeError, match="dependencies"):
        guard(right(name), gate, dependencies=3)


def test_option_set_by_thread_is_refused(gate: sayso.Gate) -> None:
    for name, option in [("pydantic_ai", "message_history"), ("agent_framework", "session")]:
        guard = importlib.import_module(f"sayso.adapters.{name}").guard
        with pytest.raises(TypeError, match=f"unknown option {option}; use "):
            guard(right(name), gate, **{option: []})


def test_workflow_without_checkpoints_is_refused(gate: sayso.Gate) -> None:
    from sayso.adapters.agent_framework import guard

    with pytest.raises(TypeError, match="checkpoints='a folder'"):
        guard(lambda: None, gate)  # type: ignore[call-overload]


def test_workflow_as_agent_is_refused(gate: sayso.Gate) -> None:
    from sayso.adapters.agent_framework import guard

    agent = right("agent_framework")
    workflow = agent_framework.WorkflowBuilder(name="desk", start_executor=agent).build()
    with pytest.raises(TypeError, match="guard the workflow itself"):
        guard(workflow.as_agent(), gate)


@pytest.mark.filterwarnings("ignore:CodeAct is deprecated")
def test_code_act_agent_is_refused(gate: sayso.Gate) -> None:
    from sayso.adapters.dspy import guard

    with pytest.raises(TypeError, match=r"takes a dspy\.ReAct .* not CodeAct"):
        guard(dspy.CodeAct("question -> answer", tools=[look]), gate)
