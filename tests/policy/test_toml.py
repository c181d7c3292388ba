"""A policy file says exactly what it seems to say, or is refused with what to write."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assent.errors import InvalidPolicy
from assent.policy import Policy, Rule
from assent.policy.condition import OPERATORS, Condition, same
from assent.policy.toml import KEYS, rules_from_toml
from assent.types import Risk, Verdict

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
verdict = "ask"
allowed = ["approve", "reject"]
description = "Moves money out."
reviewers = ["ana", "group:finance"]
quorum = 2
requester_decides = false
assurance = "token"
risk = "high"
reasons = ["cannot be taken back"]
expires_in = "24h"
on_expiry = "cancel"
valid_for = 900

[[rule]]
tool = "drop_table"
verdict = "deny"
"""


def test_every_key_of_a_file() -> None:
    large, drop = rules_from_toml(WHOLE)
    assert large == Rule(
        ["pay", "transfer_*"],
        name="large payments",
        agent="shop-*",
        where="amount > 100",
        hours="22:00-06:00",
        days=["mon", "fri"],
        timezone="Europe/Berlin",
        verdict="ask",
        allowed=["approve", "reject"],
        description="Moves money out.",
        reviewers=["ana", "group:finance"],
        quorum=2,
        requester_decides=False,
        assurance="token",
        risk=Risk("high", ("cannot be taken back",)),
        reasons=["cannot be taken back"],
        expires_in=86_400,
        on_expiry="cancel",
        valid_for=900,
    )
    assert all(f"\n{key} = " in WHOLE for key in KEYS)
    assert drop.verdict is Verdict.DENY


def test_the_policy_of_a_file_is_the_policy_of_its_rules() -> None:
    policy = Policy.from_toml(WHOLE)
    assert policy == Policy(rules_from_toml(WHOLE))
    assert policy.digest == Policy.from_toml(f"# a comment\n{WHOLE}").digest
    other = Policy.from_toml(WHOLE.replace("amount > 100", "amount > 101"))
    assert other.digest != policy.digest


def test_the_condition_is_kept_and_compiled() -> None:
    (rule,) = rules_from_toml("[[rule]]\nwhere = 'amount > 100'")
    assert rule.where == "amount > 100"
    assert rule.when is not None
    assert rule.when({"amount": 101}) is True


def test_a_byte_order_mark_is_no_error() -> None:
    assert len(rules_from_toml("\ufeff[[rule]]\ntool = 'x'")) == 1


# --- the page about it ---

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text("utf-8")


@pytest.mark.parametrize("key", KEYS)
def test_the_page_has_every_key_in_its_tables(key: str) -> None:
    assert f"\n| `{key}` |" in PAGE


