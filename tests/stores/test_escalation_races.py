"""Escalations beside decisions, removed people, other stores and killed processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from homes import Home
from waiting import until

from sayso.audit import verify
from sayso.engine.commands import Escalate, RemovePerson
from sayso.errors import NotAllowed, SaysoError
from sayso.rows import CallStatus
from sayso.stores.base import Store
from sayso.stores.nested_runs import close_overdue
from sayso.types import Reviewer
from sayso_testing.world import World

ROUNDS = 20
TERMS: dict[str, Any] = {
    "reviewers": ("ana",),
    "remind_after": 0.05,
    "escalate_after": 0.1,
    "escalate_to": ("group:leads",),
}


@pytest.fixture
def stores(home: Home) -> list[Store]:
    return [home.open(clock=lambda: time.time_ns() // 1000) for _ in range(2)]


@pytest.fixture
def world(stores: list[Store]) -> World:
    return World(stores[0], None)  # type: ignore[arg-type]


def sweep(store: Store) -> None:
    for _ in close_overdue(store, 100, 10):
        pass


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Run each action in its own OS thread. Return the results or errors."""
    barrier = threading.Barrier(len(actions))
    outcomes: list[Any] = [None] * len(actions)

    def act(number: int) -> None:
        barrier.wait()
        try:
            outcomes[number] = actions[number]()
        except SaysoError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=act, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_two_stores_escalate_once(stores: list[Store], world: World) -> None:
    calls = [world.ask(thread=f"t{n}", run=f"r{n}", **TERMS) for n in range(ROUNDS)]
    time.sleep(0.12)
    at_once(*(lambda store=store: sweep(store) for store in stores))
    for call in calls:
        assert world.events(call=call).count("escalated") == 1
    assert verify(stores[0]).problems == []


def test_escalation_races_decision(stores: list[Store], world: World) -> None:
    leads = world.reviewer("ben", "leads")
    for number in range(ROUNDS):
        call = world.ask(thread=f"t{number}", run=f"r{number}", **TERMS)
        time.sleep(0.11)
        escalate = Escalate(thread=call.thread, run=call.run, call=call.id)
        decisions = [world.decision(call, by=by) for by in ("ana", leads)]
        _, by_ana, by_ben = at_once(
            lambda command=escalate: stores[0].transact(command),
            lambda command=decisions[0]: stores[1].transact(command),
            lambda command=decisions[1]: stores[0].transact(command),
        )
        decided = world.call(call)
        assert decided.status is CallStatus.READY, "ana may decide at any time"
        assert decided.decision is not None
        outcome = by_ana if decided.decision.by == "ana" else by_ben
        assert not isinstance(outcome, SaysoError)
        if decided.decision.by == "ben":
            assert decided.escalated
    assert verify(stores[0]).problems == []


def test_person_removed_before_escalation_decides_nothing(
    stores: list[Store], world: World
) -> None:
    leads = world.reviewer("ben", "leads")
    world.person("cy", "leads")
    call = world.ask(**TERMS)
    stores[1].transact(RemovePerson(person="ben", by=Reviewer("ops")))
    time.sleep(0.11)
    assert world.escalate(call).escalated
    with pytest.raises(SaysoError):
        world.decide(call, by=leads)
    with pytest.raises(NotAllowed):
        world.decide(call, by="ben")
    decided = world.decide(call, by=Reviewer("cy"))
    assert decided.decision is not None
    assert decided.decision.eligible == ("cy",)
    assert verify(stores[0]).problems == []


SWEEPER = """
import sys
from sayso.stores import open_store
from sayso.stores.nested_runs import close_overdue

store = open_store(sys.argv[1])
print("ready", flush=True)
while True:
    for _ in close_overdue(store, 3, 1):
        pass
"""


@pytest.mark.long
def test_killed_processes_lose_no_step(home: Home, world: World) -> None:
    """Processes that remind and escalate are killed again and again, until all is done."""
    calls = [world.ask(thread=f"t{n}", run=f"r{n}", **TERMS) for n in range(30)]
    environment = {**os.environ, "SAYSO_KEY": home.key}
    started = 0

    def is_done() -> bool:
        nonlocal started
        arguments = [sys.executable, "-c", SWEEPER, home.url]
        with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE) as sweeper:
            assert sweeper.stdout is not None
            sweeper.stdout.readline()
            time.sleep(0.01 * (started % 10))
            sweeper.kill()
        started += 1
        return not world.store.overdue() and all(world.call(call).escalated for call in calls)

    until(is_done)
    assert started > 1
    for call in calls:
        steps = world.events(call=call)
        assert steps.count("escalated") == 1
        assert steps[-1] in ("escalated", "reminded")
    assert verify(world.store).problems == []
