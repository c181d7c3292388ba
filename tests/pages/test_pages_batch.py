"""Deciding many similar requests in one table: all pages, what they share, sums, one reason."""

from __future__ import annotations

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from windows import Open

pytestmark = pytest.mark.long  # a browser

MANY = 230


def opened(demo: Demo, tool: str, number: int, **more: object) -> str:
    body = {"tool": tool, "args": {"to": f"customer {number}", "euros": number}, **more}
    key = {"Idempotency-Key": f"{tool}-{number}"}
    made = demo.http.post("/api/requests", json=body, headers=key)
    assert made.status_code == 201, made.text
    request: str = made.json()["id"]
    return request


def status(demo: Demo, tool: str, wanted: str) -> int:
    """Count the requests of a tool with this status."""
    count = 0
    after = None
    while True:
        query = {"tool": tool, "status": wanted, "limit": 200, "after": after}
        page = demo.http.get(
            "/api/requests", params={name: value for name, value in query.items() if value}
        ).json()
        count += len(page["items"])
        after = page["next"]
        if after is None:
            return count


def decide_together(page: Page) -> None:
    page.get_by_role("button", name="Decide together").first.click()


def test_all_pages_are_decided_together(demo: Demo, open_page: Open) -> None:
    for number in range(MANY):
        opened(demo, "pay_all", number)
    page = open_page(f"{demo.url}/inbox?tool=pay_all")
    content = page.get_by_test_id("group-content")
    expect(content).to_contain_text("largest")
    expect(content).to_contain_text("customer")
    decide_together(page)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name=f"{MANY} requests for pay_all")).to_be_visible()
    assert dialog.get_by_role("checkbox", checked=True).count() == 0
    dialog.get_by_role("checkbox", name="Select all").check()
    total = str(sum(range(MANY)))
    expect(dialog.get_by_role("row", name="Selected")).to_contain_text(total)
    dialog.locator(".bulk-list").focus()
    dialog.locator(".bulk-list").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    dialog.get_by_role("button", name=f"Approve {MANY}").click()
    expect(dialog.get_by_text(f"euros: {total}")).to_be_visible()
    dialog.get_by_role("button", name=f"Confirm: approve {MANY}").click()
    expect(page.locator(".toast", has_text=f"Approved {MANY} of {MANY}")).to_be_visible()
    assert status(demo, "pay_all", "approved") == MANY


def test_shared_facts_stand_above_the_table(demo: Demo, open_page: Open) -> None:
    for number in range(3):
        opened(demo, "pay_bound", number, binds={"tenant": "north"}, note="As agreed.")
    page = open_page(f"{demo.url}/inbox?tool=pay_bound")
    decide_together(page)
    dialog = page.get_by_role("dialog")
    shared = dialog.get_by_label("The same in all")
    expect(shared).to_contain_text('{"tenant":"north"}')
    expect(shared).to_contain_text("As agreed.")
    expect(dialog.get_by_role("columnheader", name="Bound facts")).to_have_count(0)
    expect(dialog.get_by_role("columnheader", name="euros")).to_be_visible()


def test_all_are_rejected_with_one_reason(demo: Demo, open_page: Open) -> None:
    ids = [opened(demo, "pay_none", number) for number in range(4)]
    page = open_page(f"{demo.url}/inbox?tool=pay_none")
    decide_together(page)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Reject all 4 like this").click()
    dialog.get_by_role("textbox", name="Reason for all").fill("Wrong supplier.")
    dialog.get_by_role("button", name="Send 4 rejections").click()
    expect(page.locator(".toast", has_text="Rejected 4 of 4")).to_be_visible()
    decisions = [demo.http.get(f"/api/requests/{one}").json()["decision"] for one in ids]
    assert {each["message"] for each in decisions} == {"Wrong supplier."}
    assert all(each["shown"]["seconds"] > 0 for each in decisions)
