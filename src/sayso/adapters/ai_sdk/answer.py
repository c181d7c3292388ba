"""What ``stream`` gives: to be awaited first, where a refusal is to be an answer of its own, or to
be read right away."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import aclosing
from typing import Any, TypeAlias

Frames: TypeAlias = AsyncGenerator[str, None]


class Answer:
    """``await`` gives the frames, or raises; ``async for`` does both in one."""

    __slots__ = ("_opening",)

    def __init__(self, opening: Coroutine[Any, Any, Frames]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, Frames]:
        return self._opening.__await__()

    async def __aiter__(self) -> Frames:
        async with aclosing(await self._opening) as frames:
            async for frame in frames:
                yield frame
