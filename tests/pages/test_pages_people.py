"""Two people, a server that restarts, a phone, dark mode, and accessibility."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from demo_process import Demo
from playwright.sync_api import Page, TimeoutError, expect
from waiting import until
from windows import Open

from sayso.inbox import create_token
from sayso.stores import open_store

pytestmark = pytest.mark.long

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Demo]:
    """A demo with sign-in, on a store that other processes may open."""
    running = Demo(tmp_path, "--data", str(tmp_path / "data"))
    yield running
    running.stop()


def token(folder: Path, name: str) -> str:
    store = open_store(f"sqlite:///{folder / 'data' / 'sayso.db'}")
    made, _ = create_token(store, name, by="test")
    store.close()
    return made


def sign_in(page: Page, secret: str) -> None:
    page.get_by_role("textbox", name=re.compile("token", re.I)).fill(secret)
    page.get_by_role("button", name=re.compile("Sign in", re.I)).click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


def test_two_people_decide_at_once_in_two_windows(
    kept: Demo, open_page: Open, tmp_path: Path
) -> None:
    (link,) = re.findall(r"Open (\S+)", kept.printed)
    operator = open_page(link, quiet=True)
    expect(operator.get_by_role("navigation", name="Pages")).to_be_visible()
    operator.goto(f"{kept.url}/chat")
    operator.get_by_role("textbox", name="Message").fill("Weather in Oslo")
    operator.get_by_role("button", name="Send", exact=True).click()
    expect(operator.get_by_role("article", name=re.compile("getWeather"))).to_be_visible()
    windows = []
    for name in ("ana", "ben"):
        page = open_page(f"{kept.url}/login", quiet=True)
        sign_in(page, token(tmp_path, name))
        page.goto(f"{kept.url}/inbox")
        page.get_by_role("link", name=re.compile("getWeatherInformation")).first.click()
        expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        windows.append(page)
    ana, ben = windows
    ben.route("**/api/events*", lambda route: route.abort())
    ana.get_by_role("button", name="Approve").click()
    # What he does next meets Ana's decision, or, on a slow machine, his window knows of it already.
    with suppress(TimeoutError):
        ben.get_by_role("button", name="Approve").click(timeout=2_000, no_wait_after=True)
    expect(ben.get_by_role("main")).to_contain_text(re.compile(r"ana (has )?approved", re.I))
    expect(operator.get_by_role("log")).to_contain_text("Final answer:")
    operator.goto(f"{kept.url}/history")
    expect(operator.get_by_role("main")).to_contain_text("ana")


def test_sign_out_elsewhere_is_shown_as_such(kept: Demo, open_page: Open, tmp_path: Path) -> None:
    page = open_page(f"{kept.url}/login", quiet=True)
    sign_in(page, token(tmp_path, "ana"))
    page.goto(f"{kept.url}/chat")
    page.get_by_role("textbox", name="Message").fill("Weather in Oslo")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_role("link", name="Open in the inbox").click()
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    assert (
        page.evaluate("fetch('/api/logout', {method: 'POST'}).then((said) => said.status)") == 204
    )
    expect(page.get_by_test_id("reason")).to_have_text("You are signed out. Sign in to decide.")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()


def test_page_reconnects_after_server_restart(open_page: Open, tmp_path: Path) -> None:
    options = ("--no-auth", "--data", str(tmp_path / "data"))
    first = Demo(tmp_path, *options)
    first.say("Weather in Oslo")
    page = open_page(f"{first.url}/inbox", quiet=True)
    page.get_by_role("link", name=re.compile("getWeatherInformation")).first.click()
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    first.stop()
    live = page.get_by_test_id("live")
    expect(live).not_to_have_text("live")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    port = first.url.rpartition(":")[2]
    again = Demo(tmp_path, *options, port=port)
    expect(live).to_have_text("live", timeout=40_000)
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_enabled()
    approve.click()
    until(lambda: len(again.ran()) == 1)
    again.stop()


def test_page_works_on_a_phone(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Weather in Oslo")
    page = open_page(f"{demo.url}/inbox", **PHONE)
    page.get_by_role("link", name=re.compile("getWeatherInformation")).first.click()
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_enabled()
    expect(approve).to_be_in_viewport()  # the bar stays at hand
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0
    approve.click()
    demo.final(chat)
    assert len(demo.ran()) == 1


def test_fact_names_the_tool_and_the_request(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Weather in Oslo")
    (request,) = demo.open(chat)
    page = open_page(f"{demo.url}/history")
    page.get_by_role("tab", name="Events").click()
    asked = page.get_by_role("button", name=re.compile("asked for a decision")).first
    expect(asked).to_contain_text("getWeatherInformation")
    expect(asked).to_contain_text(request["id"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(demo: Demo, open_page: Open, scheme: str) -> None:
    for words in ("Deploy version 2.1.0 to production", "Weather in Oslo", "Order a pizza"):
        demo.say(words)
    done = demo.say("What time is it in Oslo?")
    demo.final(done)
    requests = demo.http.get("/api/requests").json()["items"]
    question = next(r["id"] for r in requests if r["kind"] == "question")
    call = next(r["id"] for r in requests if r["kind"] == "approval")
    paths = ["inbox", f"inbox/{call}", f"inbox/{question}", "grants", "chat", "runs"]
    paths += [f"chat/{requests[0]['thread']}", f"runs/{requests[0]['run']}", "history"]
    paths += ["insights", "login"]
    # Without animations, no colour is judged halfway through a fade.
    page = open_page(f"{demo.url}/inbox", color_scheme=scheme, reduced_motion="reduce")
    found: list[Any] = []
    for path in paths:
        page.goto(f"{demo.url}/{path}")
        page.wait_for_load_state("load")
        expect(page.locator("h1, h2").first).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        # Every rule is checked, but elements are listed only where one is broken.
        options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
        result = Axe().run(page, options=options)
        for violation in result.response["violations"]:
            where = [node["html"][:150] for node in violation["nodes"]][:3]
            found.append((path, violation["id"], where))
    assert found == []


def test_pictures_of_the_chat(demo: Demo, open_page: Open, tmp_path: Path) -> None:
    """The picture of the chat in the documentation; ``make pictures`` keeps it."""
    folder = Path(os.environ.get("SAYSO_PICTURES", tmp_path))
    dark = open_page(f"{demo.url}/chat", color_scheme="dark", device_scale_factor=1.5)
    dark.get_by_role("textbox", name="Message").fill("Book a flight to Rome")
    dark.get_by_role("button", name="Send", exact=True).click()
    expect(dark.get_by_role("button", name="Approve")).to_be_enabled()
    dark.screenshot(path=folder / "chat.png")
    assert (folder / "chat.png").stat().st_size > 20_000
