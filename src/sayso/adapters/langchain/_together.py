"""The calls that a tool node makes side by side: one that pauses waits for the others.

LangGraph goes on as soon as the first of them stops, and leaves the rest at work behind its back:
the run would be let go while one of its calls still runs, and whoever resumes it would wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from langgraph.errors import GraphBubbleUp


class Together:
    """The tasks in which a node's calls are at work, by the step that they belong to."""

    def __init__(self) -> None:
        self._steps: dict[Any, set[Any]] = {}

    async def one(self, step: Any, work: Awaitable[Any]) -> Any:
        """A call of a step, whose pause comes out when no other call of the step is at work."""
        tasks, task = self._steps.setdefault(step, set()), asyncio.current_task()
        tasks.add(task)
        try:
            return await work
        except GraphBubbleUp:
            await asyncio.sleep(0)  # those that are to begin have begun
            tasks.discard(task)  # so that two that pause do not wait for each other
            if tasks:
                await asyncio.wait(set(tasks))
            raise
        finally:
            tasks.discard(task)
            if not tasks:
                self._steps.pop(step, None)
