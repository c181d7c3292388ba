"""Predicates, and sync and async callers of a policy."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any

from sayso.policy import Judging, Policy
from sayso.types import Terms, ToolCall, Verdict

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a Wednesday
ASK, ALLOW, DENY = Verdict.ASK, Verdict.ALLOW, Verdict.DENY


def boom(args: dict[str, Any]) -> bool:
    raise LookupError("no such table")


def other_predicate(args: dict[str, Any]) -> bool:
    return True


def drive(judging: Judging) -> Terms:
    """Judge a call like a sync caller: call each predicate and send back its result."""
    try:
        predicate, args = next(judging)
        while True:
            said: object
            try:
                said = predicate(args)
            except Exception as error:
                said = error
            predicate, args = judging.send(said)
    except StopIteration as end:
        terms: Terms = end.value
        return terms


async def drive_async(judging: Judging) -> Terms:
    try:
        predicate, args = next(judging)
        while True:
            try:
                said: object = predicate(args)
                said = await said if inspect.isawaitable(said) else said
            except Exception as error:
                said = error
            predicate, args = judging.send(said)
    except StopIteration as end:
        terms: Terms = end.value
        return terms


def judge(
    policy: Policy,
    tool: str = "send",
    args: dict[str, Any] | None = None,
    *,
    own: Terms | None = None,
    needs_approval: Any = False,
    agent: str = "bot",
    now: datetime = NOON,
) -> Terms:
    call = ToolCall(tool, args or {}, "c1")
    return drive(
        policy.judge(call, agent=agent, now=now, own=own or Terms(), needs_approval=needs_approval)
    )
