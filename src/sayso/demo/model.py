"""The demo's model: it plays the script, word by word, and slowly where that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sayso.agent.models import ModelReply, ModelRequest, TextDelta
from sayso.demo.script import is_slow, script
from sayso.testing import ScriptedModel

SLOW_SECONDS = 5.0
WORD_SECONDS = 0.02


class DemoModel(ScriptedModel):
    """A scripted model with a pace: a slow answer takes some five seconds, however long it is."""

    def __init__(self) -> None:
        super().__init__(script, name="demo")

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer word by word."""
        pieces = [piece async for piece in super().stream(request)]
        is_final = not any(isinstance(piece, ModelReply) and piece.calls for piece in pieces)
        slow = is_final and is_slow(request.messages)
        pause = SLOW_SECONDS / len(pieces) if slow else WORD_SECONDS
        for piece in pieces:
            if isinstance(piece, TextDelta):
                await asyncio.sleep(pause)
            yield piece
