"""Everything that a DSPy agent can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from dspy.primitives.local_interpreter import LocalInterpreter
from dspy.utils import DummyLM
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
    model = DummyLM(END)
    model.kwargs["tools"] = [{"type": "web_search"}]
    named = guard(react(pay), gate, lm=model, ungated=["web_search"])
    assert named.run_sync("go", thread="t").output == "Done."
    (noted,) = [event for _, event in gate.store.events(0, 100) if event.type == "ungated"]
    assert "web_search" in str(noted.body)


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


# -- agents that are built while a tool runs


def step(name: str, **args: Any) -> dict[str, str]:
    return {"next_thought": "Hm.", "next_tool_name": name, "next_tool_args": json.dumps(args)}


END = [step("finish"), {"reasoning": "It is over.", "answer": "Done."}]
RULES = sayso.Policy([sayso.Rule("pay"), sayso.Rule("*", verdict="allow")])


class Program(dspy.Module):  # type: ignore[misc]
    """A module of the user's own, whose model chooses a payment."""

    def __init__(self, tool: Any) -> None:
        super().__init__()
        self.choose = dspy.Predict("question -> answer")
        self.tool = dspy.Tool(tool)

    def forward(self, question: str) -> Any:
        self.tool(to=self.choose(question=question).answer)
        return dspy.Prediction(answer="paid")


class TestBuiltWhileAToolRuns:
    """DSPy passes its callbacks on to everything that a run starts; ours stops what is ungated."""

    ran: list[str]

    @pytest.fixture(autouse=True)
    def _payments(self) -> None:
        self.ran = []

    def paying(self, to: str) -> str:
        self.ran.append(to)
        return f"paid {to}"

    def inner(self, *, tools: bool = True) -> Any:
        def pay(to: str) -> str:
            """Pay somebody."""
            return self.paying(to)

        return dspy.ReAct("question -> answer", tools=[pay] if tools else [])

    def guarded(self, gate: sayso.Gate, tool: Any, **options: Any) -> Any:
        script = DummyLM([step(tool.__name__, task="pay ana"), *END])
        return guard(react(tool), gate, RULES, lm=script, **options)

    def delegate(self, *, sync: bool = False) -> Any:
        def blocking(task: str) -> str:
            """Build an agent, and ask it."""
            with dspy.context(lm=DummyLM([step("pay", to="ana"), *END])):
                return str(self.inner()(question=task).answer)

        async def delegate(task: str) -> str:
            """Build an agent, and ask it."""
            with dspy.context(lm=DummyLM([step("pay", to="ana"), *END])):
                return str((await self.inner().acall(question=task)).answer)

        return blocking if sync else delegate

    @pytest.mark.parametrize("sync", [False, True])
    async def test_its_tools_are_stopped(self, gate: sayso.Gate, sync: bool) -> None:
        guarded = self.guarded(gate, self.delegate(sync=sync))
        with pytest.raises(sayso.SaysoError, match="pay was not run: it bypassed the gate"):
            await guarded.run("go", thread="t")
        assert self.ran == []

    async def test_unless_they_are_named(self, gate: sayso.Gate) -> None:
        for thread, name in (("a", "pay"), ("b", "ReAct in delegate")):
            guarded = self.guarded(gate, self.delegate(), ungated=[name])
            assert (await guarded.run("go", thread=thread)).output == "Done."
        assert self.ran == ["ana", "ana"]

    async def test_a_module_of_the_users_own(self, gate: sayso.Gate) -> None:
        def delegate(task: str) -> str:
            """Let a model choose a payment."""
            with dspy.context(lm=DummyLM([{"answer": "ana"}])):
                return str(Program(self.paying)(question=task).answer)

        with pytest.raises(sayso.SaysoError, match="paying was not run: it bypassed the gate"):
            await self.guarded(gate, delegate).run("go", thread="t")
        assert self.ran == []

    @pytest.mark.parametrize("kind", ["ProgramOfThought", "CodeAct", "RLM"])
    async def test_code_that_a_model_writes(self, gate: sayso.Gate, kind: str) -> None:
        def delegate(task: str) -> str:
            """Let a model write code."""
            tools = {} if kind == "ProgramOfThought" else {"tools": [pay]}
            with warnings.catch_warnings(action="ignore"):
                program = getattr(dspy, kind)("question -> answer", **tools)
            return str(program(question=task).answer)

        with pytest.raises(sayso.SaysoError, match=f"{kind} was not run: it bypassed the gate"):
            await self.guarded(gate, delegate).run("go", thread="t")

    async def test_code_that_a_module_of_the_users_own_runs(self, gate: sayso.Gate) -> None:
        class Coder(dspy.Module):  # type: ignore[misc]
            def forward(self, question: str) -> Any:
                return LocalInterpreter()("print(1)")

        def delegate(task: str) -> str:
            """Let a model write code."""
            with warnings.catch_warnings(action="ignore"):
                return str(Coder()(question=task))

        with pytest.raises(sayso.SaysoError, match="LocalInterpreter was not run: it bypassed"):
            await self.guarded(gate, delegate).run("go", thread="t")

    async def test_what_the_tool_itself_calls_belongs_to_its_call(self, gate: sayso.Gate) -> None:
        def delegate(task: str) -> str:
            """Pay through a tool, and ask a model and an agent without tools."""
            said = dspy.Tool(self.paying)(to="ana")
            with dspy.context(lm=DummyLM([{"answer": "yes"}, *END])):
                dspy.Predict("question -> answer")(question=task)
                self.inner(tools=False)(question=task)
            return str(said)

        assert (await self.guarded(gate, delegate).run("go", thread="t")).output == "Done."
        assert self.ran == ["ana"]

    async def test_guarded_where_it_is_built(self, gate: sayso.Gate) -> None:
        async def delegate(task: str) -> str:
            """Build a guarded agent, and ask it."""
            inner = guard(self.inner(), gate, RULES, lm=DummyLM([step("pay", to="ana"), *END]))
            return str((await inner.run(task)).output)

        guarded = self.guarded(gate, delegate)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        assert (request.tool, self.ran) == ("pay", [])
