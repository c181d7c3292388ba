"""First match wins, what raises asks, and an edit can only make things stricter."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assent.errors import InvalidPolicy
from assent.policy import Judging, Policy, Rule, stricter, tightened
from assent.types import ASSURANCE, DECISIONS, RISKS, Risk, Terms, ToolCall, Verdict

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a Wednesday
ASK, ALLOW, DENY = Verdict.ASK, Verdict.ALLOW, Verdict.DENY


def boom(args: dict[str, Any]) -> bool:
    raise LookupError("no such table")


def drive(judging: Judging) -> Terms:
    """What a sync caller does: ask each predicate, send back its answer or its exception."""
    try:
        predicate, args = next(judging)
        while True:
            said: object
            try:
                said = predicate(args)
            except Exception as error:
                said = error
            predicate, args = judging.send(said)
    except StopIteration as end:
        terms: Terms = end.value
        return terms


def judge(
    policy: Policy,
    tool: str = "send",
    args: dict[str, Any] | None = None,
    *,
    own: Terms | None = None,
    needs_approval: Any = False,
    agent: str = "bot",
    now: datetime = NOON,
) -> Terms:
    call = ToolCall(tool, args or {}, "c1")
    return drive(
        policy.judge(call, agent=agent, now=now, own=own or Terms(), needs_approval=needs_approval)
    )


# --- first match wins ---


def test_the_first_rule_that_fits_decides() -> None:
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


def test_later_predicates_are_not_asked() -> None:
    asked: list[str] = []

    def first(args: dict[str, Any]) -> bool:
        asked.append("first")
        return True

    def second(args: dict[str, Any]) -> bool:
        asked.append("second")
        return True

    judge(Policy([Rule(when=first), Rule(when=second)]), needs_approval=second)
    assert asked == ["first"]


def test_a_predicate_of_a_rule_that_does_not_fit_is_not_asked() -> None:
    rules = [Rule("other", when=boom), Rule(agent="other", when=boom), Rule(days="mon", when=boom)]
    assert judge(Policy(rules)).verdict is ALLOW


def test_a_predicate_that_says_no_passes_the_call_on() -> None:
    policy = Policy([Rule(when=lambda args: args["n"] > 5, verdict="deny"), Rule(verdict="allow")])
    assert judge(policy, args={"n": 9}).verdict is DENY
    assert judge(policy, args={"n": 5}).rule == "rule 2"


def test_time_decides_too() -> None:
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
def test_first_match_wins_whatever_the_rules(
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
def test_the_tool_decides_where_no_rule_fits(needs_approval: Any, verdict: Verdict) -> None:
    terms = judge(Policy(), args={"n": 7}, needs_approval=needs_approval)
    assert (terms.verdict, terms.rule) == (verdict, "needs_approval")


def test_the_tools_own_terms_hold_where_a_rule_is_silent() -> None:
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
        ({"risk": "medium", "reasons": ["x"]}, {"risk": Risk("medium", ("x",))}),
        ({"expires_in": "1m"}, {"expires_in": 60.0}),
        ({"on_expiry": "cancel"}, {"on_expiry": "cancel"}),
        ({"valid_for": 5}, {"valid_for": 5.0}),
        ({"description": "what"}, {"description": "what"}),
        ({"description": lambda call: f"{call.name} {call.id}"}, {"description": "send c1"}),
    ],
)
def test_each_term_of_a_rule_reaches_the_request(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    policy = Policy([Rule(name="r", **given)])
    assert judge(policy) == replace(Terms(rule="r", policy=policy.digest), **expected)


def test_who_asks_for_something_of_high_risk_does_not_decide_it() -> None:
    assert judge(Policy([Rule(risk="medium")])).requester_decides is True
    assert judge(Policy([Rule(risk="high")])).requester_decides is False
    assert judge(Policy([Rule(risk="critical")])).requester_decides is False
    assert judge(Policy([Rule(risk="high", requester_decides=True)])).requester_decides is True
    own = Terms(risk=Risk("high"))
    assert judge(Policy(), own=own, needs_approval=True).requester_decides is False
    assert judge(Policy([Rule()]), own=own).requester_decides is False


# --- what raises asks ---


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_rule_that_raises_asks(verdict: Verdict) -> None:
    terms = judge(Policy([Rule(when=boom, verdict=verdict, name="lookup")]))
    assert (terms.verdict, terms.rule) == (ASK, "lookup")
    assert terms.risk.level == "high"
    assert terms.risk.reasons == ("lookup could not be evaluated: LookupError: no such table",)
    assert terms.requester_decides is False


def test_a_tool_whose_predicate_raises_asks() -> None:
    terms = judge(Policy(), needs_approval=boom)
    assert (terms.verdict, terms.rule, terms.risk.level) == (ASK, "needs_approval", "high")
    assert terms.requester_decides is False


def test_a_rule_that_raises_keeps_its_terms_and_a_higher_risk() -> None:
    rule = Rule(when=boom, quorum=2, risk="critical", reasons=["money"], requester_decides=True)
    terms = judge(Policy([rule]))
    assert (terms.quorum, terms.risk.level, terms.risk.reasons[0]) == (2, "critical", "money")
    assert terms.requester_decides is False


def test_a_rule_that_raises_does_not_lead_round_the_rules_below() -> None:
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


def test_a_long_error_is_cut() -> None:
    def loud(args: dict[str, Any]) -> bool:
        raise ValueError("x" * 10_000)

    (reason,) = judge(Policy([Rule(when=loud)])).risk.reasons
    assert len(reason) == 500


class Torn:
    def __bool__(self) -> bool:
        raise ValueError("neither yes nor no")


@pytest.mark.parametrize("answer", [Torn(), ValueError("returned, not raised"), TimeoutError()])
def test_an_answer_that_is_neither_yes_nor_no_asks(answer: Any) -> None:
    policy = Policy([Rule(verdict="allow", when=lambda args: answer)])
    assert judge(policy).verdict is ASK


def test_a_description_never_stands_in_the_way() -> None:
    async def later(call: ToolCall) -> str:
        return "later"

    descriptions: list[Any] = [lambda call: 1 / 0, lambda call: None, later]
    for broken in descriptions:
        terms = judge(Policy([Rule(description=broken)]))
        assert terms.verdict is ASK
        assert terms.description.startswith("(the description could not be made: ")


def test_time_without_a_zone_is_an_error_and_no_verdict() -> None:
    with pytest.raises(ValueError, match="time zone"):
        judge(Policy([Rule(hours="09:00-17:00")]), now=datetime(2026, 3, 4))


# --- the arguments are a copy ---


def test_who_changes_the_arguments_changes_nothing() -> None:
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


async def drive_async(judging: Judging) -> Terms:
    try:
        predicate, args = next(judging)
        while True:
            try:
                said: object = predicate(args)
                said = await said if inspect.isawaitable(said) else said
            except Exception as error:
                said = error
            predicate, args = judging.send(said)
    except StopIteration as end:
        terms: Terms = end.value
        return terms


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


def test_an_async_predicate_that_nobody_awaits_asks() -> None:
    terms = judge(Policy([Rule(when=large, verdict="allow")]), args={"amount": 500})
    assert terms.verdict is ASK
    assert "nobody awaited it" in terms.risk.reasons[0]


# --- what a policy is made of, and its digest ---


@pytest.mark.parametrize("wrong", [["send_*"], "send_*", [{"tool": "x"}], 5, None, Rule("x")])
def test_a_policy_is_made_of_rules(wrong: Any) -> None:
    with pytest.raises(InvalidPolicy, match="list of rules"):
        Policy(wrong)


def test_rules_may_come_from_any_iterable() -> None:
    assert Policy(Rule(tool) for tool in "ab") == Policy((Rule("a"), Rule("b")))


def other_predicate(args: dict[str, Any]) -> bool:
    return True


CHANGES: dict[str, Any] = {
    "tool": "delete",
    "agent": "ops",
    "when": boom,
    "where": "amount > 5",
    "hours": "09:00-17:00",
    "days": ["mon"],
    "timezone": "Europe/Berlin",
    "verdict": "deny",
    "name": "never",
    "allowed": ["approve"],
    "description": "what",
    "reviewers": ["ana"],
    "quorum": 2,
    "requester_decides": False,
    "assurance": "token",
    "risk": "high",
    "reasons": ["money"],
    "expires_in": 5,
    "on_expiry": "reject",
    "valid_for": 86_400,
}


def test_the_digest_covers_every_field() -> None:
    assert set(CHANGES) == {field.name for field in fields(Rule) if field.init}
    digests = {"": Policy([Rule()]).digest, "none": Policy().digest}
    for name, value in CHANGES.items():
        extra: dict[str, Any] = {"risk": "high"} if name == "reasons" else {}
        digests[name] = Policy([Rule(**{name: value}, **extra)]).digest
    assert len(set(digests.values())) == len(digests)


def test_the_digest_covers_order_and_function() -> None:
    one, other = Rule("a"), Rule("b")
    assert Policy([one, other]).digest != Policy([other, one]).digest
    assert Policy([Rule(when=boom)]).digest != Policy([Rule(when=other_predicate)]).digest
    assert Policy([Rule(where="a > 1")]).digest != Policy([Rule(where="a > 2")]).digest


def test_the_digest_is_in_the_terms_and_the_same_in_every_process() -> None:
    source = (
        "from assent.policy import Policy, Rule\n"
        "policy = Policy([Rule({'c', 'a', 'b'}, reviewers={'ana', 'bob', 'cyd'}, when=len,"
        " expires_in='1h')])"
    )
    script = f"{source}\nprint(policy.digest)"
    seen = set()
    for seed in "12":
        command = [sys.executable, "-c", script]
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        seen.add(done.stdout.strip())
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    assert seen == {namespace["policy"].digest}
    assert judge(namespace["policy"]).policy in seen


# --- tightened and stricter ---


def subset(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(values)).map(lambda s: tuple(v for v in values if v in s))


some_terms = st.builds(
    Terms,
    verdict=st.sampled_from(list(Verdict)),
    rule=st.sampled_from(["", "a", "b", "a, b", "rule 3"]),
    policy=st.sampled_from(["p1", "p2"]),
    allowed=subset(DECISIONS).filter(bool),
    description=st.sampled_from(["", "old words", "new words"]),
    reviewers=st.lists(st.sampled_from(["ana", "bob", "group:x", "group:y"]), unique=True).map(
        tuple
    ),
    quorum=st.integers(1, 4),
    requester_decides=st.booleans(),
    assurance=st.sampled_from(ASSURANCE),
    risk=st.builds(Risk, st.sampled_from(RISKS), subset(("r1", "r2", "r3"))),
    expires_in=st.none() | st.floats(1, 1e6),
    on_expiry=st.sampled_from(["reject", "cancel"]),
    valid_for=st.floats(1, 1e6),
    idempotent=st.booleans(),
)
ORDER = (ALLOW, ASK, DENY)


def may_decide(terms: Terms, names: set[str]) -> bool:
    """Whether somebody with these names (their own and their groups') is among the reviewers."""
    return not terms.reviewers or bool(names & set(terms.reviewers))


def at_least(strict: Terms, lax: Terms) -> None:
    """Every demand of ``lax`` is one of ``strict``; reviewers are looked at apart."""
    assert ORDER.index(strict.verdict) >= ORDER.index(lax.verdict)
    assert strict.quorum >= lax.quorum
    assert ASSURANCE.index(strict.assurance) >= ASSURANCE.index(lax.assurance)
    assert RISKS.index(strict.risk.level) >= RISKS.index(lax.risk.level)
    assert set(strict.risk.reasons) >= set(lax.risk.reasons)
    assert strict.requester_decides <= lax.requester_decides
    assert strict.idempotent <= lax.idempotent
    assert set(strict.allowed) - {"reject"} <= set(lax.allowed)
    assert strict.allowed
    assert (strict.expires_in or 1e9) <= (lax.expires_in or 1e9)
    assert strict.valid_for <= lax.valid_for
    assert (strict.on_expiry == "cancel") >= (lax.on_expiry == "cancel")


@given(some_terms, some_terms)
@example(Terms(allowed=("approve",)), Terms(allowed=("respond",)))
def test_tightened_is_never_laxer_than_either(old: Terms, new: Terms) -> None:
    both = tightened(old, new)
    at_least(both, old)
    at_least(both, new)


@given(
    some_terms, some_terms, st.sets(st.sampled_from(["ana", "bob", "cyd", "group:x", "group:y"]))
)
def test_tightened_reviewers_stand_in_both_lists(old: Terms, new: Terms, names: set[str]) -> None:
    both = tightened(old, new)
    disjoint = old.reviewers and new.reviewers and not set(old.reviewers) & set(new.reviewers)
    if may_decide(both, names):
        assert may_decide(new, names)
        assert may_decide(old, names) or disjoint
    assert bool(both.reviewers) == bool(old.reviewers or new.reviewers)


@given(some_terms, some_terms)
def test_tightened_twice_is_tightened_once(old: Terms, new: Terms) -> None:
    both = tightened(old, new)
    assert tightened(both, new) == both
    assert tightened(both, both) == both
    # Only the order of names tells old from new, and only where a description does.
    again = tightened(old, both)
    assert not stricter(both, again)
    assert not stricter(again, both)


@given(some_terms)
def test_the_same_terms_are_not_stricter(terms: Terms) -> None:
    assert tightened(terms, terms) == terms
    assert not stricter(terms, terms)
    words = replace(terms, rule="other", policy="p9", description="other words")
    assert not stricter(terms, replace(words, reviewers=terms.reviewers[::-1]))


@given(some_terms, some_terms)
def test_stricter_says_whether_tightening_changed_a_demand(old: Terms, new: Terms) -> None:
    both = tightened(old, new)
    assert stricter(old, new) == stricter(old, both)
    assert not stricter(both, new)
    if not stricter(old, new):
        at_least(old, replace(new, risk=Risk(new.risk.level)))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": DENY},
        {"allowed": ("approve",)},
        {"reviewers": ("ana",)},
        {"quorum": 2},
        {"requester_decides": False},
        {"assurance": "token"},
        {"risk": Risk("medium")},
        {"expires_in": 60.0},
        {"on_expiry": "cancel"},
        {"valid_for": 60.0},
    ],
)
def test_each_demand_makes_terms_stricter_and_cannot_be_taken_back(change: dict[str, Any]) -> None:
    lax = Terms()
    strict = replace(lax, **change)
    assert stricter(lax, strict)
    assert not stricter(strict, lax)
    assert tightened(lax, strict) == tightened(strict, lax) == strict


