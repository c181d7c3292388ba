"""The story on the Claude Agent SDK: the real Claude Code, and a scripted model on loopback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server
from claude_agent_world import FakeAnthropic, in_process, options, say, use

from sayso.adapters.claude_agent import guard
from sayso.testing import AdapterHarness
from sayso_testing.adapter_harness import ModelScript


class ClaudeAgentHarness(AdapterHarness):
    async def open(self) -> None:
        self.fakes: list[FakeAnthropic] = []

    def agent(self) -> Any:
        context = self.context
        tools = [in_process(function) for function in context.tools]
        return guard(self._options(context.script), context.gate, tools=tools)

    def build_clerk(self, tools: Sequence[Callable[..., Any]], script: ModelScript) -> Any:
        server = create_sdk_mcp_server("sayso", tools=[in_process(one) for one in tools])
        more: Any = {"mcp_servers": {"sayso": server}, "allowed_tools": ["mcp__sayso"]}
        return self._options(script, **more)

    async def run_clerk(self, clerk: Any, task: str) -> Any:
        return [message async for message in claude_agent_sdk.query(prompt=task, options=clerk)]

    def _options(self, script: ModelScript, **more: Any) -> ClaudeAgentOptions:
        fake = FakeAnthropic(functools.partial(_reply, script))
        self.fakes.append(fake)
        return options(self.context.folder, fake, **more)

    async def close(self) -> None:
        for fake in self.fakes:
            fake.close()


def _reply(script: ModelScript, replies: int, heard: list[tuple[str, str]]) -> list[Any]:
    # The adapter numbers ids that a later reply may repeat.
    results = [(id.partition("-")[0], text) for id, text in heard]
    turn = script.reply(replies, results)
    if isinstance(turn, str):
        return [say(turn)]
    return [use(f"mcp__sayso__{made.name}", made.id, **made.args) for made in turn]
