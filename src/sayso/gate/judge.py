"""Driving a policy: its predicates get a time-out, and may be sync or async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

from sayso.policy import Judging, Predicate
from sayso.twin import hop, in_thread
from sayso.types import Terms

PREDICATE_SECONDS = 5.0


async def judge(judging: Judging, timeout: float = PREDICATE_SECONDS) -> Terms:
    """The terms that a policy comes to; it is told of a predicate that raises or hangs."""
    try:
        predicate, args = next(judging)
        while True:
            said = await hop(_said, predicate, args, timeout)
            predicate, args = judging.send(said)
    except StopIteration as stop:
        return cast(Terms, stop.value)


def judge_sync(judging: Judging, timeout: float = PREDICATE_SECONDS) -> Terms:
    """The same for callers that have left the event loop already."""
    try:
        predicate, args = next(judging)
        while True:
            predicate, args = judging.send(_said(predicate, args, timeout))
    except StopIteration as stop:
        return cast(Terms, stop.value)


def _said(predicate: Predicate, args: dict[str, Any], timeout: float) -> object:
    try:
        return in_thread(partial(_evaluate, predicate, args), timeout)
    except Exception as error:
        return error


def _evaluate(predicate: Predicate, args: dict[str, Any]) -> bool:
    answer = predicate(args)
    if inspect.isawaitable(answer):
        return asyncio.run(_awaited(answer))
    return answer


async def _awaited(answer: Awaitable[bool]) -> bool:
    return await answer
