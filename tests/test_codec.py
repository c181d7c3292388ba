"""Strict JSON and canonical bytes: accepted values, refused values, and their paths."""

from __future__ import annotations

import enum
import json
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from sayso import codec
from sayso.errors import InvalidCall

BIG = codec.MAX_INTEGER
text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-BIG, BIG) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not BIG < abs(number) < 1e21
)
scalars = st.none() | st.booleans() | numbers | text
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20
)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


# --- canonical ---


@pytest.mark.long
@given(json_values)
@example([-0.0, 1e21, 5e-324, 1e-7, 333333333.33333329])
@example({"\U0001f600": 1, "\ufb33": 2, "é": 3})
def test_canonical_is_a_fixed_point(value: Any) -> None:
    data = codec.canonical(value)
    assert codec.canonical(codec.parse(data)) == data
    assert data == rfc8785.dumps(value)
    assert codec.parse(data) == value


@given(json_values)
def test_rows_survive_a_round_trip(value: Any) -> None:
    assert codec.loads(codec.dumps(value)) == value
    assert codec.parse(codec.dumps(value)) == value


def test_rfc_example_is_canonical() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert codec.canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_ordered_by_utf16() -> None:
    keys = ["€", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "ö"]
    ordered = list(codec.parse(codec.canonical(dict.fromkeys(keys, 0))))
    assert ordered == ["\r", "1", "\u0080", "ö", "€", "\U0001f600", "\ufb33"]


