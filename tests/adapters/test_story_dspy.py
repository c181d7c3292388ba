"""The whole story on DSPy, with async and with plain tools."""

from __future__ import annotations

from stage_dspy import DspyStage, SyncDspyStage

from sayso.testing import AdapterStory


class TestDspy(AdapterStory):
    stage = DspyStage


class TestDspyWithPlainTools(AdapterStory):
    stage = SyncDspyStage
