"""The workflows of a user, as the sandbox loads them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from sayso.adapters.temporal import ask, confirm, run_once
from sayso.types import Question


@workflow.defn
class Refund:
    """One gated call."""

    @workflow.run
    async def run(self, tool: str, order: str, euros: int, timeout: float | str = 60) -> Any:
        args = {"order": order, "euros": euros}
        return await run_once(tool, args, timeout=timeout)


@workflow.defn
class Loose:
    """A call with whatever it is given."""

    @workflow.run
    async def run(self, args: Any, timeout: Any) -> Any:
        return await run_once("refund", args, timeout=timeout)


@workflow.defn
class Visit:
    """A question, then a yes or no about the answer; and two at once."""

    @workflow.run
    async def run(self, guest: str) -> dict[str, Any]:
        question = Question(f"Which floor for {guest}?", schema={"type": "integer"})
        floor = await ask(question, note="from the desk", expires_in=timedelta(days=7))
        both = await asyncio.gather(
            confirm("Let them in?", {"guest": guest, "floor": floor}),
            confirm("Give them a key?", {"guest": guest}, requester="ana", risk="low"),
        )
        return {"floor": floor, "in": both[0], "key": both[1]}


@workflow.defn
class Rounds:
    """The same call again and again, in an execution of its own each time."""

    @workflow.run
    async def run(self, rounds: int) -> Any:
        args = {"order": "A-17", "euros": 900}
        result = await run_once("refund", args, timeout=timedelta(seconds=60))
        if rounds > 1:
            workflow.continue_as_new(rounds - 1)
        return result


@workflow.defn
class Hurry:
    """A question that nobody answers in time."""

    @workflow.run
    async def run(self) -> Any:
        return await ask("Anybody?", expires_in=1)


@workflow.defn
class Plain:
    """A yes or no, with options as JSON has them."""

    @workflow.run
    async def run(self, options: dict[str, Any]) -> bool:
        return await confirm("Let them in?", **options)
