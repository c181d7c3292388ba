"""Quiet hours, and messages only while a person is away, with a clock that the test moves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit_world import KitWorld
from postgres_server import shared_url, why_not
from waiting import until_async

import sayso
from sayso.inbox import set_stand_in
from sayso.inbox.directory import new_link, note_use, sign_in
from sayso.inbox.notices import Notices, set_notices
from sayso.inbox.people import authenticate_session
from sayso.keys import Keyring, new_key
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Reviewer

HOUR = 3600.0


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that shows 21:00 UTC."""
    clock = FakeClock()
    clock.advance(21 * HOUR)
    return clock


@pytest.fixture(params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Store]:
    if request.param == "postgres" and why_not():
        pytest.skip(why_not())
    monkeypatch.setattr("sayso.channels.kit.sender._POLL", 0.05)
    keys = Keyring.parse(new_key())
    made: Store
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "sayso.db", keys=keys, clock=clock)
    else:
        schema = f"quiet {secrets.token_hex(6)}"
        made = PostgresStore(shared_url(), schema=schema, keys=keys, clock=clock)
    yield made
    made.close()


def quiet(world: KitWorld, name: str = "ana") -> None:
    notices = Notices(quiet_from="20:00", quiet_until="06:00")
    set_notices(world.store, Reviewer(name), notices)


async def held(world: KitWorld, count: int = 1, due: int = 1) -> None:
    """Wait until so many messages were replaced by so many digests that are due later."""

    def counts() -> bool:
        states = world.store.count_deliveries()
        return (states.get(("telegram", "closed")), states.get(("telegram", "due"))) == (count, due)

    await until_async(counts, otherwise=world.store.count_deliveries)


async def test_messages_of_quiet_hours_are_one_digest(world: KitWorld, clock: FakeClock) -> None:
    world.person("ana", "77")
    quiet(world)
    async with world.running():
        for number in range(3):
            await world.ask(f"r{number}")
        await held(world, 3)
        clock.advance(8 * HOUR)
        for number in range(3, 5):
            await world.ask(f"r{number}")
        await held(world, 5)
        assert world.channel.sent == []
        clock.advance(HOUR)
        ((row, card),) = await world.sends(1)
        assert (row.step, card.title) == ("digest", "5 requests wait for you")
        assert card.facts == ("They were asked in your quiet hours.",)
        request_id = await world.ask("later")
        assert (await world.sends(2))[1][0].request == request_id


async def test_quiet_hours_without_open_requests_end_silently(
    world: KitWorld, clock: FakeClock
) -> None:
    world.person("ana", "77")
    quiet(world)
    async with world.running():
        request_id = await world.ask()
        await held(world)
        request = await world.inbox.get(request_id)
        await world.inbox.decide(request, request.reject(), by="ana")
        clock.advance(9 * HOUR)
        await until_async(lambda: world.store.count_deliveries() == {("telegram", "closed"): 2})
    assert world.channel.sent == []


async def test_quiet_person_delays_nobody_else(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("bo", "78", groups=("finance",))
    quiet(world)
    async with world.running():
        await world.ask()
        await held(world, 1)
        await until_async(lambda: len(world.channel.sent) == 1)
    assert world.channel.sent[0][0].person == "bo"


@pytest.mark.parametrize("risk", ["critical", "high"])
async def test_only_critical_escalation_ignores_quiet_hours(
    world: KitWorld, clock: FakeClock, risk: str
) -> None:
    world.person("ana", "77")
    world.person("ben", "78", groups=("leads",))
    quiet(world, "ana")
    quiet(world, "ben")
    world.rule = sayso.Rule(
        "*",
        risk=risk,
        reviewers="ana",
        notify=["telegram"],
        escalate_after=60,
        escalate_to=("group:leads",),
    )
    async with world.running():
        await world.ask()
        await held(world)
        clock.advance(61)
        world.sweep()
        if risk == "critical":
            await until_async(lambda: len(world.channel.sent) == 1)
            assert world.channel.sent[0][0].step == "escalated"
            assert world.channel.sent[0][0].person == "ben"
        else:
            await held(world, 2, due=2)
            clock.advance(9 * HOUR)
            rows = [row for row, _ in await world.sends(2)]
            assert {(row.person, row.step) for row in rows} == {
                ("ana", "digest"),
                ("ben", "digest"),
            }


async def test_stand_in_has_their_own_quiet_hours(world: KitWorld, clock: FakeClock) -> None:
    world.person("ana", "77")
    world.person("cleo", "80")
    quiet(world, "ana")
    set_stand_in(world.store, "ana", "cleo", clock() + 10**12, by="admin")
    async with world.running():
        await world.ask()
        ((row, _),) = await world.sends(1)
    assert row.person == "cleo"


async def test_message_waits_while_person_uses_the_page(world: KitWorld, clock: FakeClock) -> None:
    world.person("ana", "77")
    set_notices(world.store, Reviewer("ana"), Notices(only_away=True))
    session = sign_in(world.store, new_link(world.store, "ana"))
    async with world.running():
        await world.ask()
        await until_async(lambda: world.store.next_deliveries("telegram", 1))
        clock.advance(70)
        note_use(world.store, authenticate_session(world.store, session))
        await until_async(lambda: _waits(world, clock))
        assert world.channel.sent == []
        clock.advance(200)
        await world.sends(1)


def _waits(world: KitWorld, clock: FakeClock) -> bool:
    rows = world.store.next_deliveries("telegram", 1)
    return bool(rows) and rows[0].next_at is not None and rows[0].next_at > clock()
