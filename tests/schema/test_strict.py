"""The forms of a schema: OpenAI's strict one, and any that is stored and checked against."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import socket
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from sayso import codec
from sayso.errors import InvalidCall
from sayso.schema import Signature, check_schema, errors, matches


class Size(enum.Enum):
    S = "s"
    L = "l"


class Item(BaseModel):
    """A thing."""

    name: Annotated[str, Field(max_length=9, pattern="^[a-z]+$")]
    amount: int = Field(1, ge=1, description="How many")
    size: Size = Size.S
    note: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Pair(TypedDict, total=False):
    key: str


# --- strict ---


def order(
    item: Item,
    others: list[Item],
    when: dt.datetime,
    ref: uuid.UUID,
    price: Decimal,
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    tree: Tree,
    point: Point = Point(1),  # noqa: B008
    pair: Pair = {},  # noqa: B006
    count: int = 3,
    limit: int | None = None,
    size: Annotated[Size, Field(description="How large")] = Size.L,
) -> None: ...


def assert_strict(node: Any) -> None:
    """Check by the rules that OpenAI publishes."""
    if isinstance(node, list):
        for item in node:
            assert_strict(item)
    if not isinstance(node, dict):
        return
    assert not {"default", "oneOf", "allOf", "maxLength", "title", "discriminator"} & node.keys()
    assert "$ref" not in node or len(node) == 1
    assert node.get("format") in {None, "date-time", "uuid"}
    if node.get("type") == "object":
        assert node["additionalProperties"] is False
        assert sorted(node["required"]) == sorted(node["properties"])
    for key, value in node.items():
        assert_strict(list(value.values()) if key in {"properties", "$defs"} else value)


def test_strict_form_requires_every_property() -> None:
    strict = Signature.of(order).strict
    assert_strict(strict)
    properties = strict["properties"]
    assert properties["item"] == {"$ref": "#/$defs/Item"}
    assert properties["count"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["limit"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["point"] == {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}
    assert properties["size"] == {
        "description": "How large",
        "anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}],
    }
    assert strict["$defs"]["Item"] == {
        "type": "object",
        "description": "A thing.",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "amount": {
                "description": "How many",
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
            },
            "size": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["name", "amount", "size", "note"],
        "additionalProperties": False,
    }
    assert strict["$defs"]["Size"] == {"type": "string", "enum": ["s", "l"]}


def test_strict_form_keeps_the_schema() -> None:
    signature = Signature.of(order)
    before = codec.canonical(signature.parameters)
    assert signature.strict is signature.strict
    assert codec.canonical(signature.parameters) == before


def test_strict_without_parameters() -> None:
    def ping() -> None: ...

    assert Signature.of(ping).strict == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (dict[str, int], "open dict"),
        (dict, "open dict"),
        (list[dict[str, Any]], "open dict"),
        (Open, "open dict"),
        (Item | Open, "open dict"),
        (tuple[int, str], "is a tuple"),
        (Any, "has no type; annotate it"),
        (list, "has no type; annotate it"),
    ],
)
def test_parameter_without_strict_form_is_named(annotation: Any, message: str) -> None:
    def fn(fine: int, bad): ...  # type: ignore[no-untyped-def]

    fn.__annotations__["bad"] = annotation
    with pytest.raises(InvalidCall, match=f"the parameter 'bad' .*{message}") as caught:
        _ = Signature.of(fn).strict
    assert caught.value.path == "bad"


def test_null_in_a_strict_answer_means_the_default() -> None:
    def fn(
        item: Item,
        items: list[Item],
        tree: Tree | None,
        pet: Cat | Dog,
        count: int = 3,
        limit: int | None = 5,
        anything: Any = 1,
    ) -> None: ...

    signature = Signature.of(fn)
    item = {"name": "a", "amount": None, "size": None, "note": None}
    answer = {
        "item": item,
        "items": [item, item],
        "tree": {"value": 1, "children": [{"value": 2, "children": None}]},
        "pet": {"kind": "dog"},
        "count": None,
        "limit": None,
        "anything": None,
    }
    stored = codec.loads(signature.intake_json(answer, strict=True))
    whole = {"name": "a", "amount": 1, "size": "s", "note": None}
    assert stored == {
        "item": whole,
        "items": [whole, whole],
        "tree": {"value": 1, "children": [{"value": 2, "children": []}]},
        "pet": {"kind": "dog"},
        "count": 3,
        "limit": None,
        "anything": None,
    }
    deep: dict[str, Any] = {"value": 1, "children": []}
    for _ in range(10_000):
        deep = {"value": 1, "children": [deep]}
    with pytest.raises(InvalidCall, match="levels deep"):
        signature.intake_json({**answer, "tree": deep}, strict=True)
    with pytest.raises(InvalidCall, match="count"):
        signature.intake_json({**stored, "count": None})
    with pytest.raises(InvalidCall, match=r"item: .*; unknown: is unknown"):
        signature.intake_json({**stored, "item": None, "unknown": None}, strict=True)


# --- stored schemas ---

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "born": {"type": "string", "format": "date"},
        "pets": {"type": "array", "items": {"$ref": "#/$defs/pet"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"pet": {"enum": ["cat", "dog"]}},
}


def test_errors_name_path_and_fault() -> None:
    assert errors(PERSON, {"name": "Ana", "born": "2000-01-01", "pets": ["cat"]}) == []
    assert errors(PERSON, {"name": 1, "pets": ["cat", "cow"], "born": "soon"}) == [
        ("born", "'soon' is not a 'date'"),
        ("name", "1 is not of type 'string'"),
        ("pets[1]", "'cow' is not one of ['cat', 'dog']"),
    ]
    assert errors(PERSON, "x") == [("", "'x' is not of type 'object'")]
    assert matches(PERSON, {"name": "Ana"})
    assert not matches(PERSON, {"name": ""})


def test_errors_are_few_and_short() -> None:
    found = errors({"items": {"type": "integer"}}, ["x" * 100_000] * 100)
    assert len(found) == 20
    assert all(len(message) <= 200 for _, message in found)
    assert found[0][1].endswith("is not of type 'integer'")


def test_deep_values_and_recursive_schemas_fail() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    tree = {"items": {"$ref": "#"}, "type": "array"}
    assert errors(tree, deep) == [("", "nested too deeply to be checked")]
    assert not matches({"$ref": "#"}, 1)
    assert not matches({"if": {"$dynamicRef": "#"}, "unevaluatedItems": {}}, [1])


def test_references_are_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("somebody opened a socket")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "create_connection", no_network)
    for ref in ("http://127.0.0.1:1/s.json", "file:///etc/passwd", "other.json", "#/$defs/none"):
        for schema in ({"$ref": ref}, {"properties": {"a": {"$ref": ref}}}):
            with pytest.raises(InvalidCall, match="nothing is fetched"):
                errors(schema, {"a": 1})
            with pytest.raises(InvalidCall, match="nothing is fetched"):
                check_schema(schema)
    with pytest.raises(InvalidCall, match="nothing is fetched"):
        errors({"$schema": "http://127.0.0.1:1/meta", "$ref": "http://127.0.0.1:1/s"}, 1)


@pytest.mark.parametrize(
    ("schema", "message", "path"),
    [
        ({"type": "strnig"}, "not a JSON Schema", "type"),
        ({"properties": {"a": {"minLength": "1"}}}, "not a JSON Schema", "properties.a.minLength"),
        ({"pattern": "("}, "not a JSON Schema", "pattern"),
        ({"pattern": "a{99999999999999999999}"}, "a reference or pattern cannot be read", ""),
        ({"$id": "http://[", "$ref": "#a"}, "a reference or pattern cannot be read", ""),
        ({"required": "a"}, "not a JSON Schema", "required"),
        ({"maximum": 2**63}, "declare it as str", "maximum"),
        ({"enum": ["x" * 300_000]}, "more than 262,144 bytes", ""),
        (True, "a schema is a JSON object", ""),
        ("string", "a schema is a JSON object", ""),
        (None, "a schema is a JSON object", ""),
    ],
)
def test_broken_schemas_are_refused(schema: Any, message: str, path: str) -> None:
    with pytest.raises(InvalidCall, match=message) as caught:
        check_schema(schema)
    assert caught.value.path == path
    if isinstance(schema, dict):
        with pytest.raises(InvalidCall, match=message):
            errors(schema, "a")


def test_validator_failure_is_an_error() -> None:
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"format": "regex"}, "a{99999999999999999999}"),
        ({"items": {"$schema": "http://[", "type": "integer"}}, [1]),
    ]
    for schema, value in cases:
        assert errors(schema, value) == [("", "cannot be checked against this schema")]
    with pytest.raises(InvalidCall, match="nothing is fetched"):
        matches({"$defs": {"b": {}}, "items": {"$id": "x:y", "$ref": "#/$defs/b"}}, [1])


@pytest.mark.parametrize("depth", [50, 250, 100_000])
def test_deep_schemas_are_refused(depth: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    with pytest.raises(InvalidCall, match="nested more than"):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [{}, PERSON, {"const": {"$ref": "data"}}, {"$dynamicRef": "#"}, {"properties": {"$ref": {}}}],
)
def test_good_schemas_pass(schema: dict[str, Any]) -> None:
    check_schema(schema)


def test_schemas_of_signatures_pass() -> None:
    check_schema(Signature.of(order).parameters)
    check_schema(Signature.of(order).strict)


def test_changed_schema_is_read_again() -> None:
    schema: dict[str, Any] = {"type": "string"}
    assert matches(schema, "a")
    schema["type"] = "integer"
    assert not matches(schema, "a")
