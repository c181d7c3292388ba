"""Nothing that saves people questions lets a call run that a person rejected.

Each row of ``SOURCES`` is one way in which a call runs without a person: a rule, a rule with a
limit, a grant, a plan, trust in the run, a model, and all of them at once.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cases import RUN, Case, person
from worlds import url as url  # the fixture

from sayso import Paused, Policy, Refused, Rule, ToolCall, open_store
from sayso.audit import verify
from sayso.testing import FakeClock
from sayso.types import Request

ANA = person("ana", assurance="session")
ASKS = Rule("pay", risk="low")
NUMBERS = itertools.count()


class World:
    """An agent with a policy that asks, and a person who rejects a call."""

    def __init__(self, url: str) -> None:
        self.store = open_store(url, clock=FakeClock())
        models = {"yes": lambda request: "allow"}
        self.case = Case(self.store, policy=Policy([ASKS]), models=models)

        @self.case.gate.guard(name="pay", key=lambda args: f"{next(NUMBERS)}")
        def pay(to: str) -> str:
            self.case.ran.append(to)
            return "paid"

        self.pay = pay

    def follow(self, rule: Rule) -> None:
        """Replace the policy."""
        self.case.gate._policy._policy = Policy([rule])

    def kept(self, body: Callable[[], Any]) -> None:
        """Do something, and leave the run live."""
        body()
        raise Paused(RUN, ())

    def attempt(self, to: str, run: str = RUN) -> bool:
        """Make a call in another entry of the run. Return whether it ran."""
        before = len(self.case.ran)
        with contextlib.suppress(Paused, Refused):
            self.case.enter(lambda: self.kept(lambda: self.pay(to)), run)
        return len(self.case.ran) > before

    def asked(self, to: str, run: str = RUN) -> Request:
        return self.case.paused(lambda: self.pay(to), run)


def give_grant(world: World) -> None:
    if not world.attempt("someone"):  # the first time
        world.case.decide(world.case.pending(q="someone").approve(), ANA, grant={"scope": "any"})


def give_plan(world: World) -> None:
    others = ("bo", "al", f"another {next(NUMBERS)}")
    steps = [ToolCall("pay", {"to": to}) for to in ("al", *others)]
    try:
        world.case.enter(
            lambda: world.kept(lambda: world.case.gate.plan_sync(steps, any_order=True)), RUN
        )
    except Paused as paused:
        for request in paused.requests:  # none, if trust in the run covers the plan itself
            world.case.decide(request.approve(), ANA)


def give_trust(world: World) -> None:
    run = world.store.run(RUN)
    if run is None or not run.is_open:
        world.asked("nobody")  # only a live run can be trusted
    world.case.inbox.trust_run_sync(RUN, max_risk="medium", by=ANA.at(world.store))


def give_all(world: World) -> None:
    give_grant(world)
    give_plan(world)
    give_trust(world)
    world.follow(replace(MODEL, limits=["calls <= 9 per 1h"]))


MODEL = Rule("pay", risk="low", reviewer="model:yes", reviewer_allows=True)
SOURCES: dict[str, Callable[[World], None]] = {
    "rule": lambda world: world.follow(Rule("pay", verdict="allow")),
    "limit": lambda world: world.follow(
        Rule("pay", verdict="allow", limits=["calls <= 9 per 1h", "distinct(to) <= 9 per 1d"])
    ),
    "grant": give_grant,
    "plan": give_plan,
    "trust": give_trust,
    "model": lambda world: world.follow(MODEL),
    "all": give_all,
}


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    report = verify(world.store)
    assert report.ok, report.problems
    world.store.close()


@pytest.mark.parametrize("source", SOURCES)
def test_call_that_nobody_rejected_runs(world: World, source: str) -> None:
    """Without this, the tests below would prove nothing."""
    SOURCES[source](world)
    assert world.attempt("bo")


@pytest.mark.parametrize("run", [RUN, "another"])
@pytest.mark.parametrize("order", ["rejected first", "given first"])
@pytest.mark.parametrize("source", SOURCES)
def test_rejected_call_runs_under_nothing(world: World, source: str, order: str, run: str) -> None:
    request = world.asked("al")
    if order == "rejected first":
        world.case.decide(request.reject("never"), ANA)
    SOURCES[source](world)
    if order == "given first":
        world.case.decide(request.reject("never"), ANA)
    assert not any(world.attempt("al", run) for _ in range(3))
    SOURCES[source](world)  # once more, after the rejection
    assert not world.attempt("al", run)
    assert "al" not in world.case.ran
    # Only a person overturns it, and sees who rejected it.
    world.follow(ASKS)
    pending = [one for one in world.case.inbox.pending_sync() if one.args == {"to": "al"}]
    again = pending[0] if pending else world.asked("al", "a third one")
    assert [earlier.by for earlier in again.refusals] == ["ana"]
    world.case.decide(again.approve(), ANA)
    assert world.case.inbox.get_sync(again).status == "approved"


@pytest.mark.parametrize("source", SOURCES)
def test_rejection_stops_what_has_not_started(
    world: World, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source allowed the call already; a person rejects an equal one just before its start."""
    request = world.asked("al")
    SOURCES[source](world)
    backend = world.case.gate.backend
    propose = backend._proposal
    clear = backend.clear

    def without_start(entry: Any, plan: Any, new: Any, owner: str | None = None) -> Any:
        return propose(entry, plan, new)

    async def rejected_meanwhile(plan: Any, call: Any) -> Any:
        cleared = await clear(plan, call)
        assert call.status == "ready"
        world.case.decide(request.reject("stop"), ANA)
        return cleared

    monkeypatch.setattr(backend, "_proposal", without_start)
    monkeypatch.setattr(backend, "clear", rejected_meanwhile)
    assert not world.attempt("al")
    monkeypatch.undo()
    assert not world.attempt("al")
    assert "al" not in world.case.ran
