"""Nothing that the caller passes is dropped on the way to the stored bytes: kept, or refused."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from sayso import Gate, InvalidCall, Paused
from sayso.schema import Signature


def taking(annotation: Any) -> Signature:
    """The signature of a function with one parameter ``p`` of this type."""

    def fn(p): ...  # type: ignore[no-untyped-def]

    fn.__annotations__ = {"p": annotation}
    return Signature.of(fn)


class Base(BaseModel):
    to: str


class Derived(Base):
    fee: int = 1


class Labels(RootModel[list[Base]]):
    """A list with a name."""


class Renamed(Base):
    """The same fields: nothing is lost where a Base is wanted."""


class Excluded(BaseModel):
    to: str
    fee: int = Field(default=100, exclude=True)


class ExcludedIf(BaseModel):
    to: str
    fee: int = Field(default=100, exclude_if=lambda fee: fee == 5)


class Outer(BaseModel):
    inner: Excluded


class Partial(BaseModel):
    to: str
    fee: int = 1

    @model_serializer
    def shown(self) -> dict[str, Any]:
        return {"to": self.to}


class Masked(BaseModel):
    to: str

    @field_serializer("to")
    def shown(self, value: str) -> str:
        return "***"


class Rounded(BaseModel):
    at: dt.datetime

    @field_serializer("at")
    def shown(self, value: dt.datetime) -> str:
        return value.replace(microsecond=0).isoformat()


class Private(BaseModel):
    to: str
    _fee: int = PrivateAttr(default=1)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


@dataclass
class Late:
    to: str
    fee: int = field(default=1, init=False)


@dataclass
class Initial:
    to: str
    fee: InitVar[int] = 5

    def __post_init__(self, fee: int) -> None:
        self.total = fee


@dataclass
class Parent:
    to: str


@dataclass
class Child(Parent):
    fee: int = 1


@pydantic_dataclass
class ExcludedToo:
    to: str
    fee: int = Field(default=1, exclude=True)


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


class Written(TypedDict):
    to: Annotated[str, Field(exclude=True)]
    amount: int


class Pair(NamedTuple):
    one: Any
    two: Any


def _private() -> Private:
    value = Private(to="bo")
    value._fee = 9
    return value


def _late() -> Late:
    value = Late("bo")
    value.fee = 9
    return value


def _noted() -> Parent:
    value = Parent("bo")
    value.note = "pay twice"  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        pytest.param(Excluded, Excluded(to="bo", fee=5), "p.fee", id="excluded"),
        pytest.param(Excluded, {"to": "bo", "fee": 5}, "p.fee", id="excluded, as a dict"),
        pytest.param(Excluded, Excluded(to="bo"), "p.fee", id="excluded, its default"),
        pytest.param(Outer, {"inner": {"to": "bo"}}, "p.inner.fee", id="excluded, inside"),
        pytest.param(list[Excluded], [Excluded(to="bo")], "p[0].fee", id="excluded, in a list"),
        pytest.param(
            dict[int, Excluded], {7: Excluded(to="bo")}, 'p["7"].fee', id="excluded, in a dict"
        ),
        pytest.param(Any, Excluded(to="bo", fee=5), "p.fee", id="excluded, as anything"),
        pytest.param(object, [Excluded(to="bo")], "p[0].fee", id="excluded, in any list"),
        pytest.param(Any, {1: Excluded(to="bo")}, 'p["1"].fee', id="excluded, in any dict"),
        pytest.param(Any, Pair(1, Excluded(to="bo")), "p[1].fee", id="excluded, in a tuple"),
        pytest.param(ExcludedToo, ExcludedToo("bo", 7), "p.fee", id="excluded, of a dataclass"),
        pytest.param(Any, ExcludedToo("bo", 7), "p.fee", id="excluded, of any dataclass"),
        pytest.param(Written, {"to": "bo", "amount": 1}, "p.to", id="excluded, of a dict"),
        pytest.param(ExcludedIf, ExcludedIf(to="bo", fee=5), "p", id="excluded at times"),
        pytest.param(Base, Derived(to="bo", fee=5), "p.fee", id="subclass"),
        pytest.param(Base | None, Derived(to="bo"), "p.fee", id="subclass, its default"),
        pytest.param(dict[str, Base], {"a": Derived(to="bo")}, "p.a.fee", id="subclass in a dict"),
        pytest.param(
            SerializeAsAny[Base], Derived(to="bo", fee=5), "p.fee", id="subclass, shown as any"
        ),
        pytest.param(Parent, Child("bo", 7), "p.fee", id="subclass of a dataclass"),
        pytest.param(Partial, Partial(to="bo", fee=5), "p.fee", id="model_serializer"),
        pytest.param(Partial, {"to": "bo", "fee": 5}, "p.fee", id="model_serializer, as a dict"),
        pytest.param(Masked, Masked(to="bo"), "p.to", id="field_serializer"),
        pytest.param(
            Rounded, Rounded(at=dt.datetime(2026, 1, 1, 1, 1, 1, 5)), "p.at", id="rounded"
        ),
        pytest.param(Private, _private(), "p._fee", id="private attribute"),
        pytest.param(Any, _private(), "p._fee", id="private attribute of anything"),
        pytest.param(Late, _late(), "p.fee", id="field that init does not take"),
        pytest.param(Initial, Initial("bo", 7), "p.total", id="InitVar"),
        pytest.param(Initial, {"to": "bo", "fee": 7}, "p.total", id="InitVar, as a dict"),
        pytest.param(Parent, _noted(), "p.note", id="attribute of its own"),
        pytest.param(Cat | Dog, Dog(name="Rex"), "p", id="another class"),
        pytest.param(Any, {1: "a", "1": "b"}, "p", id="keys that become one"),
        pytest.param(Labels, Labels([Derived(to="bo")]), "p[0].fee", id="subclass in a root"),
        pytest.param(
            Annotated[list[int], PlainSerializer(lambda items: items[:1])],
            [1, 2],
            "p",
            id="items that its serializer drops",
        ),
        pytest.param(re.Pattern[str], re.compile("a", re.IGNORECASE), "p", id="flags of a pattern"),
    ],
)
def test_dropped_value_is_refused_by_path(annotation: Any, value: Any, path: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        taking(annotation).intake({"p": value})
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("annotation", "given", "path"),
    [
        (Excluded, {"to": "bo", "fee": 5}, "p.fee"),
        (list[Excluded], [{"to": "bo"}], "p[0].fee"),
        (Partial, {"to": "bo", "fee": 5}, "p.fee"),
        (Masked, {"to": "bo"}, "p.to"),
        (Initial, {"to": "bo", "fee": 7}, "p.total"),
    ],
)
def test_dropped_json_value_is_refused_by_path(annotation: Any, given: Any, path: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        taking(annotation).intake_json({"p": given})
    assert caught.value.path == path


class Wrapped(BaseModel):
    """Takes more than its fields, and says so."""

    amount: int

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, given: Any) -> Any:
        return {"amount": given["text"]} if "text" in given else given


@pytest.mark.parametrize("made", ["intake", "intake_json"])
def test_open_class_opens_no_other(made: str) -> None:
    def pay(
        a: Open,
        b: Base,
        c: list[Written2],
        d: Parent,
        e: dict[str, Base] | None = None,
        g: Labels | None = None,
        h: Aliased | None = None,
    ) -> None: ...

    def fits(**more: Any) -> dict[str, Any]:
        given = {"a": {"x": 1}, "b": {"to": "bo"}, "c": [{"amount": 1}], "d": {"to": "bo"}}
        return {**given, **more}

    intake = getattr(Signature.of(pay), made)
    assert b'"a":{"a":0,"x":1}' in intake(fits())
    for more, path in [
        ({"b": {"to": "bo", "fee": 1}}, "b.fee"),
        ({"c": [{"amount": 1, "fee": 1}]}, "c[0].fee"),
        ({"d": {"to": "bo", "fee": 1}}, "d.fee"),
        ({"e": {"x": {"to": "bo", "fee": 1}}}, "e.x.fee"),
        ({"g": [{"to": "bo", "fee": 1}]}, "g[0].fee"),
        ({"h": {"To": "bo", "fee": 1}}, "h.fee"),
        ({"h": {"recipient": {"name": "bo"}, "fee": 1}}, "h.fee"),
        ({"f": 1}, "f"),
    ]:
        with pytest.raises(InvalidCall, match="is unknown; remove it") as caught:
            intake(fits(**more))
        assert caught.value.path == path


class Written2(TypedDict):
    amount: int


class Aliased(BaseModel):
    """Read from either of two keys."""

    to: str = Field(validation_alias=AliasChoices("To", AliasPath("recipient", "name")))


def test_class_may_read_other_fields() -> None:
    def pay(a: Open, b: Wrapped) -> None: ...

    data = Signature.of(pay).intake({"a": {}, "b": {"text": "5"}})
    assert data == b'{"a":{"a":0},"b":{"amount":5}}'


class Plain:
    """Knows nothing of equality; its JSON form is all there is of it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda given: given if isinstance(given, cls) else cls(given),
            core_schema.union_schema(
                [core_schema.is_instance_schema(cls), core_schema.str_schema()]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda one: one.text),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return {"type": "string"}


