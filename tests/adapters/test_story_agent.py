"""The whole story on ``sayso.Agent``."""

from __future__ import annotations

from stage_agent import AgentStage

from sayso.testing import AdapterStory


class TestAgent(AdapterStory):
    stage = AgentStage