def test_after_an_edit_the_words_are_those_of_the_new_call() -> None:
    old = Terms(rule="small", policy="p1", description="pay 5", risk=Risk("low", ("r1",)))
    new = Terms(rule="large", policy="p2", description="pay 500", risk=Risk("low", ("r2",)))
    both = tightened(old, new)
    assert (both.rule, both.policy, both.description) == ("small, large", "p2", "pay 500")
    assert both.risk.reasons == ("r1", "r2")
    assert not stricter(old, both)


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ((), (), ()),
        ((), ("ana",), ("ana",)),
        (("ana",), (), ("ana",)),
        (("ana", "bob"), ("bob", "cyd"), ("bob",)),
        (("ana", "bob"), ("bob", "ana"), ("ana", "bob")),
        (("group:x",), ("group:y", "ana"), ("group:y", "ana")),
    ],
)
def test_reviewers_after_an_edit(
    old: tuple[str, ...], new: tuple[str, ...], both: tuple[str, ...]
) -> None:
    assert tightened(Terms(reviewers=old), Terms(reviewers=new)).reviewers == both


# --- LangChain's interrupt_on ---


def test_true_false_and_a_mapping() -> None:
    policy = Policy.from_interrupt_on(
        {
            "write": True,
            "read": False,
            "sql": {"allowed_decisions": ["reject", "approve"], "description": "look closely"},
        }
    )
    assert judge(policy, "write").allowed == DECISIONS
    assert judge(policy, "write").rule == "interrupt_on write"
    assert judge(policy, "read", needs_approval=True).verdict is ALLOW
    sql = judge(policy, "sql")
    assert (sql.verdict, sql.allowed, sql.description) == (
        ASK,
        ("approve", "reject"),
        "look closely",
    )
    assert judge(policy, "other").verdict is ALLOW
    assert judge(policy, "other", needs_approval=True).verdict is ASK


