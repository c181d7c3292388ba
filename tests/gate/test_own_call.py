"""Code inside a call that would wait for that call is refused; all others wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cases import RUN, Case, aside
from waiting import until

from sayso import Conflict, Gate


def test_step_inside_itself(case: Case) -> None:
    def step() -> Any:
        return case.gate.once_sync("k", step)

    with pytest.raises(Conflict, match=r"would wait for itself.*use another key"):
        case.enter(lambda: case.gate.once_sync("k", step))
    assert case.types().count("in_doubt") == 0


@pytest.mark.parametrize("how", ["await", "task", "thread"])
async def test_async_step_inside_itself(case: Case, how: str) -> None:
    async def step() -> Any:
        if how == "thread":
            return await asyncio.to_thread(case.gate.once_sync, "k", step)
        inner = case.gate.once("k", step)
        return await (inner if how == "await" else asyncio.create_task(inner))

    async with asyncio.timeout(20):
        with pytest.raises(Conflict, match="would wait for itself"):
            async with case.gate.run(RUN):
                await case.gate.once("k", step)


def test_mutual_recursion_on_one_key_conflicts(case: Case) -> None:
    @case.gate.guard(needs_approval=False, key=lambda args: "one")
    def ping() -> Any:
        with case.gate.run(RUN):
            return pong()

    @case.gate.guard(needs_approval=False, key=lambda args: "one")
    def pong() -> Any:
        with case.gate.run(RUN):
            return ping()

    with pytest.raises(Conflict, match="would wait for itself"):
        case.enter(ping)


def test_entering_the_running_run_from_another_gate_conflicts(case: Case) -> None:
    other = Gate(case.store, wait=0)

    @other.guard(needs_approval=False)
    def inner() -> str:
        return "ran"

    @case.gate.guard(needs_approval=False)
    def outer() -> str:
        with other.run(RUN):
            return inner()

    with pytest.raises(Conflict, match=f"run {RUN} would wait for itself"):
        case.enter(outer)


def test_second_caller_waits_for_the_running_step(case: Case) -> None:
    held: list[bool] = []
    got: list[Any] = []

    def slow() -> str:
        case.ran.append("slow")
        until(lambda: held)
        return "slow"

    def work() -> None:
        got.append(case.enter(lambda: case.gate.once_sync("k", slow)))

    threads = [aside(work), aside(work)]
    until(lambda: case.ran)
    assert not got
    held.append(True)
    for thread in threads:
        thread.join(20)
    assert (case.ran, got) == (["slow"], ["slow", "slow"])


async def test_task_of_an_ended_step_gets_its_result(case: Case) -> None:
    tasks: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    async def later() -> Any:
        await ended.wait()
        return await case.gate.once("k", lambda: "again")

    async def step() -> str:
        tasks.append(asyncio.create_task(later()))
        return "first"

    async with case.gate.run(RUN):
        assert await case.gate.once("k", step) == "first"
        ended.set()
        assert await asyncio.wait_for(tasks[0], 20) == "first"
