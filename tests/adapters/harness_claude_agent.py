"""The story on the Claude Agent SDK: the real Claude Code, and a scripted model on loopback."""

from __future__ import annotations

from typing import Any

from claude_agent_world import FakeAnthropic, in_process, options, say, use

from sayso.adapters.claude_agent import guard
from sayso.testing import AdapterHarness


class ClaudeAgentHarness(AdapterHarness):
    async def open(self) -> None:
        self.fake = FakeAnthropic(self._reply)

    def agent(self) -> Any:
        context = self.context
        tools = [in_process(function) for function in context.tools]
        return guard(options(context.folder, self.fake), context.gate, tools=tools)

    def _reply(self, replies: int, heard: list[tuple[str, str]]) -> list[Any]:
        turn = self.context.script.reply(replies, heard)
        if isinstance(turn, str):
            return [say(turn)]
        return [use(f"mcp__sayso__{made.name}", made.id, **made.args) for made in turn]

    async def close(self) -> None:
        self.fake.close()
