"""Other middleware around the gate: however often it makes a call, the call is the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from agent_framework import FunctionInvocationContext, FunctionMiddleware
from agent_framework_bench import Bench, call

from assent import Policy, Rule
from assent.adapters.agent_framework import guard

ASK = Policy([Rule("pay")])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


class Twice(FunctionMiddleware):
    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        await call_next()
        await call_next()


class Retry(FunctionMiddleware):
    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await call_next()
        except Exception:
            await call_next()


class Hedge(FunctionMiddleware):
    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.gather(call_next(), call_next())


@pytest.mark.parametrize("middleware", [Twice, Retry, Hedge])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_is_made_again_by_middleware(
    bench: Bench, middleware: type[FunctionMiddleware], fails: bool
) -> None:
    def pay(to: str) -> str:
        bench.ran.append(to)
        if fails:
            raise ValueError("no such account")
        return f"paid {to}"

    turns = [call("pay", to="ana")], "Done."
    agent = bench.agent(*turns, tools=[pay], middleware=[middleware()])
    guarded = guard(agent, bench.gate, ASK)
    assert (await guarded.run("go", thread="t")).status == "paused"
    assert bench.ran == []
    await bench.decide(lambda request: request.approve())
    assert (await guarded.resume("t")).status == "done"
    assert bench.ran == ["ana"]