def test_the_files_on_the_page_can_be_read() -> None:
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
    ],
)
def test_a_bad_file_is_refused(text: str, message: str) -> None:
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
        ("name = 5", "rule 1: name = 5: write a text"),
        ("tool = 5", "tool = 5: write a text or a list of texts"),
        ("tool = ''", "tool = '': write a text"),
        ("tool = []", "tool = []: write a text or a list"),
        ("tool = ['x', 5]", "tool = ['x', 5]: write a text or a list"),
        ("tool = {name = 'x'}", "tool = {'name': 'x'}: write a text"),
        ("agent = true", "agent = true: write a text"),
        ("agent = ' bot'", "without spaces around"),
        ("verdict = 'maybe'", "verdict='maybe': use allow, ask or deny"),
        ("verdict = true", 'verdict = true: write "allow", "ask" or "deny"'),
        ("verdict = ['ask']", 'write "allow", "ask" or "deny"'),
        ("where = ''", "where = '': write a condition as text"),
        ("where = ['amount > 5']", "write a condition as text"),
        ("where = 5", "write a condition as text"),
        ("where = 'amount >= 5'", "rule 1: where='amount >= 5': no operator '>='"),
        ("hours = 09:00:00", 'write a text such as "09:00-17:30"'),
        ("hours = '9-17'", "hours='9-17': write them as 09:00-17:30"),
        ("hours = '09:00-25:00'", "write them as 09:00-17:30"),
        ("days = 'monday'", "days=['monday']: use mon"),
        ("days = []", 'days = []: write a list such as ["mon", "fri"]'),
        ("timezone = 'Berlin'", "timezone='Berlin': use a name such as Europe/Berlin"),
        ("timezone = 2", 'write a text such as "Europe/Berlin"'),
        ("allowed = ['yes']", "use some of approve, edit, reject, respond"),
        ("allowed = []", 'write a list such as ["approve", "reject"]'),
        ("description = ['x']", "description = ['x']: write a text"),
        ("reviewers = []", 'write a list such as ["ana", "group:finance"]'),
        ("reviewers = ['group:']", "after group:"),
        ("quorum = 2.0", "quorum = 2.0: write a whole number"),
        ("quorum = true", "quorum = true: write a whole number"),
        ("quorum = '2'", "quorum = '2': write a whole number"),
        ("quorum = 0", "quorum=0: give a whole number of people"),
        ("quorum = 3\nreviewers = ['ana', 'bob']", "only 2 reviewers"),
        ("requester_decides = 'no'", "requester_decides = 'no': write true or false"),
        ("requester_decides = 0", "requester_decides = 0: write true or false"),
        ("assurance = 'sworn'", "use code, os-user, token, session"),
        ("risk = 'huge'", "use low, medium, high, critical"),
        ("risk = 3", 'risk = 3: write "low"'),
        ("reasons = ['x']", "say how high the risk= is"),
        ("expires_in = 0", "expires_in=0: give a positive number of seconds"),
        ("expires_in = inf", "expires_in=inf: give a positive"),
        ("expires_in = 'tomorrow'", '"15m", "24h" or "7d"'),
        ("expires_in = 2026-03-04", 'write a number of seconds, or a text such as "15m"'),
        ("expires_in = true", "write a number of seconds"),
        ("valid_for = -5", "valid_for=-5: give a positive"),
        ("valid_for = ['1h']", "write a number of seconds"),
        ("on_expiry = 'approve'", "use reject or cancel; time never approves"),
        ("verdict = 'allow'\nquorum = 2", "asks nobody: leave out quorum"),
        ("name = 'a'\n[[rule]]\nname = 'a'", "rules 1 and 2 are both named 'a'"),
        ("tool = 'x'\n[[rule]]\nname = 'b'\nrisk = 1", "rule 2 ('b'): risk = 1"),
    ],
)
def test_a_bad_rule_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Policy.from_toml(f"[[rule]]\n{text}")
    assert message in str(caught.value)
    assert str(caught.value).startswith("rule")


@pytest.mark.parametrize("text", [b"[[rule]]", None, 5])
def test_only_text_is_read(text: Any) -> None:
    with pytest.raises(InvalidPolicy, match="UTF-8"):
        Policy.from_toml(text)


@given(st.text() | st.text("[]rule\n=\"' ,.{}#tol1").map(lambda tail: f"[[rule]]\n{tail}"))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    try:
        policy = Policy.from_toml(text)
    except InvalidPolicy:
        return
    assert policy.rules


# --- conditions ---

