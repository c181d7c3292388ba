"""Types whose schema takes some care: TypedDicts of both kinds, and defaults left out."""

from __future__ import annotations

import typing
from typing import Annotated, Any, NotRequired, Optional

import pytest
import typing_extensions
from pydantic import BaseModel, Field

from sayso.schema import Signature, with_defaults


class Base(typing.TypedDict, total=False):
    gift: bool


class Item(Base):
    """A thing that is sold."""

    name: str
    count: NotRequired[int]


class Order(typing.TypedDict):
    items: list[Item]
    to: Annotated[str, Field(description="Whom.")]
    spare: Optional[Item]  # noqa: UP045  # both spellings are read
    by_room: dict[str, Item] | None


class ItemAgain(typing_extensions.TypedDict):
    name: str


def order(order: Order, more: list[Item | int] = []) -> Item:  # noqa: B006  # never changed
    return {"name": "x"}


def test_standard_typed_dict_is_read() -> None:
    signature = Signature.of(order)
    item = signature.parameters["$defs"]["Item"]
    assert (item["description"], item["required"]) == ("A thing that is sold.", ["name"])
    assert list(item["properties"]) == ["gift", "name", "count"]
    assert signature.parameters["$defs"]["Order"]["properties"]["to"] == {
        "type": "string",
        "description": "Whom.",
    }
    given: Any = {"items": [{"name": "x"}], "to": "bo", "spare": None, "by_room": None}
    args, kwargs = signature.load(signature.intake_json({"order": given}))
    assert (args, kwargs) == ((), {"order": given, "more": []})
    assert signature.load_result('{"name": "x", "count": 2}') == {"name": "x", "count": 2}


def test_both_kinds_of_typed_dict_have_one_schema() -> None:
    class Item(typing.TypedDict):
        name: str

    def old(item: Item) -> None: ...
    def new(item: ItemAgain) -> None: ...

    made = Signature.of(old).parameters["$defs"]["Item"]
    assert made | {"title": "ItemAgain"} == Signature.of(new).parameters["$defs"]["ItemAgain"]


class Address(BaseModel):
    street: str
    country: str = "DE"


def move(to: Address, stops: list[Address] = [], spare: Address | None = None, n: int = 3) -> None:  # noqa: B006  # never changed
    ...


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        (
            {"to": {"street": "a"}},
            {"to": {"street": "a", "country": "DE"}, "stops": [], "spare": None, "n": 3},
        ),
        (
            {"to": {"street": "a", "country": "FR"}, "stops": [{"street": "b"}], "n": 1},
            {
                "to": {"street": "a", "country": "FR"},
                "stops": [{"street": "b", "country": "DE"}],
                "spare": None,
                "n": 1,
            },
        ),
        ({"to": "no object", "x": [1]}, {"to": "no object", "x": [1], "stops": [], "spare": None}),
    ],
)
def test_absent_value_gets_its_default(given: Any, whole: Any) -> None:
    schema = Signature.of(move).parameters
    made = with_defaults(schema, given)
    assert made == {"n": 3} | whole
    assert made["stops"] is not schema["properties"]["stops"]["default"]
