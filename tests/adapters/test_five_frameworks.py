"""Five agents of five frameworks are one system: one inbox, decided on the web and in a terminal,
taken further by whatever process has the agent; each effect once."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from one_system import FIVE, IMPORTED, ROOT, OneSystem
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from playwright.sync_api import expect, sync_playwright
from sayso_process import PythonForks
from waiting import until

import sayso
from sayso.audit.spans import ApprovalSpans

pytestmark = pytest.mark.long

SECONDS = 60_000
SERVE = ("sayso", "serve", "--port", "0", "--no-auth")
LAST = dict.fromkeys(FIVE, "Ana has her money.")


@pytest.fixture(scope="module")
def python() -> Iterator[PythonForks]:
    forks = PythonForks(*IMPORTED)
    yield forks
    forks.close()


@pytest.fixture
def system(tmp_path: Path, python: PythonForks) -> Iterator[OneSystem]:
    made = OneSystem(tmp_path, python)
    yield made
    made.close()


@pytest.fixture
def chromium() -> str:
    path: str | None = runpy.run_path(str(ROOT / "scripts" / "programs.py"))["chromium"]()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium: run scripts/programs.py chromium")
        pytest.skip(
            "there is no Chromium: `make test` fetches one, or run scripts/programs.py chromium"
        )
    return path


def approve_on_the_page(chromium: str, url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(url)
        approve = page.get_by_role("button", name="Approve", exact=False)
        expect(approve).to_be_enabled(timeout=SECONDS)
        approve.click()
        page.wait_for_function(
            "() => fetch(location.pathname.replace('inbox', 'api/requests'))"
            ".then(got => got.json()).then(request => request.status === 'approved')"
        )
        browser.close()


def test_five_agents_share_one_process(system: OneSystem, chromium: str) -> None:
    """The process that asks for all five also serves the page, and resumes them."""
    process = system.start(str(Path(__file__).with_name("one_process.py")))
    for name in FIVE:
        system.hear(process, f"{name}: paused")
    url = system.is_at(process)
    waiting = system.waiting()
    assert set(waiting) == set(FIVE)

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with (
        closing(sayso.open_store(system.folder / "sayso.db")) as store,
        ApprovalSpans(store, provider.get_tracer("test")),
    ):
        approve_on_the_page(chromium, f"{url}/inbox/{waiting['langchain']['id']}")
        system.on_the_web(waiting["openai_agents"], "approve").raise_for_status()
        new = {"to": "ana", "euros": 12}
        system.on_the_web(waiting["agent_framework"], "edit", args=new).raise_for_status()
        system.in_a_terminal(waiting["dspy"], "approve")
        system.in_a_terminal(waiting["pydantic_ai"], "edit", "--args", '{"euros": 15}')

        assert system.finished() == LAST
        spans = until(lambda: len(made := exporter.get_finished_spans()) >= len(FIVE) and made)
    agents = [(span.attributes or {})["gen_ai.agent.name"] for span in spans]
    assert sorted(map(str, agents)) == sorted(FIVE)
    assert system.waiting() == {}
    assert system.decided() == {
        "langchain": ("approve", "web"),
        "openai_agents": ("approve", "web"),
        "agent_framework": ("edit", "web"),
        "dspy": ("approve", "cli"),
        "pydantic_ai": ("edit", "cli"),
    }
    system.stop()
    assert system.paid() == [
        "agent_framework paid 12 euros to ana",
        "dspy paid 20 euros to ana",
        "langchain paid 20 euros to ana",
        "openai_agents paid 20 euros to ana",
        "pydantic_ai paid 15 euros to ana",
    ]


def test_five_agents_share_one_store(system: OneSystem) -> None:
    """Five processes ask and are gone; five others, which hold one agent each, go on."""
    server = system.start(*SERVE, "--workers", "0")
    asking = {name: system.begin(name) for name in FIVE}
    for name, process in asking.items():
        assert system.ended(process) == f"{name}: paused\n"
    system.is_at(server)
    waiting = system.waiting()
    assert set(waiting) == set(FIVE)

    system.on_the_web(waiting["dspy"], "approve").raise_for_status()  # before its worker is there
    workers = {name: system.start("sayso", "worker", f"five_frameworks:{name}") for name in FIVE}
    for name, worker in workers.items():
        system.hear(worker, f"Resuming runs of {name} ")
    new = {"to": "ana", "euros": 12}
    system.on_the_web(waiting["pydantic_ai"], "edit", args=new).raise_for_status()
    system.on_the_web(waiting["langchain"], "approve").raise_for_status()
    system.in_a_terminal(waiting["openai_agents"], "approve")
    system.in_a_terminal(waiting["agent_framework"], "edit", "--args", '{"euros": 15}')
    late = system.on_the_web(waiting["openai_agents"], "reject", message="too late")
    assert late.status_code == 409

    assert system.finished() == LAST
    assert system.waiting() == {}
    assert system.decided() == {
        "langchain": ("approve", "web"),
        "openai_agents": ("approve", "cli"),
        "agent_framework": ("edit", "cli"),
        "dspy": ("approve", "web"),
        "pydantic_ai": ("edit", "web"),
    }
    system.stop()
    assert system.paid() == [
        "agent_framework paid 15 euros to ana",
        "dspy paid 20 euros to ana",
        "langchain paid 20 euros to ana",
        "openai_agents paid 20 euros to ana",
        "pydantic_ai paid 12 euros to ana",
    ]
