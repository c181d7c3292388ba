"""Conditions on arguments agree with Python, or are refused with advice."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.errors import InvalidPolicy
from sayso.policy.condition import OPERATORS, Condition, json_equal

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
def test_missing_path_only_matches_inequality(path: str, rest: str) -> None:
    assert Condition.parse(f"{path} {rest}")(ARGS) is rest.startswith("!=")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('amount < "100"', "a number cannot be compared with a string"),
        ("to > 5", "a number cannot be compared with a string"),
        ("to < 5", "a string cannot be compared with a number"),
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
def test_values_that_cannot_be_compared_raise(text: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Condition.parse(text)(ARGS)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "begin with the name of an argument"),
        ("> 5", "begin with the name of an argument"),
        ("5 > amount", "begin with the name of an argument"),
        ("[0] == 1", "begin with the name of an argument"),
        ("amount", "the operator is missing; use one of == != < > in matches"),
        ("amount >= 5", "write amount > 99"),
        ("amount <= 5", "write amount < 101"),
        ("amount = 5", "for equality write =="),
        ("amount <> 5", "unknown operator '<>'"),
        ("amount === 5", "unknown operator '==='"),
        ('to =~ "x"', "not a regular expression"),
        ('to contains "x"', 'body matches "*part*"'),
        ('to not in ["x"]', "put a rule for it before this one"),
        ("amount is 5", "unknown operator 'is'"),
        ("amount + 1 > 5", "unknown operator '+'"),
        ("len(body) > 5", "unknown operator '('"),
        ("amount >", "the value is missing"),
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
        ("amount < true", "a number or a string"),
        ("amount > null", "a number or a string"),
        ("amount < [1]", "a number or a string"),
        ('table in "users"', "in takes a list"),
        ("table in []", "in takes a list"),
        ("to matches 5", "matches takes a glob"),
        ('to matches ["*"]', "matches takes a glob"),
        ("body. == 1", "write a name after the dot"),
        ("body.0 == 1", "write a name after the dot"),
        ("body[-1] == 1", "an index from 0"),
        ("body[x] == 1", "a key in quotes"),
        ('body["x == 1', "a key in quotes"),
        ('body["\\x"] == 1', "is not a JSON string"),
    ],
)
def test_invalid_condition_error_gives_advice(text: str, advice: str) -> None:
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
def test_explanation_shows_the_compared_values(text: str, said: str) -> None:
    assert Condition.parse(text).explain(ARGS) == said


def test_explained_values_are_short_and_inert() -> None:
    said = Condition.parse('x == "y"').explain({"x": "\x1b[2J\u202e" + "long" * 100})
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
    """Return canonical JSON: a float without a fraction becomes an integer."""
    if isinstance(value, float) and value.is_integer():
        return canonical(int(value))
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(k)}:{canonical(value[k])}' for k in sorted(value))}}}"
    return json.dumps(value)


@given(json_values, json_values)
def test_values_with_the_same_json_are_equal(one: Any, other: Any) -> None:
    assert json_equal(one, other) is (canonical(one) == canonical(other))


@given(json_values, st.sampled_from(OPERATORS), json_values)
def test_condition_agrees_with_python_or_raises(value: Any, operator: str, literal: Any) -> None:
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
        "==": lambda: json_equal(value, literal),
        "!=": lambda: not json_equal(value, literal),
        "<": lambda: bool(value < literal),
        ">": lambda: bool(value > literal),
        "in": lambda: any(json_equal(value, item) for item in literal),
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
