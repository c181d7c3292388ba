"""The chat, on the real ``useChat``: decide in it, elsewhere, after a reload, or write instead."""

from __future__ import annotations

import re

import pytest
from demo_process import Demo
from playwright.sync_api import Locator, Page, expect
from windows import Open

pytestmark = pytest.mark.long


def write(page: Page, words: str) -> None:
    page.get_by_role("textbox", name="Message").fill(words)
    page.get_by_role("button", name="Send", exact=True).click()


def card(page: Page, tool: str) -> Locator:
    return page.get_by_role("article", name=re.compile(f"^{tool}: pending"))


def conversation(page: Page) -> Locator:
    return page.get_by_role("log", name="Conversation")


def approve(page: Page, tool: str) -> None:
    button = card(page, tool).get_by_role("button", name="Approve")
    expect(button).to_be_enabled()
    button.click()


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("Weather in Oslo", "getWeatherInformation"),
        ("Deploy version 2.1.0 to production", "deploy_to_production"),
        ("Book a flight to Rome", "book_flight"),
        ("Delete all old records", "execute_sql"),
    ],
)
def test_chat_approves_a_call(demo: Demo, open_page: Open, words: str, tool: str) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, words)
    expect(page.get_by_role("textbox", name="Message")).to_be_disabled()
    approve(page, tool)
    expect(conversation(page)).to_contain_text("Final answer:")
    assert [name for name, _ in demo.ran()] == [tool]
    ran = page.get_by_role("region", name="What really ran")
    expect(ran).to_contain_text(tool)
    expect(page.get_by_role("textbox", name="Message")).to_be_enabled()


def test_chat_rejects_a_call_by_keyboard(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.type("Weather in Oslo")
    page.keyboard.press("Enter")
    reject = card(page, "getWeatherInformation").get_by_role("button", name="Reject")
    reject.focus()
    page.keyboard.press("Enter")
    page.keyboard.type("I look out of the window.")
    page.get_by_role("button", name="Reject request").focus()
    page.keyboard.press("Enter")
    expect(conversation(page)).to_contain_text("Final answer:")
    assert demo.ran() == []


def test_unreadable_chat_shows_the_reason(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat/any?agent=nobody", quiet=True)
    expect(page.get_by_role("alert")).to_contain_text("No agent 'nobody' here")


def test_allowed_call_runs_at_once(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "What time is it in Oslo?")
    expect(conversation(page)).to_contain_text("Final answer:")
    assert [name for name, _ in demo.ran()] == ["getLocalTime"]


def test_two_calls_are_decided_in_turn(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "two")
    approve(page, "deleteFile")
    expect(card(page, "deleteFile")).to_have_count(0)
    expect(card(page, "getWeatherInformation")).to_be_visible()
    approve(page, "getWeatherInformation")
    expect(conversation(page)).to_contain_text("Final answer:")
    assert sorted(name for name, _ in demo.ran()) == ["deleteFile", "getWeatherInformation"]


def test_chat_edits_a_call(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Book a flight to Rome")
    asked = card(page, "book_flight")
    asked.get_by_role("button", name="Edit").click()
    asked.get_by_role("textbox", name="destination").fill("Porto")
    send = asked.get_by_role("button", name="Approve with edits")
    expect(send).to_be_enabled()
    send.click()
    expect(conversation(page)).to_contain_text("Final answer:")
    ((_, args),) = demo.ran()
    assert args["destination"] == "Porto"


def test_question_is_answered_in_the_chat(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Ask me a question")
    page.get_by_role("radio", name="A password").check()
    send = page.get_by_role("button", name="Send answer")
    expect(send).to_be_enabled()
    send.click()
    expect(conversation(page)).to_contain_text("Final answer:")


def test_reload_during_pause_keeps_the_call(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Weather in Oslo")
    expect(card(page, "getWeatherInformation")).to_be_visible()
    page.reload()
    approve(page, "getWeatherInformation")
    expect(conversation(page)).to_contain_text("Final answer:")
    page.reload()
    expect(conversation(page)).to_contain_text("Final answer:")
    assert len(demo.ran()) == 1


def test_reload_during_stream_keeps_the_answer(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Slow weather in Oslo")
    approve(page, "getWeatherInformation")
    expect(conversation(page)).to_contain_text("Final answer:")
    page.reload()
    expect(conversation(page)).to_contain_text("Final answer:")
    expect(page.get_by_role("textbox", name="Message")).to_be_enabled()
    assert len(demo.ran()) == 1
    expect(conversation(page).get_by_text("Final answer:")).to_have_count(1)


def test_chat_continues_after_decision_elsewhere(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Weather in Oslo")
    expect(card(page, "getWeatherInformation")).to_be_visible()
    (request,) = demo.http.get("/api/requests").json()["items"]
    demo.decide(request)
    expect(conversation(page)).to_contain_text("Final answer:")
    assert len(demo.ran()) == 1


def test_new_message_replaces_the_call(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/chat")
    write(page, "Deploy version 2.1.0 to production")
    expect(card(page, "deploy_to_production")).to_be_visible()
    page.get_by_role("button", name="Cancel and write instead").click()
    write(page, "What time is it in Oslo?")
    expect(conversation(page)).to_contain_text("Final answer:")
    assert [name for name, _ in demo.ran()] == ["getLocalTime"]
    (closed,) = demo.http.get(
        "/api/requests", params={"status": "superseded", "tool": "deploy_to_production"}
    ).json()["items"][:1]
    assert closed["status"] == "superseded"
