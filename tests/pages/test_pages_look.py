"""What a request, a run and an empty inbox look like to a person."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from demo_process import Demo
from playwright.sync_api import Browser, Page, expect
from sayso_process import start
from windows import Open, on_main_thread, turn_pages

pytestmark = pytest.mark.long

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
PAYMENT = {
    "to": "Hooli",
    "iban": "DE89370400440532013000",
    "euros": 1200,
    "due": "2026-11-30",
    "url": "https://bank.com@evil.example/pay",
}
#: Markdown with a link and an image, which must lead nowhere and load nothing.
NOTE = "# Plan\n\n**Ship** it, see [the plan](https://e.example/p) ![x](https://e.example/x.png)"


def ask(demo: Demo, key: str, **body: Any) -> str:
    made = demo.http.post("/api/requests", json=body, headers={"Idempotency-Key": key})
    assert made.status_code == 201, made.text
    return f"{demo.url}/inbox/{made.json()['id']}"


def test_decisive_values_are_in_words(demo: Demo, open_page: Open) -> None:
    page = open_page(ask(demo, "pay", tool="pay", args=PAYMENT))
    words = "€ 1,200 to Hooli, IBAN DE89 3704 0044 0532 0130 00"
    headline = page.locator(".decisive")
    expect(headline).to_be_visible()
    assert headline.inner_text().replace("\u00a0", " ") == words
    expect(page.get_by_test_id("arg-euros")).to_contain_text("1200")  # the raw value too
    expect(page.get_by_test_id("arg-due")).to_contain_text("Monday, Nov 30, 2026")
    expect(page.get_by_test_id("arg-url")).to_contain_text("leads to evil.example")


def test_narrow_phone_covers_nothing(demo: Demo, open_page: Open) -> None:
    """320 pixels, which is also a page of 1,280 at 400 %."""
    narrow = {**PHONE, "viewport": {"width": 320, "height": 640}}
    url = ask(demo, "narrow", tool="pay", args=PAYMENT)
    page = open_page(url, **narrow)
    expect(page.locator(".decisive")).to_be_visible()
    page.get_by_role("link", name="Inbox", exact=True).click(timeout=5_000)
    for address in (f"{demo.url}/inbox", f"{demo.url}/grants", url):
        page.goto(address)
        expect(page.locator(".skeleton")).to_have_count(0)
        bar = page.locator(".topbar").bounding_box()
        parts = page.locator(".topbar > *").filter(visible=True)
        expect(parts.first).to_be_visible()
        boxes = [part.bounding_box() for part in parts.all()]
        assert bar is not None
        assert all(box and box["y"] + box["height"] <= bar["height"] + 1 for box in boxes)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_groups_are_headed_by_words(demo: Demo, open_page: Open) -> None:
    for number in range(2):
        args = {"to": f"customer {number}", "euros": 10 + number}
        ask(demo, f"group {number}", tool="send_refund", args=args)
    page = open_page(f"{demo.url}/inbox?tool=send_refund")
    group = page.get_by_test_id("group")
    expect(group.get_by_role("button").first).to_contain_text("Send refund")
    expect(group.locator("code")).to_have_text("send_refund")
    group.get_by_role("button", name="Decide together").click()
    heading = page.get_by_role("dialog").get_by_role("heading")
    expect(heading).to_have_text("Send refund: 2 requests for send_refund")
    expect(heading.locator("small code")).to_have_text("send_refund")


@pytest.mark.parametrize("width", [1440, 1280, 1024])
def test_filters_stay_in_one_row(demo: Demo, open_page: Open, width: int) -> None:
    for agent in ("billing", "support"):
        ask(demo, f"row {width} {agent}", tool="send_very_long_refund", args={}, agent=agent)
    for query in ("", "?tool=send_very_long_refund&agent=billing&risk=low&kind=approval&mine=1"):
        page = open_page(f"{demo.url}/inbox{query}", viewport={"width": width, "height": 800})
        chips = page.get_by_role("group", name="Filters")
        expect(chips.get_by_role("combobox")).to_have_count(4)
        assert chips.evaluate("(row) => row.scrollWidth <= row.clientWidth")
        assert chips.bounding_box()["height"] < 45  # type: ignore[index]
    page.locator(".inbox-filters").get_by_role("button", name="Clear filters").click()
    expect(page).to_have_url(f"{demo.url}/inbox")


def test_hostile_title_leaves_room_to_read(demo: Demo, open_page: Open) -> None:
    title = "Pay \u202e<b>bold</b> " + "W" * 270
    page = open_page(ask(demo, "hostile", tool="pay", args=PAYMENT, title=title), **PHONE)
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("Pay ⟨U+202E⟩<b>bold</b> WWW")
    expect(page.get_by_test_id("reason")).to_contain_text("Read to the end first")
    expect(page.get_by_text("Space turns the page")).not_to_be_visible()  # a phone has none
    expect(page.get_by_role("main")).not_to_contain_text("Contains the brackets")
    body = page.locator(".request-scroll").bounding_box()
    assert body is not None
    assert body["height"] > 400
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()  # the title is part of what is read
    turn_pages(page)
    expect(approve).to_be_enabled()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_texts_keep_every_character(demo: Demo, open_page: Open) -> None:
    sql = "DELETE FROM users WHERE name = 'it''s' -- all\n"
    diff = "@@ -1 +1 @@\n-DEBUG = True\n+DEBUG = False"
    rows = [{"name": "Ana", "age": 31}, {"name": "Ben", "age": 44}]
    args = {"query": sql, "patch": diff, "body": NOTE, "rows": rows}
    outside: list[str] = []
    page = open_page(f"{demo.url}/inbox")
    page.on("request", lambda request: outside.append(request.url))
    page.goto(ask(demo, "texts", tool="write", args=args))
    query = page.locator("[data-shape=sql]")
    expect(query).to_have_text(f"“{sql}”", use_inner_text=False)
    expect(query.locator(".sql-keyword")).to_have_text(["DELETE", "FROM", "WHERE"])
    expect(page.locator("[data-shape=diff] .call-added")).to_have_text("+DEBUG = False")
    markdown = page.locator("[data-shape=markdown]")
    expect(markdown.locator(".value")).to_have_text(NOTE)
    expect(markdown.locator("strong")).to_have_text("Ship")
    expect(markdown.locator("a, img")).to_have_count(0)
    expect(page.get_by_test_id("arg-rows").get_by_role("row")).to_have_count(3)
    assert not [url for url in outside if "e.example" in url]


def test_run_tells_what_happened(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Weather in Oslo")
    (request,) = demo.open(chat)
    demo.decide(request)
    demo.final(chat)
    page = open_page(f"{demo.url}/runs")
    page.get_by_test_id("run-row").first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Weather in Oslo")
    story = page.get_by_test_id("story")
    expect(story).to_contain_text("Get weather information: Oslo")
    expect(story).to_contain_text("It ran.")
    expect(page.get_by_role("main")).to_contain_text("Final answer:")
    expect(page.get_by_text(request["run"])).not_to_be_visible()  # under Names


def test_rejected_run_waits_for_nobody(demo: Demo, open_page: Open) -> None:
    ask(demo, "no", tool="pay", args={})
    (item,) = demo.http.get("/api/requests").json()["items"]
    demo.decide(item, "reject", message="not owed")
    page = open_page(f"{demo.url}/runs/{quote(item['run'], safe='')}")
    expect(page.get_by_test_id("run-status")).to_have_text("Done")
    expect(page.get_by_test_id("story")).to_contain_text("not owed")


def test_long_title_leaves_context_button_in_place(demo: Demo, open_page: Open) -> None:
    url = ask(demo, "long", tool="pay", args={}, title="Pay " + "a very long invoice " * 12)
    page = open_page(url, viewport={"width": 1440, "height": 900})
    toggle = page.get_by_role("button", name="Hide context")
    title = page.get_by_role("heading", level=1).bounding_box()
    box = toggle.bounding_box()
    assert title is not None
    assert box is not None
    assert abs(box["y"] - title["y"]) < 12


def small_targets(page: Page) -> Any:
    """Return what a finger could miss, with its height."""
    return page.evaluate(
        "() => [...document.querySelectorAll('main button, main select, main summary,"
        " main .check, .bulk-check, .dialog button, .inbox-back, .inbox-effects button')]"
        ".filter((each) => each.checkVisibility())"
        ".map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect().height])"
        ".filter(([, height]) => height < 44)"
    )


def test_phone_targets_are_large_enough(demo: Demo, open_page: Open) -> None:
    url = ask(demo, "phone", tool="pay", args=PAYMENT)
    ask(demo, "phone 2", tool="pay", args=PAYMENT)
    page = open_page(f"{demo.url}/inbox", **PHONE)
    for address in (f"{demo.url}/inbox", url, f"{demo.url}/settings", f"{demo.url}/inbox"):
        page.goto(address)
        expect(page.get_by_role("main")).to_be_visible()
        page.wait_for_timeout(500)
        assert small_targets(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("button", name="Decide together").click()
    expect(page.get_by_role("dialog").get_by_role("checkbox")).to_have_count(3)
    assert small_targets(page) == []


#: What lies under a toast that a person may want to press or read.
COVERED = """(toast) => {
    const box = toast.getBoundingClientRect();
    const covered = new Set();
    for (let x = box.left + 4; x < box.right; x += 12)
        for (let y = box.top + 4; y < box.bottom; y += 8)
            for (const each of document.elementsFromPoint(x, y))
                if (!each.closest('.toasts') && each.matches('a, button, input, p, dt, dd, h1, h2'))
                    covered.add(each.outerHTML.slice(0, 90));
    return [...covered];
}"""


@pytest.mark.parametrize("size", [{"viewport": {"width": 1440, "height": 900}}, PHONE])
def test_toast_covers_nothing(demo: Demo, open_page: Open, size: dict[str, Any]) -> None:
    url = ask(demo, f"toast {size}", tool="pay", args=PAYMENT)
    for number in range(12):
        ask(demo, f"toast {size} {number}", tool=f"refund_{number}", args={"to": f"C{number}"})
    page = open_page(url, undo=True, **size)
    turn_pages(page)
    rows = page.locator(".row-link")
    before = rows.first.bounding_box() if rows.count() else None  # no list on a phone
    page.get_by_role("button", name="Approve").click()
    toast = page.locator(".toast", has_text="Approved")
    expect(toast.get_by_role("button", name="Undo")).to_be_visible()
    page.wait_for_timeout(300)  # it has moved into its place
    assert toast.evaluate(COVERED) == []
    box = toast.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= size["viewport"]["height"]
    if before is not None:  # no row moves under the pointer
        after = rows.first.bounding_box()
        assert after is not None
        assert after["y"] == before["y"]


def test_settings_change_theme_and_times(demo: Demo, open_page: Open) -> None:
    url = ask(demo, "settings", tool="pay", args={})
    page = open_page(f"{demo.url}/inbox")
    page.get_by_role("button", name="Account:").click()
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("radio", name="Dark").check()
    page.get_by_role("radio", name="Date and time").check()
    page.get_by_role("checkbox", name="Offer to undo").uncheck()
    assert Axe().run(page).response["violations"] == []
    page.goto(url)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    year = time.strftime("%Y")
    expect(page.locator(".detail-meta").first).to_contain_text(year)


def test_pasted_commands_lead_to_approved_call(open_page: Open, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'new store.db'}"
    command = ("serve", "--no-auth", "--port", "0", "--store", store)
    server = start(*command, cwd=tmp_path, env={**os.environ})
    assert server.stdout is not None
    (url,) = re.findall(r"http://[\d.:]+", server.stdout.readline())
    page = open_page(f"{url}/inbox", quiet=True)  # it outlives its server
    expect(page.locator(".connect pre").last).to_be_visible()
    commands = page.locator(".connect pre").all_inner_texts()
    (python,) = (each for each in commands if each.startswith("python"))
    assert store in python
    code = python.removeprefix("python - <<'END'\n").removesuffix("\nEND")
    (tmp_path / "first.py").write_text(code)
    with subprocess.Popen(
        [sys.executable, "first.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as waiting:
        page.get_by_test_id("row").click()
        expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        page.get_by_role("button", name="Approve").click()
        printed, _ = waiting.communicate(timeout=120)
    assert "Refunded 120 euros for order A-17" in printed
    expect(page.get_by_role("main")).to_contain_text("That was your first approved call")
    server.send_signal(signal.SIGINT)
    server.communicate()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_a_request(demo: Demo, open_page: Open, tmp_path: Path, scheme: str) -> None:
    folder = Path(os.environ.get("SAYSO_PICTURES", tmp_path))
    for words in ("Weather in Oslo", "Deploy version 2.1.0 to production", "Order a pizza"):
        demo.say(words)
    url = ask(
        demo, f"picture {scheme}", tool="pay", args=PAYMENT, agent="billing", title="Pay Hooli"
    )
    suffix = "" if scheme == "light" else "-dark"
    wide = {"viewport": {"width": 1440, "height": 900}}
    for name, size in (("inbox", wide), ("phone", PHONE)):
        page = open_page(url, color_scheme=scheme, **size)
        expect(page.locator(".decisive")).to_be_visible()
        assert Axe().run(page).response["violations"] == []
        page.screenshot(path=folder / f"{name}{suffix}.png")


#: A slow laptop and its network: how much slower its processor is, bytes per second, and seconds
#: until the first byte of each of the answers that wait for one another: page, scripts, styles.
SLOWER = 4
THROUGHPUT = 2e6
LATENCY = 3 * 0.02


def test_first_paint_on_a_slow_laptop(demo: Demo, browser: Browser, tmp_path: Path) -> None:
    """Computed from the processor's time and the bytes, to which no other program adds."""
    seconds = [first_paint(demo, browser, tmp_path / f"{n}.json") for n in range(3)]
    assert min(seconds) < 1, seconds


