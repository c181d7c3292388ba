"""Earlier rejections on a request's page, *Reject and stop the run*, and refusals with grants."""

from __future__ import annotations

import re
from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import expect
from windows import Open

pytestmark = pytest.mark.long

REASON = "Eve may not delete them"


def ask(demo: Demo, words: str) -> dict[str, Any]:
    """Say the same in another chat, and return the request that follows."""
    (request,) = demo.open(demo.say(words))
    return request


def reject(demo: Demo, open_page: Open, words: str, button: str) -> dict[str, Any]:
    """Ask, reject it on its page, and return it as decided."""
    request = ask(demo, words)["id"]
    page = open_page(f"{demo.url}/inbox/{request}")
    page.get_by_role("button", name=re.compile("^Reject")).click()
    expect(page.get_by_test_id("earlier-rejections")).to_have_count(0)
    page.get_by_label("Reason").fill(REASON)
    page.get_by_role("button", name=button).click()
    return demo.until_decided(request)


def test_earlier_rejection_is_shown_first(demo: Demo, open_page: Open) -> None:
    words = "delete old records"
    reject(demo, open_page, words, "Reject request")
    page = open_page(f"{demo.url}/inbox/{ask(demo, words)['id']}")
    notice = page.get_by_test_id("earlier-rejections")
    expect(notice).to_contain_text("An equal call was rejected before")
    expect(notice).to_contain_text(re.compile(f"local rejected it.*{REASON}", re.DOTALL))
    first = page.locator(".request-scroll > *").first
    expect(first).to_have_attribute("data-testid", "earlier-rejections")


def test_refusal_is_lifted_on_grants_page(demo: Demo, open_page: Open) -> None:
    words = "book a flight to Rome"
    reject(demo, open_page, words, "Reject request")
    page = open_page(f"{demo.url}/grants")
    refusal = page.get_by_test_id("refusal").filter(has_text="book_flight")
    expect(refusal).to_contain_text(REASON)
    refusal.get_by_role("button", name="Lift").click()
    page.get_by_role("button", name="Lift refusal").click()
    expect(refusal).to_have_count(0)
    page = open_page(f"{demo.url}/inbox/{ask(demo, words)['id']}")
    expect(page.get_by_role("button", name=re.compile("^Reject"))).to_be_enabled()
    expect(page.get_by_test_id("earlier-rejections")).to_have_count(0)


def test_rejection_also_stops_the_run(demo: Demo, open_page: Open) -> None:
    decided = reject(demo, open_page, "weather in Oslo", "Reject and stop the run")
    assert decided["decision"]["stop"] is True
    assert demo.http.get(f"/api/runs/{decided['run']}").json()["status"] == "cancelled"
    page = open_page(f"{demo.url}/inbox/{decided['id']}")
    expect(page.get_by_test_id("outcome")).to_contain_text("rejected this and stopped the run")


def test_policy_is_tried_on_stored_calls(demo: Demo, open_page: Open) -> None:
    reject(demo, open_page, "weather in Rome", "Reject request")
    page = open_page(f"{demo.url}/grants", quiet=True)  # one file is refused
    card = page.get_by_role("region", name="Try a policy")
    try_it = card.get_by_role("button", name="Try on stored calls")
    expect(try_it).to_be_disabled()
    policy = card.get_by_role("textbox", name="Policy as TOML")
    policy.fill("[[rule]]\ntool = 5")
    try_it.click()
    expect(card.get_by_text("The policy was not tried")).to_be_visible()
    text = '[[rule]]\ntool = "getWeather*"\nverdict = "allow"\n'
    file = {"name": "policy.toml", "mimeType": "application/toml", "buffer": text.encode()}
    card.get_by_label("Policy file").set_input_files(file)  # type: ignore[arg-type]
    expect(policy).to_have_value(text)
    expect(card.get_by_text("The policy was not tried")).to_have_count(0)
    try_it.click()
    expect(card.get_by_test_id("replay")).to_contain_text("would have run without a person")
    expect(card.get_by_role("alert")).to_contain_text("People rejected")
    calls = card.get_by_role("list", name="Calls that would have been treated differently")
    row = calls.get_by_role("listitem").filter(has_text="rejected, would have been allowed")
    row.first.get_by_role("link", name="Get weather information").click()
    expect(page.get_by_test_id("outcome")).to_contain_text(REASON)
