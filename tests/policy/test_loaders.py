"""A policy file is read strictly, or refused with advice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.errors import InvalidPolicy
from sayso.policy import Policy, Rule
from sayso.policy.loaders import KEYS
from sayso.types import Risk, Verdict

WHOLE = """
# Payments, from the narrowest rule to the widest.
[[rule]]
name = "large payments"
tool = ["pay", "transfer_*"]
agent = "shop-*"
where = 'amount > 100'
hours = "22:00-06:00"
days = ["mon", "fri"]
timezone = "Europe/Berlin"
until = "2027-01-31"
verdict = "ask"
allowed = ["approve", "reject"]
description = "Moves money out."
reviewers = ["ana", "group:finance"]
quorum = 2
requester_decides = false
assurance = "token"
fresh = "5m"
risk = "high"
reasons = ["cannot be taken back"]
expires_in = "24h"
on_expiry = "cancel"
valid_for = 900
effect = "read"
record = "asked"

[[rule]]
tool = "refund"
effect_key = "refund:{order}"
on_duplicate = "result"
overturn = "rejecter"
max_rejections = 3
notify = ["push", "slack:#ops"]
remind_after = "10m"
escalate_after = "30m"
escalate_to = ["group:leads"]
limits = ["calls <= 5 per 1h"]
reviewer = "model:openai:small"
reviewer_allows = true

