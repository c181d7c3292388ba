"""Calls that the provider makes itself, as for hosted MCP servers: people say yes or no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import Content, Message

from sayso.adapters.agent_framework.messages import MessageLog
from sayso.errors import Paused
from sayso.gate.foreign import ForeignCall, ForeignThread, ForeignTool
from sayso.policy import Policy


class Hosted:
    """The provider's own requests of one run."""

    def __init__(self, log: MessageLog, policy: Policy | None) -> None:
        self.thread = ForeignThread(log.gate, log.thread, policy=policy)

    async def answers(self, requests: Sequence[Content]) -> Message:
        """The framework's answer to all of them; ``Paused`` while people are needed for one."""
        calls = [_call(request) for request in requests]
        await self.thread.ask(calls)
        said: list[Content] = []
        waits = False
        for request, call in zip(requests, calls, strict=True):
            try:
                outcome = await self.thread.outcome(call)
            except Paused:
                waits = True
                continue
            said.append(request.to_function_approval_response(outcome.ok))
            if not outcome.ok:
                said.append(Content.from_text(outcome.text))  # the framework has no place for it
        if waits:
            raise Paused(self.thread.run, ())
        return Message("user", said)


def _call(request: Content) -> ForeignCall:
    made = request.function_call
    assert made is not None
    label = made.server_name or made.additional_properties.get("server_label") or "service"
    return ForeignCall(
        id=f"hosted:{request.id}",
        tool=ForeignTool(
            name=f"{label}.{made.name}", needs_approval=True, possible=("approve", "reject")
        ),
        args=dict(made.parse_arguments() or {}),
        run=_said_yes,
    )


async def _said_yes(args: dict[str, Any]) -> bool:
    return True  # the provider makes the call as soon as it is told