ARGS: dict[str, Any] = {
    "amount": 50,
    "price": 9.5,
    "to": "ana@example.com",
    "table": "users",
    "force": True,
    "note": None,
    "body": {"lines": ["x", "y"], "reply-to": "bob", "a b": {"c": 1}, "12": "n"},
    "ids": [1, 2.0, True],
    "$top": 5,
    "größe": 3,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount == 50", True),
        ("amount == 50.0", True),
        ("amount == 51", False),
        ('amount == "50"', False),
        ("amount != 51", True),
        ("amount != 50", False),
        ("amount > 49", True),
        ("amount > 50", False),
        ("amount < 50.5", True),
        ("amount < -1", False),
        ("amount>49", True),
        ("  amount   <100  ", True),
        ("price < 10", True),
        ('to matches "*@example.com"', True),
        ('to matches "*@EXAMPLE.com"', False),
        ('to matches "example"', False),
        ('to matches "ana@*[.]com"', True),
        ('to == "ana@example.com"', True),
        ('to > "ana"', True),
        ('to < "ana"', False),
        ('table in ["users", "payments"]', True),
        ('table in["payments"]', False),
        ('"x" == "x"', None),
        ("amount in [1, 50.0]", True),
        ("force == true", True),
        ("force == 1", False),
        ("force != 1", True),
        ("force in [1]", False),
        ("amount in [true]", False),
        ("note == null", True),
        ("note != null", False),
        ("note == false", False),
        ('body.lines[0] == "x"', True),
        ('body.lines[ 1 ] == "x"', False),
        ('body.reply-to == "bob"', True),
        ('body["reply-to"] == "bob"', True),
        ('body["a b"].c == 1', True),
        ('body["12"] == "n"', True),
        ('["$top"] == 5', True),
        ("größe > 2", True),
        ("ids == [1, 2, true]", True),
        ("ids == [1, 2, 1]", False),
        ('body.lines == ["x", "y"]', True),
        ('body == {"lines": ["x", "y"]}', False),
        ('body["a b"] == {"c": 1.0}', True),
    ],
)
def test_conditions(text: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(InvalidPolicy, match="begin with the name"):
            Condition.parse(text)
    else:
        assert Condition.parse(text)(ARGS) is expected


@pytest.mark.parametrize(
    "path", ["nothing", "body.nothing", "body.lines[2]", "note.x", "note[0].y"]
)
@pytest.mark.parametrize("rest", ["== 1", "< 1", "> 1", "in [1]", 'matches "*"', "!= 1", "== null"])
def test_a_path_that_is_not_there(path: str, rest: str) -> None:
    assert Condition.parse(f"{path} {rest}")(ARGS) is rest.startswith("!=")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('amount < "100"', "a number cannot be compared with a text"),
        ("to > 5", "a number cannot be compared with a text"),
        ("to < 5", "a text cannot be compared with a number"),
        ("force > 0", "a boolean"),
        ("note < 5", "null cannot be compared"),
        ("ids < 5", "a list cannot be compared"),
        ("body < 5", "an object cannot be compared"),
        ('amount matches "5*"', "a number cannot be matched"),
        ('ids matches "*"', "a list cannot be matched"),
        ('note matches "*"', "null cannot be matched"),
        ('to.domain == "example.com"', "to is not an object"),
        ("to[0] == 1", "to is not a list"),
        ("body.lines.first != 1", "body.lines is not an object"),
        ("body[0] != 1", "body is not a list"),
    ],
)
def test_what_cannot_be_compared_raises(text: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Condition.parse(text)(ARGS)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "begin with the name of an argument"),
        ("> 5", "begin with the name of an argument"),
        ("5 > amount", "begin with the name of an argument"),
        ("[0] == 1", "begin with the name of an argument"),
        ("amount", "there is no operator; use one of == != < > in matches"),
        ("amount >= 5", "write amount > 99"),
        ("amount <= 5", "write amount < 101"),
        ("amount = 5", "for equality write =="),
        ("amount <> 5", "no operator '<>'"),
        ("amount === 5", "no operator '==='"),
        ('to =~ "x"', "not a regular expression"),
        ('to contains "x"', 'body matches "*part*"'),
        ('to not in ["x"]', "put a rule for it before this one"),
        ("amount is 5", "no operator 'is'"),
        ("amount + 1 > 5", "no operator '+'"),
        ("len(body) > 5", "no operator '('"),
        ("amount >", "nothing to compare with"),
        ("env == prod", '"text" in double quotes'),
        ("env == 'prod'", '"text" in double quotes'),
        ("amount > 5 and amount < 9", "a rule has one condition"),
        ('to == "x" or to == "y"', "a rule has one condition"),
        ("amount > 5 6", "is not JSON"),
        ("amount > 1_000", "is not JSON"),
        ("amount == NaN", "is not JSON"),
        ("amount < Infinity", "is not JSON"),
        ("amount < 1e999", "is not JSON"),
        ("flag == True", "is not JSON"),
        ("amount == " + "[" * 100_000, "is not JSON"),
        ("amount < true", "a number or a text"),
        ("amount > null", "a number or a text"),
        ("amount < [1]", "a number or a text"),
        ('table in "users"', "in wants a list"),
        ("table in []", "in wants a list"),
        ("to matches 5", "matches wants a glob"),
        ('to matches ["*"]', "matches wants a glob"),
        ("body. == 1", "after a dot comes a name"),
        ("body.0 == 1", "after a dot comes a name"),
        ("body[-1] == 1", "an index from 0"),
        ("body[x] == 1", "a key in quotes"),
        ('body["x == 1', "a key in quotes"),
        ('body["\\x"] == 1', "is not a JSON string"),
    ],
)
def test_a_bad_condition_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Condition.parse(text)
    assert advice in str(caught.value)
    assert str(caught.value).startswith("where=")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amount > 100", "where amount > 100: amount is 50"),
        ("nothing > 100", "where nothing > 100: there is no nothing"),
        ('body["a b"].c == 2', 'where body["a b"].c == 2: body["a b"].c is 1'),
        ('body.lines[1] == "x"', 'where body.lines[1] == "x": body.lines[1] is "y"'),
        ("force == true", "where force == true: force is true"),
    ],
)
def test_a_condition_says_what_it_met(text: str, said: str) -> None:
    assert Condition.parse(text).say(ARGS) == said


