"""Everything that Claude can reach is behind the gate, or guard() refuses it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import sayso

pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)')

import claude_agent_sdk
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ClaudeSDKClient
from claude_agent_world import in_process

from sayso.adapters.claude_agent import guard

GLOBAL: Any = None


@pytest.fixture
def gate() -> sayso.Gate:
    return sayso.Gate("memory://", agent="coder", wait=0)


async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def ask_global(task: str) -> str:
    """Ask the client of this module."""
    await GLOBAL.query(task)
    return "asked"


async def ask_another(task: str) -> str:
    """Start another Claude."""
    return await _another(task)


async def _another(task: str) -> str:
    return str([message async for message in claude_agent_sdk.query(prompt=task)])


async def ask_by_module(task: str) -> str:
    """Start another Claude."""
    async with claude_agent_sdk.ClaudeSDKClient() as client:
        return str(await client.get_server_info())


def test_the_table(gate: sayso.Gate) -> None:
    given = ClaudeAgentOptions(
        tools=["Bash"],
        mcp_servers={"files": {"command": "files"}},
        agents={"reader": AgentDefinition("Reads.", "Read.")},
        plugins=[{"type": "local", "path": "/plugins/some"}],
    )
    coverage = guard(given, gate, tools=[in_process(pay)]).coverage()
    assert [(one.where, one.kind, one.name, one.gated) for one in coverage] == [
        ("coder", "tool", "pay", True),
        ("coder", "built-in tool", "Bash", True),
        ("coder", "MCP server", "files", True),
        ("coder", "plugin", "/plugins/some", True),
        ("coder", "agent", "reader", True),
    ]
    assert "the gate runs it" in str(coverage)


def test_a_client_in_a_closure(gate: sayso.Gate) -> None:
    client = ClaudeSDKClient()

    async def delegate(task: str) -> str:
        """Ask another Claude."""
        await client.query(task)
        return "asked"

    with pytest.raises(sayso.InvalidCall, match="client 'client in delegate' of coder"):
        guard(ClaudeAgentOptions(), gate, tools=[in_process(delegate)])
    named = guard(
        ClaudeAgentOptions(), gate, tools=[in_process(delegate)], ungated=["client in delegate"]
    )
    assert named.coverage().ungated == ("client in delegate",)


def test_a_client_under_a_global_name(gate: sayso.Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.GLOBAL", ClaudeSDKClient())
    with pytest.raises(sayso.InvalidCall, match="ask_global finds it as the global name 'GLOBAL'"):
        guard(ClaudeAgentOptions(), gate, tools=[in_process(ask_global)])


@pytest.mark.parametrize(
    ("function", "name"),
    [(ask_another, "query in ask_another"), (ask_by_module, "ClaudeSDKClient in ask_by_module")],
)
def test_built_while_the_tool_runs(gate: sayso.Gate, function: Any, name: str) -> None:
    with pytest.raises(sayso.InvalidCall, match=f"client '{name}' of coder"):
        guard(ClaudeAgentOptions(), gate, tools=[in_process(function)])
    guard(ClaudeAgentOptions(), gate, tools=[in_process(function)], ungated=[name])


def test_a_guarded_one(gate: sayso.Gate) -> None:
    inner = guard(ClaudeAgentOptions(), gate)

    async def delegate(task: str) -> str:
        """Ask another Claude."""
        return str((await inner.run(task, thread="inner")).output)

    guard(ClaudeAgentOptions(), gate, tools=[in_process(delegate)])


def test_a_name_that_is_gated_is_not_ungated(gate: sayso.Gate) -> None:
    with pytest.raises(sayso.InvalidCall, match=r"ungated names 'Bash', but its calls go through"):
        guard(ClaudeAgentOptions(tools=["Bash"]), gate, ungated=["Bash"])


def test_the_options_passed_in_are_not_changed(gate: sayso.Gate) -> None:
    given = ClaudeAgentOptions(tools=["Bash"], env={"A": "b"}, hooks={"Stop": []})
    before = copy.copy(given), dict(given.env), dict(given.hooks or {})
    guarded = guard(given, gate, tools=[in_process(pay)])
    assert (given, given.env, given.hooks) == before
    # And nothing can be added to them that guard() has not seen.
    given.can_use_tool = print  # type: ignore[assignment]
    given.env["CLAUDE_CODE_SIMPLE"] = "1"
    given.extra_args["bare"] = None
    kept = guarded.options
    assert (kept.can_use_tool, kept.env, kept.extra_args) == (None, {"A": "b"}, {})
