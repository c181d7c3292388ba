"""Windows of the browser, as the tests of the pages ask for them, and reading what they show."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

Open = Callable[..., Page]


def turn_pages(page: Page) -> None:
    """Read a request to its end, page by page: what was not on the screen cannot be approved."""
    page.get_by_role("heading", level=1).first.focus()
    unread = page.get_by_test_id("reason").filter(has_text=re.compile("to the end"))
    for _ in range(200):
        if not unread.count():
            break
        page.keyboard.press("Space")
        page.wait_for_timeout(40)
    expect(unread).to_have_count(0)
