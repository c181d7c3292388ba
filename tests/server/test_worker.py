"""Several workers on one store: a run that one of them has costs the others nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from waiting import until_async

import sayso
from sayso.agent.agent import Resumable
from sayso.engine.commands import Claim, Start
from sayso.gate.framework import FrameworkAgent
from sayso.inbox import Inbox
from sayso.rows import Run
from sayso.stores.memory import MemoryStore
from sayso.stores.nested_runs import close_due
from sayso.testing import FakeClock, ScriptedModel, call, calls, say
from sayso.worker import Worker
from sayso.worker.steps import Step
from sayso.worker.worker import Relay, _may_need_look, next_look
from sayso_testing.world import World, seconds


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

    def own(self, *, lent: bool = False) -> Resumable:
        steps = [call("pay", {"to": "ana"}), say("Done.")]
        tool = sayso.tool(needs_approval=True)(self.pay)
        model = ScriptedModel(steps, by_turn=True)
        return sayso.Agent("shop", model=model, tools=[tool], store=None if lent else self.store)

    def outer(self) -> Resumable:
        steps = [call("shop", {"input": "Pay ana"}), say("All done.")]
        inner = self.own(lent=True)
        assert isinstance(inner, sayso.Agent)
        model = ScriptedModel(steps, by_turn=True)
        return sayso.Agent("mall", model=model, tools=[inner.as_tool()], store=self.store)

    def adapted(self) -> Resumable:
        gate = sayso.Gate(self.store, agent="shop", wait=0)
        paying = gate.guard(needs_approval=True)(self.pay)

        class Adapted(FrameworkAgent):
            async def begin(self, input: Any, thread: str) -> Any:
                return await paying("ana")

            async def go_on(self, thread: str) -> Any:
                return await paying("ana")

        return Adapted(gate, Inbox(self.store))


@pytest.mark.parametrize("kind", ["own", "adapted", "outer"])
async def test_run_of_another_worker_occupies_no_slot(kind: str) -> None:
    shop = Shop()
    told: dict[str, list[Step]] = {"quick": [], "slow": []}
    crew = {
        name: Worker([getattr(shop, kind)()], shop.store, concurrency=1, on_step=told[name].append)
        for name in told
    }
    paused = await getattr(shop, kind)().run("Pay ana", thread="t")
    (request,) = paused.interruptions
    await Inbox(shop.store).decide(request.id, request.approve(), by="ben")
    run = shop.store.run(request.run)
    assert run is not None  # both have seen it in the same moment, and it is due
    working = crew["quick"].begin(run)
    await until_async(lambda: shop.began)
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
    assert (ended[0], ended[-1]) == ("taken", "done")
    outer = ["shop"] if kind == "outer" else []
    for name in ("call_started", "call_done"):
        tools = [step.tool for step in told["quick"] if step.step == name]
        assert sorted(tools) == ["pay", *outer]
    assert shop.began == ["ana"]


async def test_only_the_owning_worker_reports_calls() -> None:
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


async def test_rejected_call_is_reported_with_its_turn() -> None:
    """The run is gone on with twice before the model hears of it."""

    @sayso.tool(needs_approval=True)
    def pay(to: str) -> str:
        return "paid"

    store, told = MemoryStore(), list[Step]()
    both = call("pay", {"to": "ana"}), call("pay", {"to": "ben"})
    model = ScriptedModel([calls(*both), say("Done.")], by_turn=True)
    agent = sayso.Agent("shop", model=model, tools=[pay], store=store)
    worker = Worker([agent], store, on_step=told.append)
    first, second = (await agent.run("Pay both", thread="t")).interruptions
    for decision in (first.reject("no"), second.approve()):
        await Inbox(store).decide(decision.request or "", decision, by="ben")
        run = store.run(first.run)
        assert run is not None
        step = worker.begin(run)
        assert step is not None
        await step
    once = ["taken", "resumed", "call_started", "call_done", "call_rejected", "done"]
    assert [step.step for step in told] == ["taken", "resumed", "paused", *once]


async def test_doubt_of_lost_process_is_reported_once() -> None:
    """Its lease lapses, and both see the run before either looks for what is overdue."""
    shop, told = Shop(), list[Step]()
    paused = await shop.own().run("Pay ana", thread="t")
    (request,) = paused.interruptions
    await Inbox(shop.store).decide(request.id, request.approve(), by="ben")
    claim = Claim(thread="t", run=paused.run, owner="gone", lease=1, force=True)
    call = shop.store.call(request.id)
    assert call is not None
    this = {"calls": (call.id,), "seen": (call.mac,)}
    start = Start(thread="t", run=paused.run, **this, owner="gone", lease=1)  # type: ignore[arg-type]
    shop.store.transact(claim, start)
    crew = [Worker([shop.own()], shop.store, on_step=told.append) for _ in range(2)]
    run = shop.store.run(paused.run)
    assert run is not None
    await asyncio.gather(*(task for worker in crew if (task := worker.begin(run)) is not None))
    steps = [step.step for step in told if step.step != "taken"]
    assert sorted(steps) == ["call_in_doubt", "left", "paused", "resumed"]
    assert shop.began == []


class Mall:
    """An agent whose sub-agent keeps its runs in another store."""

    def __init__(self) -> None:
        self.store, self.inner_store = MemoryStore(), MemoryStore()
        self.paid: list[str] = []
        self.inner = self.shop()
        steps = [call("shop", {"input": "Pay ana"}), say("All done.")]
        model = ScriptedModel(steps, by_turn=True)
        tools = [self.inner.as_tool()]
        self.outer = sayso.Agent("mall", model=model, tools=tools, store=self.store)

    def shop(self) -> sayso.Agent:
        @sayso.tool(needs_approval=True)
        def pay(to: str) -> str:
            """Send money."""
            self.paid.append(to)
            return "paid"

        model = ScriptedModel([call("pay", {"to": "ana"}), say("Paid.")], by_turn=True)
        return sayso.Agent("shop", model=model, tools=[pay], store=self.inner_store)

    async def ends(self, run: str, *workers: Worker) -> None:
        """The outer run ends, with nobody but these workers to resume it."""
        working = [asyncio.create_task(worker.run()) for worker in workers]
        await until_async(lambda: self.status(run) == "done")
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)
        assert self.paid == ["ana"]

    def status(self, run: str) -> str:
        row = self.store.run(run)
        assert row is not None
        return str(row.status)


@pytest.mark.parametrize("decided", ["before", "while"])
@pytest.mark.parametrize("inner_worker", [False, True], ids=["outer", "both"])
async def test_inner_end_on_other_store_wakes_outer_run(decided: str, inner_worker: bool) -> None:
    mall = Mall()
    result = await mall.outer.run("go")
    (request,) = result.interruptions

    async def decide() -> None:
        await Inbox(mall.inner_store).decide(request.id, request.approve(), by="ben")

    if decided == "before":
        await decide()
    workers = [Worker([mall.outer], mall.store)]
    if inner_worker:
        workers.append(Worker([mall.shop()], mall.inner_store))
    ending = asyncio.create_task(mall.ends(result.run, *workers))
    if decided == "while":
        await asyncio.sleep(0.3)
        assert mall.status(result.run) == "paused"
        await decide()
    await asyncio.wait_for(ending, 60)


async def test_sub_agent_resumed_elsewhere_wakes_its_outer_run() -> None:
    mall = Mall()
    result = await mall.outer.run("go")
    (request,) = result.interruptions
    inner = await mall.shop().resume(request.run, decisions=[request.approve()], by="ben")
    assert inner.status == "done"
    await asyncio.wait_for(mall.ends(result.run, Worker([mall.outer], mall.store)), 60)


async def test_dispatcher_is_notified_of_the_woken_outer_run() -> None:
    mall = Mall()
    told: list[str] = []

    class Dispatcher:
        async def wake(self, run: Run) -> None:
            told.append(run.id)

        async def at(self, run: Run, time: int) -> None:
            raise AssertionError("nothing ends by the clock")

    relay = asyncio.create_task(
        Relay(Worker([mall.outer], mall.store), Dispatcher(), scan=600).run()
    )
    result = await mall.outer.run("go")
    (request,) = result.interruptions
    await mall.shop().resume(request.run, decisions=[request.approve()], by="ben")
    await until_async(lambda: result.run in told)
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)


def test_dispatcher_looks_when_request_escalates() -> None:
    """A durable timer of a dispatcher is set for each step, and none once all are done."""
    clock = FakeClock()
    world = World(MemoryStore(clock=clock), clock)
    asked = world.ask(reviewers=("ana",), remind_after=5, escalate_after=9, escalate_to=("ben",))
    looks = []
    for _ in range(4):
        look = next_look(world.store, world.run())
        looks.append(None if look is None else look - asked.created)
        clock.advance(5)
        for due in world.store.overdue():
            close_due(world.store, due)
    assert looks == [seconds(5), seconds(9), seconds(15), None]
    events = [event for event in world.store.chain(asked.thread) if _may_need_look(event)]
    assert [event.type for event in events] == ["asked", "escalated"]
