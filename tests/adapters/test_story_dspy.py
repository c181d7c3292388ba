"""The adapter suite on DSPy, with async and with plain tools."""

from __future__ import annotations

from typing import ClassVar

from harness_dspy import DspyHarness, SyncDspyHarness

from sayso.testing import AdapterSuite


class TestDspy(AdapterSuite):
    harness = DspyHarness
    cannot: ClassVar = {
        "test_later_turn_knows_earlier_ones": "a ReAct has no earlier turns",
        "test_superseded_call_has_a_result": "a ReAct has no earlier turns",
        "test_superseded_turn_keeps_results": "a ReAct has no earlier turns",
        "test_third_turn_repeats_no_earlier_turn": "a ReAct has no earlier turns",
    }


class TestDspyWithPlainTools(AdapterSuite):
    harness = SyncDspyHarness
    cannot = TestDspy.cannot
