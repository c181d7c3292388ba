"""Checking a value against any schema ends in limited time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sayso.errors import InvalidCall
from sayso.schema import check_schema, errors, remote_schema, validation, whole_text


def _levels(count: int) -> dict[str, Any]:
    """Each level asks the next one twice."""
    twice = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(count)}
    return {"$ref": "#/$defs/l0", "$defs": {**twice, f"l{count}": {"type": "null"}}}


SLOW = [
    ({"pattern": "(a+)+$"}, "a" * 100 + "!"),
    ({"pattern": "a*a*a*b"}, "a" * 1_000_000),
    ({"patternProperties": {"(a|a)*$": False}, "additionalProperties": False}, {"a" * 50 + "!": 1}),
    ({"uniqueItems": True}, [*({"n": n} for n in range(50_000)), {"n": 1}]),
]


@pytest.mark.parametrize(("schema", "value"), SLOW)
def test_slow_schema_is_checked_in_time(schema: dict[str, Any], value: Any) -> None:
    schema = remote_schema(schema)
    began = time.process_time()
    assert errors(schema, value)
    assert time.process_time() - began < 4


def test_endless_check_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_SECONDS", 0.2)
    began = time.process_time()
    assert errors(_levels(40), "x") == [("", "takes too long to be checked against this schema")]
    assert time.process_time() - began < 4
    assert errors(_levels(3), None) == []


def test_patterns_keep_their_meaning() -> None:
    schema = {
        "properties": {"a": {"pattern": "b.$"}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    assert errors(schema, {"a": "abc", "x-1": 2, "other": True}) == []
    wrong = {path for path, _ in errors(schema, {"a": "cab", "x-1": "2", "other": 1})}
    assert wrong == {"a", '["x-1"]', "other"}
    assert errors({**schema, "additionalProperties": False}, {"x-1": 2, "other": True}) != []
    assert errors({"uniqueItems": True}, [1, True, "1", {"a": 1}, {"a": 2}, [1]]) == []
    assert errors({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]) != []
    assert errors({"pattern": r"^(?=.*\d)\w+$"}, "abc") != []
    assert errors({"pattern": r"^(?=.*\d)\w+$"}, "abc1") == []


#: What schema libraries write for an address of mail.
_MAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"


@pytest.mark.parametrize("pattern", [_MAIL, "^(?=a)", r"(a)\1", "(a{1000}){1000}"])
def test_slow_pattern_is_removed_from_remote_schema(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    check_schema(schema)
    kept = remote_schema({**schema, "const": {"pattern": pattern}})
    assert kept["properties"] == {"a": {"type": "string"}}
    assert kept["const"] == {"pattern": pattern}
    property_of_that_name = {"properties": {"pattern": {"type": "string", "pattern": "^a"}}}
    assert remote_schema(property_of_that_name) == property_of_that_name


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples", "properties", "$ref"])
@pytest.mark.parametrize("keyword", ["properties", "$defs", "dependentSchemas"])
def test_names_of_authors_are_no_keywords(keyword: str, name: str) -> None:
    schema = {keyword: {name: {"type": "string", "pattern": "^(?=a)"}}}
    assert remote_schema(schema) == {keyword: {name: {"type": "string"}}}
    schema[keyword][name]["pattern"] = "^a"
    assert whole_text(schema)[keyword][name]["pattern"] == "^(?:^a)$"
    schema[keyword][name] = {"$ref": "#/nowhere"}
    with pytest.raises(InvalidCall, match="which is not in it"):
        check_schema(schema)


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        ("#/default", {"default": {"pattern": "^(?=a)"}}),
        ("#/properties/a/enum/0", {"properties": {"a": {"enum": [{"pattern": "^(?=a)"}]}}}),
        ("#/$defs", {"$defs": {"pattern": {}}}),
        ("#/x/const", {"x": {"const": {"pattern": "^(?=a)"}}}),
    ],
)
def test_reference_to_data_is_refused(ref: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall, match="is no schema"):
        check_schema({"anyOf": [{"$ref": ref}], **more})


def test_reference_to_malformed_schema_is_refused() -> None:
    with pytest.raises(InvalidCall, match="not a JSON Schema"):
        check_schema({"$ref": "#/x-form", "x-form": {"allOf": 5}})


@pytest.mark.parametrize("odd", [None, 1, [], {}, [1], {"pattern": 1}, {"patternProperties": 1}])
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "properties", "$ref"])
def test_unknown_keywords_may_hold_anything(keyword: str, odd: Any) -> None:
    schema = {"x-form": {keyword: odd}}
    assert remote_schema(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"(?!x)": {}}},
        {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
    ],
)
def test_irremovable_pattern_is_refused(schema: dict[str, Any]) -> None:
    check_schema(schema)
    with pytest.raises(InvalidCall, match="pattern"):
        remote_schema(schema)
