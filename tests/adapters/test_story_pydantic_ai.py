"""The whole story on pydantic-ai."""

from __future__ import annotations

from stage_pydantic_ai import PydanticAIStage

from sayso.testing import AdapterStory


class TestPydanticAI(AdapterStory):
    stage = PydanticAIStage