def first_paint(demo: Demo, browser: Browser, path: Path) -> float:
    """Return the seconds until a slow laptop shows the first text of the inbox."""
    context = browser.new_context()  # with an empty cache
    page = context.new_page()
    browser.start_tracing(page=page, path=path, categories=["toplevel", "loading"])
    page.goto(f"{demo.url}/inbox")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    entries = page.evaluate(
        "['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))"
        ".map((each) => each.toJSON())"
    )
    shown = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    browser.stop_tracing()
    context.close()
    events = on_main_thread(json.loads(path.read_text())["traceEvents"], "/assets/InboxPage.js")
    (painted,) = {e["ts"] for e in events if e["name"] == "firstContentfulPaint"}
    tasks = [e for e in events if "RunTask" in e["name"] and "tdur" in e and e["ts"] < painted]
    assert len(tasks) > 10
    cpu = sum(task["tdur"] for task in tasks) / 1e6
    needed = [entry for entry in entries if entry["startTime"] < shown]
    assert len(needed) > 5
    size = sum(entry["transferSize"] for entry in needed)
    return SLOWER * cpu + size / THROUGHPUT + LATENCY


def test_inbox_loads_little_code(demo: Demo, open_page: Open) -> None:
    page = open_page("about:blank")
    page.goto(f"{demo.url}/inbox")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    loaded = page.evaluate(
        "performance.getEntriesByType('resource').map((each) => each.name)"
        ".filter((name) => name.includes('/assets/'))"
    )
    sizes = [len(gzip.compress(demo.http.get(name).content)) for name in set(loaded)]
    assert len(sizes) > 3
    assert sum(sizes) <= 300_000
