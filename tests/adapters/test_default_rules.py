"""The table of ``docs/adapters/README.md``: which calls ask where no rule matches."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.testing import AdapterHarness, HarnessContext, ScriptedCall
from sayso_testing.adapter_harness import ModelScript

HARNESSES = {
    "langchain": "LangChainHarness",
    "openai_agents": "OpenAIAgentsHarness",
    "agent_framework": "AgentFrameworkHarness",
    "dspy": "DspyHarness",
    "google_adk": "GoogleADKHarness",
    "pydantic_ai": "PydanticAIHarness",
}
NO_POLICY = None
NO_RULE_FITS = sayso.Policy([sayso.Rule("something_else", risk="critical")])
#: What happens to a call that no rule matches, whether there are rules or not.
UNRULED = {
    "langchain": "paused",
    "openai_agents": "done",
    "agent_framework": "done",
    "dspy": "paused",
    "google_adk": "done",
    "pydantic_ai": "done",
}


POLICY_NAMES = ["none", "empty", "unrelated"]


async def look(what: str) -> str:
    """Look at something."""
    return f"saw the {what}"


class Play:
    """One turn with one call of ``look``, under a policy."""

    def __init__(self, framework: str, policy: sayso.Policy | None, folder: Path) -> None:
        module = importlib.import_module(f"harness_{framework}")
        self.kind: type[AdapterHarness] = getattr(module, HARNESSES[framework])
        self.gate = sayso.Gate(f"sqlite:///{folder}/a.db", policy=policy, agent="eye", wait=0)
        self.script = ModelScript(
            ([ScriptedCall("call_1", "look", {"what": "sky"})], "Done."), folder / "m"
        )
        self.folder = folder

    async def status(self, tool: Any = look, make: Any = None) -> str:
        """How it stands after the turn."""
        context = HarnessContext(
            gate=self.gate, tools=[tool], script=self.script, folder=self.folder
        )
        harness = self.kind(context)
        try:
            await harness.open()
            agent = harness.agent() if make is None else make(context)
            result = await agent.run("go", thread="t-1")
            return str(result.status)
        finally:
            await harness.close()
            self.gate.close()


@pytest.mark.parametrize("policy", [NO_POLICY, sayso.Policy(), NO_RULE_FITS], ids=POLICY_NAMES)
@pytest.mark.parametrize("framework", UNRULED)
async def test_unmatched_call_ignores_other_rules(
    framework: str, policy: sayso.Policy | None, tmp_path: Path
) -> None:
    assert await Play(framework, policy, tmp_path).status() == UNRULED[framework]


@pytest.mark.parametrize("framework", HARNESSES)
async def test_policy_of_guard_keeps_gate_rules(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"harness_{framework}")
    monkeypatch.setattr(module, "guard", partial(module.guard, policy=NO_RULE_FITS))
    gates = sayso.Policy([sayso.Rule("look")])
    assert await Play(framework, gates, tmp_path).status() == "paused"


@pytest.mark.parametrize("framework", HARNESSES)
async def test_default_ask_tightens_every_framework(framework: str, tmp_path: Path) -> None:
    policy = sayso.Policy([sayso.Rule("something_else")], default="ask")
    assert await Play(framework, policy, tmp_path).status() == "paused"


@pytest.mark.parametrize("framework", ["langchain", "dspy"])
async def test_default_allow_loosens_undeclared_tools(framework: str, tmp_path: Path) -> None:
    assert await Play(framework, sayso.Policy(default="allow"), tmp_path).status() == "done"


@pytest.mark.parametrize("framework", HARNESSES)
async def test_catch_all_rule_asks_everywhere(framework: str, tmp_path: Path) -> None:
    everything = sayso.Policy([sayso.Rule("something_else"), sayso.Rule("*")])
    assert await Play(framework, everything, tmp_path).status() == "paused"


@pytest.mark.parametrize("policy", [NO_POLICY, NO_RULE_FITS], ids=["no policy", "no rule fits"])
class TestAToolThatAsksForItself:
    async def test_openai_tool_flag_asks(self, policy: sayso.Policy | None, tmp_path: Path) -> None:
        from agents import Agent, function_tool
        from harness_openai_agents import ScriptModel

        from sayso.adapters.openai_agents import guard

        def make(context: HarnessContext) -> Any:
            tools: list[Any] = [function_tool(look, needs_approval=True)]
            return guard(Agent("Eye", model=ScriptModel(context.script), tools=tools), context.gate)

        assert await Play("openai_agents", policy, tmp_path).status(make=make) == "paused"

    async def test_agent_framework_tool_flag_asks(
        self, policy: sayso.Policy | None, tmp_path: Path
    ) -> None:
        from agent_framework import tool

        declared = tool(look, approval_mode="always_require")
        assert await Play("agent_framework", policy, tmp_path).status(declared) == "paused"

    async def test_google_adk_tool_flag_asks(
        self, policy: sayso.Policy | None, tmp_path: Path
    ) -> None:
        from google.adk.tools import FunctionTool

        declared = FunctionTool(look, require_confirmation=True)
        assert await Play("google_adk", policy, tmp_path).status(declared) == "paused"

    async def test_pydantic_ai_tool_flag_asks(
        self, policy: sayso.Policy | None, tmp_path: Path
    ) -> None:
        from pydantic_ai import Tool

        declared = Tool(look, requires_approval=True)
        assert await Play("pydantic_ai", policy, tmp_path).status(declared) == "paused"


@pytest.mark.parametrize("framework", HARNESSES)
def test_adapters_share_guard_and_resume(framework: str) -> None:
    adapter = importlib.import_module(f"sayso.adapters.{framework}")
    assert [*inspect.signature(adapter.guard).parameters][:3] == ["agent", "gate", "policy"]
    resume = inspect.signature(adapter.resume)
    assert [*resume.parameters] == ["guarded", "where", "decisions", "by"]
    assert resume.parameters["decisions"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
