"""Typed answers: parsed as the declared type, or asked for again."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

import pytest
from agent_world import World, asked, tool_results
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from sayso import InvalidCall
from sayso.testing.scripted_model import call, say

PAY = call("pay", {"amount": 3, "to": None})


class Pizza(BaseModel):
    size: str
    toppings: list[str] = Field(default_factory=list)
    note: str = "none"


@dataclass
class Flight:
    city: str
    price: float | None = None


class Stay(typing.TypedDict):
    city: str


class Trip(TypedDict):
    city: str
    days: int


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Pizza, '{"size":"L","toppings":["ham"],"note":null}', Pizza(size="L", toppings=["ham"])),
        (Flight, '{"city":"Oslo","price":null}', Flight("Oslo")),
        (Trip, '{"city":"Oslo","days":3}', {"city": "Oslo", "days": 3}),
        (
            list[Pizza],
            '{"value":[{"size":"S","toppings":[],"note":"x"}]}',
            [Pizza(size="S", note="x")],
        ),
        (list[Trip], '{"value":[]}', []),
        (int, '{"value":7}', 7),
        # From models that know no schema, without the wrapping:
        (list[Trip], '[{"city":"Oslo","days":3}]', [{"city": "Oslo", "days": 3}]),
        (int, "7", 7),
        (Stay, '{"city":"Oslo"}', {"city": "Oslo"}),
        (list[Stay], '{"value":[{"city":"Oslo"}]}', [{"city": "Oslo"}]),
    ],
)
async def test_answer_has_the_declared_type(
    world: World, wanted: Any, text: str, value: Any
) -> None:
    agent = world.agent(say(text), output_type=wanted)
    result = await agent.run("order", thread="t")
    assert (result.status, result.output) == ("done", value)
    assert (await agent.resume("t")).output == value
    schema = asked(agent)[0].output_schema
    assert schema is not None
    assert schema["additionalProperties"] is False
    assert sorted(schema["required"]) == sorted(schema["properties"])


@pytest.mark.parametrize("bad", ["L please", '{"size": 7}', "[]", '{"toppings": []}'])
async def test_unfitting_answer_is_asked_again(world: World, bad: str) -> None:
    agent = world.agent(
        say(bad), say('{"size":"L","toppings":null,"note":null}'), output_type=Pizza
    )
    result = await agent.run("order", thread="t")
    assert result.output == Pizza(size="L")
    assert "does not match" in asked(agent)[-1].messages[-1]["content"]


async def test_unfitting_answers_fail_at_limit(world: World) -> None:
    agent = world.agent(*[say("no")] * 3, output_type=Pizza, max_turns=3)
    assert (await agent.run("order", thread="t")).status == "failed"


async def test_typed_answer_may_follow_calls(world: World) -> None:
    agent = world.agent(PAY, say('{"city":"Oslo","days":1}'), output_type=Trip)
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    assert (result.output, tool_results(agent)) == ({"city": "Oslo", "days": 1}, ["paid 3 to ana"])


async def test_output_type_str_returns_text(world: World) -> None:
    assert (await world.agent(say("Hi."), output_type=str).run("go")).output == "Hi."


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (dict, "open dict"),
        (dict[str, int], "open dict"),
        (5, "output_type=5"),
        (type, "no JSON schema"),
    ],
)
def test_output_type_without_schema_is_refused(world: World, wanted: Any, said: str) -> None:
    with pytest.raises((TypeError, InvalidCall), match=said):
        world.agent(output_type=wanted)
