"""The whole story on ``sayso.Agent``."""

from __future__ import annotations

from harness_agent import AgentHarness

from sayso.testing import AdapterSuite


class TestAgent(AdapterSuite):
    harness = AgentHarness
