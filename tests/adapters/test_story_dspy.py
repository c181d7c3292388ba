"""The whole story on DSPy, with async and with plain tools."""

from __future__ import annotations

from harness_dspy import DspyHarness, SyncDspyHarness

from sayso.testing import AdapterSuite


class TestDspy(AdapterSuite):
    harness = DspyHarness


class TestDspyWithPlainTools(AdapterSuite):
    harness = SyncDspyHarness
