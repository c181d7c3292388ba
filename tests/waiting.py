"""Wait for a condition instead of sleeping, and wait for several things at once.

The time limit is for hangs only: it is far longer than a busy machine needs, and waiting ends as
soon as the condition holds.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds after which a test gives up.
PATIENCE = 150.0
_FIRST, _LONGEST = 0.001, 0.05


def until(
    look: Callable[[], T],
    *,
    seconds: float = PATIENCE,
    otherwise: Callable[[], object] | None = None,
) -> T:
    """Call ``look`` until it returns something true, and return that.

    Raises ``AssertionError`` after ``seconds``, with what ``otherwise`` returns, such as a log.
    """
    end, pause = time.monotonic() + seconds, _FIRST
    while not (found := look()):
        assert time.monotonic() < end, _failure(seconds, otherwise)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return found


async def until_async(
    look: Callable[[], T | Awaitable[T]],
    *,
    seconds: float = PATIENCE,
    otherwise: Callable[[], object] | None = None,
) -> T:
    """Like ``until``, but leave the event loop free. ``look`` may be sync or async."""
    end, pause = time.monotonic() + seconds, _FIRST
    while True:
        found: Any = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found  # type: ignore[no-any-return]
        assert time.monotonic() < end, _failure(seconds, otherwise)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST)


def at_once(*parts: Callable[[], object]) -> None:
    """Run the parts of a test that mostly wait, each in a thread. The first failure is raised."""
    with ThreadPoolExecutor(len(parts)) as pool:
        for result in [pool.submit(part) for part in parts]:
            result.result()


def _failure(seconds: float, otherwise: Callable[[], object] | None) -> str:
    return f"not within {seconds:.0f} seconds" + (f": {otherwise()}" if otherwise else "")