def test_when_is_called_as_langchain_calls_it() -> None:
    seen: list[Any] = []

    def when(request: Any) -> bool:
        seen.append(request)
        return bool(request.tool_call["args"]["path"].startswith("/etc"))

    policy = Policy.from_interrupt_on({"write": {"allowed_decisions": ["approve"], "when": when}})
    assert judge(policy, "write", {"path": "/etc/hosts"}).verdict is ASK
    assert judge(policy, "write", {"path": "notes"}).verdict is ALLOW
    assert judge(policy, "write", {}).risk.level == "high"
    assert seen[0].tool_call == {
        "name": "write",
        "args": {"path": "/etc/hosts"},
        "id": None,
        "type": "tool_call",
    }
    assert (seen[0].tool, seen[0].runtime, seen[0].state) == (None, None, {"messages": []})


async def test_when_may_be_async() -> None:
    async def when(request: Any) -> bool:
        return bool(request.tool_call["args"]["n"] > 5)

    policy = Policy.from_interrupt_on({"write": {"allowed_decisions": ["approve"], "when": when}})
    predicate = policy.rules[0].when
    assert inspect.iscoroutinefunction(predicate)
    for n, verdict in ((9, ASK), (1, ALLOW)):
        call = ToolCall("write", {"n": n})
        terms = await drive_async(policy.judge(call, agent="bot", now=NOON, own=Terms()))
        assert terms.verdict is verdict