def test_what_it_met_is_short_and_harmless() -> None:
    said = Condition.parse('x == "y"').say({"x": "\x1b[2J\u202e" + "long" * 100})
    assert said.isascii() is False  # the one sign that says it was cut
    assert said.replace("…", "").isascii()
    assert "\x1b" not in said
    assert len(said) < 140


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.0, 1.0, 0.5])
    | st.text("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


def canonical(value: Any) -> str:
    """JSON in one form: a float that is whole is written as an integer."""
    if isinstance(value, float) and value.is_integer():
        return canonical(int(value))
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(k)}:{canonical(value[k])}' for k in sorted(value))}}}"
    return json.dumps(value)


@given(json_values, json_values)
def test_equal_values_are_those_with_the_same_json(one: Any, other: Any) -> None:
    assert same(one, other) is (canonical(one) == canonical(other))


@given(json_values, st.sampled_from(OPERATORS), json_values)
def test_a_condition_agrees_with_python_or_raises(value: Any, operator: str, literal: Any) -> None:
    try:
        condition = Condition.parse(f"x {operator} {json.dumps(literal)}")
    except InvalidPolicy:
        assert operator in ("<", ">", "in", "matches")
        return
    assert condition.literal == literal
    try:
        said = condition({"x": value})
    except TypeError:
        assert operator in ("<", ">", "matches")
        return
    agree: dict[str, Callable[[], bool]] = {
        "==": lambda: same(value, literal),
        "!=": lambda: not same(value, literal),
        "<": lambda: bool(value < literal),
        ">": lambda: bool(value > literal),
        "in": lambda: any(same(value, item) for item in literal),
        "matches": lambda: fnmatch.fnmatchcase(value, literal),
    }
    assert said is agree[operator]()


@given(st.text(max_size=30) | st.text('a.[]"0 =<>in', max_size=30))
def test_no_text_breaks_the_reader_of_conditions(text: str) -> None:
    try:
        condition = Condition.parse(text)
    except InvalidPolicy:
        return
    again = Condition.parse(
        f"{condition.target} {condition.operator} {json.dumps(condition.literal)}"
    )
    assert (again.path, again.operator) == (condition.path, condition.operator)
