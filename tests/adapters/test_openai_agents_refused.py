"""What would go past the gate is refused; without the SDK, the adapter says what to install."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, HostedMCPTool, ShellTool, function_tool
from agents.testing import ScriptedModel
from openai_agents_world import World, call

import assent
from assent.adapters.openai_agents import guard


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def paying(world: World) -> Any:
    async def pay(to: str) -> str:
        """Pay somebody."""
        world.ran.append(to)
        return f"paid {to}"

    return function_tool(pay)


class TestRefused:
    """What would go past the gate is refused when the agent is guarded, and nothing is changed."""

    @pytest.mark.parametrize(
        ("tool", "words"),
        [
            (ShellTool(executor=lambda request: ""), "ShellTool"),
            (
                HostedMCPTool(
                    tool_config={"type": "mcp", "server_label": "git", "server_url": "https://x"},
                    on_approval_request=lambda request: {"approve": True},
                ),
                "on_approval_request",
            ),
        ],
    )
    def test_tools(self, world: World, tool: Any, words: str) -> None:
        plain = paying(world)
        agent = Agent("Teller", tools=[plain, tool])
        with pytest.raises(assent.InvalidCall, match=words):
            guard(agent, world.gate())
        assert agent.tools[0] is plain

    async def test_a_tool_that_came_later(self, world: World) -> None:
        world.one(ScriptedModel([[call("pay", to="ana")]]))
        guarded = world.guarded()
        guarded.agent.tools.append(paying(world))
        with pytest.raises(assent.InvalidCall, match="after guard"):
            await guarded.run("go", thread="t-1")
        assert world.ran == []

    def test_twice(self, world: World) -> None:
        agent = Agent("Teller")
        guard(agent, world.gate())
        with pytest.raises(assent.InvalidCall, match="guarded already"):
            guard(agent, world.gate())

    def test_two_of_one_name(self, world: World) -> None:
        with pytest.raises(assent.InvalidCall, match="two agents"):
            guard(Agent("Teller", handoffs=[Agent("Teller")]), world.gate())

    def test_a_session(self, world: World) -> None:
        with pytest.raises(TypeError, match="no option session"):
            guard(Agent("Teller"), world.gate(), session=object())  # type: ignore[call-arg]


def test_without_the_sdk_the_install_line_is_said() -> None:
    code = "import sys; sys.modules['agents'] = None; import assent.adapters.openai_agents"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "assent[openai-agents]"' in done.stderr
