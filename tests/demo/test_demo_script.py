"""The demo agent: for every row of its table, the requests, the effects and the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso
import sayso.demo
from sayso.agent import Ended, RunResult, Text
from sayso.demo import Effects, script
from sayso.demo.script import SUGGESTIONS, TABLE


class Stage:
    """The demo agent on some store, and what it really did."""

    def __init__(self, store: str | None) -> None:
        self.store = store
        self.effects = Effects() if store is None else Effects.beside(store)
        self.agent = sayso.demo.agent(store, self.effects if store is None else None)
        self.agents = [self.agent]

    async def say(self, text: str) -> RunResult:
        return await self.agent.run(text, thread="t")

    async def decide(self, result: RunResult, *decisions: Any) -> RunResult:
        """Give these decisions to what waits, in order; on a file, to an agent made anew."""
        if self.store is not None:
            self.agent = sayso.demo.agent(self.store)
            self.agents.append(self.agent)
        made = [d(r) for d, r in zip(decisions, result.interruptions, strict=True)]
        return await self.agent.resume(result.run, decisions=made, by="ana")

    async def answer(self, result: RunResult, value: Any) -> RunResult:
        return await self.decide(result, lambda request: request.respond(value))

    @property
    def ran(self) -> list[tuple[str, dict[str, Any]]]:
        return [(row["tool"], row["args"]) for row in self.effects.all()]


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(None if request.param == "memory" else f"sqlite:///{tmp_path}/sayso.db")
    yield made
    for agent in made.agents:
        agent.gate.close()


def approve(request: sayso.Request) -> sayso.Decision:
    return request.approve()


def asked(result: RunResult) -> list[tuple[str | None, dict[str, Any]]]:
    return [(request.tool, dict(request.args)) for request in result.interruptions]


SQL = "DELETE FROM records WHERE created_at < NOW() - INTERVAL '30 days';"
NEEDS_A_YES = [
    ("What is the WEATHER in Oslo?", [("getWeatherInformation", {"city": "Oslo"})]),
    ("weather", [("getWeatherInformation", {"city": "New York"})]),
    (
        "Do two things",
        [
            ("getWeatherInformation", {"city": "New York"}),
            ("deleteFile", {"path": "reports/old.csv"}),
        ],
    ),
    ("Deploy version 2.5.1 to production", [("deploy_to_production", {"version": "2.5.1"})]),
    ("deploy to Production", [("deploy_to_production", {"version": "2.5.0"})]),
    (
        "Roll back production to 2.3.9",
        [("rollback", {"environment": "production", "version": "2.3.9"})],
    ),
    ("rollback", [("rollback", {"environment": "production", "version": "2.4.0"})]),
    ("Delete old records", [("execute_sql", {"query": SQL})]),
    (
        "Please book me a flight for Friday to Paris.",
        [("book_flight", {"destination": "Paris", "day": "Friday"})],
    ),
]
NEEDS_NOBODY = [
    ("What time is it in Tokyo?", ("getLocalTime", {"location": "Tokyo"})),
    ("time", ("getLocalTime", {"location": "New York"})),
    ("deploy v3.0.0 to staging", ("deploy_to_staging", {"version": "3.0.0"})),
    ("deploy version 3 to staging", ("deploy_to_staging", {"version": "3"})),
    ("Deploy v4 to staging.", ("deploy_to_staging", {"version": "4"})),
    ("deploy 2.6.0-rc.1 to staging", ("deploy_to_staging", {"version": "2.6.0-rc.1"})),
    ("Roll back staging", ("rollback", {"environment": "staging", "version": "2.4.0"})),
]


@pytest.mark.parametrize(("text", "calls"), NEEDS_A_YES)
async def test_gated_call_runs_once_after_approval(
    stage: Stage, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    result = await stage.say(text)
    assert (result.status, asked(result), stage.ran) == ("paused", calls, [])
    result = await stage.decide(result, *[approve] * len(calls))
    assert (result.status, sorted(stage.ran, key=str)) == ("done", sorted(calls, key=str))
    assert result.output.startswith("Final answer: ")
    assert (await stage.agent.resume(result.run)).output == result.output
    assert len(stage.ran) == len(calls)


@pytest.mark.parametrize(("text", "call"), NEEDS_NOBODY)
async def test_free_call_runs_at_once(
    stage: Stage, text: str, call: tuple[str, dict[str, Any]]
) -> None:
    result = await stage.say(text)
    assert (result.status, stage.ran) == ("done", [call])
    assert result.output.startswith("Final answer: ")


@pytest.mark.parametrize(
    ("text", "city"),
    [
        ("weather in San Francisco, please", "San Francisco"),
        ("weather in Rio de Janeiro today?", "Rio de Janeiro"),
        ("in paris: the weather slowly", "paris"),
        ("How is the weather in Oslo and what else?", "Oslo"),
        ("How is the weather in slow Oslo?", "Oslo"),
        ("raining? weather!", "New York"),
    ],
)
async def test_city_follows_the_word_in(stage: Stage, text: str, city: str) -> None:
    result = await stage.say(text)
    assert asked(result) == [("getWeatherInformation", {"city": city})]


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("two times the weather", "getWeatherInformation"),
        ("pizza, flight, records to delete, rollback, two", "getWeatherInformation"),
        ("deploy to staging and to production", "deploy_to_production"),
        ("rollback by email", "rollback"),
        ("delete the records of my flight", "execute_sql"),
        ("a flight and a pizza", "book_flight"),
        ("a question about pizza", "ask_user_question"),
    ],
)
async def test_first_matching_row_is_played(stage: Stage, text: str, tool: str) -> None:
    result = await stage.say(text)
    assert result.interruptions[0].tool == tool


@pytest.mark.parametrize(("count", "status"), [(1, "done"), (100, "done"), (101, "paused")])
async def test_email_needs_a_yes_above_a_hundred(stage: Stage, count: int, status: str) -> None:
    result = await stage.say(f"Send an email to {count} customers")
    assert result.status == status
    args = stage.ran[0][1] if status == "done" else result.interruptions[0].args
    assert sorted(args) == ["body", "recipients", "subject"]
    assert len(args["recipients"]) == count
    if status == "paused":
        result = await stage.decide(result, approve)
    assert f"was sent to {count} recipient" in result.output
    assert [tool for tool, _ in stage.ran] == ["send_email"]


async def test_email_goes_to_named_addresses(stage: Stage) -> None:
    await stage.say("email ana@example.com and ben@example.com")
    assert stage.ran[0][1]["recipients"] == ["ana@example.com", "ben@example.com"]


async def test_statement_is_approved_or_rejected_but_not_edited(stage: Stage) -> None:
    result = await stage.say("Delete old records")
    (request,) = result.interruptions
    assert request.allowed == ("approve", "reject")
    assert "1204 rows" in json.dumps(request.preview)
    for decision in (request.edit({"query": "SELECT 1"}), request.respond("done by hand")):
        with pytest.raises(sayso.SaysoError):
            await stage.agent.resume(result.run, decisions=[decision])
    result = await stage.decide(result, lambda r: r.reject("keep them"))
    assert stage.ran == []
    assert result.output.startswith("Final answer: ")
    assert "rejected" in result.output
    assert "keep them" in result.output


async def test_final_answer_mentions_the_edit(stage: Stage) -> None:
    result = await stage.say("Book a flight to Paris for Friday")
    result = await stage.decide(result, lambda r: r.edit({"day": "Sunday"}))
    assert stage.ran == [("book_flight", {"destination": "Paris", "day": "Sunday"})]
    assert result.output.startswith("Final answer: ")
    assert "changed the arguments" in result.output
    assert "Sunday was booked" in result.output


async def test_final_answer_mentions_given_result(stage: Stage) -> None:
    result = await stage.say("weather")
    result = await stage.answer(result, "I looked out of the window: hail")
    assert stage.ran == []
    said = "getWeatherInformation: a person gave this result instead: I looked"
    assert result.output.startswith(f"Final answer: {said}")


async def test_two_calls_are_decided_one_by_one(stage: Stage) -> None:
    result = await stage.say("two")
    weather, file = result.interruptions
    result = await stage.agent.resume(result.run, decisions=[file.reject("no")])
    assert (result.status, asked(result)) == ("paused", [(weather.tool, dict(weather.args))])
    assert stage.ran == []
    result = await stage.decide(result, approve)
    assert [tool for tool, _ in stage.ran] == ["getWeatherInformation"]
    assert "The weather in New York is" in result.output
    assert "deleteFile: A person rejected" in result.output


async def test_new_text_supersedes_open_call(stage: Stage) -> None:
    await stage.say("weather")
    result = await stage.say("what time is it?")
    assert result.output == "Final answer: It is 10am in New York."
    assert [tool for tool, _ in stage.ran] == ["getLocalTime"]


# -- questions


async def test_question_takes_option_or_free_text(stage: Stage) -> None:
    for value in ("oauth", "with a fax"):
        result = await stage.say("Ask me a question")
        question = result.interruptions[0].question
        assert question is not None
        assert [option.value for option in question.options] == ["password", "oauth", "magic_link"]
        assert (question.multiple, question.free_text) == (False, True)
        result = await stage.answer(result, value)
        assert result.output == f"Final answer: you chose {value!r}."
    result = await stage.decide(await stage.say("question"), lambda r: r.reject("none of it"))
    assert result.output.startswith("Final answer: nothing was chosen.")


async def test_pizza_asks_until_order_is_complete(stage: Stage) -> None:
    result = await stage.say("I want a pizza")
    size = result.interruptions[0].question
    assert size is not None
    assert ([o.answer for o in size.options], size.multiple, size.free_text) == (
        ["small", "medium", "large"],
        False,
        False,
    )
    result = await stage.answer(result, "large")
    toppings = result.interruptions[0].question
    assert toppings is not None
    assert (len(toppings.options), toppings.multiple, toppings.free_text) == (5, True, True)
    result = await stage.answer(result, ["cheese", "olives"])
    special = result.interruptions[0].question
    assert special is not None
    assert (special.options, special.free_text) == ((), True)
    result = await stage.answer(result, "well done")
    assert result.output.startswith("Final answer: ")
    assert order_in(result) == [
        {"size": "large", "toppings": ["cheese", "olives"], "special_instructions": "well done"}
    ]
    assert stage.ran == []


async def test_pizza_copes_with_rocks(stage: Stage) -> None:
    result = await stage.say("I need a small pizza with rocks on it")
    for stubborn in (["rocks like you'd find on a hill"], ["cheese", "more rocks"]):
        assert "We do not put" in question_of(result)
        assert "rocks" in question_of(result)
        result = await stage.answer(result, stubborn)
    assert "So far it has cheese" in question_of(result)
    result = await stage.answer(result, ["meatballs crumbled to look like stones"])
    assert order_in(result) == [
        {
            "size": "small",
            "toppings": ["cheese", "meatballs"],
            "special_instructions": "meatballs crumbled to look like stones",
        }
    ]


async def test_complete_order_needs_one_question(stage: Stage) -> None:
    result = await stage.say("A medium pizza with ham and mushrooms")
    result = await stage.answer(result, "No")
    assert order_in(result) == [
        {"size": "medium", "toppings": ["ham", "mushrooms"], "special_instructions": None}
    ]


async def test_nobody_has_to_order_a_pizza(stage: Stage) -> None:
    result = await stage.say("small pizza with gravel")
    for _ in range(5):
        assert result.status == "paused"
        result = await stage.answer(result, ["gravel"])
    assert result.output.startswith("Final answer: no pizza was ordered.")
    result = await stage.decide(await stage.say("pizza"), lambda r: r.reject("not hungry"))
    assert result.output.startswith("Final answer: no pizza was ordered.")
    assert "not hungry" in result.output


def question_of(result: RunResult) -> str:
    question = result.interruptions[0].question
    assert question is not None
    return question.text


def order_in(result: RunResult) -> Any:
    return json.loads(result.output[result.output.index("[") :])


# -- words


async def streamed(stage: Stage, text: str) -> tuple[list[str], RunResult, float]:
    began = time.monotonic()
    words, result = [], None
    async for event in stage.agent.stream(text, thread="t"):
        if isinstance(event, Text):
            words.append(event.text)
        elif isinstance(event, Ended):
            result = event.result
    assert result is not None
    return words, result, time.monotonic() - began


async def test_answer_streams_word_by_word(stage: Stage) -> None:
    words, result, _ = await streamed(stage, "time")
    assert words[:3] == ["Final", " answer:", " It"]
    assert "".join(words) == result.output == "Final answer: It is 10am in New York."


@pytest.mark.long
async def test_slow_combines_and_also_follows_an_approval(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script.SLOW_SECONDS == 5
    monkeypatch.setattr(script, "SLOW_SECONDS", 0.5)
    _, result, took = await streamed(stage, "Slowly: what time is it?")
    assert result.output == "Final answer: It is 10am in New York."
    assert 0.4 < took < 4
    _, result, took = await streamed(stage, "slow")
    assert result.output.startswith("Final answer: ")
    assert took > 0.4
    _, result, _ = await streamed(stage, "slow weather")
    await stage.decide(result, lambda r: r.reject())
    request = (await stage.say("the weather, SLOWLY")).interruptions[0]
    began = time.monotonic()
    async for _ in stage.agent.stream_resume(request.run, decisions=[request.approve()]):
        pass
    assert time.monotonic() - began > 0.4


async def test_unknown_text_lists_suggestions(stage: Stage) -> None:
    result = await stage.say("hello")
    assert all(words in result.output for words, _ in SUGGESTIONS)
    assert stage.ran == []


def test_every_suggestion_leads_somewhere() -> None:
    for words, _ in SUGGESTIONS:
        assert any(all(part in words.lower() for part in parts) for parts, _ in TABLE if parts)


async def test_coding_agent_needs_the_web_app(stage: Stage) -> None:
    result = await stage.say("Start a coding agent")
    assert "run `sayso demo`" in result.output
    assert stage.ran == []
