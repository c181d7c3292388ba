"""The adapter suite on pydantic-ai."""

from __future__ import annotations

from typing import ClassVar

from harness_pydantic_ai import PydanticAIHarness

from sayso.testing import AdapterSuite


class TestPydanticAI(AdapterSuite):
    harness = PydanticAIHarness
    cannot: ClassVar = {
        "test_equal_ids_run_two_calls": "pydantic-ai refuses a reply with two calls of one id",
        "test_empty_ids_run_two_calls": "pydantic-ai refuses a reply with two calls of one id",
    }
