"""The whole story on ``assent.Agent``."""

from __future__ import annotations

from stage_agent import AgentStage

from assent.testing import AdapterStory


class TestAgent(AdapterStory):
    stage = AgentStage
