"""The helpers of the cookbook's human-in-the-loop recipe, for front ends that were written to it.

There a gated call is a tool without a body: the page shows Yes and No, and gives one of two fixed
texts as the tool's output.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sayso.types import ToolCall, Verdict, moment

if TYPE_CHECKING:
    from sayso.agent import Agent
    from sayso.agent.tool import Tool
    from sayso.policy import Rule


class APPROVAL:
    """The two answers that page and server share."""

    YES = "Yes, confirmed."
    NO = "No, denied."


#: What the recipe's server gives as the output of a call that was denied.
DENIED = "Error: User denied access to tool execution"


def tools_requiring_confirmation(agent: Agent) -> list[str]:
    """The tools that may ask for a Yes or No, by their own word or by the policy's."""
    rules, now = agent.gate.policy.rules, moment(agent.store.now())
    return [tool.name for tool in agent.tools.values() if _may_ask(tool, agent.name, rules, now)]


def _may_ask(tool: Tool, agent: str, rules: tuple[Rule, ...], now: datetime) -> bool:
    """Questions, and tools without a body, are answered and not confirmed."""
    if tool.function is None:
        return False
    for rule in rules:
        if rule.unmet(ToolCall(tool.name, {}), agent, now) in ("tool", "agent"):
            continue
        if rule.verdict == Verdict.ASK:
            return True
        if rule.when is None and rule.hours is None and rule.days is None:
            return False  # it always fits, so that those below it are never heard
    return tool.needs_approval is not False
