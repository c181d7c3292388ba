"""The whole story on the OpenAI Agents SDK."""

from __future__ import annotations

from harness_openai_agents import OpenAIAgentsHarness

from sayso.testing import AdapterSuite


class TestOpenAIAgents(AdapterSuite):
    harness = OpenAIAgentsHarness
