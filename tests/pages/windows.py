"""Windows of the browser, as the tests of the pages ask for them, and reading what they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

Open = Callable[..., Page]
DESK = {"viewport": {"width": 1440, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
VIEWS = [
    pytest.param(size, scheme, id=f"{name}-{scheme}")
    for name, size in (("desk", DESK), ("phone", PHONE))
    for scheme in ("light", "dark")
]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: The controls in this part of the page that a finger could miss. Links in sentences may be small.
SMALL = """(root) => [...root.querySelectorAll('button, a, input, select')]
    .filter((one) => !one.matches('p a, dd a') && one.checkVisibility())
    .filter((one) => {
        const box = (one.closest('label') ?? one).getBoundingClientRect();
        return box.height < 44 || box.width < 44;
    })
    .map((one) => one.outerHTML.slice(0, 90))"""


_TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def turn_pages(page: Page) -> None:
    """Read a request to its end, page by page: what was not on the screen cannot be approved."""
    page.get_by_role("heading", level=1).first.focus()
    unread = page.get_by_test_id("reason").filter(has_text=re.compile("to the end"))
    for _ in range(200):
        if not unread.count():
            break
        page.keyboard.press("Space")
        page.evaluate(_TWO_FRAMES)  # the page notes what was on the screen
        page.wait_for_timeout(40)
    expect(unread).to_have_count(0)


def check_page(page: Page, *, phone: bool) -> list[Any]:
    """Return what axe finds, what overflows, and on a phone the controls that are too small."""
    expect(page.locator(".skeleton")).to_have_count(0)
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found: list[Any] = [
        (violation["id"], [node["html"][:150] for node in violation["nodes"]][:3])
        for violation in Axe().run(page, options=options).response["violations"]
    ]
    if (wide := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
        found.append(("overflows by", wide))
    if phone:
        found += page.locator("main").evaluate(SMALL)
    return found


def on_main_thread(events: list[dict[str, Any]], script: str) -> list[dict[str, Any]]:
    """Return a trace's events on the main thread of the page that loaded a script."""
    processes = {event["pid"] for event in events if script in str(event.get("args"))}
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name"
        and event["args"]["name"] == "CrRendererMain"
        and event["pid"] in processes
    }
    return [event for event in events if (event["pid"], event["tid"]) in threads]
