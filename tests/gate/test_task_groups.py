"""Tasks of a group that ask: the group pauses like one task, and its errors stay errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sayso
from sayso import Gate, Inbox, Paused
from sayso.agent import Agent
from sayso.stores.memory import MemoryStore
from sayso.testing.scripted_model import ScriptedModel, call, say


async def both(one: Any, two: Any) -> list[Any]:
    """Two things at once, one of them in a group within the group."""

    async def inner() -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(two)
        return task.result()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one), group.create_task(inner())]
    return [task.result() for task in tasks]


async def failing() -> None:
    raise ValueError("broken")


async def test_tool_may_ask_in_a_task_group(store: MemoryStore) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> list[str]:
        return await both(ctx.ask("Size?"), ctx.ask("Topping?"))

    agent = Agent("a", model=ScriptedModel([call("order", {}), say("Done.")]), tools=[order])
    result = await agent.run("go", thread="t")
    assert result.status == "paused"
    while result.interruptions:
        answers = [request.respond("x") for request in result.interruptions]
        result = await agent.resume("t", decisions=answers)
    assert result.output == "Done."
    assert "in_doubt" not in [event.type for event in agent.store.chain("t")]


async def test_guarded_function_may_ask_in_a_task_group(store: MemoryStore) -> None:
    gate, inbox = Gate(store, wait=0), Inbox(store)

    @gate.guard(needs_approval=False)
    async def order() -> list[str]:
        return await both(gate.ask("Size?"), gate.ask("Topping?"))

    async def enter() -> list[str]:
        async with gate.run("r"):
            return await order()

    with pytest.raises(Paused) as caught:
        await enter()
    assert {r.question.text for r in caught.value.requests if r.question} <= {"Size?", "Topping?"}
    for _ in range(2):
        for request in (await inbox.pending()).items:
            await inbox.decide(request.id, request.respond("x"), by="ana")
        if not (await inbox.pending()).items:
            break
    assert await enter() == ["x", "x"]


async def test_error_in_a_task_group_outranks_a_pause(store: MemoryStore) -> None:
    gate = Gate(store, wait=0)

    @gate.guard(needs_approval=False)
    async def order() -> list[str]:
        return await both(gate.ask("Size?"), failing())

    with pytest.raises(ExceptionGroup) as caught:
        async with gate.run("r"):
            await order()
    assert caught.group_contains(ValueError, match="broken")
    assert not caught.group_contains(Paused)
    (row,) = [row for row in store.calls_of("r") if row.tool == "order"]
    assert str(row.status) == "failed"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()
