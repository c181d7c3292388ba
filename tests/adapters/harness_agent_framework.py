"""The story on an agent of the Microsoft Agent Framework."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from agent_framework import Agent, ChatResponse, Content, Message
from agent_framework_world import Client

from sayso.adapters.agent_framework import guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript


class AgentFrameworkHarness(AdapterHarness):
    def agent(self) -> Any:
        context = self.context
        return guard(self.build_clerk(context.tools, context.script), context.gate)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        return Agent(Client(functools.partial(_reply, script)), tools=list(tools))

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return await clerk.run(task)


def _reply(script: ModelScript, messages: Sequence[Message]) -> ChatResponse[Any]:
    replies = sum(message.role == "assistant" for message in messages)
    heard = [
        (content.call_id, str(content.result))
        for message in messages
        for content in message.contents
        if content.type == "function_result"
    ]
    turn = script.reply(replies, heard)
    if isinstance(turn, str):
        return ChatResponse(messages=[Message("assistant", [turn])])
    calls = [
        Content.from_function_call(call_id=made.id, name=made.name, arguments=made.args)
        for made in turn
    ]
    return ChatResponse(messages=[Message("assistant", calls)])
