"""The adapter suite on ``sayso.Agent``, which is no adapter and must pass, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sayso
from sayso.agent.models.base import Message
from sayso.testing import AdapterHarness, ScriptedModel, call, calls, say


def _with_context(function: Any) -> Any:
    """Return a tool that asks with its context, instead of at the gate."""
    if function.__name__ != "order":
        return function

    async def order(ctx: sayso.Context, dish: str) -> str:
        with ctx._scope.inside():
            return str(await function(dish))

    return order


class AgentHarness(AdapterHarness):
    def agent(self) -> sayso.Agent:
        context = self.context
        agent = sayso.Agent(
            "teller",
            model=ScriptedModel(self._reply),
            tools=[sayso.tool(_with_context(function)) for function in context.tools],
        )
        agent._gate = context.gate  # the play's tools ask there
        return agent

    def _reply(self, messages: Sequence[Message]) -> Any:
        replies = sum(message["role"] == "assistant" for message in messages)
        heard = [(m["call_id"], m["content"]) for m in messages if m["role"] == "tool"]
        turn = self.context.script.reply(replies, heard)
        if isinstance(turn, str):
            return say(turn)
        return calls(*(call(made.name, made.args, id=made.id) for made in turn))
