"""Plans and the opinions of models in a real Chromium, on a wide screen and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_server import LiveServer
from playwright.sync_api import Page, expect
from windows import Open, turn_pages

from sayso import Gate, Paused, Policy, Rule, ToolCall
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.stores.base import Store

pytestmark = pytest.mark.long

PHONE = {"width": 390, "height": 844}
REASON = "the account is new"


class Agent:
    """An agent beside the server. What it does happens in an OS thread without an event loop."""

    def __init__(self, store: Store) -> None:
        answer = {"decision": "reject", "reason": REASON}
        rules = [
            Rule("refund", risk="low"),
            Rule("tell", risk="low"),
            Rule("close", reviewer="model:triage"),
        ]
        models = {"triage": lambda request: answer if request["args"]["certain"] else "ask"}
        self.gate = Gate(store, policy=Policy(rules), agent="clerk", wait=0, models=models)
        self.ran: list[Any] = []

        @self.gate.guard(title="Refund {euros} euros to order {order}", risk="low")
        def refund(order: str, euros: int) -> str:
            self.ran.append((order, euros))
            return "refunded"

        @self.gate.guard
        def tell(order: str) -> str:
            self.ran.append(order)
            return "told"

        @self.gate.guard
        def close(order: str, certain: bool) -> None: ...

        self.refund, self.tell, self.close = refund, tell, close

    def work(self, body: Callable[[], Any], run: str = "case-17") -> Any:
        def entered() -> Any:
            with self.gate.run(run):
                return body()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(entered).result()

    def request(self, body: Callable[[], Any], run: str = "case-17") -> str:
        with pytest.raises(Paused) as caught:
            self.work(body, run)
        request: str = caught.value.requests[0].id
        return request

    def plan(self) -> Any:
        return self.gate.plan_sync(
            [
                ToolCall("refund", {"order": "A-17", "euros": 20}),
                ToolCall("refund", {"order": "A-18-" + "with-a-long-name-" * 6, "euros": 30}),
                ToolCall("tell", {"order": "A-17"}),
            ]
        )


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(open_store(f"sqlite:///{tmp_path / 'sayso.db'}"))


@pytest.fixture
def url(agent: Agent) -> Iterator[str]:
    app = create_app(store=agent.gate.store, policy=agent.gate.policy, auth=False)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    yield server.url
    app.state.sayso.feed.close()
    server.stop()


def fits(page: Page) -> bool:
    """Return whether nothing is wider than the screen."""
    fits: bool = page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return fits


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 800}, PHONE], ids=["wide", "phone"])
def test_plan_is_read_edited_and_approved(
    agent: Agent, url: str, open_page: Open, viewport: dict[str, int]
) -> None:
    page = open_page(f"{url}/inbox/{agent.request(agent.plan)}", viewport=viewport)
    steps = page.get_by_test_id("plan").get_by_test_id("plan-step")
    expect(steps).to_have_count(3)
    expect(steps.nth(0)).to_contain_text("1. Refund 20 euros to order A-17")
    expect(steps.nth(0)).to_contain_text("Low risk")
    expect(steps.nth(2)).to_contain_text("tell")
    expect(page.get_by_test_id("plan")).to_contain_text("in this order")
    assert fits(page)
    expect(page.get_by_role("button", name="Always allow")).to_have_count(0)
    page.get_by_role("button", name="Edit").first.click()
    form = page.get_by_test_id("plan-form")
    form.get_by_role("button", name="Remove step 2").click()
    expect(form.get_by_test_id("plan-step")).to_have_count(2)
    form.get_by_label("Arguments of step 1").fill('{"order": "A-17", "euros"')
    expect(form).to_contain_text("Invalid JSON")
    form.get_by_label("Arguments of step 1").fill('{"order": "A-17", "euros": 15}')
    assert fits(page)
    page.get_by_role("button", name="Approve with").click()
    expect(page).to_have_url(f"{url}/inbox")
    assert [(call.name, call.args) for call in agent.work(agent.plan)] == [
        ("refund", {"order": "A-17", "euros": 15}),
        ("tell", {"order": "A-17"}),
    ]


def test_approved_plan_runs_its_steps_only(agent: Agent, url: str, open_page: Open) -> None:
    page = open_page(f"{url}/inbox/{agent.request(agent.plan)}", viewport=PHONE)
    turn_pages(page)
    page.get_by_role("button", name="Approve", exact=False).first.click()
    expect(page).to_have_url(f"{url}/inbox")

    def other() -> None:
        agent.plan()
        assert agent.refund("A-17", 20) == "refunded"
        agent.refund("A-99", 20)

    agent.request(other)
    assert agent.ran == [("A-17", 20)]


def test_opinion_of_a_model_is_shown_as_unverified(agent: Agent, url: str, open_page: Open) -> None:
    request = agent.request(lambda: agent.close("A-17", certain=False), "r2")
    page = open_page(f"{url}/inbox/{request}", viewport=PHONE)
    opinion = page.get_by_test_id("opinion")
    expect(opinion).to_contain_text("A model, unverified")
    expect(opinion).to_contain_text("model:triage")
    expect(opinion).to_contain_text("It leaves this to people.")
    assert fits(page)


def test_rejection_by_a_model_is_shown_as_one(agent: Agent, url: str, open_page: Open) -> None:
    def rejected() -> str:
        try:
            agent.close("A-17", certain=True)
        except Exception as error:
            return str(error)
        return ""

    assert REASON in agent.work(rejected, "r3")
    (call,) = agent.gate.store.calls_of("r3")
    page = open_page(f"{url}/inbox/{call.id}")
    outcome = page.get_by_test_id("outcome")
    expect(outcome).to_contain_text("model:triage (a model, unverified) rejected this")
    expect(outcome).to_contain_text(REASON)
