"""Many tabs of one browser, which allows six connections to a server: none may be wasted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from demo_process import Demo
from playwright.sync_api import Browser, BrowserContext, Page, expect
from waiting import until

pytestmark = pytest.mark.long

TABS = 8


def readers(demo: Demo) -> int:
    """How many streams the server feeds now."""
    (found,) = re.findall(r"^sayso_feed_readers (\d+)", demo.http.get("/metrics").text, re.M)
    return int(found)


@pytest.fixture
def context(browser: Browser, demo: Demo) -> Iterator[BrowserContext]:
    """A window with tabs of its own. Its streams end with it, whatever the test did."""
    window = browser.new_context()
    yield window
    window.close()
    until(lambda: readers(demo) == 0)


def is_live(page: Page) -> None:
    expect(page.get_by_test_id("live")).to_have_text("live")


def test_eight_tabs_share_one_stream(demo: Demo, context: BrowserContext) -> None:
    tabs = [context.new_page() for _ in range(TABS)]
    for tab in tabs:
        tab.goto(f"{demo.url}/inbox")
        is_live(tab)
    assert readers(demo) == 1
    chat = demo.say("Weather in Oslo")
    for tab in tabs:  # one reads the feed, and all of them hear it
        expect(tab.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(1)
    tabs[0].get_by_role("list", name="Requests").get_by_role("link").click()
    tabs[0].get_by_role("button", name="Approve").click()
    demo.final(chat)
    # The tab that leads is closed: another one takes over, and misses nothing.
    tabs[0].close()
    until(lambda: readers(demo) == 1)
    demo.say("Weather in Rome")
    for tab in tabs[1:]:
        expect(tab.get_by_role("list", name="Requests")).to_contain_text("Rome")


def test_navigating_tab_wastes_no_connection(demo: Demo, context: BrowserContext) -> None:
    page = context.new_page()
    for turn in range(TABS):
        page.goto(f"{demo.url}/{('inbox', 'history', 'runs')[turn % 3]}?turn={turn}")
        is_live(page)
        assert readers(demo) <= 2  # the server may not have noticed yet that the last one is over
    until(lambda: readers(demo) == 1)
    for turn in reversed(range(TABS - 1)):
        # A page that was kept does not load again. Later, or the call itself would be cut off.
        page.evaluate("void setTimeout(() => history.back(), 20)")
        expect(page).to_have_url(re.compile(f"turn={turn}$"))
        is_live(page)
    until(lambda: readers(demo) == 1)


def test_hidden_tab_holds_no_stream(demo: Demo, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{demo.url}/inbox")
    is_live(page)
    visibility = """(state) => {
        Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(visibility, "hidden")
    until(lambda: readers(demo) == 0)
    demo.say("Weather in Bern")
    page.evaluate(visibility, "visible")
    expect(page.locator(".inbox-list")).to_contain_text(re.compile("Bern|1 new"))
    until(lambda: readers(demo) == 1)


def test_decision_never_fires_late(demo: Demo, context: BrowserContext) -> None:
    chat = demo.say("Weather in Oslo")
    (request,) = demo.open(chat)
    page, other = context.new_page(), context.new_page()
    page.goto(f"{demo.url}/inbox/{request['id']}")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    other.goto(f"{demo.url}/healthz")
    # Another page of this origin takes every connection that the browser allows.
    other.evaluate(
        """() => {
            window.stop_all = new AbortController();
            for (let n = 0; n < 6; n++) fetch('/api/events?n=' + n, { signal: stop_all.signal });
        }"""
    )
    until(lambda: readers(demo) == 6)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_test_id("decision-error")).to_contain_text(
        "We don't know whether this was recorded", timeout=30_000
    )
    other.evaluate("() => stop_all.abort()")
    until(lambda: readers(demo) <= 1)
    page.wait_for_timeout(1_000)
    assert demo.http.get(f"/api/requests/{request['id']}").json()["status"] == "pending"
    assert demo.ran() == []
    page.get_by_role("button", name="Approve").click()  # and now it is meant again
    demo.final(chat)


def test_lost_decision_answer_is_looked_up(demo: Demo, context: BrowserContext) -> None:
    chat = demo.say("Weather in Oslo")
    (heard,) = demo.open(chat)
    (unheard,) = demo.open(demo.say("Weather in Rome"))
    page, other = context.new_page(), context.new_page()
    # The server hears the first decision, and its answer never arrives. The other it never hears.
    page.route("**/decision", lambda route: (route.fetch(), None)[1])
    other.route("**/decision", lambda route: None)
    for tab, request in ((page, heard), (other, unheard)):
        tab.goto(f"{demo.url}/inbox/{request['id']}")
        tab.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved:")).to_be_visible(timeout=30_000)
    demo.final(chat)
    failure = other.get_by_test_id("decision-error")
    expect(failure).to_contain_text("Not recorded", timeout=30_000)
    expect(failure).to_contain_text("The request is still pending.")
