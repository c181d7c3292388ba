"""What users write must type-check, and what is wrong must not. Checked by mypy, never run.

A line with ``# type: ignore[code]`` is wrong on purpose: mypy reports it if it stops being wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import sayso


def opens_stores() -> None:
    sayso.Gate("sayso.db")
    sayso.Gate(Path("sayso.db"))
    sayso.Inbox(Path("sayso.db"))
    sayso.Gate(17)  # type: ignore[arg-type]
    assert_type(sayso.open_store("memory://").url, str)


def rules() -> None:
    sayso.Rule("send_*", verdict="ask", risk="high", allowed=("approve", "reject"))
    sayso.Rule("send_*", verdict=sayso.Verdict.DENY)
    sayso.Rule("send_*", verdict="bogus")  # type: ignore[arg-type]
    sayso.Rule("send_*", risk="enormous")  # type: ignore[arg-type]
    sayso.Rule("send_*", allowed=("aprove",))  # type: ignore[arg-type]
    sayso.Rule("send_*", assurance="oath")  # type: ignore[arg-type]
    sayso.Rule("send_*", on_expiry="approve")  # type: ignore[arg-type]
    sayso.Rule("send_*", effect="twice")  # type: ignore[arg-type]


gate = sayso.Gate("memory://")


@gate.guard(needs_approval=True, risk="high", effect="once", title="Refund {order}")
def refund(order: str, euros: float = 0) -> str:
    return order


@gate.guard
async def deploy(version: str) -> int:
    return len(version)


async def guarded_functions_keep_their_types() -> None:
    assert_type(refund("A-1"), str)
    assert_type(await deploy("1.2"), int)
    refund(17)  # type: ignore[arg-type]
    gate.guard(risk="enormous")  # type: ignore[call-overload]
    gate.guard(needs_aproval=True)  # type: ignore[call-overload]


def plain_step() -> int:
    return 1


async def async_step() -> int:
    return 1


async def steps() -> None:
    async with gate.run("order-17"):
        assert_type(await gate.once("plain", plain_step), int)
        assert_type(await gate.once("async", async_step), int)
    with gate.run("order-17"):
        assert_type(gate.once_sync("plain", plain_step), int)


async def decisions(inbox: sayso.Inbox) -> None:
    page = inbox.pending_sync()
    assert_type(len(page), int)
    for request in page:
        assert_type(request, sayso.Request)
        assert_type(inbox.decide_sync(request, request.approve(), by="ana"), sayso.Request)
        assert_type(inbox.approve_sync(request, by="ana"), sayso.Request)
        assert_type(inbox.approve_sync(request.id, by="ana"), sayso.Request)
        assert_type(await inbox.wait(request, timeout=5), sayso.Request)
        if request.status == "aproved":  # type: ignore[comparison-overlap]
            pass


@sayso.tool(needs_approval=lambda args: args["euros"] > 100)
async def pay(ctx: sayso.Context, to: str, euros: float) -> str:
    return await ctx.once("receipt", async_receipt, to)


async def async_receipt(to: str) -> str:
    return to


async def agents() -> None:
    agent = sayso.Agent("clerk", model="openai:gpt-4o", tools=[pay], store=Path("sayso.db"))
    result = await agent.run("Pay Ana", thread="t-1")
    if result.status == "pased":  # type: ignore[comparison-overlap]
        return
    for request in result.interruptions:
        assert_type(request, sayso.Request)
        result.state.approve(request, by="ana")
    assert_type(result.run, str)


def shows_events(event: sayso.Event, reviewer: sayso.Reviewer, grant: sayso.Grant) -> None:
    assert_type(event.type, str)
    assert_type(reviewer.name, str)
    assert_type(grant.id, str)
