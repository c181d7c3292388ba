"""The whole story on the Claude Agent SDK."""

from __future__ import annotations

import pytest

from sayso.testing import AdapterSuite

pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)')

from harness_claude_agent import ClaudeAgentHarness


class TestClaudeAgent(AdapterSuite):
    harness = ClaudeAgentHarness
