"""The adapter suite on the Microsoft Agent Framework."""

from __future__ import annotations

import pytest
from harness_agent_framework import AgentFrameworkHarness

from sayso.testing import AdapterSuite

pytestmark = pytest.mark.filterwarnings(
    "ignore:An actionable function_call had an empty call_id:FutureWarning"
)


class TestAgentFramework(AdapterSuite):
    harness = AgentFrameworkHarness
