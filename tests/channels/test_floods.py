"""Many requests, slow channels, and limits of platforms: nothing floods, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from kit_world import PAGE, FakeChannel, KitWorld, refund
from waiting import until_async

import sayso
from sayso.channels.kit.cards import Card
from sayso.channels.kit.planner import MANY
from sayso.rows import Delivery


def ask_many(world: KitWorld, count: int, name: str = "r") -> None:
    """Ask for so many refunds, one after the other."""
    gate = sayso.Gate(world.store, policy=sayso.Policy([world.rule]), agent="assistant", wait=0)
    guarded = gate.guard(refund, needs_approval=True)
    for number in range(count):
        with pytest.raises(sayso.Paused), gate.run(f"{name}-{number}"):
            guarded(order="A-17", euros=number)


async def planned(world: KitWorld) -> None:
    """Wait until the channel has read all events, and has nothing left to send."""

    def is_done() -> bool:
        rows = world.store.next_deliveries("telegram", 1)
        cursor = world.store.cursor("channel:telegram")
        return not rows and cursor.endswith(f" {world.store.tail()}")

    await until_async(is_done, otherwise=lambda: world.store.count_deliveries())


def steps(world: KitWorld) -> Counter[tuple[str, str]]:
    return Counter((row.target, row.step) for row, _ in world.channel.sent)


async def flood(world: KitWorld, count: int) -> None:
    world.person("ana", "77")
    world.person("bo", "78", groups=("finance",))
    async with world.running():
        began = time.process_time()  # other programs may be at work
        await asyncio.to_thread(ask_many, world, count)
        assert time.process_time() - began < 60
        await planned(world)
    sent = steps(world)
    for target in ("77", "78"):
        assert sent[target, "digest"] == 1
        assert sent[target, "asked"] <= MANY
    assert len(sent) <= 4


async def test_flood_is_one_digest_per_person(world: KitWorld) -> None:
    await flood(world, 300)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_ten_thousand_requests_are_one_digest_per_person(world: KitWorld) -> None:
    await flood(world, 10_000)


async def test_digest_ends_when_few_requests_are_left(world: KitWorld) -> None:
    world.person("ana", "77")
    await asyncio.to_thread(ask_many, world, MANY + 1, "early")
    async with world.running():
        await world.ask()
        await world.sends(1)
        for request in (await world.inbox.pending(limit=60)).items[2:]:
            await world.inbox.decide(request, request.reject(), by="ana")
        await until_async(lambda: world.store.count_deliveries() == {("telegram", "closed"): 1})
    card = world.channel.messages["77", 1]
    assert card.title == "Many requests waited for you"
    assert card.link == f"{PAGE}/inbox"


async def test_messages_that_wait_become_digest(world: KitWorld) -> None:
    """What could not be sent while few requests were open is not sent when there are many."""
    world.person("ana", "77")

    def fail(delivery: Delivery) -> None:
        if delivery.step == "asked":
            raise OSError("no route")

    world.channel.before = fail
    async with world.running():
        for number in range(MANY):
            await world.ask(f"r{number}")
        await until_async(
            lambda: world.store.count_deliveries().get(("telegram", "due"), 0) == MANY
        )
        await asyncio.to_thread(ask_many, world, 3, "more")
        await planned(world)
    assert steps(world) == {("77", "digest"): 1}
    assert world.channel.sent[0][1].title == f"{MANY + 3} requests wait for you"


async def test_flood_in_shared_channel_is_one_digest(world: KitWorld) -> None:
    world.rule = sayso.Rule("*", reviewers="group:finance", notify=["telegram:#ops"])
    async with world.running():
        await asyncio.to_thread(ask_many, world, 100)
        await planned(world)
        assert steps(world) == {("#ops", "asked"): MANY, ("#ops", "digest"): 1}
        card = world.channel.sent[-1][1]
        assert (card.title, card.buttons) == ("Many requests wait", ())


async def test_slow_channel_delays_only_its_own_messages(world: KitWorld) -> None:
    people = {f"p{number}": str(number) for number in range(20)}
    slow = FakeChannel("slack")
    for name, user in people.items():
        world.person(name, user)
        world.link(name, user, "slack")
    answers = asyncio.Event()
    deliver = slow.send

    async def send(delivery: Delivery, card: Card) -> str:
        await answers.wait()
        return await deliver(delivery, card)

    slow.send = send  # type: ignore[method-assign]
    world.rule = sayso.Rule("*", risk="low", reviewers=tuple(people))
    async with world.running(world.channel, slow):
        for number in range(5):
            await world.ask(f"r{number}")
        await until_async(lambda: len(world.channel.sent) == 100)
        assert max(world.counts.delays) < 10
        assert slow.sent == []
        answers.set()
        await until_async(lambda: len(slow.sent) == 100)
    for channel in (world.channel, slow):
        assert len({row.id for row, _ in channel.sent}) == 100


async def test_pace_of_platform_is_kept(world: KitWorld) -> None:
    world.channel.per_second = 20.0
    world.channel.spacing = 0.2
    for number in range(6):
        world.person(f"p{number}", str(number))
    world.rule = sayso.Rule("*", risk="low", reviewers=tuple(f"p{n}" for n in range(6)))
    times: list[tuple[float, str]] = []
    world.channel.before = lambda row: times.append((time.monotonic(), row.target))
    async with world.running():
        await world.ask("r1")
        await world.ask("r2")
        await world.sends(12)
    assert times[-1][0] - times[0][0] >= 10 / 20
    for target in range(6):
        first, second = [at for at, where in times if where == str(target)]
        assert second - first >= 0.19


async def test_target_that_hangs_delays_no_other(world: KitWorld) -> None:
    """More messages wait for it than the sender reads at once."""
    for name, user in (("slow", "1"), ("quick", "2")):
        world.person(name, user)
    deliver = world.channel.send
    hung: list[str] = []
    answers = asyncio.Event()

    async def send(delivery: Delivery, card: Card) -> str:
        if delivery.person == "slow":
            hung.append(delivery.id)
            await answers.wait()
        return await deliver(delivery, card)

    world.channel.send = send  # type: ignore[method-assign]
    async with world.running():
        world.rule = sayso.Rule("*", risk="low", reviewers="slow", notify=["telegram"])
        for number in range(MANY):
            await world.ask(f"slow-{number}")
        await until_async(lambda: hung)
        world.rule = sayso.Rule("*", risk="low", reviewers="quick")
        for number in range(MANY):
            await world.ask(f"quick-{number}")
        await until_async(lambda: len(world.channel.sent) == MANY, seconds=10)
        assert {row.person for row, _ in world.channel.sent} == {"quick"}
        assert len(hung) == 1  # in the order of the requests, one after the other
        answers.set()
        await world.sends(2 * MANY)
    assert len({row.id for row, _ in world.channel.sent}) == 2 * MANY