class Lower(BaseModel):
    to: str

    @field_validator("to")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.strip().lower()


class Cached(BaseModel):
    width: int

    @computed_field
    def area(self) -> int:
        return self.width**2

    @functools.cached_property
    def half(self) -> int:
        return self.width // 2


class Priced(BaseModel):
    """Its JSON form is a text."""

    euros: int

    @model_serializer
    def shown(self) -> str:
        return f"{self.euros} EUR"


class Vector(Plain):
    """Compares with others as arrays do: the answer is no boolean."""

    def __eq__(self, other: object) -> Any:
        return Vector("?")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    to: str = Field(alias="To")


def _cached() -> Cached:
    value = Cached(width=4)
    assert value.half == 2
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (Derived, Derived(to="bo", fee=5), '{"fee":5,"to":"bo"}'),
        (Base | Derived, Derived(to="bo", fee=5), '{"fee":5,"to":"bo"}'),
        (Base, Renamed(to="bo"), '{"to":"bo"}'),
        (ExcludedIf, ExcludedIf(to="bo", fee=6), '{"fee":6,"to":"bo"}'),
        (Private, Private(to="bo"), '{"to":"bo"}'),
        (Initial, Initial("bo"), '{"to":"bo"}'),
        (Lower, {"to": " BO"}, '{"to":"bo"}'),
        (Named, {"to": "bo"}, '{"To":"bo"}'),
        (Any, Named(to="bo"), '{"To":"bo"}'),
        (Cached, _cached(), '{"width":4}'),
        (Any, Child("bo", 7), '{"fee":7,"to":"bo"}'),
        (Any, {"a": Derived(to="bo"), 2: (1, dt.date(2026, 1, 1))}, None),
        (Any, [2.0, True, None, deque([1]), {3}], "[2,true,null,[1],[3]]"),
        (Plain, Plain("x"), '"x"'),
        (list[Plain], ["x", Plain("y")], '["x","y"]'),
        (Labels, Labels([Base(to="bo")]), '[{"to":"bo"}]'),
        (Any, Labels([Base(to="bo")]), '[{"to":"bo"}]'),
        (Any, Priced(euros=5), '"5 EUR"'),
        (Vector, Vector("x"), '"x"'),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_lossless_value_is_accepted(annotation: Any, value: Any, stored: str | None) -> None:
    data = taking(annotation).intake({"p": value})
    assert stored is None or data.decode() == f'{{"p":{stored}}}'


@pytest.mark.parametrize("given", [{}, {"fee": 5}])
def test_excluded_parameter_is_refused(given: dict[str, int]) -> None:
    def pay(fee: Annotated[int, Field(exclude=True)] = 100) -> None: ...

    for intake in (Signature.of(pay).intake, Signature.of(pay).intake_json):
        with pytest.raises(InvalidCall, match="fee: is excluded"):
            intake(given)


def test_lossy_call_is_not_asked() -> None:
    gate = Gate(wait=0)
    ran: list[Base] = []

    @gate.guard(needs_approval=True)
    def pay(order: Base) -> None:
        ran.append(order)

    with pytest.raises(InvalidCall, match=r"order\.fee: .* declare the parameter as Derived"):
        pay(Derived(to="bo", fee=5))
    assert gate.store.events() == []
    with pytest.raises(Paused):
        pay(Base(to="bo"))
