"""Undo on the page: offered for five seconds after a decision, by button, u and Ctrl+Z."""

from __future__ import annotations

import time
from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from windows import Open, turn_pages

pytestmark = pytest.mark.long  # a browser


def decisions_of(page: Page) -> list[dict[str, Any]]:
    """Return the list that the bodies of this page's decisions are added to."""
    bodies: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda sent: bodies.append(sent.post_data_json) if sent.url.endswith("/decision") else None,
    )
    return bodies


def opened(demo: Demo, open_page: Open, words: str, **options: Any) -> tuple[str, str, Page]:
    """Ask for something, and open the only request. Return the chat, the request and the page."""
    chat = demo.say(words)
    (item,) = demo.http.get("/api/requests").json()["items"]
    page = open_page(f"{demo.url}/inbox/{item['id']}", undo=True, **options)
    turn_pages(page)
    expect(page.get_by_role("button", name="Approve", exact=False).first).to_be_enabled()
    return chat, item["id"], page


@pytest.mark.parametrize("way", ["u", "Control+z", "button"])
def test_approval_is_undone(demo: Demo, open_page: Open, way: str) -> None:
    chat, request, page = opened(demo, open_page, "Weather in Oslo")
    page.keyboard.press("a")
    toast = page.locator(".toast", has_text="Approved")
    expect(toast.get_by_role("button", name="Undo")).to_be_visible()
    assert demo.http.get(f"/api/requests/{request}").json()["status"] == "approved"
    if way == "button":
        toast.get_by_role("button", name="Undo").click()
    else:
        page.keyboard.press(way)
    expect(page.locator(".toast", has_text="Undone")).to_be_visible()
    expect(page).to_have_url(f"{demo.url}/inbox/{request}")
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(1)
    time.sleep(6.5)
    assert demo.ran() == []
    assert len(demo.open(chat)) == 1
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_closed_tab_loses_no_decision(demo: Demo, open_page: Open) -> None:
    chat, request, page = opened(demo, open_page, "Weather in Oslo")
    bodies = decisions_of(page)
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.close()
    assert demo.ran() == []
    demo.final(chat)
    assert [name for name, _ in demo.ran()] == ["getWeatherInformation"]
    assert bodies[0]["undo_seconds"] == 6
    events = demo.http.get(f"/api/requests/{request}").json()["events"]
    assert [event["type"] for event in events][:3] == ["asked", "held", "decided"]


def test_rejection_is_undone_by_key(demo: Demo, open_page: Open) -> None:
    _, request, page = opened(demo, open_page, "Weather in Oslo")
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Reason").fill("wrong city")
    page.get_by_role("button", name="Reject request").click()
    expect(page.locator(".toast", has_text="Rejected")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator(".toast", has_text="Undone")).to_be_visible()
    assert demo.http.get(f"/api/requests/{request}").json()["status"] == "pending"
    assert demo.http.get("/api/refusals").json()["items"] == []


def test_confirmed_or_unwanted_undo_is_not_offered(demo: Demo, open_page: Open) -> None:
    body = {"tool": "refund", "args": {"euros": 5}, "risk": {"level": "high"}}
    demo.http.post("/api/requests", json=body, headers={"Idempotency-Key": "risky"})
    (risky,) = demo.http.get("/api/requests").json()["items"]
    page = open_page(f"{demo.url}/inbox/{risky['id']}", undo=True)
    bodies = decisions_of(page)
    expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.locator(".toast", has_text="Approved")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert "undo_seconds" not in bodies[0]
    page.goto(f"{demo.url}/settings")
    page.get_by_role("checkbox", name="Offer to undo").uncheck()
    demo.say("Weather in Oslo")
    (item,) = demo.http.get("/api/requests").json()["items"]
    page.goto(f"{demo.url}/inbox/{item['id']}")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    page.keyboard.press("a")
    expect(page.locator(".toast", has_text="Approved")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert "undo_seconds" not in bodies[1]