def test_subclasses_of_plain_scalars_are_carried_by_value() -> None:
    assert codec.canonical([Colour.RED, Level.LOW, ()]) == b'["red",1,[]]'


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"n": BIG + 1}, "n", "declare it as str"),
        ({"n": -BIG - 1}, "n", "declare it as str"),
        ({"n": 10**5000}, "n", "declare it as str"),
        ({"items": [0, 1, 2, {"price": 2.0**53}]}, "items[3].price", "declare it as str"),
        ([1, math.nan], "[1]", "nan is not a JSON number"),
        ({"a": {"b": math.inf}}, "a.b", "inf is not"),
        ([-math.inf], "[0]", "-inf is not"),
        ({"s": "x\ud800"}, "s", "half a surrogate pair"),
        ({"a": {"\udc00": 1}}, 'a["\\udc00"]', "half a surrogate pair"),
        ({"a": {1: 2}}, "a", "a key of type int"),
        ({"a": {None: 2}}, "a", "a key of type NoneType"),
        ({"d": Decimal(1)}, "d", "of type Decimal has no JSON form"),
        ({"b": b"x"}, "b", "of type bytes"),
        ({"s": {1}}, "s", "of type set"),
        ({"two words": [object()]}, '["two words"][0]', "of type object"),
        (object(), "", "the value: a value of type object"),
        (math.nan, "", "the value: nan"),
    ],
)
def test_canonical_names_the_unsupported_value(value: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        codec.canonical(value)
    assert caught.value.path == path
    assert message in str(caught.value)
    assert str(caught.value).startswith(path or "the value")
    assert len(str(caught.value)) < 300


def test_largest_integers_and_floats_pass() -> None:
    assert codec.canonical([BIG, -BIG, float(BIG), 1e21, 1.7e308]) == (
        b"[9007199254740991,-9007199254740991,9007199254740991,1e+21,1.7e+308]"
    )


def test_bool_is_no_integer() -> None:
    assert codec.canonical([True, 1, 1.0]) == b"[true,1,1]"


def test_first_fault_in_order_is_named() -> None:
    with pytest.raises(InvalidCall) as caught:
        codec.canonical({"a": [{"x": math.nan}], "b": math.nan})
    assert caught.value.path == "a[0].x"


def test_long_key_is_shortened_in_the_path() -> None:
    with pytest.raises(InvalidCall) as caught:
        codec.canonical({"k" * 5000: math.nan})
    assert len(caught.value.path) < 80


# --- limits ---


def test_depth_limit_prevents_recursion_errors() -> None:
    assert codec.parse(codec.canonical(nested(codec.MAX_DEPTH))) == nested(codec.MAX_DEPTH)
    for depth in (codec.MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidCall, match="more than 200 levels"):
            codec.canonical(nested(depth))
        with pytest.raises(InvalidCall, match="more than 200 levels"):
            codec.parse("[" * depth + "]" * depth)
        with pytest.raises(InvalidCall, match="more than 200 levels"):
            codec.parse('{"a":' * depth + "1" + "}" * depth)


def test_cycle_is_too_deep() -> None:
    value: list[Any] = []
    value += [value, value]
    with pytest.raises(InvalidCall, match="levels deep"):
        codec.canonical(value)


def test_full_stack_is_no_recursion_error() -> None:
    def dive(left: int) -> bytes:
        return dive(left - 1) if left else codec.canonical(nested(150))

    here = 0
    frame: Any = sys._getframe()
    while frame := frame.f_back:
        here += 1
    left = sys.getrecursionlimit() - here - 100
    if sys.version_info >= (3, 12):  # the frames of C code are counted apart
        assert dive(left) == codec.canonical(nested(150))
    else:
        with pytest.raises(InvalidCall, match="the stack that is left"):
            dive(left)


def test_items_have_a_limit() -> None:
    assert codec.canonical([0] * codec.MAX_ITEMS)
    with pytest.raises(InvalidCall, match="100,000 keys and items"):
        codec.canonical([0] * (codec.MAX_ITEMS + 1))
    with pytest.raises(InvalidCall, match="100,000 keys and items"):
        codec.parse("[" + "0," * codec.MAX_ITEMS + "0]")


def test_shared_parts_count_each_time() -> None:
    value: list[Any] = [0]
    for _ in range(40):
        value = [value, value]
    with pytest.raises(InvalidCall, match="100,000 keys and items"):
        codec.canonical(value)


@pytest.mark.parametrize("letter", ["a", "é", "\x00"])
def test_size_has_a_limit(letter: str) -> None:
    with pytest.raises(InvalidCall, match="4,194,304 bytes"):
        codec.canonical({"a": [letter * codec.MAX_BYTES]})
    with pytest.raises(InvalidCall, match="4,194,304 bytes"):
        codec.canonical([letter * (codec.MAX_BYTES // 2)] * 3)
    with pytest.raises(InvalidCall, match="4,194,304 bytes"):
        codec.parse(json.dumps(letter * codec.MAX_BYTES, ensure_ascii=False))
    with pytest.raises(InvalidCall, match="4,194,304 bytes"):
        codec.parse(json.dumps(letter * codec.MAX_BYTES, ensure_ascii=False).encode())


def test_exactly_the_limit_passes() -> None:
    value = "a" * (codec.MAX_BYTES - 2)
    assert codec.parse(codec.canonical(value)) == value


# --- parse ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[1,]", "not valid JSON"),
        ("01", "not valid JSON: Extra data"),
        ("1 2", "not valid JSON: Extra data at line 1 column 3"),
        ('{"a": 1} x', "not valid JSON: Extra data"),
        ('"a\nb"', "not valid JSON: Invalid control character"),
        ('"\\x41"', "not valid JSON"),
        ('{"a": 1, "a": 1}', 'the key "a" appears twice'),
        ('[{"b": {"a": 1, "b": 2, "\\u0061": 3}}]', 'the key "a" appears twice'),
        ("NaN", "nan is not a JSON number"),
        ('{"a": [Infinity]}', "a[0]: inf is not"),
        ('{"a": -Infinity}', "a: -inf is not"),
        ("1e999", "inf is not"),
        ("[9007199254740992]", "declare it as str"),
        ("-9007199254740992", "declare it as str"),
        ("1e20", "declare it as str"),
        ("1" * 5000, "declare it as str"),
        ('"\\ud800"', "half a surrogate pair"),
        ('{"\\udfff": 1}', "half a surrogate pair"),
        ('"\ud800"', "half a surrogate pair"),
        ("\ufeff{}", "byte order mark"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'"\xff"', "not UTF-8: bad byte at 1"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"\x00", "not valid JSON"),
    ],
)
def test_parse_refuses_invalid_json(data: str | bytes, message: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        codec.parse(data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parse_reads_plain_json() -> None:
    assert codec.parse(b' {"a": [1, 2.5, "\\ud83d\\ude00", null, true]}\n') == {
        "a": [1, 2.5, "\U0001f600", None, True]
    }
    assert codec.parse("{}") == {}


def test_duplicate_key_is_shortened() -> None:
    key = "k" * 5000
    with pytest.raises(InvalidCall) as caught:
        codec.parse(f'{{"{key}": 1, "{key}": 2}}')
    assert len(str(caught.value)) < 120


@given(st.text() | st.binary())
def test_parsed_value_is_always_canonical(data: str | bytes) -> None:
    try:
        value = codec.parse(data)
    except InvalidCall:
        return
    codec.canonical(value)


@pytest.mark.long
@given(json_values)
def test_parse_agrees_with_json(value: Any) -> None:
    assert codec.parse(json.dumps(value, indent=2)) == value


# --- the rest ---


def test_dumps_is_compact_and_keeps_letters() -> None:
    assert codec.dumps({"a": [1, "é"]}) == '{"a":[1,"é"]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.dumps(math.nan)


def test_sha256_is_in_hex() -> None:
    assert codec.sha256(b"abc").startswith("ba7816bf")


names = st.text(st.characters(max_codepoint=127))
plain = st.none() | st.booleans() | st.integers(-BIG, BIG) | text
envelopes = st.dictionaries(names, plain | st.lists(plain) | st.dictionaries(names, plain))


@given(envelopes)
def test_digest_is_over_the_canonical_bytes(envelope: dict[str, Any]) -> None:
    assert codec.digest(envelope) == codec.sha256(codec.canonical(envelope))


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((), ""),
        (("items", 3, "price"), "items[3].price"),
        ((0, 1), "[0][1]"),
        (("a b", "c", 'd"'), '["a b"].c["d\\""]'),
        (("", "x"), '[""].x'),
    ],
)
def test_path_text_formats_paths(parts: tuple[str | int, ...], shown: str) -> None:
    assert codec.path_text(parts) == shown


def test_codec_is_light_to_import() -> None:
    code = "import sys, sayso.codec; print({'pydantic', 'rfc8785', 'jsonschema'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
