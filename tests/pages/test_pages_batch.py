"""Deciding many similar requests in one table: all pages, what they share, sums, one reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from windows import Open

from sayso.stores import open_store
from sayso.testing import FakeClock
from sayso_testing.world import World

pytestmark = pytest.mark.long  # a browser

MANY = 230
#: More than the page once took together. 10,000 work too, but take a minute.
VERY_MANY = 1_500


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


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo whose store has very many payments, one of them far above the others."""
    folder = tmp_path_factory.mktemp("payments")
    (folder / "data").mkdir()
    store = open_store(f"sqlite:///{folder / 'data' / 'sayso.db'}")
    world = World(store, FakeClock())
    for start in range(0, VERY_MANY, 500):
        calls = [
            world.new("pay", {"to": f"customer {n}", "euros": 9_000 if n == 700 else 10 + n % 7})
            for n in range(start, min(start + 500, VERY_MANY))
        ]
        world.propose(*calls, run=f"run-{start}", thread=f"thread-{start}")
    store.close()
    running = Demo(folder, "--no-auth", "--data", str(folder / "data"))
    yield running
    running.stop()


def heap(page: Page) -> float:
    """Return the megabytes that the page's scripts hold on to."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    (size,) = (each["value"] for each in metrics if each["name"] == "JSHeapUsedSize")
    return float(size) / 1e6


def test_very_many_calls_stay_usable(payments: Demo, open_page: Open) -> None:
    """Only the rows on the screen are drawn; all pages are read, selected and confirmed once."""
    many = f"{VERY_MANY:,}"
    page = open_page(f"{payments.url}/inbox?tool=pay")
    began = time.monotonic()
    decide_together(page)
    dialog = page.get_by_role("dialog")
    every = dialog.get_by_role("checkbox", name="Select all")
    approve = dialog.get_by_role("button", name=re.compile("pprove [1-9]"))
    expect(every).to_be_enabled()
    figures = {"load": time.monotonic() - began}
    assert dialog.get_by_role("checkbox", checked=True).count() == 0
    began = time.monotonic()
    every.check()
    expect(approve).to_have_text(f"Approve {many}")
    figures["select"] = time.monotonic() - began
    expect(approve).to_be_disabled()  # the end was not on the screen
    expect(dialog.get_by_text("1 row is marked: at least 3 times the median.")).to_be_visible()
    box = dialog.locator(".bulk-list")
    assert box.locator("tbody tr").count() < 60
    box.evaluate(f"(box) => box.scrollTo(0, 700 * (box.scrollHeight / {VERY_MANY}))")
    expect(dialog.get_by_text("far above the others")).to_be_visible()
    box.focus()
    began = time.monotonic()
    for _ in range(50):
        page.keyboard.press("End")
        page.wait_for_timeout(100)
        if approve.is_enabled():
            break
    figures["end"] = time.monotonic() - began
    assert box.locator("tbody tr").count() < 60
    expect(dialog.get_by_role("checkbox", name=f"customer {VERY_MANY - 1}")).to_be_visible()
    figures["heap MB"] = heap(page)
    approve.click()
    began = time.monotonic()
    dialog.get_by_role("button", name=f"Confirm: approve {many}").click()
    expect(page.locator(".toast", has_text=f"Approved {many} of {many}")).to_be_visible(
        timeout=240_000
    )
    figures["decide"] = time.monotonic() - began
    print(f"\n{many} calls in one table: {figures}")
    expect(page.get_by_role("heading", level=1)).to_have_text("No requests match")
    assert figures["heap MB"] < 60


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
    ids = [opened(demo, "pay_none", number) for number in range(14)]
    page = open_page(f"{demo.url}/inbox?tool=pay_none")
    decide_together(page)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("checkbox", name="customer 2")).to_be_visible()
    expect(dialog.get_by_text("Scroll to the end of the list first.")).to_be_visible()
    dialog.get_by_role("button", name="Reject all 14 like this").click()
    dialog.get_by_role("textbox", name="Reason for all").fill("Wrong supplier.")
    dialog.get_by_role("button", name="Send 14 rejections").click()
    expect(page.locator(".toast", has_text="Rejected 14 of 14")).to_be_visible()
    decisions = [demo.http.get(f"/api/requests/{one}").json()["decision"] for one in ids]
    assert {each["message"] for each in decisions} == {"Wrong supplier."}
    assert all(each["shown"]["seconds"] > 0 for each in decisions)


def test_incomplete_rows_are_decided_separately(demo: Demo, open_page: Open) -> None:
    opened(demo, "pay_some", 1)
    opened(demo, "pay_some", 2, args={"to": "customer 2", "password": "hunter2-hunter2"})
    opened(demo, "pay_some", 3, args={"to": "\n".join(f"line {n}" for n in range(60))})
    page = open_page(f"{demo.url}/inbox?tool=pay_some")
    decide_together(page)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Decide this one separately: it has masked values.")).to_be_visible()
    expect(dialog.get_by_text("it has a long value that must be read")).to_be_visible()
    dialog.get_by_role("checkbox", name="Select all").check()
    expect(dialog.get_by_role("button", name="Approve 1", exact=True)).to_be_visible()
