"""The whole story on LangChain, in both colours."""

from __future__ import annotations

from stage_langchain import LangChainStage, SyncLangChainStage

from sayso.testing import AdapterStory


class TestLangChain(AdapterStory):
    stage = LangChainStage


class TestLangChainSync(AdapterStory):
    stage = SyncLangChainStage
