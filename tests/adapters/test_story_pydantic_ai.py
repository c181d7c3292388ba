"""The whole story on pydantic-ai."""

from __future__ import annotations

from harness_pydantic_ai import PydanticAIHarness

from sayso.testing import AdapterSuite


class TestPydanticAI(AdapterSuite):
    harness = PydanticAIHarness
