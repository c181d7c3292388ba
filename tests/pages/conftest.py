"""The pages in a real Chromium, against a real ``sayso demo``: nothing is mocked."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from windows import Open

#: CI machines are slow; what is expected is waited for, so this costs nothing where they are not.
expect.set_options(timeout=60_000)

#: What Playwright switches off, which giving the option again replaces; the lists below the address
#: bar: two pages of Chromium's own, which take as long to draw as ours, in every window; and the
#: process that every window keeps ready for a next page.
OFF = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "AimEnabled"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "PreconnectToSearch"),
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"),
)
FLAGS = [
    f"--disable-features={','.join(OFF)}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium; without one the tests are skipped, or fail in CI."""
    script = Path(__file__).parents[2] / "scripts" / "programs.py"
    path: str | None = runpy.run_path(str(script))["chromium"]()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium: run scripts/programs.py chromium")
        pytest.skip(
            "there is no Chromium: `make test` fetches one, or run scripts/programs.py chromium"
        )
    return path


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser for a file; not for longer, since Playwright keeps a loop running meanwhile.

    It keeps the pages that one leaves for the back button, as people's browsers do.
    """
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium,
            args=FLAGS,
            ignore_default_args=["--disable-back-forward-cache"],
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(tmp_path_factory.mktemp("demo"), "--no-auth")
    yield running
    assert running.stop() == (0, "")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a page in a window of its own; what the page itself complains about fails the test."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def open_one(url: str, *, quiet: bool = False, undo: bool = False, **options: Any) -> Page:
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = browser.new_context(**options)
        contexts.append(context)
        if not undo:  # each decision would take effect some seconds later
            context.add_init_script(
                "if (origin !== 'null') localStorage.setItem('sayso.undo', 'off')"
            )
        page = context.new_page()
        page.set_default_timeout(60_000)
        if not quiet:
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on(
                "console",
                lambda said: troubles.append(said.text) if said.type == "error" else None,
            )
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    """Start each test without pending requests and without effects."""
    if "demo" in request.fixturenames:
        demo: Demo = request.getfixturevalue("demo")
        for item in demo.http.get("/api/requests", params={"limit": 200}).json()["items"]:
            demo.http.post(f"/api/requests/{item['id']}/cancel", json={"message": "a new test"})
        demo.http.delete("/demo/effects")
