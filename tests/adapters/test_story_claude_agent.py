"""The adapter suite on the Claude Agent SDK: a hundred starts, in `make test-agents`.

Gating its own tools and those of ours is tested in every run (``test_claude_agent_guard.py``).
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from sayso.testing import AdapterSuite

pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)')

from harness_claude_agent import ClaudeAgentHarness

pytestmark = pytest.mark.agents


class TestClaudeAgent(AdapterSuite):
    harness = ClaudeAgentHarness
    cannot: ClassVar = {
        "test_equal_ids_run_two_calls": "Claude Code gives calls with one id one result",
        "test_empty_ids_run_two_calls": "Claude Code gives the hook no id; the call is denied",
    }
