"""The first match wins; without one, the tool decides; a rule that raises asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_world import ALLOW, ASK, DENY, NOON, boom, drive_async, judge

from sayso.errors import InvalidPolicy
from sayso.gate.options import own_terms
from sayso.policy import Policy, Rule
from sayso.types import Declared, Risk, Terms, ToolCall, Verdict

# --- first match wins ---


def test_first_matching_rule_decides() -> None:
    policy = Policy(
        [
            Rule("delete_*", verdict="deny", name="never"),
            Rule("delete_row", verdict="allow"),
            Rule("*", agent="ops", verdict="allow", name="ops may"),
            Rule("*"),
        ]
    )
    assert judge(policy, "delete_row", agent="ops").rule == "never"
    assert judge(policy, "send", agent="ops").verdict is ALLOW
    assert (judge(policy, "send").verdict, judge(policy, "send").rule) == (ASK, "rule 4")


def test_later_predicates_are_not_called() -> None:
    asked: list[str] = []

    def first(args: dict[str, Any]) -> bool:
        asked.append("first")
        return True

    def second(args: dict[str, Any]) -> bool:
        asked.append("second")
        return True

    judge(Policy([Rule(when=first), Rule(when=second)]), needs_approval=second)
    assert asked == ["first"]


def test_predicate_of_unmatched_rule_is_not_called() -> None:
    rules = [Rule("other", when=boom), Rule(agent="other", when=boom), Rule(days="mon", when=boom)]
    assert judge(Policy(rules)).verdict is ALLOW


def test_false_predicate_leads_to_the_next_rule() -> None:
    policy = Policy([Rule(when=lambda args: args["n"] > 5, verdict="deny"), Rule(verdict="allow")])
    assert judge(policy, args={"n": 9}).verdict is DENY
    assert judge(policy, args={"n": 5}).rule == "rule 2"


def test_rule_hours_limit_the_match() -> None:
    policy = Policy([Rule(hours="09:00-17:00", verdict="allow"), Rule()])
    assert judge(policy).verdict is ALLOW
    assert judge(policy, now=NOON.replace(hour=18)).verdict is ASK


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "*"]), st.sampled_from(list(Verdict)), st.booleans()),
        max_size=6,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.booleans(),
)
def test_first_match_wins_for_any_rules(
    rules: list[tuple[str, Verdict, bool]], tool: str, needs_approval: bool
) -> None:
    def says(answer: bool) -> Callable[[dict[str, Any]], bool]:
        return lambda args: answer

    policy = Policy(
        Rule(glob, verdict=verdict, when=says(answer)) for glob, verdict, answer in rules
    )
    fitting = [verdict for glob, verdict, answer in rules if answer and glob in (tool, "*")]
    expected = fitting[0] if fitting else ASK if needs_approval else ALLOW
    assert judge(policy, tool, needs_approval=needs_approval).verdict is expected


# --- without a rule, the tool's own declaration ---


@pytest.mark.parametrize(
    ("needs_approval", "verdict"),
    [
        (True, ASK),
        (False, ALLOW),
        (lambda args: args["n"] > 5, ASK),
        (lambda args: args["n"] > 50, ALLOW),
        (1, ASK),
        ("yes", ASK),
    ],
)
def test_unmatched_call_uses_the_tools_declaration(needs_approval: Any, verdict: Verdict) -> None:
    terms = judge(Policy(), args={"n": 7}, needs_approval=needs_approval)
    assert (terms.verdict, terms.rule) == (verdict, "needs_approval")


def test_tools_terms_apply_where_a_rule_is_silent() -> None:
    own = Terms(quorum=2, reviewers=("ana", "bob"), expires_in=60.0, description="sends mail")
    policy = Policy([Rule("send", quorum=3, reviewers="group:mail", valid_for="1h", name="mail")])
    assert judge(policy, own=own) == replace(
        own,
        rule="mail",
        policy=policy.digest,
        quorum=3,
        reviewers=("group:mail",),
        valid_for=3600.0,
    )
    assert judge(policy, "other", own=own, needs_approval=True) == replace(
        own, rule="needs_approval", policy=policy.digest
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"allowed": ["reject", "approve"]}, {"allowed": ("approve", "reject")}),
        ({"reviewers": ["ana"]}, {"reviewers": ("ana",)}),
        ({"quorum": 2}, {"quorum": 2}),
        ({"requester_decides": False}, {"requester_decides": False}),
        ({"assurance": "token"}, {"assurance": "token"}),
        ({"fresh": "5m"}, {"fresh": 300.0}),
        (
            {"risk": "medium", "reasons": ["x"]},
            {"risk": Risk("medium", ("x",)), "risk_declared": True},
        ),
        ({"expires_in": "1m"}, {"expires_in": 60.0}),
        ({"on_expiry": "cancel"}, {"on_expiry": "cancel"}),
        ({"valid_for": 5}, {"valid_for": 5.0}),
        ({"effect": "read"}, {"effect": "read", "declared": True}),
        (
            {"effect": "read", "record": "asked"},
            {"effect": "read", "record": "asked", "declared": True},
        ),
        ({"description": "what"}, {"description": "what"}),
        ({"description": lambda call: f"{call.name} {call.id}"}, {"description": "send c1"}),
    ],
)
def test_each_term_of_a_rule_reaches_the_request(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    policy = Policy([Rule(name="r", **given)])
    assert judge(policy) == replace(Terms(rule="r", policy=policy.digest), **expected)


def test_requester_does_not_decide_a_high_risk_call() -> None:
    assert judge(Policy([Rule(risk="medium")])).requester_decides is True
    assert judge(Policy([Rule(risk="high")])).requester_decides is False
    assert judge(Policy([Rule(risk="critical")])).requester_decides is False
    assert judge(Policy([Rule(risk="high", requester_decides=True)])).requester_decides is True
    own = Terms(risk=Risk("high"))
    assert judge(Policy(), own=own, needs_approval=True).requester_decides is False
    assert judge(Policy([Rule()]), own=own).requester_decides is False


def test_tool_may_let_the_requester_decide() -> None:
    own = Declared(risk=Risk("high"), stated=frozenset({"requester_decides"}))
    for policy in (Policy(), Policy([Rule(quorum=2)])):
        said = judge(policy, own=own, needs_approval=True)
        assert (said.requester_decides, type(said)) == (True, Terms)
    # What a rule says of the risk is the rule's own, and so is what follows from it.
    assert judge(Policy([Rule(risk="high")]), own=own).requester_decides is False
    assert judge(Policy([Rule(requester_decides=False)]), own=own).requester_decides is False

    def boom(args: object) -> bool:
        raise ValueError

    assert judge(Policy(), own=own, needs_approval=boom).requester_decides is False


# --- what a tool's effect is ---


@pytest.mark.parametrize(
    ("declared", "by_rule", "effect"),
    [
        (None, None, "once"),
        (None, "read", "read"),
        (None, "idempotent", "idempotent"),
        ("read", None, "read"),
        ("read", "idempotent", "idempotent"),
        ("read", "once", "once"),
        ("idempotent", "read", "idempotent"),
        ("once", "read", "once"),
        ("once", "idempotent", "once"),
    ],
)
def test_rule_may_only_raise_the_declared_effect(declared: Any, by_rule: Any, effect: str) -> None:
    own = own_terms({} if declared is None else {"effect": declared})
    policy = Policy([Rule("send", verdict="allow", effect=by_rule)])
    assert judge(policy, own=own).effect == effect
    assert judge(Policy([Rule("other")]), own=own).effect == (declared or "once")


@pytest.mark.parametrize("effect", ["twice", "", True, 1, ["once"]])
def test_effect_is_one_of_three(effect: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r'effect=.*: use "once", "idempotent" or "read"'):
        Rule("send", effect=effect)


# --- what raises asks ---


@pytest.mark.parametrize("verdict", list(Verdict))
def test_rule_that_raises_asks(verdict: Verdict) -> None:
    terms = judge(Policy([Rule(when=boom, verdict=verdict, name="lookup")]))
    assert (terms.verdict, terms.rule) == (ASK, "lookup")
    assert terms.risk.level == "high"
    assert terms.risk.reasons == ("lookup could not be evaluated: LookupError: no such table",)
    assert terms.requester_decides is False


def test_raising_tool_predicate_asks() -> None:
    terms = judge(Policy(), needs_approval=boom)
    assert (terms.verdict, terms.rule, terms.risk.level) == (ASK, "needs_approval", "high")
    assert terms.requester_decides is False


class Truthy:
    """Like a numpy bool: it has a truth value, but is not a bool."""

    def __bool__(self) -> bool:
        return False


def _said(value: Any) -> str:
    return f"{type(value).__name__} {bool(value) if value is not NotImplemented else ''}"


@pytest.mark.parametrize(
    "said", [None, 0, 1, 0.0, "", "no", [], {}, (), Truthy(), object(), NotImplemented], ids=_said
)
def test_predicate_that_returns_no_boolean_asks(said: Any) -> None:
    for terms in (
        judge(Policy(), needs_approval=lambda args: said),
        judge(Policy([Rule(when=lambda args: said, verdict="allow", name="needs_approval")])),
    ):
        assert (terms.verdict, terms.rule, terms.risk.level) == (ASK, "needs_approval", "high")
        kind = type(said).__name__
        assert f"returned {kind}: return True or False" in terms.risk.reasons[0]
        assert terms.requester_decides is False


@pytest.mark.parametrize("said", [0, 1, "", [], Truthy()], ids=_said)
def test_uncertain_deny_rule_hides_no_stricter_rule(said: Any) -> None:
    rules = [Rule(when=lambda args: said, verdict="deny"), Rule(quorum=2)]
    terms = judge(Policy(rules))
    assert (terms.verdict, terms.quorum) == (ASK, 2)


def test_raising_rule_keeps_its_terms_and_risk() -> None:
    rule = Rule(when=boom, quorum=2, risk="critical", reasons=["money"], requester_decides=True)
    terms = judge(Policy([rule]))
    assert (terms.quorum, terms.risk.level, terms.risk.reasons[0]) == (2, "critical", "money")
    assert terms.requester_decides is False


def test_raising_rule_does_not_skip_later_rules() -> None:
    small = Rule(when=lambda args: args["amount"] < 10, verdict="allow", name="small")
    large = Rule(reviewers=["group:finance"], quorum=2, description="pay", name="large")
    odd = judge(Policy([small, large]), args={"amount": "1000000"})
    assert (odd.verdict, odd.quorum, odd.reviewers) == (ASK, 2, ("group:finance",))
    assert (odd.rule, odd.risk.level, odd.description) == ("small, large", "high", "pay")

    never = judge(Policy([small, Rule(verdict="deny", name="never")]), args={"amount": None})
    assert never.verdict is DENY

    free = judge(Policy([small, Rule(verdict="allow", name="free")]), args={})
    assert (free.verdict, free.rule) == (ASK, "small")


def test_several_rules_that_raise_add_up() -> None:
    policy = Policy([Rule(when=boom, quorum=2, name="a"), Rule(when=boom, quorum=3, name="b")])
    terms = judge(policy, needs_approval=boom)
    assert (terms.verdict, terms.quorum, terms.rule) == (ASK, 3, "a, b, needs_approval")
    assert len(terms.risk.reasons) == 3


def test_long_error_is_cut() -> None:
    def loud(args: dict[str, Any]) -> bool:
        raise ValueError("x" * 10_000)

    (reason,) = judge(Policy([Rule(when=loud)])).risk.reasons
    assert len(reason) == 500


class Torn:
    def __bool__(self) -> bool:
        raise ValueError("neither yes nor no")


@pytest.mark.parametrize("answer", [Torn(), ValueError("returned, not raised"), TimeoutError()])
def test_predicate_without_a_boolean_asks(answer: Any) -> None:
    policy = Policy([Rule(verdict="allow", when=lambda args: answer)])
    assert judge(policy).verdict is ASK


def test_failing_description_does_not_block_the_call() -> None:
    async def later(call: ToolCall) -> str:
        return "later"

    descriptions: list[Any] = [lambda call: 1 / 0, lambda call: None, later]
    for broken in descriptions:
        terms = judge(Policy([Rule(description=broken)]))
        assert terms.verdict is ASK
        assert terms.description.startswith("(the description could not be made: ")


def test_time_without_a_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="time zone"):
        judge(Policy([Rule(hours="09:00-17:00")]), now=datetime(2026, 3, 4))


# --- the arguments are a copy ---


def test_predicate_cannot_change_the_arguments() -> None:
    args = {"to": ["ana"], "head": {"cc": [{"name": "bob"}]}}

    def meddle(given: dict[str, Any]) -> bool:
        given["to"].append("eve")
        given["head"]["cc"][0]["name"] = "eve"
        given.clear()
        return False

    def describe(call: ToolCall) -> str:
        meddle(dict(call.args))
        return "meddled"

    seen: list[dict[str, Any]] = []

    def look(given: dict[str, Any]) -> bool:
        seen.append(given)
        return True

    policy = Policy([Rule(when=meddle), Rule(when=look, description=describe)])
    judge(policy, args=args)
    assert args == {"to": ["ana"], "head": {"cc": [{"name": "bob"}]}}
    assert seen == [args]
    assert seen[0] is not args


# --- async predicates ---


async def large(args: dict[str, Any]) -> bool:
    await asyncio.sleep(0)
    return bool(args["amount"] > 100)


async def test_async_predicates_go_through_the_generator() -> None:
    policy = Policy([Rule("pay", when=large, verdict="deny"), Rule("ask", when=lambda args: True)])

    async def verdict(tool: str, args: dict[str, Any]) -> Verdict:
        call = ToolCall(tool, args)
        judging = policy.judge(call, agent="bot", now=NOON, own=Terms(), needs_approval=large)
        return (await drive_async(judging)).verdict

    assert await verdict("pay", {"amount": 500}) is DENY
    assert await verdict("pay", {"amount": 5}) is ALLOW
    assert await verdict("pay", {}) is ASK
    assert await verdict("ask", {}) is ASK
    assert await verdict("other", {"amount": 500}) is ASK


def test_unawaited_async_predicate_asks() -> None:
    terms = judge(Policy([Rule(when=large, verdict="allow")]), args={"amount": 500})
    assert terms.verdict is ASK
    assert "was not awaited" in terms.risk.reasons[0]
