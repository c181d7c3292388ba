"""Everything that a DSPy agent can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from harness_dspy import dspy

import sayso
from sayso.adapters.dspy import guard

GLOBAL: Any = None


def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def ask_global(task: str) -> str:
    """Ask the agent of this module."""
    return str(GLOBAL(question=task).answer)


@pytest.fixture
def gate() -> sayso.Gate:
    return sayso.Gate("memory://", agent="teller", wait=0)


def react(*tools: Any) -> Any:
    return dspy.ReAct("question -> answer", tools=list(tools))


def test_the_table(gate: sayso.Gate) -> None:
    coverage = guard(react(pay), gate).coverage()
    assert [(one.kind, one.name, one.gated) for one in coverage] == [("tool", "pay", True)]


def test_an_agent_in_a_closure(gate: sayso.Gate) -> None:
    inner = react(pay)

    def delegate(task: str) -> str:
        """Ask another agent."""
        return str(inner(question=task).answer)

    with pytest.raises(sayso.InvalidCall, match="agent 'ReAct in delegate' of teller"):
        guard(react(delegate), gate)
    guard(react(delegate), gate, ungated=["ReAct in delegate"])


def test_an_agent_under_a_global_name(gate: sayso.Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.GLOBAL", react(pay))
    with pytest.raises(sayso.InvalidCall, match="ask_global finds it as the global name 'GLOBAL'"):
        guard(react(ask_global), gate)


def test_a_guarded_agent(gate: sayso.Gate) -> None:
    inner = guard(react(pay), gate)

    async def delegate(task: str) -> str:
        """Ask another agent."""
        return str((await inner.run(task)).output)

    guard(react(delegate), gate)


def test_what_the_provider_runs(gate: sayso.Gate) -> None:
    class Model:
        def __init__(self) -> None:
            self.kwargs = {"tools": [{"type": "web_search"}]}

    with pytest.raises(sayso.InvalidCall, match="hosted tool 'web_search' of teller"):
        guard(react(pay), gate, lm=Model())


def test_code_act_explains_itself(gate: sayso.Gate) -> None:
    with warnings.catch_warnings(action="ignore"):
        agent = dspy.CodeAct("question -> answer", tools=[pay])
    with pytest.raises(TypeError, match=r"code that the model writes.* Use dspy\.ReAct"):
        guard(agent, gate)


def test_the_agent_passed_in_is_not_changed(gate: sayso.Gate) -> None:
    agent = react(pay)
    before = dict(vars(agent)), dict(agent.tools)
    guard(agent, gate)
    assert (dict(vars(agent)), dict(agent.tools)) == before
    assert agent.tools["pay"].func is pay
