"""The fields of a form keep the order of their author."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import Case
from pydantic import BaseModel

import sayso
from sayso import Inbox, Question
from sayso.adapters.chat.views import card_of, tool_view
from sayso.agent.events import ToolCalled
from sayso.testing import ScriptedModel, call
from sayso.views import (
    FIELD_ORDER,
    _as_declared,
    keep_field_order,
    request_json,
    restore_field_order,
)

ADDRESS = {"type": "object", "properties": {"street": {}, "number": {}, "city": {}}}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "string"},
        "address": {"$ref": "#/$defs/Address"},
        "extras": {"type": "array", "items": {"properties": {"name": {}, "amount": {}}}},
        "properties": {"type": "object", "properties": {"b": {}, "a": {}}},
    },
    "$defs": {"Address": ADDRESS},
    "anyOf": [{"properties": {"z": True, "y": False}}, True],
}


def fields(schema: Any) -> list[str]:
    return list(schema["properties"])


def test_unsorted_field_order_is_stored() -> None:
    assert keep_field_order({"properties": {"a": {}, "b": {}}}) == {
        "properties": {"a": {}, "b": {}}
    }
    kept = keep_field_order(FORM)
    assert kept[FIELD_ORDER] == fields(FORM)
    assert FIELD_ORDER not in kept["properties"]
    assert str(restore_field_order(kept)) == str(FORM)
    for odd in (
        None,
        True,
        [],
        {"properties": 5},
        {FIELD_ORDER: 5},
        {FIELD_ORDER: [1], "properties": {"a": {}}},
    ):
        restore_field_order(keep_field_order(odd))


def test_form_keeps_the_authors_field_order(case: Case) -> None:
    asked = Question("Where to?", schema=FORM)
    request = case.paused(lambda: case.gate.ask_sync(asked))
    for found in (request, Inbox(case.store).get_sync(request.id), case.pending()):
        assert found.question == asked
        assert fields(found.schema) == fields(FORM)
        assert fields(found.schema["$defs"]["Address"]) == ["street", "number", "city"]
        assert FIELD_ORDER not in str(request_json(found))
    assert case.paused(lambda: case.gate.ask_sync(asked)).id == request.id
    answer = {"size": "big", "properties": {}}
    case.decide(request.respond(answer))
    assert case.enter(lambda: case.gate.ask_sync(asked)) == answer


class Address(BaseModel):
    street: str
    number: int
    city: str


def test_arguments_keep_the_order_of_the_signature(case: Case) -> None:
    """At any depth, as in the digest's canonical form they are sorted."""

    @case.gate.guard(needs_approval=True)
    def ship(to: Address, stops: list[Address], by: Address | None = None, amount: int = 1) -> str:
        return "shipped"

    place = Address(street="Main Street", number=5, city="Bern")
    request = case.paused(lambda: ship(place, [place], place))
    for found in (request, Inbox(case.store).get_sync(request.id)):
        assert list(found.args) == ["to", "stops", "by", "amount"]
        for shown in (found.args["to"], found.args["stops"][0], found.args["by"]):
            assert list(shown) == ["street", "number", "city"]
    assert case.paused(lambda: ship(place, [place], place)).digest == request.digest


def test_hostile_schemas_order_nothing() -> None:
    loop = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}
    args: dict[str, Any] = {"b": {"y": 1, "x": [{}]}, "a": 2}
    for part in ({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/none"}, True, {"items": False}):
        schema = {**loop, "properties": {"b": part}}
        assert _as_declared(args, schema) == args
        assert list(_as_declared(args, schema)["b"]) == ["y", "x"]


def test_order_outlives_an_export(tmp_path: Path) -> None:
    class Order(BaseModel):
        size: str
        amount: int

    tool = sayso.ask_user_for(Order)
    model = ScriptedModel([call(tool.name, {"question": "Which?"})])
    agent = sayso.Agent("shop", model=model, tools=[tool], store=f"sqlite:///{tmp_path}/a.db")
    state = agent.run_sync("an order", thread="t-1").state
    assert fields(state.interruptions[0].schema) == ["size", "amount"]
    read = sayso.RunState.from_json(state.to_json())
    assert fields(read.interruptions[0].schema) == ["size", "amount"]


async def test_run_events_hide_field_order_marks(case: Case) -> None:
    class Order(BaseModel):
        size: str
        amount: int

    tool = sayso.ask_user_for(Order)
    model = ScriptedModel([call(tool.name, {"question": "Which?"})])
    agent = sayso.Agent("shop", model=model, tools=[tool], store=case.store)
    told = [event async for event in agent.stream("an order", thread="t-1")]
    (called,) = [event for event in told if isinstance(event, ToolCalled)]
    assert fields(called.args["schema"]) == ["size", "amount"]
    assert FIELD_ORDER not in str(told)
    row = case.store.call((await case.inbox.pending()).items[0].id)
    assert row is not None
    card, face = card_of(row, ""), tool_view(row)
    assert fields(card["question"]["schema"]) == fields(face.input["schema"]) == ["size", "amount"]
    assert FIELD_ORDER not in str((card, face))
