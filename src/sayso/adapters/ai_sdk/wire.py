"""UI message stream v1 as text, its ids, and the helpers of the cookbook's human-in-the-loop
recipe.

Keys without a value are left out: the client takes a ``null`` for an error.

In the recipe, a guarded call is a tool without a body: the page shows Yes and No, and returns one
of two fixed texts as the tool's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from sayso import codec
from sayso.rows import Call, CallStatus
from sayso.types import ToolCall, Verdict, moment

if TYPE_CHECKING:
    from sayso.agent import Agent
    from sayso.agent.tool import Tool
    from sayso.policy import Rule

Chunk: TypeAlias = dict[str, Any]

HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}
KEEP_ALIVE = ": keep-alive\n\n"
KEEP_ALIVE_SECONDS = 15.0
DONE = "data: [DONE]\n\n"


def frame(chunk: Chunk) -> str:
    """Return one chunk as a server-sent event."""
    return f"data: {codec.dumps(chunk)}\n\n"


def approval_id(call: Call) -> str:
    """Return the id of a card: the request and the revision that it shows.

    A call in doubt is another question than before, so its card has another id.
    """
    doubt = "d" if call.status is CallStatus.IN_DOUBT else ""
    return f"{call.id}.r{call.rev}{doubt}"


# -- the recipe


class APPROVAL:
    """The two answers that page and server share."""

    YES = "Yes, confirmed."
    NO = "No, denied."


#: The output of a denied call, as the recipe's server sends it.
DENIED = "Error: User denied access to tool execution"


def tools_requiring_confirmation(agent: Agent) -> list[str]:
    """Return the names of the tools that may need a Yes or No, by the policy or by themselves."""
    rules, now = agent.gate.policy.rules, moment(agent.store.now())
    return [tool.name for tool in agent.tools.values() if _may_ask(tool, agent.name, rules, now)]


def _may_ask(tool: Tool, agent: str, rules: tuple[Rule, ...], now: datetime) -> bool:
    """Questions, and tools without a body, are answered instead of confirmed."""
    if tool.function is None:
        return False
    for rule in rules:
        if rule.unmet(ToolCall(tool.name, {}), agent, now) in ("tool", "agent"):
            continue
        if rule.verdict == Verdict.ASK:
            return True
        if rule.when is None and rule.hours is None and rule.days is None:
            return False  # it always matches, so later rules do not count
    return tool.needs_approval is not False
