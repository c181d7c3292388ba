"""A step that runs once: a call that needs nobody, under a key of its own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sayso import codec
from sayso.errors import InvalidCall
from sayso.gate.plan import Plan
from sayso.rows import Call, Tool
from sayso.types import Effect, Terms, Verdict


def check_step(function: object) -> None:
    """Refuse what is no function before it is written down that the step has failed."""
    if callable(function):
        return
    if inspect.iscoroutine(function):
        function.close()
    kind = type(function).__name__
    raise InvalidCall(
        f"once() calls the step itself: give it a function and its arguments, not a {kind}",
        "function",
    )


def once_plan(
    key: str,
    run: Callable[[Call], Awaitable[Any]],
    *,
    agent: str,
    row_key: str,
    wait: float | None = 0,
    terms_effect: Effect = "once",
) -> Plan:
    """The plan of such a step; ``row_key`` is what its row is found by."""

    async def terms(_: dict[str, Any]) -> Terms:
        return Terms(verdict=Verdict.ALLOW, rule="once", effect=terms_effect)

    face = codec.dumps({"parameters": {}, "returns": None})
    return Plan(
        key=row_key,
        kind="approval",
        args=codec.canonical({"key": key}).decode(),
        agent=agent,
        terms=terms,
        tool=Tool.of("once", face, version=key),
        tool_name="once",
        run=run,
        wait=wait,
    )
