"""The whole story on the Microsoft Agent Framework."""

from __future__ import annotations

from stage_agent_framework import AgentFrameworkStage

from sayso.testing import AdapterStory


class TestAgentFramework(AdapterStory):
    stage = AgentFrameworkStage
