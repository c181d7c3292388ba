"""The adapter suite on Google ADK."""

from __future__ import annotations

from harness_google_adk import GoogleADKHarness

from sayso.testing import AdapterSuite


class TestGoogleADK(AdapterSuite):
    harness = GoogleADKHarness
