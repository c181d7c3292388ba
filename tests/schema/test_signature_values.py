"""Calls and results: values become bytes, and the bytes become arguments and results."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    computed_field,
    field_serializer,
)
from typing_extensions import TypedDict

from sayso import codec
from sayso.errors import InvalidCall, InvalidDecision
from sayso.schema import Signature, errors


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(TypedDict):
    street: str
    number: NotRequired[int]


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Item(BaseModel):
    """A thing that is sold."""

    price: Decimal
    tags: list[str] = []
    due: dt.date | None = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Sized(BaseModel):
    width: int

    @computed_field
    def area(self) -> int:
        return self.width**2


def taking(annotation: Any, *default: Any) -> Signature:
    """The signature of a function with one parameter ``x`` of this type."""

    def fn(x): ...  # type: ignore[no-untyped-def]

    fn.__annotations__ = {"x": annotation}
    fn.__defaults__ = default
    return Signature.of(fn)


def giving(annotation: Any) -> Signature:
    """The signature of a function that returns this type."""

    def fn(): ...  # type: ignore[no-untyped-def]

    fn.__annotations__ = {"return": annotation}
    return Signature.of(fn)


def refused(call: Callable[[], Any]) -> InvalidCall:
    with pytest.raises(InvalidCall) as caught:
        call()
    return caught.value


def send_email(to: str, subject: str, body: str, cc: str = "") -> str:
    return "sent"


def taking_nothing():  # type: ignore[no-untyped-def]
    """Give anything."""


# --- a call on its way ---


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (str, "é", '"é"'),
        (int, 5, "5"),
        (float, 2, "2"),
        (bool, True, "true"),
        (None, None, "null"),
        (Literal["a", 2], 2, "2"),
        (Colour, Colour.RED, '"red"'),
        (Level, Level.HIGH, "2"),
        (Optional[int], None, "null"),  # noqa: UP045
        (int | str, "5", '"5"'),
        (dt.date, dt.date(2026, 11, 15), '"2026-11-15"'),
        (
            dt.datetime,
            dt.datetime(2026, 11, 15, 1, 2, 3, 400, dt.UTC),
            '"2026-11-15T01:02:03.000400Z"',
        ),
        (dt.time, dt.time(1, 2), '"01:02:00"'),
        (dt.timedelta, dt.timedelta(days=1, seconds=2), '"P1DT2S"'),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (bytes, b"\xff\x00", '"_wA="'),
        (uuid.UUID, uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Address, {"street": "A"}, '{"street":"A"}'),
        (Point, Point(1, 2.5), '{"x":1,"y":2.5}'),
        (Item, Item(price=Decimal("1.0")), '{"due":null,"price":"1.0","tags":[]}'),
        (Open, Open(a=1, b=2), '{"a":1,"b":2}'),  # type: ignore[call-arg]
        (Sized, Sized(width=3), '{"width":3}'),
        (Tree, Tree(value=1, children=[Tree(value=2)]), None),
        (list[Item], [Item(price=Decimal(1))], None),
        (dict[str, list[int]], {"b": [1], "a": []}, '{"a":[],"b":[1]}'),
        (dict[int, Point], {1: Point(1, 2)}, '{"1":{"x":1,"y":2}}'),
        (tuple[int, str], (1, "a"), '[1,"a"]'),
        (Item | Point, Point(1, 2), '{"x":1,"y":2}'),
        (Annotated[int, Field(ge=3)], 3, "3"),
        (Json[list[int]], "[1, 2]", '"[1,2]"'),
        (Any, {"a": [1, None]}, '{"a":[1,null]}'),
    ],
)
def test_types_travel_in_their_json_form(annotation: Any, value: Any, stored: str | None) -> None:
    signature = taking(annotation)
    data = signature.intake({"x": value})
    if stored is not None:
        assert data.decode() == f'{{"x":{stored}}}'
    assert signature.intake_json(codec.loads(data)) == data
    assert errors(signature.parameters, codec.loads(data)) == []
    loaded = signature.load(data)[1]["x"]
    if annotation != Json[list[int]]:
        assert loaded == value
        assert type(loaded) is (float if annotation is float else type(value))


def test_none_as_default_means_optional() -> None:
    for annotation in (int, Optional[int], Annotated[int | None, Field(gt=1)]):  # noqa: UP045
        signature = taking(annotation, None)
        assert signature.intake({}) == b'{"x":null}'
        assert signature.intake({"x": 5}) == b'{"x":5}'
    assert taking(Any, None).parameters["properties"]["x"] == {"default": None}


def test_field_may_be_the_default() -> None:
    signature = taking(int, Field(3, gt=2, alias="y", description="Many"))
    assert signature.intake({}) == b'{"x":3}'
    assert signature.parameters["properties"]["x"]["description"] == "Many"
    assert refused(lambda: signature.intake({"x": 1})).path == "x"
    assert refused(lambda: taking(int, Field(gt=2)).intake({})).path == "x"


def test_defaults_are_stored_and_never_shared() -> None:
    shared: list[int] = [1]
    signature = taking(list[int], shared)
    data = signature.intake({})
    first, second = signature.load(data)[1]["x"], signature.load(data)[1]["x"]
    first.append(2)
    assert (data, second, shared) == (b'{"x":[1]}', [1], [1])
    shared.append(3)
    assert signature.load(data)[1]["x"] == [1]


def test_passed_values_are_let_go() -> None:
    value = Item(price=Decimal(1), tags=["a"])
    signature = taking(Item)
    data = signature.intake({"x": value})
    value.tags.append("b")
    loaded = signature.load(data)[1]["x"]
    assert loaded.tags == ["a"]
    assert loaded is not value


def test_invalid_instance_is_refused() -> None:
    value = Point(1)
    value.x = "many"  # type: ignore[assignment]
    assert refused(lambda: taking(Point).intake({"x": value})).path == "x.x"


@pytest.mark.parametrize(
    ("annotation", "value", "path", "message"),
    [
        (int, "many", "x", "valid integer"),
        (int, 2**53, "x", "declare it as str"),
        (float, math.nan, "x", "nan is not a JSON number"),
        (float, 1e20, "x", "declare it as str"),
        (Any, [math.inf], "x[0]", "inf is not a JSON number"),
        (str, "\ud800", "x", "half a surrogate pair"),
        (Any, {1: 2, "a": {"b": object()}}, "", "no JSON form"),
        (list[Item], [{"price": "1"}, {"price": "no"}], "x[1].price", "decimal"),
        (list[Item], [{"price": "1", "colour": "red"}], "x[0].colour", "is unknown; remove it"),
        (Point, {"y": 1}, "x.x", "is missing"),
        (Address, {"street": "A", "town": "B"}, "x.town", "is unknown"),
        (Literal["a"], "b", "x", "should be 'a'"),
        (dict[str, int], {"a b": "c"}, 'x["a b"]', "valid integer"),
    ],
)
def test_intake_refuses_by_path(annotation: Any, value: Any, path: str, message: str) -> None:
    error = refused(lambda: taking(annotation).intake({"x": value}))
    assert error.path == path
    assert message in str(error)


def test_unknown_and_missing_arguments() -> None:
    signature = Signature.of(send_email)
    error = refused(lambda: signature.intake_json({"to": "a", "subject": "b", "bcc": "c"}))
    assert str(error) == "body: is missing; bcc: is unknown; remove it"
    assert error.path == "body"
    assert refused(lambda: signature.intake({1: 2})).path  # type: ignore[dict-item]


def test_messages_are_bounded_and_echo_no_input() -> None:
    huge = "secret" * 10_000
    error = refused(lambda: taking(list[int]).intake({"x": [huge] * 50}))
    assert "and 45 more" in str(error)
    assert "secret" not in str(error)

    def shout(value: str) -> str:
        raise ValueError(value)

    error = refused(lambda: taking(Annotated[str, AfterValidator(shout)]).intake({"x": huge}))
    assert len(str(error)) < 220


def test_depth_and_cycles_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (deep, cycle):
        refused(functools.partial(taking(Any).intake, {"x": value}))
        refused(functools.partial(taking(Any).intake_json, {"x": value}))
    allowed: Any = []
    for _ in range(codec.MAX_DEPTH - 2):
        allowed = [allowed]
    assert taking(Any).load(taking(Any).intake({"x": allowed}))[1]["x"] == allowed


class Drifting(BaseModel):
    inner: dict[str, list[int]]

    @field_serializer("inner")
    def grow(self, inner: dict[str, list[int]]) -> dict[str, list[int]]:
        return {key: [*value[:-1], value[-1] + 1] for key, value in inner.items()}


def test_unstable_value_is_refused() -> None:
    error = refused(lambda: taking(list[Drifting]).intake({"x": [{"inner": {"a": [1, 2]}}]}))
    assert error.path == "x[0].inner.a[1]"
    assert "changes when it is read back" in str(error)
    oneway = Annotated[int, PlainSerializer(lambda value: f"no {value}")]
    error = refused(lambda: taking(oneway).intake({"x": 1}))
    assert error.path == "x"
    assert "does not come back from its JSON form" in str(error)
    growing = Annotated[list[int], PlainSerializer(lambda value: [*value, 0])]
    assert refused(lambda: taking(growing).intake_json({"x": [1]})).path == "x"


def test_json_intake_reads_json_forms() -> None:
    assert taking(bytes).load(taking(bytes).intake_json({"x": "_wA="}))[1]["x"] == b"\xff\x00"
    assert refused(lambda: taking(bytes).intake_json({"x": "not base64"})).path == "x"
    assert taking(dt.date).intake_json({"x": "2026-11-15"}) == b'{"x":"2026-11-15"}'
    assert taking(int).intake_json({"x": "5"}) == b'{"x":5}'
    assert refused(lambda: taking(Any).intake_json({"x": b"raw"})).path == "x"


def test_load_refuses_bytes_of_another_signature() -> None:
    assert refused(lambda: taking(int).load(b'{"y":1}')).path == "x"


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text("aé\U0001f600"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)


@given(a=plain, b=st.floats(-1e9, 1e9), c=st.dates(), d=st.binary(), e=st.decimals(-9, 9))
def test_every_call_is_a_fixed_point(a: Any, b: float, c: dt.date, d: bytes, e: Decimal) -> None:
    def fn(a: Any, b: float, c: dt.date, d: bytes, e: Decimal, f: str = "z") -> None: ...

    signature = Signature.of(fn)
    data = signature.intake({"a": a, "b": b, "c": c, "d": d, "e": e})
    _, kwargs = signature.load(data)
    assert kwargs == {"a": a, "b": b, "c": c, "d": d, "e": e, "f": "z"}
    assert signature.intake(kwargs) == data
    assert signature.intake_json(json.loads(data)) == data


# --- results ---


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "done"),
        (None, None),
        (int, 2**70),
        (bytes, b"\xff"),
        (float, math.inf),
        (tuple[int, str], (1, "a")),
        (set[str], {"a", "b"}),
        (dict[int, dt.date], {1: dt.date(2026, 1, 1)}),
        (Item, Item(price=Decimal("1.10"))),
        (list[Point], [Point(1, 2)]),
        (Sized, Sized(width=2)),
        (Item | None, None),
        (Any, {"a": [1, None]}),
    ],
)
def test_stored_results_keep_their_types(annotation: Any, value: Any) -> None:
    signature = giving(annotation)
    text = signature.dump_result(value)
    json.loads(text)
    assert signature.load_result(text) == value
    assert type(signature.load_result(text)) is type(value)


def test_untyped_results_become_json() -> None:
    signature = Signature.of(taking_nothing)
    value = {"a": Point(1), "b": dt.date(2026, 1, 1), "c": math.nan, "d": b"\xff", "e": (1,)}
    assert signature.load_result(signature.dump_result(value)) == {
        "a": {"x": 1, "y": 0.0},
        "b": "2026-01-01",
        "c": "NaN",
        "d": "_w==",
        "e": [1],
    }


def test_computed_fields_are_shown_in_results() -> None:
    assert json.loads(giving(Sized).dump_result(Sized(width=2))) == {"width": 2, "area": 4}


def test_unfitting_result_is_plain_json() -> None:
    assert giving(int).load_result(giving(int).dump_result("many")) == "many"
    shifted = giving(Annotated[int, PlainSerializer(lambda value: value + 1)])
    assert shifted.load_result(shifted.dump_result(["x"])) == ["x"]


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, "\ud800", math.sin])
@pytest.mark.parametrize("annotation", [int, Any, str])
def test_unstorable_result_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidCall, match=r"result of fn\(\).*cannot be stored; return text"):
        giving(annotation).dump_result(value)


def test_result_of_person_is_checked() -> None:
    signature = giving(list[Item])
    text = signature.check_result([{"price": "1.10"}])
    assert signature.load_result(text) == [Item(price=Decimal("1.10"))]
    assert Signature.of(taking_nothing).check_result({"any": [1]}) == '{"any":[1]}'
    assert giving(Open).check_result({"b": 1}) == '{"a":1,"b":1}'
    for value, path in [
        ([{"price": "no"}], "[0].price"),
        ([{"price": "1", "colour": "red"}], "[0].colour"),
        ("text", ""),
        ([{"price": math.nan}], "[0].price"),
        ([object()], "[0]"),
    ]:
        with pytest.raises(InvalidDecision) as caught:
            signature.check_result(value)
        assert caught.value.path == path
