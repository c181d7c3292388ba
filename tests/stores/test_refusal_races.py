"""A rejection and an equal call at the same moment, from two stores on one database."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sayso.engine.commands import Command, Propose, Start
from sayso.engine.refusals import connection_scope
from sayso.errors import SaysoError
from sayso.rows import Call, CallStatus
from sayso.stores.base import Store
from sayso_testing.world import World, all_events, seconds, tool_of

ROUNDS = 40
_LEASE = seconds(30)


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> list[Store]:
    opener = request.getfixturevalue("open_again" if request.param == "sqlite" else "open_pg")
    return [opener(clock=lambda: time.time_ns() // 1000) for _ in range(2)]


@pytest.fixture
def world(stores: list[Store]) -> World:
    return World(stores[0], None)  # type: ignore[arg-type]


def at_once(stores: list[Store], *commands: Command) -> list[Any]:
    """Commit each command in its own OS thread and store. Return the results or errors."""
    barrier = threading.Barrier(len(commands))
    outcomes: list[Any] = [None] * len(commands)

    def commit(number: int) -> None:
        barrier.wait()
        try:
            (outcomes[number],) = stores[number].transact(commands[number])
        except SaysoError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(len(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def allowed(world: World, place: dict[str, str], args: dict[str, int]) -> Propose:
    """Return an equal call that a rule allows, and that starts in the same commit."""
    call = world.new(args=args, verdict="allow")
    tools = (tool_of("send"),)
    return Propose(**place, agent="agent", calls=(call,), tools=tools, owner="w1", lease=_LEASE)


def started_after_rejection(world: World, thread: str) -> list[str]:
    """Return the calls that started although an equal one had been rejected before."""
    rejected, late = False, []
    for event in sorted(world.store.chain(thread, 0, 100), key=lambda event: event.seq):
        rejected = rejected or event.type == "rejected"
        if rejected and event.type == "started":
            late.append(event.call)
    return late


def test_rejection_races_equal_proposal(stores: list[Store], world: World) -> None:
    for number in range(ROUNDS):
        args, place = {"n": number}, {"thread": f"t{number}", "run": f"r{number}"}
        first = world.ask(args=args, **place)
        reject = world.decision(first, "reject", message="no", seen_digest=first.digest)
        rejected, calls = at_once(stores, reject, allowed(world, place, args))
        assert rejected.status is CallStatus.REJECTED
        (call,) = calls
        assert call.status in (CallStatus.RUNNING, CallStatus.REJECTED)
        assert started_after_rejection(world, place["thread"]) == []
        ((again,),) = stores[1].transact(allowed(world, place, args))
        assert (again.status, again.attempt) == (CallStatus.REJECTED, 0)
    world.check()


def test_rejection_races_equal_start(stores: list[Store], world: World) -> None:
    for number in range(ROUNDS):
        args, place = {"n": number}, {"thread": f"t{number}", "run": f"r{number}"}
        first = world.ask(args=args, **place)
        approved = world.decide(world.ask(args=args, **place), by="bo")
        ids, seen = (approved.id,), (world.mac_of(approved),)
        start = Start(**place, calls=ids, seen=seen, owner="w1", lease=_LEASE)
        reject = world.decision(first, "reject", seen_digest=first.digest)
        rejected, _ = at_once(stores, reject, start)
        assert rejected.status is CallStatus.REJECTED
        call: Call = world.call(approved)
        assert call.status in (CallStatus.RUNNING, CallStatus.ASKED)
        assert bool(call.attempt) == (call.status is CallStatus.RUNNING)
        assert started_after_rejection(world, place["thread"]) == []
    world.check()


def test_rejection_races_equal_approval(stores: list[Store], world: World) -> None:
    """Bo has not seen the rejection, so his approval never lets the equal call run."""
    for number in range(ROUNDS):
        args, place = {"n": number}, {"thread": f"t{number}", "run": f"r{number}"}
        first, other = world.ask(args=args, **place), world.ask(args=args, **place)
        reject = world.decision(first, "reject", seen_digest=first.digest)
        approve = world.decision(other, "approve", "bo", seen_digest=other.digest)
        rejected, _ = at_once(stores, reject, approve)
        assert rejected.status is CallStatus.REJECTED
        call = world.call(other)
        assert (call.status, len(call.refusals)) == (CallStatus.ASKED, 1)
    assert not any(event.type == "started" for _, event in all_events(world.store))
    world.check()


def test_rejection_in_one_run_races_start_in_another(stores: list[Store], world: World) -> None:
    """The runs of one connection have no common lock: after the rejection, nothing starts."""
    for number in range(ROUNDS):
        args, scope = {"n": number}, connection_scope(f"c{number}")
        places = [{"thread": f"t{number}{x}", "run": f"r{number}{x}"} for x in "abc"]
        for place in places:
            world.propose(**place, scope=scope)
        first = world.ask(args=args, **places[0])
        waiting = world.decide(world.ask(args=args, **places[2]), by="bo")
        reject = world.decision(first, "reject", seen_digest=first.digest)
        at_once(stores, reject, allowed(world, places[1], args))
        for place in places:
            ((again,),) = stores[1].transact(allowed(world, place, args))
            assert (again.status, again.attempt) == (CallStatus.REJECTED, 0)
        (late,) = world.start(waiting)
        assert (late.status, late.attempt) == (CallStatus.ASKED, 0)
    world.check()
