"""Directly before a start, everything that could have changed since the approval is compared.

A caller that waited in process gets the same check as one that comes back later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, aside, person
from waiting import until

from sayso import Denied, Gate, NotAllowed, Paused, Policy, Rule
from sayso.types import Request


class Waiting:
    """A call in another OS thread that waits for people, and what came of it."""

    def __init__(self, case: Case, call: Callable[[], Any], run: str = RUN) -> None:
        self.case = case
        self.outcome: list[Any] = []

        def body() -> None:
            try:
                with case.gate.run(run):
                    self.outcome.append(call())
            except BaseException as error:
                self.outcome.append(error)

        self.thread = aside(body)

    def request(self, revision: int = 1) -> Request:
        """The request, once it is at this revision."""
        return until(
            lambda: next(
                (r for r in self.case.inbox.pending_sync().items if r.revision == revision), None
            )
        )

    def ended(self) -> Any:
        """What the call gave or raised."""
        self.thread.join(20)
        assert not self.thread.is_alive(), "it still waits"
        return self.outcome[0]


@pytest.mark.parametrize("wait", [None, 30])
def test_surroundings_are_looked_at_after_the_waiting(case: Case, wait: float | None) -> None:
    where = {"cluster": "staging"}
    pay = case.paying(binds=lambda: where, wait=wait)
    waiting = Waiting(case, lambda: pay("bo"))
    first = waiting.request()
    where["cluster"] = "PRODUCTION"
    case.decide(first.approve())
    again = waiting.request(revision=2)
    assert case.ran == []
    case.decide(again.approve())
    assert waiting.ended() == "paid bo 3"
    assert case.ran == [("bo", 3)]


@pytest.mark.parametrize("wait", [None, 30])
def test_policy_changed_to_deny_stops_a_waiting_caller(
    case: Case, tmp_path: Path, wait: float | None
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ntool = "pay"\nverdict = "ask"\n')
    case = Case(case.store, policy=policy)
    pay = case.paying(needs_approval=False, wait=wait)
    waiting = Waiting(case, lambda: pay("bo"))
    request = waiting.request()
    policy.write_text('[[rule]]\ntool = "pay"\nverdict = "deny"\n# forbidden now\n')
    case.decide(request.approve())
    assert isinstance(waiting.ended(), Denied)
    assert case.ran == []


def test_other_agent_cannot_run_an_approved_call(case: Case) -> None:
    """The policy denies it to rogue; in the run of trusted, rogue gets no further."""
    rules = Policy([Rule("pay", verdict="deny", agent="rogue"), Rule("pay", verdict="ask")])
    trusted, rogue = Case(case.store, policy=rules), Case(case.store, policy=rules, agent="rogue")
    trusted.approved(lambda: trusted.paying()("bo"))
    with pytest.raises(NotAllowed, match=r"'bot'.*'rogue'"):
        rogue.enter(lambda: rogue.paying()("bo"))
    assert (trusted.ran, rogue.ran) == ([], [])
    assert trusted.enter(lambda: trusted.paying()("bo")) == "paid bo 3"


@pytest.mark.parametrize("scope", ["exact", "any"])
def test_grant_covers_only_its_surroundings(case: Case, scope: str) -> None:
    where = {"cluster": "staging"}
    pay = case.paying(binds=lambda: where)
    request = case.paused(lambda: pay("bo"))
    case.decide(request.approve(), grant={"scope": scope})
    case.enter(lambda: pay("bo"))
    assert case.enter(lambda: pay("bo"), run="again on staging") == "paid bo 3"
    where["cluster"] = "PRODUCTION"
    case.paused(lambda: pay("bo"), run="on production")
    assert case.ran == [("bo", 3)] * 2


def test_grant_without_surroundings_covers_no_bound_call(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    case.decide(request.approve(), grant={"scope": "any"})
    bound = case.paying(binds=lambda: {"cluster": "PRODUCTION"})
    case.paused(lambda: bound("bo"), run="bound")


@pytest.mark.parametrize("terms", [{"quorum": 2}, {"reviewers": ["zoe"]}, {"risk": "high"}])
def test_stricter_terms_in_the_code_void_an_approval(case: Case, terms: dict[str, Any]) -> None:
    case.approved(lambda: case.paying()("bo"))
    stricter = case.paying(**terms)
    again = case.paused(lambda: stricter("bo"))
    assert (again.revision, again.votes, case.ran) == (2, (), [])


@pytest.mark.parametrize("terms", [{"quorum": 2}, {"reviewers": ["zoe"]}])
def test_stricter_terms_reach_pending_request(case: Case, terms: dict[str, Any]) -> None:
    first = case.paused(lambda: case.paying()("bo"))
    again = case.paused(lambda: case.paying(**terms)("bo"))
    assert (again.id, again.revision) == (first.id, 2)
    with pytest.raises(Exception, match="not what you saw"):
        case.decide(first.approve(), person("ana"))
    case.paused(lambda: case.paying(**terms)("bo"))
    assert case.pending().revision == 2, "asked again though nothing changed"


def test_looser_code_does_not_loosen_a_pending_request(case: Case) -> None:
    case.paused(lambda: case.paying(quorum=2)("bo"))
    request = case.paused(lambda: case.paying()("bo"))
    assert (request.quorum, request.revision) == (2, 1)
    case.decide(request.approve(), person("ana"))
    case.paused(lambda: case.paying()("bo"))
    assert case.ran == []


def test_changed_terms_update_a_pending_question(case: Case) -> None:
    case.paused(lambda: case.gate.confirm_sync("Drop the table?"))
    case.paused(lambda: case.gate.confirm_sync("Drop the table?", reviewers=["zoe"]))
    with pytest.raises(Exception, match="it is for zoe"):
        case.decide(case.pending().approve(), "ana")
    case.decide(case.pending().approve(), "zoe")
    asked = lambda: case.gate.confirm_sync("Drop the table?", reviewers=["zoe"])  # noqa: E731
    assert case.enter(asked) is True


def test_stricter_rule_asks_before_a_resumed_start(case: Case) -> None:
    """A call that a rule let through, and that paused inside, meets a rule that asks by now."""
    open_, closed = Policy([Rule("order", verdict="allow")]), Policy([Rule("order", verdict="ask")])
    ran: list[str] = []

    def ordering(gate: Gate) -> Callable[[], str]:
        @gate.guard
        def order() -> str:
            size = gate.ask_sync("Which size?")
            ran.append(size)
            return size

        return order

    before = Case(case.store, policy=open_)
    question = before.paused(ordering(before.gate))
    before.decide(question.respond("large"))
    now = Case(case.store, policy=closed)
    request = now.paused(ordering(now.gate))
    assert (request.tool, ran) == ("order", [])


def test_pause_is_raised_after_the_callers_wait(case: Case) -> None:
    with contextlib.suppress(Paused):
        case.enter(lambda: case.paying(wait=0.05)("bo"))
    assert case.pending().tool == "pay"
