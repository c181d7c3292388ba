"""The fake server refuses schemas that are not strict."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_openai.rules import schema_fault

STRICT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"additionalProperties": True}, "'additionalProperties' is required"),
        ({"required": []}, r"Missing \['n'\]"),
        ({"required": ["n", "m"]}, r"Extra required key \['m'\]"),
        ({"type": "array"}, "must be a JSON Schema of 'type: \"object\"'"),
        ({"properties": {"n": {}}}, r"context=\('properties', 'n'\), schema must have a 'type'"),
        ({"properties": {"n": {"type": "string", "default": ""}}}, "'default' is not permitted"),
        ({"properties": {"n": {"type": "array"}}}, "array schema missing items"),
        ({"properties": {"n": {"oneOf": []}}}, "'oneOf' is not permitted"),
        (
            {"properties": {"n": {"$ref": "#/$defs/x", "description": "x"}}},
            r"\$ref cannot have keywords",
        ),
        ({"properties": {"n": {"type": "array", "items": {"type": "object"}}}}, "'additionalProp"),
        ({"properties": {"n": {"anyOf": [{"type": "object"}]}}}, "'additionalProperties'"),
        ({"$defs": {"x": {"type": "object"}}}, "'additionalProperties'"),
    ],
)
def test_schema_that_is_not_strict_is_refused(change: dict[str, Any], fault: str) -> None:
    assert re.search(fault, schema_fault({**STRICT, **change}) or "")


def test_oversized_schema_is_refused() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(11):
        deep = {**STRICT, "properties": {"n": deep}}
    wide = {f"p{n}": {"type": "integer"} for n in range(5_001)}
    for schema in (deep, {**STRICT, "properties": wide, "required": list(wide)}):
        assert "more than" in (schema_fault(schema) or "")


def test_strict_schema_is_accepted() -> None:
    assert schema_fault(STRICT) is None
    assert schema_fault(deep_enough()) is None


def deep_enough() -> dict[str, Any]:
    tree: dict[str, Any] = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    node = {**STRICT, "properties": {"n": {"type": "array", "items": tree}}}
    return {**STRICT, "properties": {"n": tree}, "$defs": {"node": node}}
