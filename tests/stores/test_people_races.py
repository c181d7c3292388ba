"""Rights that are taken away while they are used, from two stores on one database."""

from __future__ import annotations

import time

import pytest
from test_refusal_races import at_once

from sayso.audit import verify
from sayso.engine.commands import ChangePerson, RemovePerson
from sayso.errors import NotAllowed
from sayso.inbox import authenticate, create_token, remove_person
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Grant, Reviewer
from sayso_testing.world import World

ROUNDS = 15
OPS = Reviewer("ops")


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> list[Store]:
    opener = request.getfixturevalue("open_again" if request.param == "sqlite" else "open_pg")
    return [opener(clock=lambda: time.time_ns() // 1000) for _ in range(2)]


@pytest.fixture
def world(stores: list[Store]) -> World:
    return World(stores[0], None)  # type: ignore[arg-type]


def test_removal_races_decision_with_grant(stores: list[Store], world: World) -> None:
    for number in range(ROUNDS):
        ana = world.reviewer(f"ana {number}")
        place = {"thread": f"t{number}", "run": f"r{number}"}
        call = world.ask(args={"n": number}, **place)
        grant = Grant(
            id=f"grt_{number}",
            agent="agent",
            tool="send",
            tool_digest=call.tool_digest,
            scope="{}",
            by=ana.name,
            created=0,
        )
        decide = world.decision(call, by=ana, grant=grant, seen_digest=call.digest)
        decided, ended = at_once(stores, decide, RemovePerson(person=ana.name, by=OPS))
        person, _, grants = ended
        assert not person.active
        assert isinstance(decided, Call) == (len(grants) == 1)
        assert isinstance(decided, Call | NotAllowed)
        assert [one for one in stores[0].grants() if one.by == ana.name] == []
    assert verify(stores[0]).ok


def test_move_races_decision(stores: list[Store], world: World) -> None:
    for number in range(ROUNDS):
        name = f"ana {number}"
        ana = world.reviewer(name, "finance")
        place = {"thread": f"t{number}", "run": f"r{number}"}
        call = world.ask(args={"n": number}, reviewers=("group:finance",), **place)
        decide = world.decision(call, by=ana, seen_digest=call.digest)
        move = ChangePerson(person=name, by=OPS, remove_groups=("finance",))
        decided, _ = at_once(stores, decide, move)
        assert isinstance(decided, Call | NotAllowed)
        if isinstance(decided, Call):
            assert decided.decision is not None
            assert decided.decision.eligible == (name,)
    assert verify(stores[0]).ok


def test_two_admins_cannot_remove_each_other(stores: list[Store], world: World) -> None:
    for number in range(ROUNDS):
        one = world.reviewer(f"ana {number}", role="admin")
        other = world.reviewer(f"bo {number}", role="admin")
        outcomes = at_once(
            stores,
            RemovePerson(person=other.name, by=one),
            RemovePerson(person=one.name, by=other),
        )
        assert sorted(isinstance(outcome, NotAllowed) for outcome in outcomes) == [False, True]


def test_removal_applies_in_another_store_at_once(stores: list[Store], world: World) -> None:
    token, _ = create_token(stores[0], "ana", by="ops")
    ana = authenticate(stores[1], token)
    call = world.ask(quorum=2)
    remove_person(stores[0], "ana", by="ops")
    with pytest.raises(NotAllowed):
        stores[1].transact(world.decision(call, by=ana))
    with pytest.raises(NotAllowed):
        authenticate(stores[1], token)
