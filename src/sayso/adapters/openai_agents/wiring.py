"""Finding every tool and model that an agent can reach, and putting the gate in front of them."""

from __future__ import annotations

from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, Tool
from agents.sandbox import SandboxAgent

from sayso.adapters.openai_agents.endings import unless_refused
from sayso.adapters.openai_agents.model import Remembered, check_guarded
from sayso.adapters.openai_agents.reach import behind, check_tool, late_tool
from sayso.adapters.openai_agents.settling import refused
from sayso.adapters.openai_agents.tools import gated, gated_of
from sayso.errors import InvalidCall


def wire(agent: Agent[Any]) -> list[Agent[Any]]:
    """Guard an agent and every agent behind it, in place: handoffs and tools hold on to the very
    objects. Nothing is changed if one of them cannot be guarded."""
    found: dict[int, Agent[Any]] = {}
    _collect(agent, found)
    agents = list(found.values())
    names = [one.name for one in agents]
    for one in agents:
        if names.count(one.name) > 1:
            raise InvalidCall(
                f"two agents are called {one.name!r}: a pause could not tell them apart, so give "
                "each a name of its own",
                "name",
            )
    for one in agents:
        one.tools = [_guarded(tool, one) for tool in one.tools]
        one.model = Remembered(one, one.model)
        one.tool_use_behavior = unless_refused(one.tool_use_behavior)
        _guard_listing(one)
    return agents


def _collect(agent: Any, found: dict[int, Agent[Any]]) -> None:
    if id(agent) in found:
        return
    _check(agent)
    found[id(agent)] = agent
    for tool in agent.tools:
        if isinstance(tool, FunctionTool) and tool._agent_instance is not None:
            _collect(tool._agent_instance, found)
    for handoff in agent.handoffs:
        to = handoff if isinstance(handoff, Agent) else behind(handoff)
        _collect(to, found)


def _check(agent: Any) -> None:
    if not isinstance(agent, Agent) or isinstance(agent, SandboxAgent):
        raise InvalidCall(
            f"{agent!r:.80} is not an agent that can be guarded: give an Agent of the SDK, as it "
            "was before guard(...), and not one for a sandbox or for real time",
            "agent",
        )
    if isinstance(agent.model, Remembered):
        raise InvalidCall(
            f"agent {agent.name!r} is guarded already: build it anew for another gate", "agent"
        )
    for tool in agent.tools:
        check_tool(tool, agent)


def _guarded(tool: Tool, agent: Agent[Any]) -> Tool:
    return gated(tool, agent) if isinstance(tool, FunctionTool) else tool


def _check_late(agent: Agent[Any]) -> None:
    """Refuse what the agent was given since; whoever brings a model of their own to the run does
    not come by ours, which looks at the same."""
    for tool in agent.tools:
        check_tool(tool, agent)
        if isinstance(tool, FunctionTool) and gated_of(tool) is None:
            raise late_tool(tool)
    for handoff in agent.handoffs:
        check_guarded(handoff if isinstance(handoff, Agent) else behind(handoff))


def _guard_listing(agent: Agent[Any]) -> None:
    """Tools of local MCP servers are listed anew for every turn, also for one that is resumed."""
    listed = agent.get_mcp_tools

    async def get_mcp_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
        _check_late(agent)
        await refused(run_context)
        tools = await listed(run_context)
        return [tool if gated_of(tool) else _guarded(tool, agent) for tool in tools]

    setattr(agent, "get_mcp_tools", get_mcp_tools)  # noqa: B010  # on this one object
