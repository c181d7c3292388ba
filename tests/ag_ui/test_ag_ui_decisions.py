"""Decisions by a resume over AG-UI, refused decisions, and outcomes of the run."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from ag_ui_screen import Screen, cancelled, entry
from chat_labs import quorum_agent, risky_agent
from jsonschema import Draft202012Validator

import sayso
import sayso.demo
from sayso import Inbox
from sayso.adapters.chat.live import listener_of
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, person, say
from sayso.types import Edit

OSLO = ("getWeatherInformation", {"city": "Oslo"})
EMAIL = {"recipients": ["bob"], "subject": "Hello", "body": "Hi"}


def ran(effects: sayso.demo.Effects) -> list[tuple[str, Any]]:
    return [(row["tool"], row["args"]) for row in effects.all()]


async def paused(screen: Screen, text: str = "weather in Oslo") -> dict[str, Any]:
    """Say something that needs one decision. Return the interrupt."""
    await screen.say(text)
    assert screen.outcome == "interrupt"
    (interrupt,) = screen.interrupts
    Draft202012Validator.check_schema(interrupt.get("responseSchema", {}))
    return interrupt


async def test_interrupt_describes_its_request(screen: Screen, store: Store) -> None:
    interrupt = await paused(screen)
    (request,) = await Inbox(store).pending()
    assert interrupt["id"] == interrupt["toolCallId"] == request.id
    assert interrupt["reason"] == "tool_call"
    assert interrupt["message"] == "Run getWeatherInformation?"
    assert interrupt["metadata"]["sayso"]["digest"] == request.digest
    form = interrupt["responseSchema"]
    assert set(form["properties"]) == {"approved", "reason", "stop", "editedArgs", "result"}
    assert form["properties"]["editedArgs"]["properties"].keys() == {"city"}
    assert screen.calls == [OSLO]


async def test_approval_runs_the_call(screen: Screen, effects: sayso.demo.Effects) -> None:
    await paused(screen)
    await screen.resolve({"approved": True})
    assert screen.outcome == "success"
    assert screen.results == ["The weather in Oslo is cloudy."]
    assert screen.text.startswith("Final answer:")
    assert ran(effects) == [OSLO]


async def test_answer_counts_before_its_task_ends(
    screen: Screen, effects: sayso.demo.Effects
) -> None:
    await paused(screen)
    listener = listener_of(screen.agent)
    (task,) = listener.posted.values()
    listener.opening[screen.thread] = task  # as long as the task that asked has not ended
    await screen.resolve({"approved": True})
    assert ran(effects) == [OSLO]


async def test_edit_replaces_all_arguments(screen: Screen, effects: sayso.demo.Effects) -> None:
    await paused(screen)
    await screen.resolve({"approved": True, "editedArgs": {"city": "Rome"}})
    rome = ("getWeatherInformation", {"city": "Rome"})
    assert ran(effects) == screen.calls == [rome]
    result = next(m for m in screen.messages if m["role"] == "tool")
    assert result["metadata"]["sayso"]["original"] == {"city": "Oslo"}


async def test_edit_removes_absent_arguments(store: Store) -> None:
    seen: list[Any] = []

    @sayso.tool(needs_approval=True)
    def book(city: str, nights: int = 1) -> str:
        """Book a room."""
        seen.append((city, nights))
        return "booked"

    model = ScriptedModel([call("book", {"city": "Oslo", "nights": 5}), say("Done.")])
    screen = Screen(sayso.Agent("clerk", model=model, tools=[book], store=store))
    await paused(screen, "go")
    await screen.resolve({"approved": True, "editedArgs": {"city": "Oslo"}})
    assert seen == [("Oslo", 1)]


async def test_equal_arguments_are_an_approval(screen: Screen, store: Store) -> None:
    interrupt = await paused(screen)
    await screen.resolve({"approved": True, "editedArgs": {"city": "Oslo"}})
    assert (await Inbox(store).get(interrupt["id"])).status == "approved"


async def test_rejection_reaches_model_with_reason(
    screen: Screen, effects: sayso.demo.Effects
) -> None:
    await paused(screen)
    await screen.resolve({"approved": False, "reason": "not today"})
    assert screen.outcome == "success"
    assert screen.results == ["A person rejected this call, so it was not run. not today"]
    assert "not today" in screen.text
    assert ran(effects) == []


async def test_rejection_can_stop_the_run(screen: Screen, effects: sayso.demo.Effects) -> None:
    await paused(screen)
    await screen.resolve({"approved": False, "stop": True})
    assert screen.outcome == "cancelled"
    assert ran(effects) == []


async def test_result_replaces_the_run(screen: Screen, effects: sayso.demo.Effects) -> None:
    await paused(screen)
    await screen.resolve({"approved": True, "result": "It rains."})
    assert screen.results == ["It rains."]
    assert ran(effects) == []


async def test_question_is_answered_by_payload(screen: Screen) -> None:
    interrupt = await paused(screen, "ask me a question")
    assert interrupt["reason"] == "input_required"
    answers = Draft202012Validator(interrupt["responseSchema"])
    assert answers.is_valid("oauth")
    assert answers.is_valid("my own words")
    assert not answers.is_valid(7)
    await screen.resolve("oauth")
    assert "you chose 'oauth'" in screen.text


async def test_several_choices_are_a_list(screen: Screen) -> None:
    await paused(screen, "a pizza, please")
    await screen.resolve("large")
    (interrupt,) = screen.interrupts
    answers = Draft202012Validator(interrupt["responseSchema"])
    assert answers.is_valid(["cheese", "olives"])
    assert not answers.is_valid("cheese")
    await screen.resolve(["cheese", "olives"])
    await screen.resolve("well done")
    assert '"toppings": ["cheese", "olives"]' in screen.text


async def test_dismissed_question_is_declined(screen: Screen, store: Store) -> None:
    interrupt = await paused(screen, "ask me a question")
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "success"
    assert (await Inbox(store).get(interrupt["id"])).status == "rejected"


async def test_partial_resume_leaves_the_others(
    screen: Screen, effects: sayso.demo.Effects
) -> None:
    await screen.say("do two things in Oslo")
    first, second = screen.interrupts
    await screen.run(resume=[entry(first, {"approved": True})])
    assert screen.outcome == "interrupt"
    assert [i["id"] for i in screen.interrupts] == [second["id"]]
    assert ran(effects) == [OSLO]
    assert screen.results == ["The weather in Oslo is cloudy."]
    await screen.run(resume=[entry(second, {"approved": False, "reason": "keep it"})])
    assert screen.outcome == "success"
    assert ran(effects) == [OSLO]


async def test_quorum_keeps_the_interrupt(store: Store, effects: sayso.demo.Effects) -> None:
    agent = quorum_agent(store, effects)  # type: ignore[arg-type]
    screen = Screen(agent, by=person(store, "ana", role="chat"))
    before = await paused(screen, "go")
    await screen.resolve({"approved": True})
    (after,) = screen.interrupts
    assert after["id"] == before["id"]
    assert after["metadata"]["sayso"]["votes"] == ["ana"]
    assert ran(effects) == []
    await Inbox(store).approve(await Inbox(store).get(after["id"]), by=person(store, "ben"))
    await screen.run(resume=[entry(after, {"approved": True})])
    assert screen.outcome == "success"
    assert ran(effects) == [("fire", {"target": "this one"})]


async def test_requester_may_not_decide_high_risk(
    store: Store, effects: sayso.demo.Effects
) -> None:
    screen = Screen(risky_agent(store, effects))  # type: ignore[arg-type]
    interrupt = await paused(screen, "go")
    assert "responseSchema" not in interrupt
    assert interrupt["message"].startswith("Wire 900 euros\n")
    assert "waits for other people" in interrupt["message"]
    await screen.resolve({"approved": True})
    assert screen.outcome == "NotAllowed"
    await screen.resolve({"approved": False})
    assert screen.outcome == "NotAllowed"
    # A client has to cover every interrupt: a dismissal by someone who may not decide is none.
    await screen.run(resume=[cancelled(interrupt)])
    assert [i["id"] for i in screen.interrupts] == [interrupt["id"]]
    assert ran(effects) == []
    request = await Inbox(store).get(interrupt["id"])
    await Inbox(store).approve(request, by="ben")
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "success"
    assert ran(effects) == [("wire", {"euros": 900})]


async def test_stale_interrupt_is_a_conflict(store: Store, effects: sayso.demo.Effects) -> None:
    agent = quorum_agent(store, effects)  # type: ignore[arg-type]
    screen = Screen(agent, by=person(store, "ana", role="chat"))
    old = await paused(screen, "go")
    request = await Inbox(store).get(old["id"])
    edit = Edit({"target": "another"}, seen_digest=request.digest)
    await Inbox(store).decide(request.id, edit, by=person(store, "ben"))
    await screen.resolve({"approved": True})
    assert screen.outcome == "Conflict"
    assert screen.interrupts == [old]
    (current,) = screen.end["metadata"]["sayso"]["interrupts"]
    assert current["id"] == f"{old['id']}.r2"
    assert screen.calls == [("fire", {"target": "another"})]
    await screen.run(resume=[cancelled(old)])  # says nothing about what is there now
    assert screen.interrupts == [current]
    await screen.resolve({"approved": True})
    assert ran(effects) == [("fire", {"target": "another"})]


async def test_other_digest_is_a_conflict(screen: Screen, effects: sayso.demo.Effects) -> None:
    interrupt = await paused(screen)
    await screen.resolve({"approved": True}, metadata={"sayso": {"digest": "0" * 64}})
    assert screen.outcome == "Conflict"
    digest = interrupt["metadata"]["sayso"]["digest"]
    await screen.resolve({"approved": True}, metadata={"sayso": {"digest": digest}})
    assert ran(effects) == [OSLO]


async def test_second_decision_names_the_first(
    screen: Screen, store: Store, effects: sayso.demo.Effects
) -> None:
    interrupt = await paused(screen)
    request = await Inbox(store).get(interrupt["id"])
    await Inbox(store).reject(request, "ben says no", by="ben")
    await screen.resolve({"approved": True})
    assert screen.outcome == "AlreadyDecided"
    assert "ben" in screen.end["message"]
    assert "ben says no" in screen.text  # the run went on, and the page shows it
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "success"
    assert ran(effects) == []


@pytest.mark.parametrize(
    "payload",
    [
        {"approved": True},
        {"approved": False, "reason": "no"},
        {"approved": True, "editedArgs": {"city": "Rome"}},
        {"approved": True, "result": "It rains."},
    ],
)
async def test_repeated_resume_changes_nothing(
    screen: Screen, effects: sayso.demo.Effects, payload: dict[str, Any]
) -> None:
    interrupt = await paused(screen)
    await screen.run(resume=[entry(interrupt, payload)])
    before = (screen.messages, ran(effects))
    for _ in range(2):
        await screen.run(resume=[entry(interrupt, payload)])
        assert screen.outcome == "success"
        assert (screen.messages, ran(effects)) == before


async def test_ten_resumes_at_once_run_once(screen: Screen, effects: sayso.demo.Effects) -> None:
    interrupt = await paused(screen)
    tabs = [Screen(screen.agent) for _ in range(10)]
    resume = [entry(interrupt, {"approved": True})]
    await asyncio.gather(*(tab.run(resume=resume) for tab in tabs))
    assert {tab.outcome for tab in tabs} == {"success"}
    assert ran(effects) == [OSLO]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "approved"),
        ("yes", "approved"),
        ({}, "approved"),
        ({"approved": "true"}, "approved"),
        ({"approved": 1}, "approved"),
        ({"approved": True, "edited_args": {"city": "Rome"}}, "edited_args"),
        ({"approved": True, "editedArgs": "Rome"}, "editedArgs"),
        ({"approved": True, "editedArgs": {"city": 7}}, "city"),
        ({"approved": True, "editedArgs": {"town": "Rome"}}, "town"),
        ({"approved": True, "editedArgs": {}}, "city"),
        ({"approved": True, "editedArgs": {"city": "Rome"}, "result": "x"}, "result"),
        ({"approved": True, "stop": True}, "stop"),
        ({"approved": False, "editedArgs": {"city": "Rome"}}, "editedArgs"),
        ({"approved": False, "reason": 7}, "reason"),
    ],
)
async def test_wrong_payload_decides_nothing(
    screen: Screen, effects: sayso.demo.Effects, payload: Any, field: str
) -> None:
    await paused(screen)
    await screen.resolve(payload)
    assert screen.outcome == "InvalidDecision"
    assert field in screen.end["message"]
    assert ran(effects) == []
    await screen.resolve({"approved": True})
    assert ran(effects) == [OSLO]


async def test_disallowed_decision_is_refused(screen: Screen, effects: sayso.demo.Effects) -> None:
    interrupt = await paused(screen, "delete the old records")
    assert set(interrupt["responseSchema"]["properties"]) == {"approved", "reason", "stop"}
    query = {"query": "DROP TABLE users"}
    await screen.resolve({"approved": True, "editedArgs": query})
    assert screen.outcome == "InvalidDecision"
    await screen.resolve({"approved": True, "result": "done"})
    assert screen.outcome == "InvalidDecision"
    assert ran(effects) == []


async def test_expired_request_cannot_be_answered(store: Store) -> None:
    effects: list[str] = []

    @sayso.tool(needs_approval=True, expires_in="1s")
    def fire() -> str:
        """Fire."""
        effects.append("fire")
        return "fired"

    model = ScriptedModel([call("fire", {}), say("It was too late.")])
    screen = Screen(sayso.Agent("late", model=model, tools=[fire], store=store))
    interrupt = await paused(screen, "go")
    assert datetime.fromisoformat(interrupt["expiresAt"]).tzinfo is not None
    await asyncio.sleep(1.05)
    await screen.resolve({"approved": True})
    assert screen.outcome == "Expired"
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "success"
    assert screen.results == ["Nobody decided in time, so it was not run."]
    assert effects == []


async def test_expiry_can_cancel_the_run(store: Store) -> None:
    rules = sayso.Policy([sayso.Rule("fire", expires_in="1s", on_expiry="cancel")])

    @sayso.tool
    def fire() -> str:
        """Fire."""
        return "fired"

    model = ScriptedModel([call("fire", {}), say("never")])
    agent = sayso.Agent("late", model=model, tools=[fire], store=store, policy=rules)
    screen = Screen(agent)
    interrupt = await paused(screen, "go")
    await asyncio.sleep(1.05)
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "cancelled"
    assert screen.interrupts == []


async def test_called_off_run_ends_cancelled(screen: Screen, store: Store) -> None:
    interrupt = await paused(screen)
    request = await Inbox(store).get(interrupt["id"])
    await Inbox(store).cancel(request.run, by="ben")
    await screen.resolve({"approved": True})
    assert screen.outcome == "AlreadyDecided"
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "cancelled"


async def test_called_off_request_is_not_run(
    screen: Screen, store: Store, effects: sayso.demo.Effects
) -> None:
    interrupt = await paused(screen)
    await Inbox(store).cancel(interrupt["id"], by="ben")
    await screen.run(resume=[cancelled(interrupt)])
    assert screen.outcome == "success"
    assert ran(effects) == []


async def test_confirmation_has_its_own_reason(store: Store) -> None:
    @sayso.tool
    async def publish(ctx: sayso.Context, notes: str) -> str:
        """Publish notes."""
        return "published" if await ctx.confirm("Publish the notes?") else "kept"

    model = ScriptedModel([call("publish", {"notes": "x"}), say("Done.")])
    screen = Screen(sayso.Agent("editor", model=model, tools=[publish], store=store))
    interrupt = await paused(screen, "go")
    assert interrupt["reason"] == "confirmation"
    assert interrupt["message"] == "Publish the notes?"
    await screen.resolve({"approved": True})
    assert "published" in screen.results


async def test_hidden_characters_are_made_visible(store: Store) -> None:
    @sayso.tool(needs_approval=True, title="Pay {who}")
    def pay(who: str) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay", {"who": "bob\u202eeve"}), say("Done.")])
    screen = Screen(sayso.Agent("payer", model=model, tools=[pay], store=store))
    interrupt = await paused(screen, "go")
    assert "\u202e" not in interrupt["message"]
    assert interrupt["metadata"]["sayso"]["warnings"]


async def test_interrupt_names_earlier_rejection(screen: Screen) -> None:
    await paused(screen)
    await screen.resolve({"approved": False, "reason": "not today"})
    interrupt = await paused(screen)
    assert "ana rejected an equal call. not today" in interrupt["message"]
