"""The adapter suite on LangChain, async and sync."""

from __future__ import annotations

from harness_langchain import LangChainHarness, SyncLangChainHarness

from sayso.testing import AdapterSuite


class TestLangChain(AdapterSuite):
    harness = LangChainHarness


class TestLangChainSync(AdapterSuite):
    harness = SyncLangChainHarness
