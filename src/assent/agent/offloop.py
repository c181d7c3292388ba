"""Calling functions of any colour from the loop, without letting one of them block it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


async def called(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function: an async one here, a sync one in a thread, so that it blocks nobody."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await asyncio.to_thread(_call, function, args, kwargs)
    return await value if inspect.isawaitable(value) else value


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # A future cannot carry it: whoever waits for that future would wait for ever.
        raise RuntimeError(f"StopIteration: {error}") from error
