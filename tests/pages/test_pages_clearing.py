"""Clear an inbox of 200 mixed requests by keyboard alone, and print the keys and the seconds.

What is similar is decided in the table, the rest one by one. The figures are printed, not bounded:
they depend on the machine.
"""

from __future__ import annotations

import time

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from windows import Open

pytestmark = pytest.mark.long  # a browser

#: Each tool with the number of its requests; those of high risk are decided one by one.
MIXED = {"refund": 120, "send_invoice": 50, "close_account": 18, "drop_table": 12}
RISK = {"drop_table": "high"}


class Keys:
    """A keyboard that counts."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.count = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)
            self.count += 1


def fill(demo: Demo) -> None:
    for tool, many in MIXED.items():
        for number in range(many):
            body = {
                "tool": tool,
                "args": {"to": f"customer {number}", "euros": 10 + number},
                "risk": {"level": RISK.get(tool, "low")},
            }
            key = {"Idempotency-Key": f"{tool}-{number}"}
            assert demo.http.post("/api/requests", json=body, headers=key).status_code == 201


def pending(demo: Demo) -> int:
    count: int = demo.http.get("/api/requests/groups").json()["count"]
    return count


def decide_group(demo: Demo, page: Page, keys: Keys, tool: str) -> None:
    """Decide the requests of a tool in the table. Tabs to a control are not counted."""
    page.get_by_test_id("group").filter(has_text=tool).get_by_role(
        "button", name="Decide together"
    ).focus()
    keys.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name=f"{MIXED[tool]} requests")).to_be_visible()
    every = dialog.get_by_role("checkbox", name="Select all")
    expect(every).to_be_enabled()  # all pages are loaded
    every.focus()
    keys.press("Space")
    expect(every).to_be_checked()
    approve = dialog.get_by_role("button", name=f"pprove {MIXED[tool]}")
    dialog.locator(".bulk-list").focus()
    for _ in range(50):
        keys.press("End")
        page.wait_for_timeout(200)
        if approve.is_enabled():
            break
    approve.focus()
    keys.press("Space")
    expect(approve).to_have_text(f"Confirm: approve {MIXED[tool]}")
    keys.press("Space")
    expect(dialog).to_have_count(0)


def test_two_hundred_mixed_requests_are_cleared(demo: Demo, open_page: Open) -> None:
    fill(demo)
    total = sum(MIXED.values())
    assert pending(demo) == total == 200
    page = open_page(f"{demo.url}/inbox", undo=True)
    expect(page.get_by_test_id("group").first).to_be_visible()
    keys = Keys(page)
    began = time.monotonic()
    for tool, many in MIXED.items():
        if RISK.get(tool) is None and many > 1:
            decide_group(demo, page, keys, tool)
    keys.press("j")
    approve = page.get_by_role("button", name="Approve", exact=False).first
    armed = page.get_by_text("Press Enter to confirm")
    while pending(demo):
        assert time.monotonic() - began < 300, "not all are decided"
        expect(approve).to_be_enabled()
        keys.press("a")
        expect(armed).to_be_visible()
        keys.press("Enter")
        expect(armed).to_have_count(0)
        page.wait_for_timeout(300)  # until the next one is shown
    seconds = time.monotonic() - began
    print(f"\n{total} requests cleared with {keys.count} keys in {seconds:.0f} s")
    assert keys.count < total
    stats = demo.http.get("/api/stats").json()["decided"]
    assert stats["count"] >= total
