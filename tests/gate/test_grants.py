"""Grants: what they cover, how often, how long, and what they never override."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from cases import Case, person

from sayso import Denied, InvalidDecision, Paused, Policy, Rule
from sayso.engine.grants import in_scope
from sayso.errors import InvalidCall
from sayso.inbox.decisions import grant_scope
from sayso.testing import FakeClock


def grant(case: Case, wanted: Any, **options: Any) -> None:
    """Approve a first call, and more like it."""
    pay = case.paying(**options)
    request = case.paused(lambda: pay("bo", 3), "first")
    case.decide(request.approve(), grant=wanted)
    assert case.enter(lambda: pay("bo", 3), "first") == "paid bo 3"
    case.ran.clear()


def asked(case: Case, to: str = "bo", amount: int = 3, **options: Any) -> bool:
    """Whether a further call of its own has to wait for somebody."""
    before = len(case.ran)
    with suppress(Paused):
        case.paying(**options)(to, amount)
    return len(case.ran) == before


def test_exactly_this_call(case: Case) -> None:
    grant(case, {"scope": "exact"})
    assert not asked(case)
    assert asked(case, "bo", 4)
    assert asked(case, "cy", 3)


def test_any_call_of_the_tool(case: Case) -> None:
    grant(case, {"scope": "any"})
    assert not asked(case, "cy", 1000)
    assert asked(case, version="2")
    assert asked(case, name="pay_twice")


def test_grant_by_schema_covers_matching_calls(case: Case) -> None:
    grant(case, {"scope": {"properties": {"amount": {"maximum": 10}}}})
    assert not asked(case, "cy", 10)
    assert asked(case, "cy", 11)


@pytest.mark.parametrize(
    "scope",
    [
        {"propertis": {"amount": {"maximum": 10}}},
        {"properties": {"amonut": {"maximum": 10}}},
        {"properties": {"amount": {"max": 10}}},
        {"properties": {"amount": {"maximum": 10, "nullable": True}}},
        {"properties": {"amount": {"pattern": "3"}}},
        {"properties": {"to": {"maximum": 10}}},
        {"properties": {"to": {"format": "e-mail"}}},
        {"dependencies": {"to": {"properties": {"amount": {"maximum": 10}}}}},
        {"items": {"const": 1}},
        {"x-given-under": {"assurance": "passkey"}},
    ],
)
def test_scope_that_would_limit_nothing_is_refused(case: Case, scope: dict[str, Any]) -> None:
    with pytest.raises(InvalidDecision, match=r"limit|does not match|is not checked"):
        grant(case, {"scope": scope})


def test_limit_of_an_argument_implies_its_type(case: Case) -> None:
    pay = case.gate.guard(name="pay", needs_approval=True)(lambda amount: amount)
    request = case.paused(lambda: pay(3), "first")
    case.decide(request.approve(), grant={"scope": {"properties": {"amount": {"maximum": 10}}}})
    assert case.enter(lambda: pay(4), "second") == 4
    for n, amount in enumerate(("9999", [9999], None)):
        assert case.paused(lambda value=amount: pay(value), f"other {n}").status == "pending"


@pytest.mark.parametrize("pattern", ["^b", "o$", "b|x", "^b|$", "b)|(?:x", "(?=b)bo", "(?m)^bo$"])
def test_pattern_matches_whole_text_only(case: Case, pattern: str) -> None:
    scope = {"properties": {"to": {"type": "string", "pattern": pattern}}}
    with suppress(InvalidDecision):
        grant(case, {"scope": scope})
    assert all(asked(case, to) for to in ("bob", "jo", "bo; x", "bo\nx", "xbo", "bo\n"))


def test_pattern_for_argument_named_like_a_keyword(case: Case) -> None:
    run = case.gate.guard(name="run", needs_approval=True)(lambda default: default)
    request = case.paused(lambda: run("npm test"), "first")
    scope = {"properties": {"default": {"type": "string", "pattern": "^npm test"}}}
    case.decide(request.approve(), grant={"scope": scope})
    assert case.enter(lambda: run("npm test"), "second") == "npm test"
    assert case.paused(lambda: run("npm test; curl evil"), "third").status == "pending"


@pytest.mark.parametrize("more", [{}, {"facts": {}}])
def test_facts_named_like_those_of_remote_calls_are_refused(
    case: Case, more: dict[str, Any]
) -> None:
    """A grant compares other facts of calls that an agent on another machine opened."""
    bound = {"body": "first", **more}
    run = case.gate.guard(name="run", needs_approval=True, binds=lambda: bound)(lambda: "ran")
    with pytest.raises(InvalidCall, match="another name"):
        case.enter(run, "first")


def test_grant_covers_no_higher_risk(case: Case) -> None:
    grant(case, {"scope": "any"})
    levels = ("low", "medium", "high")
    cases = [Case(case.store, policy=Policy([Rule("pay", risk=level)])) for level in levels]
    assert [asked(each) for each in cases] == [False, True, True]
    request = cases[1].paused(lambda: cases[1].paying()("bo"))
    cases[1].decide(request.approve(), grant={"scope": "any"})
    assert [asked(each) for each in cases] == [False, False, True]


def test_tool_named_like_an_editor_accepts_a_schema(case: Case) -> None:
    create = case.gate.guard(name="create", needs_approval=True)(lambda order: order)
    request = case.paused(lambda: create(3), "first")
    case.decide(request.approve(), grant={"scope": {"properties": {"order": {"maximum": 9}}}})
    assert case.enter(lambda: create(4), "second") == 4


def test_grant_does_not_cover_another_agent(case: Case) -> None:
    grant(case, {"scope": "any"})
    assert asked(Case(case.store, agent="other"))


def test_grant_within_run_covers_only_that_run(case: Case) -> None:
    grant(case, {"scope": "any", "within": "run"})
    pay = case.paying()
    assert case.enter(lambda: pay("cy", 9), "first") == "paid cy 9"
    assert asked(case)  # in another run
    with pytest.raises(InvalidDecision, match="within must be 'agent' or 'run'"):
        case.decide(case.pending().approve(), grant={"within": "thread"})


def test_grant_ends_after_its_uses(case: Case) -> None:
    grant(case, {"scope": "any", "uses": 2})
    assert [asked(case) for _ in range(4)] == [False, False, True, True]
    assert case.inbox.grants_sync() == []
    (used,) = case.inbox.grants_sync(live_only=False)
    assert used.uses_left == 0


def test_pausing_call_spends_one_use(case: Case) -> None:
    def order(what: str) -> str:
        case.ran.append(what)
        return f"{what}, {case.gate.ask_sync('Which size?')}"

    guarded = case.gate.guard(needs_approval=True)(order)
    request = case.paused(lambda: guarded("pizza"), "first")
    case.decide(request.approve(), grant={"scope": "any", "uses": 1})
    assert case.paused(lambda: guarded("pasta"), "second").question is not None
    case.decide(case.pending(run="second").respond("large"))
    assert case.enter(lambda: guarded("pasta"), "second") == "pasta, large"
    assert case.paused(lambda: guarded("salad"), "third").kind == "approval"


def test_grant_ends_after_its_time(timed: Case, clock: FakeClock) -> None:
    grant(timed, {"scope": "any", "ends_in": 3600})
    clock.advance(3599)
    assert not asked(timed)
    clock.advance(1)
    assert asked(timed)


def test_grant_lasts_a_day_by_default(timed: Case, clock: FakeClock) -> None:
    grant(timed, {})
    assert not asked(timed)
    clock.advance(86_400)
    assert asked(timed)


def test_revoked_grant_covers_no_call(case: Case) -> None:
    grant(case, {"scope": "any"})
    (standing,) = case.inbox.grants_sync()
    assert (standing.by, standing.agent, standing.tool) == ("ana", "bot", "pay")
    for _ in range(2):
        assert case.inbox.revoke_sync(standing.id, by="bea").revoked is not None
    assert asked(case)


def test_grant_revoked_before_the_start_asks(case: Case) -> None:
    grant(case, {"scope": "any"})
    (standing,) = case.inbox.grants_sync()
    late = Case(case.store)
    transact = case.store.transact

    def revoke_first(*commands: Any) -> Any:
        if commands[0].name == "start":
            case.store.transact = transact  # type: ignore[method-assign]
            case.inbox.revoke_sync(standing.id, by="bea")
        return transact(*commands)

    case.store.transact = revoke_first  # type: ignore[method-assign]
    assert late.paused(lambda: late.paying()("bo"), "late").status == "pending"
    assert late.ran == []


def test_grant_overrides_neither_deny_nor_quorum(case: Case) -> None:
    grant(case, {"scope": "any"})
    strict = Case(case.store, policy=Policy([Rule("pay", verdict="deny", name="never")]))
    with pytest.raises(Denied):
        strict.enter(lambda: strict.paying()("bo"), "denied")
    two = Case(case.store, policy=Policy([Rule("pay", quorum=2, name="two")]))
    assert two.paused(lambda: two.paying()("bo"), "two").quorum == 2
    assert strict.ran == two.ran == []


def test_grant_needs_an_author_who_may_decide(case: Case) -> None:
    grant(case, {"scope": "any"})
    for demand in ({"reviewers": ("boss",)}, {"assurance": "session"}):
        strict = Case(case.store, policy=Policy([Rule("pay", name="strict", **demand)]))
        assert asked(strict), demand
    theirs = Case(case.store, policy=Policy([Rule("pay", reviewers=("ana", "bo"))]))
    assert not asked(theirs)
    other = Case(case.store, policy=Policy([Rule("pay", requester_decides=False)]))
    assert other.paused(lambda: other.paying()("bo"), "own", requester="ana").status == "pending"
    for n, name in enumerate(("Ana", "\u0430na", "agent:ana")):  # written otherwise, and claimed
        own = other.paused(lambda: other.paying()("bo"), f"own {n}", requester=name)
        assert own.status == "pending"
    assert other.enter(lambda: other.paying()("bo"), "of another", requester="bo") == "paid bo 3"


def test_grant_carries_group_and_assurance_of_its_author(case: Case) -> None:
    rule = Rule("pay", reviewers=("group:finance",), assurance="token")
    strict = Case(case.store, policy=Policy([rule]))
    request = strict.paused(lambda: strict.paying()("bo"))
    strict.decide(request.approve(), person("cy", "finance"), grant={"scope": "any"})
    assert not asked(strict)
    wider = Rule("pay", reviewers=("group:finance", "boss"))
    assert not asked(Case(case.store, policy=Policy([wider])))
    narrower = Rule("pay", reviewers=("group:finance",), assurance="session")
    assert asked(Case(case.store, policy=Policy([narrower])))
    (given,) = strict.inbox.grants_sync()
    assert grant_scope(given) == {}


def test_grant_has_the_assurance_of_its_author(case: Case) -> None:
    """Given with a token where nothing was asked of people: enough for a rule that wants one."""
    wanted = {name: Policy([Rule("pay", assurance=name)]) for name in ("token", "session")}
    grant(case, {"scope": "any"})  # by code, which anybody could be
    assert all(asked(Case(case.store, policy=policy)) for policy in wanted.values())
    request = case.paused(lambda: case.paying(version="2")("bo"))
    case.decide(request.approve(), person("ana"), grant={"scope": "any"})
    found = [asked(Case(case.store, policy=p), version="2") for p in wanted.values()]
    assert found == [False, True]
    assert [grant_scope(given) for given in case.inbox.grants_sync()] == [{}, {}]


def test_grant_requires_a_single_approval(case: Case) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    for decision in (request.reject(), request.respond("x"), request.edit({"amount": 2})):
        with pytest.raises(InvalidDecision, match="a grant needs the approval"):
            case.decide(decision, grant={"scope": "any"})
    assert case.pending() == request
    two = case.paused(lambda: case.paying(quorum=2)("cy"))
    with pytest.raises(InvalidDecision, match="a grant needs"):
        case.decide(two.approve(), person("ana"), grant={"scope": "any"})
    text = case.paused(lambda: case.gate.confirm_sync("Publish?"))
    with pytest.raises(InvalidDecision, match="a grant needs"):
        case.decide(text.approve(), grant={"scope": "any"})
    assert case.inbox.grants_sync() == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"scope": "all"},
        {"scope": 5},
        {"scope": {"type": "nothing"}},
        {"scope": {"properties": {"amount": {"maximum": 2}}}},
        {"uses": 0},
        {"uses": True},
        {"uses": 1.5},
        {"ends_in": 0},
        {"ends_in": "1h"},
        {"ends_in": 10**9},
        {"ends_in": float("nan")},
        {"forever": True},
        {"limits": "calls <= 1 per 1h"},
        {"limits": ["once a day"]},
        {"scope": {"command": ["npm"], "arguments": "any"}},
        {"scope": {"path": "src"}},
        "any",
        5,
        [],
    ],
)
def test_malformed_grant_is_refused(case: Case, wanted: Any) -> None:
    request = case.paused(lambda: case.paying()("bo"))
    with pytest.raises(InvalidDecision, match="grant"):
        case.decide(request.approve(), grant=wanted)
    assert case.pending() == request
    assert case.inbox.grants_sync(live_only=False) == []


PLACE = {"directory": "/srv/shop", "files": ["a.py"]}
READ: dict[str, Any] = {"kinds": ["read"], "places": [PLACE]}


@pytest.mark.parametrize(
    ("scope", "changes", "args", "covered"),
    [
        ({"const": {"file_path": "a.py"}}, {}, {"file_path": "a.py"}, True),
        ({"const": {"file_path": "a.py"}}, {}, {"file_path": "b.py"}, False),
        ({"const": {"file_path": "a.py"}, "path": "."}, {}, {"file_path": "a.py"}, False),
        ({"const": {}}, {"places": [{**PLACE, "directory": "/srv"}]}, {}, False),
        ({"const": {}}, {"kinds": ["write"]}, {}, False),
        ({"const": {}}, {"kinds": ["unclear"]}, {}, False),
        ({"path": "a.py"}, {}, {}, True),
        ({"path": "b"}, {}, {}, False),
        ({"path": "."}, {"places": [{"directory": "/srv/shop"}]}, {}, False),
        ({"command": ["ls"], "arguments": "any"}, {}, {}, False),
        ({"glob": "*"}, {}, {}, False),
        ({}, {}, {}, False),
    ],
)
def test_scope_of_a_footprint_is_understood_or_covers_nothing(
    scope: dict[str, Any], changes: dict[str, Any], args: dict[str, Any], covered: bool
) -> None:
    assert in_scope(scope, READ, {**READ, **changes}, args) is covered
