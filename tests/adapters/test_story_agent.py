"""The adapter suite on ``sayso.Agent``."""

from __future__ import annotations

from typing import ClassVar

from harness_agent import AgentHarness

from sayso.testing import AdapterSuite


class TestAgent(AdapterSuite):
    harness = AgentHarness
    cannot: ClassVar = {
        "test_coverage_names_each_tool": "every agent of Sayso has a gate",
        "test_delegated_call_needs_a_decision": "every agent of Sayso has a gate",
        "test_unguarded_agent_is_not_disturbed": "every agent of Sayso has a gate",
    }
