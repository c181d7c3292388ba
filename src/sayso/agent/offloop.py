"""Calling functions of any colour from the loop, without letting one of them block it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sayso.threads import off_loop


async def called(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function: an async one here, a sync one in a thread, so that it blocks nobody."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await off_loop(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value
