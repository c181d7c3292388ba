"""``explain`` judges like production, and gives a reason for every rule that it evaluated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.policy import Explanation, Policy, Rule, Step, explain
from sayso.types import Risk, Terms, ToolCall, Verdict

EVENING = datetime(2026, 3, 4, 18, 20, tzinfo=UTC)  # a Wednesday


def of(
    policy: Policy, tool: str = "pay", args: dict[str, Any] | None = None, **more: Any
) -> Explanation:
    return explain(policy, ToolCall(tool, args or {}), agent="bot", now=EVENING, **more)


def why(rule: Rule, args: dict[str, Any] | None = None) -> str:
    """Return why this one rule matches a call of `pay`, or does not."""
    return of(Policy([rule]), args=args).steps[0].why


def boom(args: dict[str, Any]) -> bool:
    raise LookupError("no such table")


def large(args: dict[str, Any]) -> bool:
    return bool(args["amount"] > 100)


async def later(args: dict[str, Any]) -> bool:
    return True


def test_explanation_lists_rules_until_the_match() -> None:
    policy = Policy(
        [
            Rule("delete_*", name="no deletes", verdict="deny"),
            Rule("pay", where="amount > 100", quorum=2, name="large"),
            Rule("pay", where="amount > 10"),
            Rule("*", verdict="deny", name="never looked at"),
        ]
    )
    found = of(policy, args={"amount": 50})
    assert found.steps == (
        Step("no deletes", 0, False, "tool 'pay' does not match 'delete_*'"),
        Step("large", 1, False, "where amount > 100: amount is 50"),
        Step("rule 3", 2, True, "where amount > 10: amount is 50"),
    )
    assert found.certain
    assert found.terms == Terms(verdict=Verdict.ASK, rule="rule 3", policy=policy.digest)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("send_*"), "tool 'pay' does not match 'send_*'"),
        (Rule(["a", "b*"]), "tool 'pay' does not match 'a' or 'b*'"),
        (Rule(agent="ops"), "agent 'bot' does not match 'ops'"),
        (Rule(hours="09:00-17:00"), "outside hours 09:00-17:00 (now 18:20 UTC)"),
        (
            Rule(hours="09:00-17:00", timezone="Asia/Tokyo"),
            "outside hours 09:00-17:00 (now 03:20 Asia/Tokyo)",
        ),
        (Rule(days=["mon", "fri"]), "not on mon, fri (now wed 18:20 UTC)"),
        (Rule(days="wed", timezone="Asia/Tokyo"), "not on wed (now thu 03:20 Asia/Tokyo)"),
        (
            Rule(until="2026-03-04T18:00"),
            "it ended at 2026-03-04T18:00 (now 2026-03-04 18:20 UTC)",
        ),
        (Rule(), "every condition matches"),
        (Rule("pay", agent="b*", hours="18:00-19:00", days="wed"), "every condition matches"),
        (Rule(where="amount > 100"), "where amount > 100: amount is 50"),
        (Rule(where="to.name == 1"), "where to.name == 1: there is no to.name"),
        (
            Rule(where='amount < "9"'),
            'where amount < "9": could not be evaluated, so it asks '
            "(TypeError: a number cannot be compared with a string)",
        ),
        (Rule(when=large), "when large: returned False"),
        (Rule(when=lambda args: True), "when <lambda>: returned True"),
        (
            Rule(when=boom),
            "when boom: could not be evaluated, so it asks (LookupError: no such table)",
        ),
        (Rule(when=later), "async predicate, evaluated at run time"),
    ],
)
def test_explanation_gives_the_reason(rule: Rule, text: str) -> None:
    assert why(rule, {"amount": 50}) == text


@pytest.mark.parametrize(
    ("needs_approval", "verdict", "text"),
    [
        (False, Verdict.ALLOW, "the tool says needs_approval=False"),
        (True, Verdict.ASK, "the tool says needs_approval=True"),
        (large, Verdict.ALLOW, "needs_approval large: returned False"),
        (
            boom,
            Verdict.ASK,
            "needs_approval boom: could not be evaluated, so it asks (LookupError: no such table)",
        ),
        (later, Verdict.ALLOW, "async predicate, evaluated at run time"),
    ],
)
def test_without_a_rule_the_tool_decides(needs_approval: Any, verdict: Verdict, text: str) -> None:
    found = of(Policy([Rule("x")]), args={"amount": 5}, needs_approval=needs_approval)
    assert found.terms.verdict is verdict
    assert found.steps[1:] == (Step("needs_approval", None, True, f"no rule matches; {text}"),)


def test_explanation_includes_the_tools_terms() -> None:
    own = Terms(quorum=2, risk=Risk("high"))
    terms = of(Policy([Rule()]), own=own).terms
    assert (terms.quorum, terms.requester_decides) == (2, False)


def test_explanation_continues_after_a_raising_rule() -> None:
    policy = Policy([Rule(when=boom, name="a"), Rule(verdict="deny", name="b")])
    found = of(policy)
    assert [(step.rule, step.matched) for step in found.steps] == [("a", True), ("b", True)]
    assert found.terms.verdict is Verdict.DENY


def test_async_predicate_makes_explanation_uncertain() -> None:
    async def never(args: dict[str, Any]) -> bool:
        raise AssertionError("nobody should run this")

    policy = Policy(
        [
            Rule(when=never, name="a"),
            Rule(when=lambda args: never(args), name="b"),
            Rule(name="c"),
        ]
    )
    found = of(policy)
    assert not found.certain
    assert [step.matched for step in found.steps] == [False, False, True]
    assert {step.why for step in found.steps[:2]} == {"async predicate, evaluated at run time"}
    assert found.terms.rule == "c"


def test_explanation_does_not_change_the_arguments() -> None:
    args = {"to": ["ana"]}

    def meddle(given: dict[str, Any]) -> bool:
        given["to"].append("eve")
        return False

    of(Policy([Rule(when=meddle), Rule(where='to == ["ana"]')]), args=args)
    assert args == {"to": ["ana"]}


def says(answer: object) -> Callable[[dict[str, Any]], bool]:
    def predicate(args: dict[str, Any]) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    return predicate


some_rules = st.builds(
    Rule,
    tool=st.sampled_from(["pay", "p*", "x", "*"]),
    agent=st.sampled_from(["bot", "x", "*"]),
    hours=st.sampled_from([None, "09:00-17:00", "17:00-09:00"]),
    days=st.sampled_from([None, "wed", "thu"]),
    verdict=st.sampled_from(list(Verdict)),
    when=st.none() | st.sampled_from([True, False, ValueError("odd")]).map(says),
)


@given(st.lists(some_rules, max_size=5), st.booleans())
def test_explanation_agrees_with_judge(rules: list[Rule], needs_approval: bool) -> None:
    policy = Policy(rules)
    call = ToolCall("pay", {})
    judging = policy.judge(
        call, agent="bot", now=EVENING, own=Terms(), needs_approval=needs_approval
    )
    try:
        predicate, args = next(judging)
        while True:
            try:
                predicate, args = judging.send(predicate(args))
            except ValueError as error:
                predicate, args = judging.send(error)
    except StopIteration as end:
        terms = end.value
    found = of(policy, needs_approval=needs_approval)
    assert found.terms == terms
    assert [step.index for step in found.steps if step.index is not None] == list(
        range(len([step for step in found.steps if step.index is not None]))
    )
    assert found.steps[-1].matched
    assert all(step.why for step in found.steps)
