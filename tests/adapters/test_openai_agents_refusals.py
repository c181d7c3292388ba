"""``guard`` refuses tools that bypass the gate, and names the extra if the SDK is missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from agents import Agent, HostedMCPTool, ShellTool
from agents.testing import ScriptedModel
from openai_agents_world import World, call, pay_of, say

import sayso
from sayso.adapters.openai_agents import guard

PAST_THE_GATE: Any = [
    (ShellTool(executor=lambda request: ""), "ShellTool"),
    (
        HostedMCPTool(
            tool_config={"type": "mcp", "server_label": "git", "server_url": "https://x"},
            on_approval_request=lambda request: {"approve": True},
        ),
        "on_approval_request",
    ),
]


class TestRefused:
    """What would go past the gate is refused when the agent is guarded, and nothing is changed."""

    @pytest.mark.parametrize(("tool", "words"), PAST_THE_GATE)
    def test_tool_that_bypasses_gate_is_refused(self, world: World, tool: Any, words: str) -> None:
        plain = pay_of(world)
        agent = Agent("Teller", tools=[plain, tool])
        with pytest.raises(sayso.InvalidCall, match=words):
            guard(agent, world.gate())
        assert agent.tools[0] is plain

    async def test_tool_added_later_asks(self, world: World) -> None:
        world.policy = sayso.Policy([sayso.Rule("pay")])
        world.one(ScriptedModel([[call("pay", to="ana")], [say("Done.")]]))
        guarded = world.guarded()
        guarded.agent.tools.append(pay_of(world))
        assert (await guarded.run("go", thread="t-1")).status == "paused"
        assert world.ran == []
        await world.approve()
        assert (await guarded.resume("t-1")).output == "Done."
        assert world.ran == ["ana"]

    @pytest.mark.parametrize(("tool", "words"), PAST_THE_GATE)
    async def test_bypassing_tool_added_later_is_refused(
        self, world: World, tool: Any, words: str
    ) -> None:
        world.one(ScriptedModel([[say("Done.")]]))
        guarded = world.guarded()
        guarded.agent.tools.append(tool)
        with pytest.raises(sayso.InvalidCall, match=words):
            await guarded.run("go", thread="t-1")

    @pytest.mark.parametrize("asks", [True, False])
    async def test_handoff_added_later_is_refused(self, world: World, asks: bool) -> None:
        """The SDK's own question about its call would be answered by nobody."""
        pay = replace(pay_of(world), needs_approval=asks)
        clerk = Agent("Clerk", tools=[pay])
        clerk.model = ScriptedModel([[call("pay", "call_2", to="ana")], [say("Paid.")]])
        world.one(ScriptedModel([[call("transfer_to_clerk")]]))
        guarded = world.guarded()
        guarded.agent.handoffs.append(clerk)
        with pytest.raises(sayso.InvalidCall, match="after guard"):
            await guarded.run("go", thread="t-1")
        assert world.ran == []

    def test_agent_cannot_be_guarded_twice(self, world: World) -> None:
        """The agent that was passed in is still the user's own; its guarded copy is not."""
        agent = Agent("Teller")
        guarded = guard(agent, world.gate())
        guard(agent, world.gate())
        with pytest.raises(sayso.InvalidCall, match="guarded already"):
            guard(guarded.agent, world.gate())

    def test_two_agents_with_one_name_are_refused(self, world: World) -> None:
        with pytest.raises(sayso.InvalidCall, match="two agents"):
            guard(Agent("Teller", handoffs=[Agent("Teller")]), world.gate())

    def test_session_option_is_refused(self, world: World) -> None:
        with pytest.raises(TypeError, match="unknown option session"):
            guard(Agent("Teller"), world.gate(), session=object())  # type: ignore[call-arg]


def test_missing_sdk_names_the_extra() -> None:
    code = "import sys; sys.modules['agents'] = None; import sayso.adapters.openai_agents"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "sayso[openai-agents]"' in done.stderr
