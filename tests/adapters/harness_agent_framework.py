"""The story on an agent of the Microsoft Agent Framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, ChatResponse, Content, Message
from agent_framework_world import Client

from sayso.adapters.agent_framework import guard
from sayso.testing import AdapterHarness


class AgentFrameworkHarness(AdapterHarness):
    def agent(self) -> Any:
        context = self.context
        return guard(Agent(Client(self._reply), tools=list(context.tools)), context.gate)

    def _reply(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        replies = sum(message.role == "assistant" for message in messages)
        heard = [
            (content.call_id, str(content.result))
            for message in messages
            for content in message.contents
            if content.type == "function_result"
        ]
        turn = self.context.script.reply(replies, heard)
        if isinstance(turn, str):
            return ChatResponse(messages=[Message("assistant", [turn])])
        calls = [
            Content.from_function_call(call_id=made.id, name=made.name, arguments=made.args)
            for made in turn
        ]
        return ChatResponse(messages=[Message("assistant", calls)])
