"""Many requests: groups with exact counts, a windowed list, and no long task."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_process import Demo
from playwright.sync_api import Browser, expect
from waiting import until
from windows import Open, on_main_thread

from sayso.stores import open_store
from sayso.stores.sql import reads
from sayso.testing import FakeClock
from sayso.types import Risk
from sayso_testing.world import World

pytestmark = pytest.mark.long

MANY = 1_000


def fill(folder: Path, count: int) -> None:
    """Put requests into a store: mostly payments, and a few of other tools."""
    store = open_store(f"sqlite:///{folder / 'sayso.db'}")
    world = World(store, FakeClock())
    for start in range(0, count, 500):
        calls = []
        for n in range(start, min(start + 500, count)):
            tool = "pay" if n % 50 else f"other_{n // 50 % 7}"
            level = "high" if tool == "other_0" else "medium"
            args = {"order": f"A-{n:06d}", "euros": n % 500 + 1}
            calls.append(world.new(tool, args, id=f"req_{n:08x}", risk=Risk(level)))
        world.propose(*calls, run=f"run-{start}", thread=f"thread-{start}")
    store.close()


@pytest.fixture(scope="module")
def full_inbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("full_inbox")
    (folder / "data").mkdir()
    fill(folder / "data", MANY)
    running = Demo(folder, "--no-auth", "--data", str(folder / "data"))
    yield running
    running.stop()


def test_thousand_requests_are_counted_exactly(full_inbox: Demo, open_page: Open) -> None:
    page = open_page(f"{full_inbox.url}/inbox")
    expect(page.get_by_role("navigation", name="Pages")).to_contain_text(f"{MANY:,}")
    expect(page.get_by_role("main")).to_contain_text(f"{MANY:,} requests need your review")
    groups: set[tuple[str, ...]] = set()
    box = page.locator(".inbox-rows")

    def scroll_to_the_end() -> bool:
        # Only what stays: a row that has just been made has no lines yet, and no button.
        for text in page.get_by_test_id("group").all_inner_texts():
            groups.update(re.findall(r"(\d+)\s*(Pay|Other \d)", text))
        box.evaluate("(box) => box.scrollBy(0, 200)")
        return any(tool == "Pay" for _, tool in groups)

    until(scroll_to_the_end)
    others = {(str(3 - (n == 6)), f"Other {n}") for n in range(7)}
    assert groups == {("980", "Pay"), *others}  # no tool is invisible
    options = page.get_by_role("combobox", name="Tool").locator("option").all_inner_texts()
    assert "pay (980)" in options
    assert sum("other_" in option for option in options) == 7
    assert page.title() == f"({MANY:,}) Inbox · Sayso"


def test_search_of_common_words_goes_on_until_it_finds_some(
    tmp_path: Path, open_page: Open
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = open_store(f"sqlite:///{data / 'sayso.db'}")
    world = World(store, FakeClock())
    many = reads.MANY_CALLS + 200
    cities = ["Graz", "Ghent"] * many + ["Graz to Ghent"] * 3
    for start in range(0, len(cities), 500):
        calls = [world.new("ship", {"route": city}) for city in cities[start : start + 500]]
        world.propose(*calls, run=f"run-{start}", thread=f"thread-{start}")
    store.close()
    running = Demo(tmp_path, "--no-auth", "--data", str(data))
    try:
        page = open_page(f"{running.url}/inbox")
        search = page.get_by_role("searchbox", name="Search requests")
        search.fill("graz ghent")
        expect(page.get_by_role("main")).to_contain_text("3 requests need your review")
        expect(page.locator(".inbox-rows").get_by_text("Graz to Ghent")).to_have_count(3)
        search.fill("ghent graz lisbon")
        expect(page.get_by_role("heading", name="No requests match")).to_be_visible()
        search.fill("graz")
        expect(page.get_by_role("main")).to_contain_text("5,000+ requests need your review")
    finally:
        running.stop()


def test_j_key_walks_through_groups(full_inbox: Demo, open_page: Open) -> None:
    page = open_page(f"{full_inbox.url}/inbox?tool=pay")
    expect(page.get_by_test_id("group")).to_contain_text("980")
    seen = {page.url}
    for count in range(1, 103):  # the first page of rows has 100
        before = page.url
        page.keyboard.press("j")
        # The focus moves in a later frame, and a key goes on from the row that has it.
        page.wait_for_function(
            "(before) => location.href !== before"
            " && location.pathname.endsWith('/' + document.activeElement.dataset.row)",
            arg=before,
        )
        seen.add(page.url)
        assert len(seen) == count + 1
    current = page.locator(".row-link[aria-current]")
    expect(current).to_be_in_viewport()
    expect(current).to_be_focused()
    last = page.url
    page.keyboard.press("k")
    expect(page).not_to_have_url(last)
    expect(current).to_be_focused()
    assert page.url in seen


def test_page_contains_only_visible_rows(full_inbox: Demo, open_page: Open) -> None:
    page = open_page(f"{full_inbox.url}/inbox?tool=pay")
    page.get_by_test_id("group").get_by_role("button").first.click()
    expect(page.get_by_test_id("row").first).to_be_visible()
    box = page.locator(".inbox-rows")
    for _ in range(40):
        box.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
        page.wait_for_timeout(50)
    rows = page.get_by_test_id("row")
    expect(rows.last).to_contain_text("A-000999")
    assert rows.count() < 60


def test_bulk_dialog_shows_both_counts(full_inbox: Demo, open_page: Open) -> None:
    page = open_page(f"{full_inbox.url}/inbox?tool=pay")
    page.get_by_role("button", name="Decide together").click()
    expect(page.get_by_role("dialog")).to_contain_text("980 requests for pay")
    expect(page.get_by_role("dialog")).not_to_contain_text("The first")


def test_no_second_scrollbar(full_inbox: Demo, open_page: Open) -> None:
    page = open_page(f"{full_inbox.url}/inbox?tool=pay")
    page.get_by_test_id("group").get_by_role("button").first.click()
    expect(page.get_by_test_id("row").first).to_be_visible()
    assert page.evaluate(
        "document.documentElement.scrollHeight <= document.documentElement.clientHeight"
    )


def test_no_task_needs_more_than_fifty_milliseconds(
    full_inbox: Demo, browser: Browser, tmp_path: Path
) -> None:
    """A long task, in time of the processor, which no other program on the machine adds to."""
    assert any(
        longest_in_trace(full_inbox, browser, tmp_path / "trace.json") < 50 for _ in range(3)
    )


def longest_in_trace(full_inbox: Demo, browser: Browser, path: Path) -> float:
    """The most milliseconds that a task of the page needed, while it loaded and was used.

    Without what only a debugger asks for: at each request, V8 parses the scripts again to name
    the lines of code that made it.
    """
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    categories = ["toplevel", "devtools.timeline", "disabled-by-default-v8.compile"]
    browser.start_tracing(page=page, path=path, categories=categories)
    page.goto(f"{full_inbox.url}/inbox?tool=pay")
    page.get_by_test_id("group").get_by_role("button").first.click()
    expect(page.get_by_test_id("row").first).to_be_visible()
    for _ in range(20):
        page.keyboard.press("j")
    for _ in range(10):
        page.locator(".inbox-rows").evaluate("(box) => box.scrollBy(0, 2000)")
        page.wait_for_timeout(100)
    browser.stop_tracing()
    page.close()
    events = json.loads(path.read_text())["traceEvents"]
    events = [e for e in on_main_thread(events, "/assets/InboxPage.js") if "tdur" in e]
    parsed = [e for e in events if e["name"] == "V8.CollectSourcePositions"]
    tasks = []
    for task in (event for event in events if "RunTask" in event["name"]):
        end = task["ts"] + task["dur"]
        inside = sum(event["tdur"] for event in parsed if task["ts"] <= event["ts"] < end)
        tasks.append((task["tdur"] - inside) / 1000)
    assert len(tasks) > 100
    return max(tasks)


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_filters_fit_into_their_row(full_inbox: Demo, open_page: Open, width: int) -> None:
    page = open_page(f"{full_inbox.url}/inbox", viewport={"width": width, "height": 844})
    expect(page.get_by_test_id("group").first).to_be_visible()
    for row in (".filter-chips", ".topbar-nav"):
        assert page.locator(row).evaluate("(row) => row.scrollWidth <= row.clientWidth"), row
