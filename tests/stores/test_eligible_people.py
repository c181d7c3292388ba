"""Every decision records who could have made it, and ``verify`` resolves the same people again."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from sayso import codec, rows
from sayso.audit import verify
from sayso.engine import deciding
from sayso.errors import NotAllowed
from sayso.rows import CallStatus, Directory, Person
from sayso.testing import FakeClock
from sayso_testing.world import World


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, clock: FakeClock) -> World:
    opener = request.getfixturevalue("open_again" if request.param == "sqlite" else "open_pg")
    world = World(opener(clock=clock), clock)
    for name in ("ana", "bea"):
        world.person(name)
    world.person("carl", role="chat")
    world.person("dora", "ops", role="admin")
    world.person("bot", role="agent")
    return world


def named(world: World, type: str = "decided") -> list[str]:
    names: list[str] = world.body(type)["eligible"]
    return names


@pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
def test_decision_names_everyone_who_could(world: World, type: str) -> None:
    more = {"edit": {"args": {"to": "eve"}}, "respond": {"value": 1}}.get(type, {})
    call = world.decide(world.ask(), type, **more)
    assert call.decision is not None
    assert call.decision.eligible == ("ana", "bea", "dora")
    assert named(world) == ["ana", "bea", "dora"]
    assert verify(world.store).ok


def test_every_vote_names_them(world: World) -> None:
    call = world.ask(quorum=2)
    world.decide(call, by="ana")
    world.change("dora", role="chat")
    done = world.decide(call, by="bea")
    assert done.status is CallStatus.READY
    first, last = done.votes
    assert (first.eligible, last.eligible) == (("ana", "bea", "dora"), ("ana", "bea"))
    assert named(world, "voted") == ["ana", "bea", "dora"]
    assert verify(world.store).ok


@pytest.mark.parametrize("type", ["approve", "respond", "reject"])
def test_settled_doubt_names_them(world: World, type: str) -> None:
    world.decide(world.doubted(), type, **({"value": 1} if type == "respond" else {}))
    assert named(world) == ["ana", "bea", "dora"]
    assert verify(world.store).ok


@pytest.mark.parametrize(
    ("asked", "terms", "names"),
    [
        ({"requester": "ana"}, {}, ["ana", "bea", "dora"]),
        ({"requester": "ana"}, {"requester_decides": False}, ["bea", "dora"]),
        ({"requester": "agent:ana"}, {"requester_decides": False}, ["bea", "dora"]),
        ({"requester": "ANA"}, {"requester_decides": False}, ["bea", "dora"]),
        ({"requester": "\u0430na "}, {"requester_decides": False}, ["bea", "dora"]),
        ({"requester": "carl"}, {}, ["ana", "bea", "carl", "dora"]),
        ({"agent": "an\u0430"}, {}, ["bea", "dora"]),
        ({"requester": "agent:carl"}, {}, ["ana", "bea", "dora"]),
        ({"agent": "Ana"}, {}, ["bea", "dora"]),
        ({}, {"reviewers": ("group:ops", "bea", "carl")}, ["bea", "dora"]),
        ({"requester": "carl"}, {"reviewers": ("bea",)}, ["bea"]),
        ({"requester": "ana"}, {"reviewers": ("bea",)}, ["bea"]),
    ],
)
def test_who_could_decide_follows_terms(
    world: World, asked: dict[str, Any], terms: dict[str, Any], names: list[str]
) -> None:
    (call,) = world.propose(world.new(**terms), **asked)
    if "ana" not in names and not terms.get("reviewers"):
        with pytest.raises(NotAllowed):
            world.decide(call, by="ana")
    world.decide(call, by="bea")
    assert named(world) == names
    assert verify(world.store).ok


def test_stand_in_is_among_them(world: World) -> None:
    call = world.ask(reviewers=("dora",))
    world.change("dora", away=("bea", world.clock() + 1_000_000))
    done = world.decide(call, by="bea")
    assert done.decision is not None
    assert done.decision.on_behalf_of == "dora"
    assert done.decision.eligible == ("bea", "dora")
    assert verify(world.store).ok


def test_many_people_are_stored_as_hash(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_NAMED", 2)
    done = world.decide(world.ask())
    assert done.decision is not None
    names = codec.dumps(["ana", "bea", "dora"]).encode()
    assert done.decision.eligible == ()
    assert done.decision.eligible_digest == f"3:{hashlib.sha256(names).hexdigest()}"
    assert verify(world.store).ok
    monkeypatch.setattr(rows, "MOST_NAMED", 20)
    (problem,) = verify(world.store).problems  # as for any other people than the record has
    assert "names other people who could decide it" in str(problem)


@pytest.mark.parametrize("forged", [((), ""), (("ana",), ""), ((), "3:00")])
def test_other_people_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, forged: tuple[tuple[str, ...], str]
) -> None:
    with monkeypatch.context() as forger:  # who holds every key
        forger.setattr(deciding, "eligible", lambda *_: forged)
        world.decide(world.ask())
    (problem,) = verify(world.store).problems
    assert "names other people who could decide it" in str(problem)


def test_rolled_back_people_are_forgotten(world: World) -> None:
    world.decide(world.ask())
    cache = world.store._parts.tool_cache  # type: ignore[attr-defined]
    ghost = Person("ghost", "ghost", "reviewer")
    cache.directory = Directory([ghost], cache.directory.seq, "of an event that was rolled back")
    world.decide(world.ask())
    assert named(world) == ["ana", "bea", "dora"]


def test_unrelated_events_keep_the_directory(world: World) -> None:
    world.decide(world.ask())
    directory = world.store._parts.tool_cache.directory  # type: ignore[attr-defined]
    world.grant("other")
    done = world.decide(world.ask())
    assert done.decision is not None
    assert done.decision.people_seq == directory.seq + 1
    later = world.store._parts.tool_cache.directory  # type: ignore[attr-defined]
    assert later.by_look is directory.by_look
    assert verify(world.store).ok
