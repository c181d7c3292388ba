"""Tools of remote MCP servers that the provider runs: people say yes or no, and nothing else."""

from __future__ import annotations

from typing import Any

from agents import HostedMCPTool

from sayso.adapters.openai_agents.drive import Drive
from sayso.adapters.openai_agents.values import parsed
from sayso.errors import InvalidCall
from sayso.gate.foreign import ForeignCall, ForeignTool, Outcome
from sayso.types import Json

_POSSIBLE = ("approve", "reject")


def check(tool: HostedMCPTool) -> None:
    """A tool that decides by itself would go past the gate."""
    if tool.on_approval_request is not None:
        label = dict(tool.tool_config).get("server_label")
        raise InvalidCall(
            f"the hosted MCP server {label!r} has an on_approval_request, which would decide past "
            "the gate: take it away, and give the gate a policy with rules for "
            f"'{label}.*' instead",
            "on_approval_request",
        )


def call(key: str, request: Any) -> ForeignCall:
    """The call that the provider wants a yes for; InvalidCall if nobody can be shown it."""
    args = parsed(request.arguments or "{}")
    face = ForeignTool(
        name=f"{request.server_label}.{request.name}",
        needs_approval=True,
        possible=_POSSIBLE,
    )
    return ForeignCall(id=key, tool=face, args=args, run=_said_yes)


async def _said_yes(args: dict[str, Json]) -> bool:
    return True


async def outcome(drive: Drive, key: str, request: Any) -> Outcome:
    """What the provider is told: yes, or no and why."""
    try:
        return await drive.calls.outcome(call(key, request))
    except InvalidCall as error:
        return Outcome(ok=False, value=None, text=f"The call cannot be read: {error}")