def test_descriptions_are_called_as_langchain_calls_them() -> None:
    def three(tool_call: Any, state: Any, runtime: Any) -> str:
        return f"{tool_call['name']} {tool_call['args']['n']} {state['messages']} {runtime}"

    class Object:
        def __call__(self, tool_call: Any) -> str:
            return f"{tool_call['id']} {tool_call['type']}"

    def of(description: Any) -> str:
        config = {"allowed_decisions": ["approve"], "description": description}
        return judge(Policy.from_interrupt_on({"t": config}), "t", {"n": 1}).description

    assert of(three) == "t 1 [] None"
    assert of(lambda *given: str(len(given))) == "3"
    assert of(lambda tool_call: tool_call["name"]) == "t"
    assert of(lambda tool_call, style="short": style) == "short"
    assert of(Object()) == "c1 tool_call"
    assert of(lambda tool_call: tool_call["nothing"]) == (
        "(the description could not be made: KeyError)"
    )


def test_the_digest_names_the_wrapped_function() -> None:
    def config(when: Any) -> Policy:
        return Policy.from_interrupt_on({"t": {"allowed_decisions": ["approve"], "when": when}})

    assert config(boom).digest == config(boom).digest
    assert config(boom).digest != config(other_predicate).digest


APPROVE: dict[Any, Any] = {"allowed_decisions": ["approve"]}


