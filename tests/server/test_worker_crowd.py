"""Several workers on one store: a run that one of them has costs the others nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import assent
from assent.agent.resumable import Resumable
from assent.gate.driven import Driven
from assent.inbox import Inbox
from assent.stores.memory import MemoryStore
from assent.testing import ScriptedModel, call, say
from assent.worker import Worker
from assent.worker.steps import Step


class Shop:
    """An agent whose tool takes until it is told to end."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.began: list[str] = []
        self.end = asyncio.Event()

    async def pay(self, to: str) -> str:
        """Send money."""
        self.began.append(to)
        await self.end.wait()
        return "paid"

    def own(self) -> Resumable:
        steps = [call("pay", {"to": "ana"}), say("Done.")]
        tool = assent.tool(needs_approval=True)(self.pay)
        model = ScriptedModel(steps, by_turn=True)
        return assent.Agent("shop", model=model, tools=[tool], store=self.store)

    def adapted(self) -> Resumable:
        gate = assent.Gate(self.store, agent="shop", wait=0)
        paying = gate.guard(needs_approval=True)(self.pay)

        class Adapted(Driven):
            async def begin(self, input: Any, thread: str) -> Any:
                return await paying("ana")

            async def go_on(self, thread: str) -> Any:
                return await paying("ana")

        return Adapted(gate, Inbox(self.store))


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["own", "adapted"])
async def test_a_run_that_another_worker_has_takes_no_room_and_holds_up_no_end(kind: str) -> None:
    shop = Shop()
    told: dict[str, list[Step]] = {"quick": [], "slow": []}
    crew = {
        name: Worker([getattr(shop, kind)()], shop.store, concurrency=1, on_step=told[name].append)
        for name in told
    }
    paused = await getattr(shop, kind)().run("Pay ana", thread="t")
    (request,) = paused.interruptions
    await Inbox(shop.store).decide(request.id, request.approve(), by="ben")
    run = shop.store.run(paused.run)
    assert run is not None  # both have seen it in the same moment, and it is due
    working = crew["quick"].begin(run)
    await until(lambda: shop.began)
    late = crew["slow"].begin(run)
    assert late is not None
    await asyncio.wait_for(late, 20)
    assert [step.step for step in told["slow"]] == ["taken", "left"]
    assert crew["slow"].busy == 0
    crew["slow"].stop()
    await asyncio.wait_for(crew["slow"].run(), 20)
    shop.end.set()
    assert working is not None
    await asyncio.wait_for(working, 20)
    ended = [step.step for step in told["quick"]]
    assert (ended[0], ended[-1], ended.count("call_done")) == ("taken", "done", 1)
    assert shop.began == ["ana"]


async def test_what_became_of_a_call_is_told_by_the_worker_that_has_the_run() -> None:
    """Both see the run in the same moment: the slower one has nothing to tell of its calls."""
    shop = Shop()
    shop.end.set()
    told: list[list[Step]] = [[], []]
    agents = [shop.own(), shop.own()]
    crew = [Worker([a], shop.store, on_step=t.append) for a, t in zip(agents, told, strict=True)]
    for turn in range(5):
        paused = await agents[0].run("Pay ana", thread=f"t-{turn}")
        (request,) = paused.interruptions
        await Inbox(shop.store).decide(request.id, request.reject("no"), by="ben")
        run = shop.store.run(paused.run)
        assert run is not None
        both = [task for worker in crew if (task := worker.begin(run)) is not None]
        assert len(both) == 2
        await asyncio.wait(both, timeout=20)
    steps = Counter(step.step for step in told[0] + told[1])
    once = ("resumed", "call_rejected", "done", "left")
    assert steps == {"taken": 10, **dict.fromkeys(once, 5)}
