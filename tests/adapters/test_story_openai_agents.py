"""The whole story on the OpenAI Agents SDK."""

from __future__ import annotations

from stage_openai_agents import OpenAIAgentsStage

from sayso.testing import AdapterStory


class TestOpenAIAgents(AdapterStory):
    stage = OpenAIAgentsStage