@pytest.mark.parametrize(
    ("interrupt_on", "message"),
    [
        (None, "is a mapping"),
        (["write"], "is a mapping"),
        ({"write": None}, r"interrupt_on\['write'\]: give True, False or a mapping"),
        ({"write": "approve"}, "give True, False or a mapping"),
        ({"write": 1}, "give True, False or a mapping"),
        ({"write": {}}, "allowed_decisions is a list of approve"),
        ({"write": {"allowed_decisions": []}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": None}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": "approve"}}, "allowed_decisions is a list"),
        ({"write": {"allowed_decisions": ["yolo"]}}, "approve, edit, reject, respond"),
        ({"write": {"allowed_decisions": [["approve"]]}}, "allowed_decisions is a list"),
        ({"write": {"alowed_decisions": ["approve"]}}, "does not know alowed_decisions"),
        ({"write": {**APPROVE, 5: 5}}, "does not know 5"),
        ({"write": {**APPROVE, "when": "always"}}, "when is a function"),
        ({"write": {**APPROVE, "description": 5}}, "description is a text or a function"),
        ({"write": {**APPROVE, "description": lambda: ""}}, "description takes"),
        ({"write": {**APPROVE, "description": lambda a, b: ""}}, "description takes"),
        ({"write_*": True}, "exact name"),
        ({"": True}, "exact name"),
        ({5: True}, "exact name"),
        ({" write": True}, "without spaces"),
    ],
)
def test_a_malformed_mapping_is_refused(interrupt_on: Any, message: str) -> None:
    with pytest.raises(InvalidPolicy, match=message):
        Policy.from_interrupt_on(interrupt_on)


def test_args_schema_is_accepted_as_langchain_does() -> None:
    config = {**APPROVE, "args_schema": {"type": "object"}}
    assert judge(Policy.from_interrupt_on({"t": config}), "t").verdict is ASK
