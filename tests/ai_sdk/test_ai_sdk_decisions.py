"""Decisions in a chat: approve, reject, edit, answer; and how the page shows them."""

from __future__ import annotations

import pytest
from ai_sdk_browser import Browser

import sayso
import sayso.demo
from sayso.adapters import ai_sdk
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, calls, person, say

Effects = sayso.demo.Effects


def ran(effects: Effects) -> list[tuple[str, object]]:
    return [(row["tool"], row["args"]) for row in effects.all()]


WEATHER = [("getWeatherInformation", {"city": "Oslo"})]


async def test_free_call_needs_no_decision(browser: Browser, effects: Effects) -> None:
    await browser.say("What is the time in Oslo?")
    (part,) = browser.tools
    assert (part["state"], part["output"]) == ("output-available", "It is 10am in Oslo.")
    assert browser.text == "Final answer: It is 10am in Oslo."
    assert browser.finish == "stop"
    assert ran(effects) == [("getLocalTime", {"location": "Oslo"})]


async def test_gated_call_pauses_with_a_card(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    (part,) = browser.open_cards
    assert part["type"] == "tool-getWeatherInformation"
    assert part["approval"]["id"] == f"{part['toolCallId']}.r1"
    assert [c["type"] for c in browser.chunks[:2]] == ["start", "start-step"]
    assert [c["type"] for c in browser.chunks[-5:]] == [
        "tool-input-available",
        "tool-approval-request",
        "data-request",
        "finish-step",
        "finish",
    ]
    assert browser.finish == "tool-calls"
    assert browser.card(part)["allowed"] == ["approve", "edit", "reject", "respond"]
    assert ran(effects) == []


async def test_approved_call_runs(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    asked = browser.last["id"]
    await browser.decide()
    kinds = [c["type"] for c in browser.chunks]
    assert kinds.index("tool-output-available") < kinds.index("start-step")
    assert len(browser.messages) == 2
    assert browser.last["id"] == asked
    assert browser.tools[0]["state"] == "output-available"
    assert "Final answer: The weather in Oslo is cloudy." in browser.text
    assert browser.card(browser.tools[0])["decision"]["by"] == "ana"
    assert ran(effects) == WEATHER


async def test_reject_with_a_reason(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    await browser.decide(False, "not today")
    assert browser.tools[0]["state"] == "output-denied"
    assert "not today" in browser.text
    assert browser.card(browser.tools[0])["decision"]["message"] == "not today"
    assert ran(effects) == []


async def test_rejection_stops_the_run(browser: Browser, effects: Effects, store: Store) -> None:
    await browser.say("do two things in Oslo")
    first, second = browser.open_cards
    browser.respond(first, False, "not today")
    await browser.post(stop=[first["approval"]["id"]])
    assert [part["state"] for part in browser.tools] == ["output-denied"] * 2
    assert browser.card(first)["decision"]["message"] == "not today"
    assert browser.card(second)["status"] == "cancelled"
    run = store.last_run("c1")
    assert run is not None
    assert (run.status, ran(effects)) == ("cancelled", [])


async def test_rejected_question_stops_the_run(browser: Browser, store: Store) -> None:
    await browser.say("ask me a question")
    (part,) = browser.tools
    part.update(state="output-error", errorText="no")
    await browser.post(stop=[part["toolCallId"]])
    run = store.last_run("c1")
    assert run is not None
    assert run.status == "cancelled"


async def test_approval_cannot_stop_the_run(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(stop=[card])
    assert "only a rejection" in browser.card(browser.open_cards[0])["problem"]
    assert ran(effects) == []


@pytest.mark.parametrize("stop", [True, "x", {"a": True}, [1]])
async def test_malformed_stop_is_refused(browser: Browser, effects: Effects, stop: object) -> None:
    await browser.say("weather in Oslo")
    with pytest.raises(sayso.InvalidCall, match="stop: pass a list"):
        await browser.decide(False, stop=stop)
    assert ran(effects) == []


async def test_edit_with_the_stock_client(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(edits={card: {"city": "Rome"}})
    assert browser.tools[0]["input"] == {"city": "Rome"}
    assert browser.tools[0]["output"].startswith("The weather in Rome")
    assert browser.card(browser.tools[0])["original"] == {"city": "Oslo"}
    assert ran(effects) == [("getWeatherInformation", {"city": "Rome"})]


async def test_edit_keeps_unnamed_arguments(browser: Browser, effects: Effects) -> None:
    await browser.say("book a flight to Paris")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(edits={card: {"destination": "Rome"}})
    ((tool, args),) = ran(effects)
    assert tool == "book_flight"
    assert args["destination"] == "Rome"  # type: ignore[index]
    assert set(args) == {"destination", "day"}  # type: ignore[call-overload]


async def test_unset_of_required_argument_reopens_card(browser: Browser, effects: Effects) -> None:
    await browser.say("book a flight to Paris")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(unset={card: ["day"]})
    assert "day" in browser.card(browser.open_cards[0])["problem"]
    assert ran(effects) == []


@pytest.mark.parametrize("edits", [{"city": 7}, {"town": "Rome"}, "Rome", ["Rome"], None])
async def test_invalid_edit_reopens_the_card(
    browser: Browser, effects: Effects, edits: object
) -> None:
    await browser.say("weather in Oslo")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(edits={card: edits})
    (part,) = browser.open_cards
    assert part["input"] == {"city": "Oslo"}
    assert browser.card(part)["problem"]
    assert not browser.posts_again
    assert ran(effects) == []
    await browser.decide()
    assert ran(effects) == WEATHER


async def test_disallowed_edit_is_refused(browser: Browser, effects: Effects) -> None:
    await browser.say("delete old records")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(edits={card: {"query": "DROP TABLE records"}})
    assert "'edit' is not allowed" in browser.card(browser.open_cards[0])["problem"]
    assert ran(effects) == []


async def test_edit_against_policy_is_refused(store: Store, effects: Effects) -> None:
    @sayso.tool(needs_approval=True)
    def pay(euros: int) -> str:
        effects.record("pay", {"euros": euros})
        return "paid"

    policy = sayso.Policy([sayso.Rule("pay", where="euros > 100", verdict="deny")])
    model = ScriptedModel([call("pay", {"euros": 7}), say("Done.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[pay], store=store, policy=policy))
    await browser.say("go")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(edits={card: {"euros": 700}})
    assert "denies these arguments" in browser.card(browser.open_cards[0])["problem"]
    await browser.decide(edits={card: {"euros": 70}})
    assert ran(effects) == [("pay", {"euros": 70})]


async def test_result_replaces_the_run(browser: Browser, effects: Effects) -> None:
    await browser.say("weather in Oslo")
    card = browser.open_cards[0]["approval"]["id"]
    await browser.decide(answers={card: "It hails."})
    assert browser.tools[0]["output"] == "It hails."
    assert ran(effects) == []


async def test_two_calls_are_decided_in_turn(browser: Browser, effects: Effects) -> None:
    await browser.say("do two things in Oslo")
    first, second = browser.open_cards
    browser.respond(first, True)
    await browser.post()
    assert first["state"] == "output-available"
    assert second["state"] == "approval-requested"
    assert browser.finish == "tool-calls"
    assert "start-step" not in [c["type"] for c in browser.chunks]
    assert not browser.posts_again
    assert ran(effects) == WEATHER
    browser.respond(second, False, "keep it")
    await browser.post()
    assert [part["state"] for part in browser.tools] == ["output-available", "output-denied"]
    assert browser.finish == "stop"
    assert ran(effects) == WEATHER


async def test_two_calls_are_decided_together(browser: Browser, effects: Effects) -> None:
    await browser.say("do two things in Oslo")
    for part in browser.open_cards:
        browser.respond(part, True)
    await browser.post()
    assert [part["state"] for part in browser.tools] == ["output-available"] * 2
    assert sorted(name for name, _ in ran(effects)) == ["deleteFile", "getWeatherInformation"]


@pytest.mark.parametrize("answer", ["oauth", {"answer": "oauth"}])
async def test_question_is_answered_by_the_page(browser: Browser, answer: object) -> None:
    await browser.say("ask me a question")
    (part,) = browser.tools
    assert part["type"] == "tool-ask_user_question"
    assert part["state"] == "input-available"
    assert [option["value"] for option in part["input"]["options"]][:2] == ["password", "oauth"]
    await browser.answer(answer)
    assert browser.tools[0]["output"] == {"answer": "oauth"}
    assert browser.text == "Final answer: you chose 'oauth'."


async def test_question_takes_free_text(browser: Browser) -> None:
    await browser.say("ask me a question")
    await browser.answer("with a key")
    assert browser.text == "Final answer: you chose 'with a key'."


async def test_invalid_answer_keeps_the_question(browser: Browser) -> None:
    await browser.say("ask me a question")
    await browser.answer(7)
    (part,) = browser.tools
    assert part["state"] == "input-available"
    assert "output" not in part
    assert "answer with" in browser.card(part)["problem"]
    await browser.answer("oauth")
    assert browser.text == "Final answer: you chose 'oauth'."


async def test_question_may_be_declined(browser: Browser) -> None:
    await browser.say("ask me a question")
    browser.tools[0].update(state="output-error", errorText="none of your business")
    await browser.post()
    assert browser.tools[0]["state"] == "output-error"
    assert "none of your business" in browser.text


async def test_several_options_may_be_chosen(store: Store) -> None:
    options = [{"label": name, "value": name, "description": None} for name in ("a", "b", "c")]
    asked = {"question": "Which?", "options": options, "allow_multiple": True}
    model = ScriptedModel([call("ask_user_question", asked), say("Good.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[sayso.ask_user], store=store))
    await browser.say("go")
    assert browser.tools[0]["input"]["allow_multiple"] is True
    await browser.answer(["a", "c"])
    assert browser.tools[0]["output"] == {"answer": ["a", "c"]}
    assert browser.text == "Good."


async def test_tool_without_body_is_answered_by_page(store: Store) -> None:
    @sayso.tool
    def read_meter(room: str) -> int:
        """Read the meter on the wall."""
        ...

    model = ScriptedModel([call("read_meter", {"room": "hall"}), say("Good.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[read_meter], store=store))
    await browser.say("go")
    await browser.answer("much")
    assert browser.tools[0]["state"] == "input-available"
    assert browser.card(browser.tools[0])["problem"]
    await browser.answer(42)
    assert browser.tools[0]["output"] == 42
    assert browser.text == "Good."


async def test_failed_call_shows_its_error(store: Store) -> None:
    @sayso.tool(needs_approval=True)
    def explode() -> None:
        raise RuntimeError("boom")

    model = ScriptedModel([call("explode", {}), say("Sorry.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[explode], store=store))
    await browser.say("go")
    await browser.decide()
    assert browser.tools[0]["state"] == "output-error"
    assert browser.tools[0]["errorText"] == "RuntimeError: boom"
    assert browser.text == "Sorry."


async def test_unreadable_calls_are_shown_as_errors(store: Store) -> None:
    turn = calls(call("nobody_knows", {"a": 1}), call("tell", {"wrong": 1}))

    @sayso.tool
    def tell(text: str) -> str:
        return text

    model = ScriptedModel([turn, say("Well.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[tell], store=store))
    await browser.say("go")
    assert [part["state"] for part in browser.tools] == ["output-error"] * 2
    assert "there is no tool 'nobody_knows'" in browser.tools[0]["errorText"]
    assert browser.text == "Well."


async def test_quorum_counts_and_reopens_the_card(store: Store, effects: Effects) -> None:
    @sayso.tool(needs_approval=True, quorum=2)
    def fire(target: str) -> str:
        effects.record("fire", {"target": target})
        return "fired"

    model = ScriptedModel([call("fire", {"target": "x"}), say("Done.")])
    agent = sayso.Agent("a", model=model, tools=[fire], store=store)
    browser = Browser(agent, by=person(store, "ana", role="chat"))
    await browser.say("go")
    await browser.decide()
    (part,) = browser.open_cards
    assert browser.card(part)["votes"] == ["ana"]
    assert not browser.posts_again
    assert ran(effects) == []
    request = (await sayso.Inbox(store).pending()).items[0]
    ben = person(store, "ben")
    await sayso.Inbox(store).decide(request.id, request.approve(), by=ben)
    assert await browser.resume()
    assert browser.tools[0]["output"] == "fired"
    assert len(ran(effects)) == 1


async def test_non_reviewer_gets_the_reason(store: Store, effects: Effects) -> None:
    @sayso.tool(needs_approval=True, reviewers=["ben"])
    def fire(target: str) -> str:
        effects.record("fire", {"target": target})
        return "fired"

    model = ScriptedModel([call("fire", {"target": "x"}), say("Done.")])
    agent = sayso.Agent("a", model=model, tools=[fire], store=store)
    browser = Browser(agent)
    await browser.say("go")
    await browser.decide()
    assert "it is for ben" in browser.card(browser.open_cards[0])["problem"]
    assert not browser.posts_again
    assert ran(effects) == []


async def test_requester_cannot_decide_risky_call(store: Store, effects: Effects) -> None:
    @sayso.tool(needs_approval=True, requester_decides=False)
    def fire(target: str) -> str:
        effects.record("fire", {"target": target})
        return "fired"

    model = ScriptedModel([call("fire", {"target": "x"}), say("Done.")])
    browser = Browser(sayso.Agent("a", model=model, tools=[fire], store=store))
    await browser.say("go")
    await browser.decide()
    assert "another person has to decide" in browser.card(browser.open_cards[0])["problem"]
    assert ran(effects) == []


def test_recipe_helpers_list_confirmed_tools(agent: sayso.Agent) -> None:
    assert (ai_sdk.APPROVAL.YES, ai_sdk.APPROVAL.NO) == ("Yes, confirmed.", "No, denied.")
    needs = ai_sdk.tools_requiring_confirmation(agent)
    assert "getWeatherInformation" in needs
    assert "getLocalTime" not in needs
    assert "ask_user_question" not in needs


def test_policy_can_make_a_tool_ask(store: Store) -> None:
    @sayso.tool
    def quiet() -> str:
        return "so"

    @sayso.tool(needs_approval=True)
    def loud() -> str:
        return "so"

    policy = sayso.Policy(
        [sayso.Rule("quiet"), sayso.Rule("loud", verdict="allow"), sayso.Rule("other")]
    )
    agent = sayso.Agent(
        "a", model=ScriptedModel([]), tools=[quiet, loud], store=store, policy=policy
    )
    assert ai_sdk.tools_requiring_confirmation(agent) == ["quiet"]
