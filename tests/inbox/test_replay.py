"""Replay: a policy judges stored calls again, and says what it could not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cases import Case
from worlds import url as url  # the fixture

from sayso import Policy, Rule, open_store
from sayso.inbox.decisions import new_grant
from sayso.inbox.replay import replay_grant
from sayso.stores.base import Store
from sayso.types import Reviewer

ALLOW_SMALL = Policy([Rule("pay", where="amount < 100", verdict="allow", name="small")])


@pytest.fixture
def both(url: str) -> Iterator[Case]:
    store = open_store(url)
    yield Case(store)
    store.close()


def asked(case: Case, run: str, amount: int) -> Any:
    return case.paused(lambda: case.paying()("bo", amount=amount), run)


def test_replay_counts_what_people_decided(both: Case) -> None:
    both.decide(asked(both, "r1", 5).approve())
    rejected = both.decide(asked(both, "r2", 6).reject("no"))
    asked(both, "r3", 7)
    both.decide(asked(both, "r4", 500).approve())
    replay = both.inbox.replay_sync(ALLOW_SMALL)
    assert dict(replay.changes) == {
        ("asked", "allowed", "approved"): 1,
        ("asked", "allowed", "rejected"): 1,
        ("asked", "allowed", "pending"): 1,
    }
    assert (replay.calls, replay.overruled) == (4, 1)
    assert replay.listed()[0].call.id == rejected.id
    assert replay.rules["small"] == {("asked", "allowed"): 3}
    assert replay.rules["needs_approval"] == {("asked", "asked"): 1}


def test_replay_finds_calls_that_would_be_asked_or_denied(case: Case) -> None:
    pay = case.paying(needs_approval=False)
    for run, amount in (("r1", 5), ("r2", 5000)):
        case.enter(lambda amount=amount: pay("bo", amount=amount), run)
    replay = case.inbox.replay_sync(
        Policy([Rule("pay", where="amount > 100", verdict="deny"), Rule("pay", agent="bot")])
    )
    assert dict(replay.changes) == {("allowed", "denied", ""): 1, ("allowed", "asked", ""): 1}


def test_replay_judges_what_the_agent_wrote(case: Case) -> None:
    case.decide(asked(case, "r1", 5000).edit({"amount": 5}))
    replay = case.inbox.replay_sync(ALLOW_SMALL)
    assert not replay.changes


def test_replay_says_what_is_not_stored(make_store: Callable[..., Store]) -> None:
    async def later(args: dict[str, Any]) -> bool:
        return True

    case = Case(make_store(), policy=Policy([Rule("pay")]))
    asked(case, "r1", 5)
    assert "needs approval is not stored" in case.inbox.replay_sync(Policy()).not_stored[0]
    replay = case.inbox.replay_sync(Policy([Rule("pay", when=later, verdict="allow")]))
    assert not replay.changes
    assert "async predicates are not called" in replay.not_stored[0]


@pytest.mark.parametrize(
    ("asks", "sentence"),
    [
        (
            Policy([Rule("pay", reviewer="model:other")]),
            "the model that reviews calls first is not called",
        ),
        (Policy.preset("balanced"), "files and links are looked up as they are now"),
    ],
)
def test_replay_calls_no_model_and_reads_no_old_files(
    make_store: Callable[..., Store], asks: Policy, sentence: str
) -> None:
    case = Case(make_store())

    @case.gate.guard
    def bash(command: str, cwd: str) -> None: ...

    @case.gate.guard
    def pay(to: str) -> None: ...

    case.paused(lambda: bash("git push", cwd="/srv/shop"), "r1")
    case.paused(lambda: pay("bo"), "r2")
    assert any(sentence in said for said in case.inbox.replay_sync(asks).not_stored)


def test_replay_reads_the_time_of_the_call(timed: Case, clock: Any) -> None:
    asked(timed, "r1", 5)
    clock.advance(10 * 86_400)
    assert timed.inbox.replay_sync(ALLOW_SMALL, since="20d").calls == 1
    assert timed.inbox.replay_sync(ALLOW_SMALL, since="5d").calls == 0


def test_replay_leaves_out_questions_and_confirmations(case: Case) -> None:
    case.paused(lambda: case.gate.confirm_sync("Sure?"))
    assert case.inbox.replay_sync(Policy([Rule("*", verdict="allow")])).calls == 0


def test_refused_call_stays_refused(case: Case) -> None:
    pay = case.paying()
    case.decide(case.paused(lambda: pay("bo")).reject("no"))
    with case.gate.run("order-17"), pytest.raises(Exception, match="no"):
        pay("bo")
    replay = case.inbox.replay_sync(Policy([Rule("*", verdict="allow")]))
    assert dict(replay.changes) == {("asked", "allowed", "rejected"): 1}


def test_replayed_grant_covers_as_at_run_time(case: Case) -> None:
    one = asked(case, "r1", 5)
    asked(case, "r2", 6)
    call = case.store.call(one.id)
    assert call is not None
    grant = new_grant(call, {"scope": "exact"}, Reviewer("ana"), case.store.now())
    replay = replay_grant(case.store, grant, 0)
    assert (replay.calls, dict(replay.changes)) == (2, {("asked", "allowed", "pending"): 1})


def test_replay_counts_what_limits_count(both: Case) -> None:
    for run, amount in (("r1", 60), ("r2", 60), ("r3", 30)):
        asked(both, run, amount)
    rule = Rule("pay", verdict="allow", name="small", limits="sum(amount) <= 100 per 1d")
    replay = both.inbox.replay_sync(Policy([rule]))
    assert replay.rules["small"] == {("asked", "allowed"): 2, ("asked", "asked"): 1}
    approved = both.decide(both.pending(run="r2").approve())
    both.enter(lambda: both.paying()("bo", amount=60), "r2")
    asking = Rule("pay", where="amount > 50", name="large", limits="sum(amount) <= 100 per 1d")
    assert ("asked", "allowed", "approved") not in both.inbox.replay_sync(Policy([asking])).changes
    assert approved.status == "approved"


def test_replayed_limits_slide(timed: Case, clock: Any) -> None:
    for run in ("r1", "r2", "r3"):
        asked(timed, run, 60)
        clock.advance(3_600)
    rule = Rule("pay", verdict="allow", limits="calls <= 1 per 90m")
    replay = timed.inbox.replay_sync(Policy([rule]))
    assert {one.call.run for one in replay.listed()} == {"r1", "r3"}


def test_replayed_grant_has_limits_and_uses(both: Case) -> None:
    one = asked(both, "r1", 30)
    for run in ("r2", "r3", "r4"):
        asked(both, run, 30)
    call = both.store.call(one.id)
    assert call is not None
    for wanted, covered in (
        ({"scope": "any", "uses": 3}, 3),
        ({"scope": "any", "limits": ["sum(amount) <= 60 per 1d"]}, 2),
    ):
        grant = new_grant(call, wanted, Reviewer("ana"), both.store.now())
        replay = replay_grant(both.store, grant, 0)
        assert (replay.calls, replay.changes["asked", "allowed", "pending"]) == (4, covered)


def test_grant_preview_has_its_replay(case: Case) -> None:
    first = asked(case, "r1", 5)
    case.decide(asked(case, "r2", 5).reject("no"))
    preview = case.inbox.preview_grant_sync(first, {"scope": "exact"})
    assert (preview.replay.overruled, preview.replay.changes.total()) == (1, 2)
    hidden = case.inbox.preview_grant_sync(first, {"scope": "exact"}, sees=lambda call: False)
    assert hidden.replay.calls == 0
