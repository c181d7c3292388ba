"""What an agent may have: tools that a gate can stand in front of, and agents behind the gate."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    Handoff,
    HostedMCPTool,
    LocalShellTool,
    ShellTool,
    Tool,
)

from sayso.adapters.openai_agents import hosted
from sayso.errors import InvalidCall

_UNGUARDED = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)


def check_tool(tool: Tool, agent: Agent[Any]) -> None:
    """Refuse a tool that no gate can stand in front of."""
    if isinstance(tool, HostedMCPTool):
        hosted.check(tool)
    if isinstance(tool, _UNGUARDED):
        raise InvalidCall(
            f"{type(tool).__name__} of agent {agent.name!r} would run past the gate: give the "
            "agent a function_tool that does what it may do",
            "tools",
        )


def behind(handoff: Handoff[Any, Any]) -> Any:
    """The agent that takes over."""
    to = handoff._agent_ref() if handoff._agent_ref is not None else None
    if to is None:
        raise InvalidCall(
            f"nobody can tell which agent is behind the handoff {handoff.tool_name!r}: make it "
            "with handoff(agent)",
            "handoffs",
        )
    return to


def late(agent: Agent[Any]) -> InvalidCall:
    """What to say of an agent that nobody has guarded."""
    return InvalidCall(
        f"agent {agent.name!r} was given to another after guard(...), and would run past the gate: "
        "give an agent all that it may hand off to before",
        "handoffs",
    )


def late_tool(tool: Tool) -> InvalidCall:
    """What to say of a tool that nobody has guarded."""
    return InvalidCall(
        f"{tool.name} was given to its agent after guard(...), and would run past the gate: give "
        "an agent all its tools before",
        "tools",
    )