[[rule]]
tool = "drop_table"
verdict = "deny"
"""


def test_every_key_of_a_file() -> None:
    large, refund, drop = Policy.from_toml(WHOLE).rules
    assert large == Rule(
        ["pay", "transfer_*"],
        name="large payments",
        agent="shop-*",
        where="amount > 100",
        hours="22:00-06:00",
        days=["mon", "fri"],
        timezone="Europe/Berlin",
        until="2027-01-31",
        verdict="ask",
        allowed=["approve", "reject"],
        description="Moves money out.",
        reviewers=["ana", "group:finance"],
        quorum=2,
        requester_decides=False,
        assurance="token",
        fresh=300,
        risk=Risk("high", ("cannot be taken back",)),
        reasons=["cannot be taken back"],
        expires_in=86_400,
        on_expiry="cancel",
        valid_for=900,
        effect="read",
        record="asked",
    )
    assert refund == Rule(
        "refund",
        effect_key="refund:{order}",
        on_duplicate="result",
        overturn="rejecter",
        max_rejections=3,
        notify=["push", "slack:#ops"],
        remind_after=600,
        escalate_after=1800,
        escalate_to=["group:leads"],
        limits=["calls <= 5 per 1h"],
        reviewer="model:openai:small",
        reviewer_allows=True,
    )
    assert all(f"\n{key} = " in WHOLE for key in KEYS)
    assert drop.verdict is Verdict.DENY


def test_file_policy_equals_its_rules() -> None:
    policy = Policy.from_toml(WHOLE)
    assert policy == Policy(policy.rules)
    assert policy.digest == Policy.from_toml(f"# a comment\n{WHOLE}").digest
    other = Policy.from_toml(WHOLE.replace("amount > 100", "amount > 101"))
    assert other.digest != policy.digest


def test_condition_is_kept_and_compiled() -> None:
    (rule,) = Policy.from_toml("[[rule]]\nwhere = 'amount > 100'").rules
    assert rule.where == "amount > 100"
    assert rule.when is not None
    assert rule.when({"amount": 101}) is True


def test_byte_order_mark_is_no_error() -> None:
    assert len(Policy.from_toml("\ufeff[[rule]]\ntool = 'x'").rules) == 1


# --- the page about it ---

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text("utf-8")


@pytest.mark.parametrize("key", KEYS)
def test_docs_page_lists_every_key(key: str) -> None:
    assert f"\n| `{key}` |" in PAGE


def test_files_on_the_page_can_be_read() -> None:
    files = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    assert files
    for text in files:
        assert Policy.from_toml(text).rules


# --- files that are refused ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no [[rule]] in the file"),
        ("# nothing but a comment", "no [[rule]] in the file"),
        ("rule = []", "no [[rule]] in the file"),
        ("[[rule]\ntool = 'x'", "not TOML: "),
        ("[[rule]]\ntool = x", "at line 2"),
        ("[[rule]]\ntool = 'x'\ntool = 'y'", "not TOML: "),
        ("[rule]\ntool = 'x'", "[[rule]], in double brackets"),
        ("rule = 5", "[[rule]], in double brackets"),
        ("rule = [5]", "rule 1: begin each rule with [[rule]]"),
        ("[[rules]]\ntool = 'x'", "unknown key 'rules' outside a rule"),
        ("version = 1\n[[rule]]\ntool = 'x'", "unknown key 'version' outside a rule"),
        ("x = " + "[" * 5_000, "nested too deeply"),
        ("policy.toml", "pass the path of a file to a gate instead: Gate(url, policy="),
        (Path("policy.toml"), "pass the path of a file to a gate instead: Gate(url, policy="),
    ],
)
def test_bad_file_is_refused(text: Any, message: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Policy.from_toml(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verdct = 'deny'", "rule 1: unknown key 'verdct'; write verdict"),
        ("tools = 'x'", "unknown key 'tools'; write tool"),
        ("when = 'amount > 5'", "unknown key 'when'; write where"),
        ("zzz = 1", "unknown key 'zzz'; write one of name, tool"),
        ("name = 'big'\nfoo.bar = 1", "rule 1 ('big'): unknown key 'foo'"),
        ("name = 5", "rule 1: name = 5: write a string"),
        ("tool = 5", "tool = 5: write a string or a list of strings"),
        ("tool = ''", "tool = '': write a string"),
        ("tool = []", "tool = []: write a string or a list"),
        ("tool = ['x', 5]", "tool = ['x', 5]: write a string or a list"),
        ("tool = {name = 'x'}", "tool = {'name': 'x'}: write a string"),
        ("agent = true", "agent = true: write a string"),
        ("agent = ' bot'", "no spaces around"),
        ("verdict = 'maybe'", "verdict='maybe': use allow, ask or deny"),
        ("verdict = true", 'verdict = true: write "allow", "ask" or "deny"'),
        ("verdict = ['ask']", 'write "allow", "ask" or "deny"'),
        ("where = ''", "where = '': write a condition such as"),
        ("where = ['amount > 5']", "write a condition such as"),
        ("where = 5", "write a condition such as"),
        ("where = 'amount => 5'", "rule 1: where='amount => 5': unknown operator '=>'"),
        ("hours = 09:00:00", 'write a string such as "09:00-17:30"'),
        ("hours = '9-17'", "hours='9-17': write them as 09:00-17:30"),
        ("hours = '09:00-25:00'", "write them as 09:00-17:30"),
        ("days = 'monday'", "days=['monday']: use mon"),
        ("days = []", 'days = []: write a list such as ["mon", "fri"]'),
        ("timezone = 'Berlin'", "timezone='Berlin': use a name such as Europe/Berlin"),
        ("until = 'soon'", "until='soon': write a date or a time, such as 2027-01-31"),
        ("timezone = 2", 'write a string such as "Europe/Berlin"'),
        ("allowed = ['yes']", "use some of approve, edit, reject, respond"),
        ("allowed = []", 'write a list such as ["approve", "reject"]'),
        ("description = ['x']", "description = ['x']: write a string"),
        ("reviewers = []", 'write a list such as ["ana", "group:finance"]'),
        ("reviewers = ['group:']", "after group:"),
        ("quorum = 2.0", "quorum = 2.0: write a whole number"),
        ("quorum = true", "quorum = true: write a whole number"),
        ("quorum = '2'", "quorum = '2': write a whole number"),
        ("quorum = 0", "quorum=0: use a whole number of people"),
        ("quorum = 3\nreviewers = ['ana', 'bob']", "only 2 reviewers"),
        ("requester_decides = 'no'", "requester_decides = 'no': write true or false"),
        ("requester_decides = 0", "requester_decides = 0: write true or false"),
        ("effect = 'twice'", 'effect=\'twice\': use "once", "idempotent" or "read"'),
        ("record = 'none'", 'record=\'none\': use "all" or "asked"'),
        ("effect = 'once'\nrecord = 'asked'", "only a read can be left out of the record"),
        ("effect = true", 'effect = true: write "once", "idempotent" or "read"'),
        ("assurance = 'sworn'", "use code, os-user, chat, token, session, passkey"),
        ("risk = 'huge'", "use low, medium, high, critical"),
        ("risk = 3", 'risk = 3: write "low"'),
        ("reasons = ['x']", "also set risk="),
        ("expires_in = 0", "expires_in=0: use a positive number of seconds"),
        ("expires_in = inf", "expires_in=inf: use a positive"),
        ("expires_in = 'tomorrow'", '"15m", "24h" or "7d"'),
        ("expires_in = 2026-03-04", 'write a number of seconds, or a string such as "15m"'),
        ("expires_in = true", "write a number of seconds"),
        ("fresh = 'now'", "fresh='now': use a positive number of seconds"),
        ("verdict = 'allow'\nfresh = 60", "does not ask: leave out fresh"),
        ("valid_for = -5", "valid_for=-5: use a positive"),
        ("valid_for = ['1h']", "write a number of seconds"),
        ("on_expiry = 'approve'", "use reject or cancel; time never approves"),
        ("verdict = 'allow'\nquorum = 2", "does not ask: leave out quorum"),
        ("name = 'a'\n[[rule]]\nname = 'a'", "rules 1 and 2 are both named 'a'"),
        ("tool = 'x'\n[[rule]]\nname = 'b'\nrisk = 1", "rule 2 ('b'): risk = 1"),
    ],
)
def test_invalid_rule_error_gives_advice(text: str, message: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Policy.from_toml(f"[[rule]]\n{text}")
    assert message in str(caught.value)
    assert str(caught.value).startswith("rule")


@pytest.mark.parametrize("text", [b"[[rule]]", None, 5])
def test_only_text_is_read(text: Any) -> None:
    with pytest.raises(InvalidPolicy, match="UTF-8"):
        Policy.from_toml(text)


@given(st.text() | st.text("[]rule\n=\"' ,.{}#tol1").map(lambda tail: f"[[rule]]\n{tail}"))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        policy = Policy.from_toml(text)
    except InvalidPolicy:
        return
    assert policy.rules
