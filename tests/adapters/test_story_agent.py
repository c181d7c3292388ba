"""The whole story on ``sayso.Agent``."""

from __future__ import annotations

from harness_agent import AgentHarness

from sayso.testing import AdapterSuite


class TestAgent(AdapterSuite):
    harness = AgentHarness
    # Every agent of Sayso has a gate, so no clerk is without one.
    test_delegated_call_needs_a_decision = None  # type: ignore[assignment]
