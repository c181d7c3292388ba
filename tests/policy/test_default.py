"""A call that no rule matches: the tool's declaration and the policy's default decide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_world import ALLOW, ASK, DENY, boom, judge

from sayso.errors import InvalidPolicy
from sayso.policy import Policy, Rule, ask_despite_preset
from sayso.types import Verdict

DEFAULTS: list[Any] = [None, "allow", "ask", "deny"]
TOOLS = ["pay", "look", "drop_table", "mail"]
STRICTNESS = [ALLOW, ASK, DENY]

patterns = st.sampled_from([*TOOLS, "drop_*", "*o*", ("pay", "mail")])
verdicts = st.sampled_from(STRICTNESS)
rules = st.builds(
    lambda tool, verdict, where: Rule(tool, verdict=verdict, where=where),
    patterns,
    verdicts,
    st.sampled_from([None, "amount > 5", "amount == 1"]),
)
terms_only = st.builds(
    lambda tool, terms: Rule(tool, **terms),
    patterns,
    st.sampled_from([{"risk": "critical"}, {"description": "Look."}, {"reviewers": ["ana"]}]),
)
policies = st.builds(
    lambda rules, default: Policy(rules, default=default),
    st.lists(rules | terms_only, max_size=4),
    st.sampled_from(DEFAULTS),
)
declarations = st.sampled_from([None, True, False, boom, lambda args: args["amount"] > 3])
calls = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(TOOLS),
        "args": st.fixed_dictionaries({"amount": st.sampled_from([1, 4, 9])}),
        "needs_approval": declarations,
    }
)


def matches(rule: Rule, call: dict[str, Any]) -> bool:
    lone = judge(Policy([rule], default="deny"), call["tool"], call["args"])
    return lone.rule == "rule 1"


@pytest.mark.parametrize(
    ("needs_approval", "default", "verdict"),
    [
        (None, None, ASK),
        (True, None, ASK),
        (False, None, ALLOW),
        (None, "ask", ASK),
        (True, "ask", ASK),
        (False, "ask", ASK),
        (None, "deny", DENY),
        (True, "deny", DENY),
        (False, "deny", DENY),
        (boom, "deny", DENY),
        (None, "allow", ALLOW),
        (True, "allow", ASK),
        (boom, "allow", ASK),
        (False, "allow", ALLOW),
    ],
)
def test_declaration_and_default_decide_together(
    needs_approval: Any, default: Any, verdict: Verdict
) -> None:
    policy = Policy([Rule("drop_table")], default=default)
    assert judge(policy, "pay", needs_approval=needs_approval).verdict is verdict


@given(policy=policies, rule=rules | terms_only, at=st.integers(0, 4), call=calls)
def test_unmatched_rule_never_changes_verdict(
    policy: Policy, rule: Rule, at: int, call: dict[str, Any]
) -> None:
    longer = Policy([*policy.rules[:at], rule, *policy.rules[at:]], default=policy.default)
    if not matches(rule, call):
        assert judge(longer, **call).verdict is judge(policy, **call).verdict


@given(policy=policies, rule=rules | terms_only, call=calls)
def test_strict_rule_never_allows_other_tools(
    policy: Policy, rule: Rule, call: dict[str, Any]
) -> None:
    longer = Policy([rule, *policy.rules], default=policy.default)
    if rule.verdict is ALLOW or judge(policy, **call).verdict is ALLOW:
        return
    assert judge(longer, **call).verdict is not ALLOW


@given(first=policies, second=policies, call=calls)
def test_second_policy_applies_where_first_is_silent(
    first: Policy, second: Policy, call: dict[str, Any]
) -> None:
    """An agent's policy comes before its gate's, and drops nothing of it."""
    both = judge(first.then(second), **call).verdict
    if any(matches(rule, call) for rule in first.rules):
        assert both is judge(first, **call).verdict
    elif any(matches(rule, call) for rule in second.rules) or first.default is None:
        assert both is judge(second, **call).verdict
    else:
        neither = Policy(default=first.then(second).default)
        assert both is judge(neither, **call).verdict


def test_stricter_default_of_two_policies_applies() -> None:
    lax, strict = Policy(default="allow"), Policy([Rule("x")], default="ask")
    assert lax.then(strict).default is ASK
    assert strict.then(lax).default is ASK
    assert lax.then(Policy()).default is ALLOW
    assert Policy().then(Policy()).default is None


def test_digest_covers_default() -> None:
    assert len({Policy([Rule("x")], default=default).digest for default in DEFAULTS}) == 4
    assert Policy().digest != Policy(default="ask").digest


@pytest.mark.parametrize("wrong", ["maybe", "", True, 1, ["ask"], "ASK"])
def test_default_must_be_verdict(wrong: Any) -> None:
    with pytest.raises(InvalidPolicy, match="default="):
        Policy(default=wrong)


@pytest.mark.parametrize("default", DEFAULTS[1:])
def test_file_accepts_default_above_rules(default: str) -> None:
    policy = Policy.from_toml(f'default = "{default}"\n[[rule]]\ntool = "pay"\n')
    assert policy == Policy([Rule("pay")], default=default)  # type: ignore[arg-type]
    assert Policy.from_toml(f'default = "{default}"').default == default


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[rule]]\ntool = "pay"\ndefault = "ask"', "above the first"),
        ('default = "perhaps"', 'use "ask", "deny" or "allow"'),
        ("default = 1", 'use "ask", "deny" or "allow"'),
        ('preset = "watch"\ndefault = "ask"', "leave out one of them"),
    ],
)
def test_misplaced_default_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidPolicy, match=why):
        Policy.from_toml(text)


def test_interrupt_on_leaves_other_tools_undecided() -> None:
    mapping = {"mail": {"allowed_decisions": ["approve"], "when": lambda request: False}}
    policy = Policy.from_interrupt_on(mapping)
    assert judge(policy, "mail", needs_approval=None).verdict is ALLOW  # as LangChain runs it
    assert judge(policy, "pay", needs_approval=None).verdict is ASK
    as_langchain = Policy.from_interrupt_on(mapping, default="allow")
    assert judge(as_langchain, "pay", needs_approval=None).verdict is ALLOW


def test_preset_yields_to_declared_approval() -> None:
    policy = Policy.preset("watch")
    allowed = judge(policy, "pay")
    assert (allowed.verdict, allowed.rule, allowed.preset) == (ALLOW, "watch", True)
    asked = ask_despite_preset(allowed)
    assert (asked.verdict, asked.rule, asked.preset) == (ASK, "needs_approval", False)
    own = judge(Policy([Rule("pay", verdict="allow")]), "pay")
    assert ask_despite_preset(own) == own
    often = [policy.how_often_asks("pay", agent="bot", needs_approval=n) for n in (None, True)]
    assert often == ["never", "always"]


def test_users_rules_are_no_preset() -> None:
    rule = '[[rule]]\ntool = "pay"\nverdict = "allow"\n'
    policy = Policy.from_toml(f'preset = "watch"\n{rule}')
    own = judge(policy, "pay", needs_approval=True)
    assert (own.verdict, own.preset) == (ALLOW, False)
    assert judge(policy, "look").preset
    assert not judge(Policy(default="allow"), "look").preset
    with pytest.raises(InvalidPolicy, match="unknown key 'preset'"):
        Policy.from_toml(f"{rule}preset = true")


@pytest.mark.parametrize(
    ("default", "needs_approval", "often"),
    [
        (None, None, "always"),
        (None, False, "never"),
        (None, boom, "sometimes"),
        ("ask", False, "always"),
        ("ask", boom, "always"),
        ("allow", None, "never"),
        ("allow", True, "always"),
        ("deny", True, "never"),
    ],
)
def test_listing_of_tools_knows_default(default: Any, needs_approval: Any, often: str) -> None:
    policy = Policy([Rule("other")], default=default)
    assert policy.how_often_asks("pay", agent="bot", needs_approval=needs_approval) == often
