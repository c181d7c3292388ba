"""The whole story on the Microsoft Agent Framework."""

from __future__ import annotations

from harness_agent_framework import AgentFrameworkHarness

from sayso.testing import AdapterSuite


class TestAgentFramework(AdapterSuite):
    harness = AgentFrameworkHarness
