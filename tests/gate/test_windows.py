"""Trust in a run: what it covers, what it never covers, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cases import Case, person
from worlds import url as url  # the fixture

from sayso import InvalidDecision, NotAllowed, NotFound, Paused, Policy, Refused, Rule, open_store
from sayso.audit import verify
from sayso.errors import Conflict
from sayso.inbox import Inbox
from sayso.inbox.directory import change_person, remove_person
from sayso.testing import FakeClock
from sayso.types import Grant

ANA = person("ana", "finance", assurance="session")
BEA = person("bea", assurance="session")
RULES = (
    Rule("banned", verdict="deny"),
    Rule("twice", risk="low", quorum=2),
    Rule("risky", risk="high"),
    Rule("finance", risk="low", reviewers="group:finance"),
    Rule("legal", risk="low", reviewers="group:legal"),
    Rule("fresh", risk="low", fresh="5m"),
    Rule("passkey", risk="low", assurance="passkey"),
    Rule("others", risk="low", requester_decides=False),
    Rule("answered", risk="low", allowed=("respond", "reject")),
    Rule("medium", risk="medium"),
    Rule("low", risk="low"),
)


class World:
    """A run that waits for people, and an agent that goes on in it."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.store = open_store(url, clock=self.clock)
        self.case = Case(self.store, policy=Policy(RULES))
        self.inbox = Inbox(self.store)
        self.asks("start")  # an open request keeps the run live

    def call(self, tool: str, run: str = "r1", number: int = 0, case: Case | None = None) -> Any:
        case = case or Case(self.store, policy=Policy(RULES))

        @case.gate.guard(name=tool)
        def body(number: int = 0) -> str:
            self.case.ran.append(tool)
            return f"ran {tool}"

        return case.enter(lambda: body(number=number), run, requester="rita")

    def asks(self, tool: str, **where: Any) -> bool:
        try:
            self.call(tool, **where)
        except Paused:
            return True
        return False

    def trust(self, by: Any = ANA, run: str = "r1", **options: Any) -> Grant:
        return self.inbox.trust_run_sync(run, by=by.at(self.store), **options)


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    assert verify(world.store).ok, verify(world.store).problems
    world.store.close()


def test_window_covers_only_what_its_person_could_approve(world: World) -> None:
    world.trust()
    tools = [rule.tool[0] for rule in RULES if rule.verdict != "deny"]  # type: ignore[index]
    covered = [tool for tool in [*tools, "undeclared"] if not world.asks(tool)]
    assert covered == ["finance", "others", "medium", "low"]
    with pytest.raises(Refused):
        world.call("banned")
    assert world.case.ran == covered
    calls = [call for call in world.store.calls_of("r1") if call.grant]
    assert {(call.source, call.decision.type) for call in calls if call.decision} == {
        ("window", "grant")
    }


def test_window_of_low_risk_asks_about_medium(world: World) -> None:
    world.trust(max_risk="low")
    assert [world.asks("low"), world.asks("medium")] == [False, True]


def test_window_is_for_one_run_and_ends_in_time(world: World) -> None:
    world.asks("start", run="r2")
    world.trust(ends_in=60)
    assert world.asks("low", run="r2")
    assert not world.asks("low", number=1)
    world.clock.advance(61)
    assert world.asks("low", number=2)


def test_stopped_window_asks(world: World) -> None:
    world.inbox.revoke_sync(world.trust(), by="bea")
    assert world.asks("low")


@pytest.mark.parametrize("kind", ["call", "question"])
def test_any_rejection_ends_the_window(world: World, kind: str) -> None:
    world.trust()
    assert not world.asks("low", number=1)
    if kind == "question":
        with pytest.raises(Paused):
            world.case.enter(lambda: world.case.gate.ask_sync("Why?"), "r1", requester="rita")
        request = world.inbox.pending_sync(kind="question").items[0]
    else:
        request = world.inbox.pending_sync(tool="start").items[0]
    world.inbox.reject_sync(request, "no", by="bea")
    assert world.asks("low", number=2)
    assert world.inbox.grants_sync() == []


def test_rejected_call_stays_rejected(world: World) -> None:
    assert world.asks("low")
    world.inbox.reject_sync(world.inbox.pending_sync(tool="low").items[0], "no", by="bea")
    world.trust()
    with pytest.raises((Refused, Paused)):
        world.call("low")
    assert world.case.ran == []


@pytest.mark.parametrize("loses", ["group", "everything"])
def test_person_who_loses_rights_ends_the_window(world: World, loses: str) -> None:
    world.trust()
    assert not world.asks("low", number=1)
    if loses == "group":
        change_person(world.store, "ana", remove_groups=["finance"], by="root")
    else:
        remove_person(world.store, "ana", by="root")
    assert world.asks("low", number=2)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (person("ana", assurance="token"), "session"),
        (person("ana", assurance="code"), "session"),
        (person("bot", assurance="session"), "agent|only a reviewer"),
    ],
)
def test_window_needs_a_reviewer_with_a_session(world: World, who: Any, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        world.trust(who)
    assert world.inbox.grants_sync() == []


@pytest.mark.parametrize(
    "options", [{"max_risk": "high"}, {"ends_in": 0}, {"ends_in": 10**6}, {"ends_in": True}]
)
def test_wrong_window_is_refused(world: World, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidDecision):
        world.trust(**options)


def test_finished_or_unknown_run_is_not_trusted(world: World) -> None:
    with pytest.raises(NotFound):
        world.trust(run="other")
    world.inbox.cancel_sync("r1", by="ana")
    with pytest.raises(Conflict, match="nothing to trust"):
        world.trust()


def test_stricter_rule_beats_a_window_before_the_start(world: World) -> None:
    """A call that a window allowed, and that did not start, asks if its risk is not declared."""
    from dataclasses import replace

    from sayso.gate.plan import raised_terms

    world.trust()
    assert not world.asks("low")
    (call,) = [call for call in world.store.calls_of("r1") if call.grant]
    assert raised_terms(call, replace(call.terms, risk_declared=False)) is not None


def test_forged_window_covers_nothing(world: World, monkeypatch: Any) -> None:
    """A window that was not signed with the decision key, only with the row key."""
    import sayso.engine.grants as grants

    sign: Callable[..., Grant] = grants.put_grant
    monkeypatch.setattr(grants, "sign_grant", lambda work, grant: sign(work, grant))
    world.trust()
    monkeypatch.undo()
    assert world.asks("low")
    problems = verify(world.store).problems
    assert any("grant" in problem.what for problem in problems)
    for grant in world.store.grants():
        world.inbox.revoke_sync(grant, by="ana")
