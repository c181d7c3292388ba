"""Who may decide a request, from when, and how long a run is trusted, as two people see it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from live_server import LiveServer
from playwright.sync_api import Page, expect
from windows import Open

from sayso import Approve, Inbox
from sayso.inbox.directory import add_person, create_token, new_link
from sayso.policy import Policy, Rule
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock

pytestmark = pytest.mark.long  # a browser

POLICY = Policy(
    [
        Rule(
            "pay",
            reviewers=["group:finance"],
            escalate_after=600,
            escalate_to=["group:leads", "cleo"],
        ),
        Rule("ship", risk="low"),
        Rule(
            "refund",
            name="large refunds",
            description="Refunds above 100 euros need a person from finance.",
            reviewers=["group:finance"],
        ),
    ]
)
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def clock() -> FakeClock:
    """A clock that browsers agree with until the test moves it."""
    clock = FakeClock()
    clock.set(time.time_ns() // 1000)
    return clock


@pytest.fixture
def store(clock: FakeClock) -> Iterator[MemoryStore]:
    store = MemoryStore(clock=clock)
    add_person(store, "ana", by="test", groups=["finance"])
    add_person(store, "ben", by="test", groups=["leads"])
    yield store
    store.close()


@pytest.fixture
def url(store: MemoryStore) -> Iterator[str]:
    app = create_app(store=store, policy=POLICY)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    yield server.url
    app.state.sayso.feed.close()
    server.stop()


@pytest.fixture
def ask(store: MemoryStore, url: str) -> Iterator[Ask]:
    """Open requests as a remote agent, and return them."""
    token, _ = create_token(store, "billing", by="test", role="agent")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers) as client:

        def ask(key: str, **body: Any) -> dict[str, Any]:
            answer = client.post("/api/requests", json=body, headers={"Idempotency-Key": key})
            assert answer.status_code == 201, answer.text
            request: dict[str, Any] = answer.json()
            return request

        yield ask


def enter(open_page: Open, url: str, store: MemoryStore, name: str, **options: Any) -> Page:
    """Open a window in which a reviewer is signed in."""
    link = new_link(store, name, role="reviewer")
    page: Page = open_page(f"{url}/login#{link}", quiet=True, **options)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    return page


def test_request_shows_its_escalation(
    open_page: Open, url: str, store: MemoryStore, clock: FakeClock, ask: Ask
) -> None:
    request = ask("pay", tool="pay", args={"euros": 12})
    ana = enter(open_page, url, store, "ana")
    ana.goto(f"{url}/inbox/{request['id']}")
    facts = ana.locator(".detail-meta").first
    expect(facts.locator("time").last).to_have_text(re.compile(r"in (9|10) minutes"))
    expect(facts).to_contain_text("Then group leads, cleo may decide too.")
    ben = enter(open_page, url, store, "ben")
    ben.goto(f"{url}/inbox/{request['id']}")
    expect(ben.get_by_text("Request not found")).to_be_visible()

    clock.advance(600)
    ben.reload()
    expect(ben.locator(".detail-meta").first).to_contain_text("group leads, cleo may decide too")
    expect(ben.get_by_role("button", name="Approve")).to_be_enabled()
    ana.reload()
    expect(facts).to_contain_text("Escalated")


def test_inbox_counts_what_person_may_decide(
    open_page: Open, url: str, store: MemoryStore, ask: Ask
) -> None:
    for number in range(3):
        ask(f"pay-{number}", tool="pay", args={"number": number})
    ask("ship", tool="ship", args={})
    ana = enter(open_page, url, store, "ana")
    ana.goto(f"{url}/inbox")
    expect(ana.get_by_role("heading", level=1)).to_have_text("4 requests need your review")
    ben = enter(open_page, url, store, "ben")
    ben.goto(f"{url}/inbox")
    expect(ben.get_by_role("heading", level=1)).to_have_text("1 request needs your review")
    expect(ben.get_by_role("navigation", name="Pages")).to_contain_text("1 pending")
    expect(ben).to_have_title("(1) Inbox · Sayso")


def test_trusted_run_counts_down_and_stops(
    open_page: Open, url: str, store: MemoryStore, ask: Ask
) -> None:
    request = ask("ship", tool="ship", args={"order": "A-17"})
    ana = enter(open_page, url, store, "ana")
    ana.goto(f"{url}/runs/{request['run']}")
    ana.get_by_role("button", name="Trust this run").click()
    dialog = ana.get_by_role("dialog")
    dialog.get_by_label("For").select_option("5")
    dialog.get_by_role("button", name="Trust run").click()
    window = ana.get_by_test_id("window")
    expect(window).to_contain_text("ana trusts this run up to risk medium")
    timer = window.get_by_role("timer", name="Time left")
    first = timer.inner_text()
    assert first.startswith(("4:", "5:00"))
    expect(timer).not_to_have_text(first)
    window.get_by_role("button", name="Stop").click()
    expect(ana.locator(".toast", has_text="the run asks again")).to_be_visible()
    expect(window).to_have_count(0)
    expect(ana.get_by_role("button", name="Trust this run")).to_be_visible()


def test_equal_approvals_suggest_a_grant_with_its_replay(
    open_page: Open, url: str, store: MemoryStore, ask: Ask
) -> None:
    inbox = Inbox(store)
    ana = enter(open_page, url, store, "ana")
    for number in range(10):
        asked = ask(f"ship-{number}", tool="ship", args={"place": "Oslo"}, agent="billing")
        with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop here
            seen = {"by": "ana", "seen_digest": asked["digest"]}
            pool.submit(inbox.decide_sync, asked["id"], Approve(), **seen).result()
    waiting = ask("ship-10", tool="ship", args={"place": "Oslo"}, agent="billing")
    ana.goto(f"{url}/inbox")
    card = ana.get_by_test_id("suggestion")
    expect(card).to_contain_text("10 equal calls of ship by billing were approved")
    expect(card).to_contain_text('place is "Oslo"')
    replay = card.get_by_test_id("replay")
    expect(replay).to_contain_text("In the last 30 days, 11 of 11 calls would have run without")
    card.get_by_label("Approve these pending requests too").check()
    card.get_by_role("button", name="Allow for 30 days").click()
    expect(ana.locator(".toast", has_text="Allowed for 30 days")).to_be_visible()
    expect(card).to_have_count(0)
    (call,) = store.calls_of(waiting["run"])
    assert call.decision is not None
    assert (call.decision.type, call.decision.by) == ("approve", "ana")
    decided = ask("ship-11", tool="ship", args={"place": "Oslo"}, agent="billing")
    assert (decided["status"], decided["decision"]["type"]) == ("approved", "grant")
    elsewhere = ask("ship-12", tool="ship", args={"place": "Bergen"}, agent="billing")
    assert elsewhere["status"] == "pending"


def test_reasons_and_differences_are_sentences(
    open_page: Open, url: str, store: MemoryStore, ask: Ask
) -> None:
    """The rule in words, how the call differs from approved ones, and hashes under Details."""
    inbox = Inbox(store)
    usual = {"to": "Hooli", "euros": 300}
    for number in range(4):
        asked = ask(f"refund-{number}", tool="refund", args=usual, agent="billing")
        with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop here
            seen = {"by": "ana", "seen_digest": asked["digest"]}
            pool.submit(inbox.decide_sync, asked["id"], Approve(), **seen).result()
    other = {"to": "Initech", "euros": 1_200}
    request = ask("refund-4", tool="refund", args=other, agent="billing")
    ana = enter(open_page, url, store, "ana")
    ana.goto(f"{url}/inbox/{request['id']}")
    why = ana.get_by_role("region", name="Why it was asked")
    reason = "Refunds above 100 euros need a person from finance. (rule “large refunds”)"
    expect(why.locator("p").first).to_have_text(reason)
    facts = ana.get_by_role("list", name="Compared with the last approved calls")
    expect(facts.get_by_role("listitem")).to_have_text(
        ["euros is 4 times the usual 300", "First time with to Initech"]
    )
    short = request["digest"][:12]
    expect(ana.get_by_text(short)).not_to_be_visible()
    ana.get_by_text("Details", exact=True).click()
    expect(ana.get_by_text(short)).to_be_visible()


def test_saved_views_count_for_one_person(
    open_page: Open, url: str, store: MemoryStore, ask: Ask
) -> None:
    for number in range(3):
        ask(f"pay-{number}", tool="pay", args={"to": "Hooli", "number": number})
    ask("ship-0", tool="ship", args={"to": "Hooli"})
    people = {name: enter(open_page, url, store, name) for name in ("ana", "ben")}
    for name, count in (("ana", 4), ("ben", 1)):  # of those, each may see this many
        page = people[name]
        page.goto(f"{url}/inbox?q=hooli")
        page.get_by_role("button", name="Save view").click()
        page.get_by_role("textbox", name="Name").fill(f"Hooli of {name}")
        page.keyboard.press("Enter")
        views = page.get_by_role("navigation", name="Saved views")
        expect(views.get_by_role("button")).to_have_text([f"Hooli of {name} {count}", ""])
    ask("ship-1", tool="ship", args={"to": "Hooli"})
    ask("ship-2", tool="ship", args={"to": "Initech"})
    for name, count in (("ana", 5), ("ben", 2)):
        view = people[name].get_by_role("button", name=f"Hooli of {name} {count}")
        expect(view).to_be_visible()
    other = enter(open_page, url, store, "ana", viewport={"width": 390, "height": 844})
    other.goto(f"{url}/inbox")
    views = other.get_by_role("navigation", name="Saved views")
    expect(views.get_by_role("button")).to_have_text(["Hooli of ana 5"])
    views.get_by_role("button").click()
    expect(other).to_have_url(f"{url}/inbox?q=hooli")
