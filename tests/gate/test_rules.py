"""The rules of deciding, for gate and inbox: who, how many, until when."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, person

from sayso import (
    AlreadyDecided,
    Cancelled,
    Conflict,
    Denied,
    Expired,
    Gate,
    InvalidDecision,
    NotAllowed,
    Policy,
    Rejected,
    Reviewer,
    Risk,
    Rule,
)
from sayso.inbox import add_person, change_person, create_token, revoke_token
from sayso.rows import RunStatus
from sayso.testing import FakeClock

ANA, BEA, CY = person("ana"), person("bea"), person("cy")


def ruled(case: Case, *rules: Rule) -> Case:
    """The same store behind a gate with a policy."""
    return Case(case.store, policy=Policy(rules))


# -- quorum


def test_two_people_have_to_agree(case: Case) -> None:
    pay = case.paying(quorum=2)
    request = case.paused(lambda: pay("bo"))
    voted = case.decide(request.approve(), ANA)
    assert (voted.status, [vote.by for vote in voted.votes]) == ("pending", ["ana"])
    assert case.decide(request.approve(), ANA).votes == voted.votes
    case.paused(lambda: pay("bo"))
    assert case.ran == []
    assert case.decide(request.approve(), BEA).status == "approved"
    assert case.enter(lambda: pay("bo")) == "paid bo 3"


def test_one_rejection_closes_a_quorum_request(case: Case) -> None:
    pay = case.paying(quorum=3)
    request = case.paused(lambda: pay("bo"))
    case.decide(request.approve(), ANA)
    case.decide(request.reject("never"), BEA)
    with pytest.raises(AlreadyDecided, match="bea decided 'reject'"):
        case.decide(request.approve(), CY)
    with pytest.raises(Rejected, match="bea rejected it: never"):
        case.enter(lambda: pay("bo"))


def test_quorum_counts_only_authenticated_people(case: Case) -> None:
    request = case.paused(lambda: case.paying(quorum=2)("bo"))
    with pytest.raises(NotAllowed, match="needs a decision with assurance 'token' or better"):
        case.decide(request.approve(), "ana")
    with pytest.raises(NotAllowed, match="this one has 'os-user': decide with a token"):
        case.decide(request.approve(), person("ana", assurance="os-user"))
    case.decide(request.approve(), person("ana", assurance="token"))
    assert case.decide(request.approve(), BEA).status == "approved"


def test_tokens_make_a_quorum(case: Case) -> None:
    tokens = {name: create_token(case.store, name, by="ops") for name in ("ana", "bea")}
    request = case.paused(lambda: case.paying(quorum=2)("bo"))
    for name, (token, _) in tokens.items():
        decided = case.inbox.decide_sync(request.id, request.approve(), token=token)
        assert decided.votes[-1].by == name
    assert decided.status == "approved"
    assert decided.decision is not None
    assert (decided.decision.by, decided.decision.assurance) == ("bea", "token")


def test_revoked_ended_or_forged_token_cannot_decide(timed: Case) -> None:
    store = timed.store
    request = timed.paused(lambda: timed.paying()("bo"))
    revoked, row = create_token(store, "ana", by="ops")
    revoke_token(store, row.id, by="ops")
    ended, _ = create_token(store, "ana", by="ops", ends=store.now())
    for token in (revoked, ended, "sayso_made-up", "", "\ud800"):
        with pytest.raises(NotAllowed, match="unknown, revoked or expired"):
            timed.inbox.decide_sync(request.id, request.approve(), token=token)
    assert timed.pending() == request


def test_doubt_needs_the_quorum_of_the_call(case: Case) -> None:
    @case.gate.guard(needs_approval=True, quorum=2)
    def pay(to: str) -> str:
        case.ran.append(to)
        if len(case.ran) == 1:
            raise KeyboardInterrupt
        return "paid"

    request = case.paused(lambda: pay("bo"))
    case.decide(request.approve(), ANA)
    case.decide(request.approve(), BEA)
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: pay("bo"))
    doubt = case.pending(kind="in_doubt")
    assert (doubt.quorum, doubt.votes) == (2, ())
    assert case.decide(doubt.approve(), ANA).status == "pending"
    case.paused(lambda: pay("bo"))
    case.decide(doubt.approve(), CY)
    assert case.enter(lambda: pay("bo")) == "paid"
    assert case.ran == ["bo", "bo"]


# -- edits


def test_edited_call_runs_the_new_arguments(case: Case) -> None:
    pay = case.paying()
    request = case.paused(lambda: pay("bo"))
    edited = case.decide(request.edit({"amount": 2}))
    assert (edited.status, edited.revision) == ("edited", 2)
    assert (edited.args, edited.original) == (
        {"to": "bo", "amount": 2},
        {"to": "bo", "amount": 3},
    )
    assert edited.digest != request.digest
    assert case.enter(lambda: pay("bo")) == "paid bo 2"
    assert case.enter(lambda: pay("bo")) == "paid bo 2"
    assert case.ran == [("bo", 2)]


def test_edit_voids_earlier_votes(case: Case) -> None:
    pay = case.paying(quorum=2)
    request = case.paused(lambda: pay("bo"))
    case.decide(request.approve(), ANA)
    edited = case.decide(request.edit({"amount": 2}), BEA)
    assert (edited.status, [vote.by for vote in edited.votes]) == ("pending", ["bea"])
    with pytest.raises(Conflict, match="is not what you saw"):
        case.decide(request.approve(), CY)
    assert case.decide(edited.approve(), BEA).status == "pending"
    assert case.decide(edited.approve(), ANA).status == "edited"
    assert case.enter(lambda: pay("bo")) == "paid bo 2"


LIMIT = Rule("pay", where="amount > 100", name="large", quorum=2, reviewers=["ana", "bea", "cy"])
NEVER = Rule("pay", where="amount > 1000", name="never", verdict="deny", description="Too much.")
USUAL = Rule("pay", name="usual")


def test_edit_under_a_stricter_rule_is_asked_again(case: Case) -> None:
    case = ruled(case, NEVER, LIMIT, USUAL)
    pay = case.paying()
    request = case.paused(lambda: pay("bo"))
    assert (request.rule, request.quorum) == ("usual", 1)
    case.decide(request.edit({"amount": 500}))
    again = case.paused(lambda: pay("bo"))
    assert (again.id, again.quorum, again.revision) == (request.id, 2, 3)
    assert again.reviewers == ("ana", "bea", "cy")
    assert case.ran == []
    case.decide(again.approve(), ANA)
    case.decide(again.approve(), BEA)
    assert case.enter(lambda: pay("bo")) == "paid bo 500"


def test_edit_denied_by_policy_does_not_run(case: Case) -> None:
    case = ruled(case, NEVER, LIMIT, USUAL)
    pay = case.paying()
    case.decide(case.paused(lambda: pay("bo")).edit({"amount": 5000}))
    for error in (Denied, Cancelled):
        with pytest.raises(error):
            case.enter(lambda: pay("bo"))
    assert case.ran == []


def test_edit_into_allowed_arguments_runs(case: Case) -> None:
    small = Rule("pay", where="amount < 2", name="small", verdict="allow")
    case = ruled(case, small, LIMIT, USUAL)
    pay = case.paying()
    case.decide(case.paused(lambda: pay("bo")).edit({"amount": 1}))
    assert case.enter(lambda: pay("bo")) == "paid bo 1"


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"amount": "two"}, "args.amount"),
        ({"amount": 2.5}, "args.amount"),
        ({"amount": None}, "args.amount"),
        ({"ammount": 2}, "args.ammount"),
        ({"to": ["bo"]}, "args.to"),
        ({"amount": 2**53}, "args.amount"),
        ({"amount": float("nan")}, "args.amount"),
        ({"to": "\ud800"}, "args.to"),
    ],
)
def test_invalid_edit_is_refused_at_its_field(case: Case, args: dict[str, Any], path: str) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(InvalidDecision) as caught:
        case.decide(request.edit(args))
    assert caught.value.path == path
    assert case.pending() == request


def test_only_allowed_decisions_count(case: Case) -> None:
    request = case.paused(lambda: case.paying(allowed=("approve", "reject"))("bo"))
    with pytest.raises(InvalidDecision, match="'edit' is not allowed"):
        case.decide(request.edit({"amount": 2}))
    with pytest.raises(InvalidDecision, match="'respond' is not allowed"):
        case.decide(request.respond("paid by hand"))
    assert case.decide(request.approve()).status == "approved"


def test_response_replaces_the_result(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(InvalidDecision, match="value"):
        case.decide(request.respond(5))
    case.decide(request.respond("paid in cash"))
    assert case.enter(lambda: case.paying()("bo")) == "paid in cash"
    assert case.ran == []


# -- who


def test_only_the_named_reviewers_decide(case: Case) -> None:
    request = case.paused(lambda: case.paying(reviewers=["ana", "group:finance"])("bo"))
    with pytest.raises(NotAllowed, match="it is for ana, group:finance"):
        case.decide(request.approve(), BEA)
    with pytest.raises(NotAllowed):
        case.decide(request.reject(), person("finance"))
    assert case.decide(request.approve(), person("cleo", "finance")).status == "approved"


def test_group_may_come_from_the_store(case: Case) -> None:
    add_person(case.store, "bea", by="ops", groups=["finance"])
    first = case.paused(lambda: case.paying(reviewers="group:finance")("bo"))
    assert case.decide(first.approve(), BEA).status == "approved"
    change_person(case.store, "bea", by="ops", remove_groups=["finance"])
    second = case.paused(lambda: case.paying(reviewers="group:finance")("cy"))
    with pytest.raises(NotAllowed):
        case.decide(second.approve(), BEA)


def test_requester_cannot_decide_high_risk_call(case: Case) -> None:
    risky = case.paying(risk=Risk("high", ("moves money",)))
    request = case.paused(lambda: risky("bo"), requester="ana")
    assert request.requester == "ana"
    with pytest.raises(NotAllowed, match="another person has to decide it"):
        case.decide(request.approve(), ANA)
    assert case.decide(request.approve(), BEA).status == "approved"
    said = case.paying(risk="high", requester_decides=True)
    for number, usual in enumerate((case.paying(), said)):
        request = case.paused(partial(usual, "cy"), f"order-{number}", requester="ana")
        assert case.decide(request.approve(), ANA).status == "approved"


def test_agent_cannot_decide(case: Case) -> None:
    token, _ = create_token(case.store, "bot", by="ops", role="agent")
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(NotAllowed, match="an agent cannot decide"):
        case.inbox.decide_sync(request.id, request.approve(), token=token)
    with pytest.raises(NotAllowed, match="an agent cannot decide"):
        case.decide(request.approve(), Reviewer("bot", role="agent"))
    assert case.pending() == request


@pytest.mark.parametrize(("has", "enough"), [("code", 0), ("os-user", 0), ("token", 1)])
def test_least_assurance(case: Case, has: str, enough: int) -> None:
    request = case.paused(lambda: case.paying(assurance="token")("bo"))
    if enough:
        assert case.decide(request.approve(), person("ana", assurance=has)).status == "approved"
    else:
        with pytest.raises(NotAllowed, match="needs a decision with assurance 'token'"):
            case.decide(request.approve(), person("ana", assurance=has))


# -- until when


def test_expired_request_is_rejected_by_the_clock(timed: Case, clock: FakeClock) -> None:
    pay = timed.paying(expires_in=60)
    request = timed.paused(lambda: pay("bo"))
    clock.advance(59.9)
    assert timed.pending() == request
    clock.advance(0.1)
    with pytest.raises(Expired, match="nothing will run"):
        timed.decide(request.approve())
    assert timed.inbox.get_sync(request.id).status == "expired"
    assert timed.inbox.pending_sync().items == ()
    with pytest.raises(Expired, match="nothing was run"):
        timed.enter(lambda: pay("bo"))
    timed.approved(lambda: timed.paying()("cy"))
    assert timed.enter(lambda: timed.paying()("cy")) == "paid cy 3"


def test_expired_request_may_cancel_its_run(timed: Case, clock: FakeClock) -> None:
    other = timed.paused(lambda: timed.paying()("cy"))
    request = timed.paused(lambda: timed.paying(expires_in=60, on_expiry="cancel")("bo"))
    clock.advance(60)
    assert [r.id for r in timed.inbox.history_sync().items] == [request.id, other.id]
    assert timed.inbox.get_sync(other.id).status == "cancelled"
    run = timed.store.run(RUN)
    assert run is not None
    assert run.status is RunStatus.CANCELLED
    with pytest.raises(Cancelled):
        timed.enter(lambda: timed.paying()("di"))
    with pytest.raises(Expired, match=f"^{request.id} expired: nothing was run$"):
        timed.enter(lambda: timed.paying(expires_in=60, on_expiry="cancel")("bo"))


def test_hundreds_of_expired_requests_are_closed_at_once(timed: Case, clock: FakeClock) -> None:
    for number in range(130):
        timed.paused(lambda n=number: timed.paying(expires_in=60)("bo", n), f"run {number}")
    clock.advance(60)
    assert timed.inbox.pending_sync(limit=500).items == ()
    assert len(timed.inbox.history_sync(status="expired", limit=500).items) == 130


def test_expired_approval_is_asked_again(timed: Case, clock: FakeClock) -> None:
    pay = timed.paying(valid_for=60)
    first = timed.approved(lambda: pay("bo"))
    clock.advance(60)
    again = timed.paused(lambda: pay("bo"))
    assert (again.id, again.revision, again.status) == (first.id, 2, "pending")
    assert again.digest != first.digest
    with pytest.raises(Conflict, match="is not what you saw"):
        timed.decide(first.approve())
    timed.decide(again.approve())
    clock.advance(59)
    assert timed.enter(lambda: pay("bo")) == "paid bo 3"


# -- what changed since


def test_changed_tool_is_asked_again(case: Case) -> None:
    case.approved(lambda: case.paying(version="1")("bo"))
    again = case.paused(lambda: case.paying(version="2")("bo"))
    assert again.revision == 2
    case.decide(again.approve())
    assert case.enter(lambda: case.paying(version="2")("bo")) == "paid bo 3"


def test_changed_surroundings_are_asked_again(case: Case) -> None:
    tenant = {"tenant": "acme"}
    pay = case.paying(binds=lambda: tenant)
    first = case.approved(lambda: pay("bo"))
    tenant["tenant"] = "evil"
    again = case.paused(lambda: pay("bo"))
    assert (again.revision, again.digest != first.digest) == (2, True)
    assert case.ran == []
    case.decide(again.approve())
    assert case.enter(lambda: pay("bo")) == "paid bo 3"


def test_denied_call_makes_no_request(case: Case) -> None:
    case = ruled(case, NEVER, USUAL)
    with pytest.raises(Denied, match=r"denied by policy:never: Too much\."):
        case.enter(lambda: case.paying()("bo", 5000))
    assert case.inbox.pending_sync().items == ()
    with pytest.raises(Denied):
        case.enter(lambda: case.paying()("bo", 5000))


def test_rule_that_raises_asks(case: Case) -> None:
    case = ruled(case, Rule("pay", name="broken", verdict="allow", when=lambda args: 1 / 0))
    request = case.paused(lambda: case.paying(needs_approval=False)("bo"))
    assert request.risk.level == "high"
    assert "ZeroDivisionError" in request.risk.reasons[0]


def pay_bare(to: str) -> str:
    return to


UNRELATED = Rule("drop_table", risk="critical")


@pytest.mark.parametrize(
    "policy",
    [None, Policy(), Policy([UNRELATED]), Policy.from_interrupt_on({"mail": False})],
    ids=["none", "empty", "unrelated", "interrupt_on"],
)
def test_bare_guard_asks_under_any_policy(case: Case, policy: Policy | None) -> None:
    ruled = Case(case.store, policy=policy)
    ruled.paused(lambda: ruled.gate.guard(pay_bare)("bo"))


@pytest.mark.parametrize("needs_approval", [True, False, None])
@pytest.mark.parametrize("default", ["ask", "deny", "allow", None])
def test_default_applies_only_without_a_declaration(
    case: Case, default: Any, needs_approval: bool | None
) -> None:
    ruled = Case(case.store, policy=Policy([UNRELATED], default=default))
    options = {} if needs_approval is None else {"needs_approval": needs_approval}
    pay = ruled.gate.guard(**options)(pay_bare)
    if default == "deny":
        with pytest.raises(Denied, match="default"):
            ruled.enter(lambda: pay("bo"))
    elif default == "ask" or needs_approval or (needs_approval is None and default is None):
        ruled.paused(lambda: pay("bo"))
    else:
        assert ruled.enter(lambda: pay("bo")) == "bo"


def test_policy_file_can_consist_of_default(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('default = "ask"\n')
    ruled = Case(case.store, policy=file)
    pay = ruled.gate.guard(needs_approval=False)(pay_bare)
    ruled.paused(lambda: pay("bo"))
    file.write_text("")  # no policy: the one before stays in force
    ruled.paused(lambda: pay("al"))


def test_misspelt_option_is_refused(case: Case) -> None:
    with pytest.raises(TypeError, match="unknown option need_approval"):
        case.gate.guard(need_approval=True)
    with pytest.raises(TypeError, match="unknown option quorums"):
        case.gate.ask_sync("Which?", quorums=2)
    with pytest.raises(TypeError):
        Gate(case.store, waits=3)  # type: ignore[call-arg]
