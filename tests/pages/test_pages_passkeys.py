"""Passkeys in a real Chromium, with its virtual authenticator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer
from playwright.sync_api import Browser, Page, expect

from sayso.audit import prove, verify
from sayso.inbox.directory import create_token, new_link
from sayso.policy import Policy, Rule
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.stores.base import Store

pytestmark = pytest.mark.long

POLICY = Policy([Rule("pay", assurance="passkey", name="large payments")])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'sayso.db'}")


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    app = create_app(store=store, policy=POLICY)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    yield server.url.replace("127.0.0.1", "localhost")
    app.state.sayso.feed.close()
    server.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )
    yield page
    context.close()


def ask(store: Store, url: str) -> str:
    """Open a request whose rule asks for a passkey, and return its id."""
    token, _ = create_token(store, "billing", by="test", role="agent")
    made = httpx.post(
        f"{url}/api/requests",
        json={"tool": "pay", "args": {"to": "Hooli", "euros": 1200}},
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "k-1"},
    )
    request_id: str = made.json()["id"]
    return request_id


def add_passkey(page: Page, url: str, store: Store) -> None:
    page.goto(f"{url}/login#{new_link(store, 'ana', role='reviewer')}")
    page.wait_for_url("**/inbox**")
    page.goto(f"{url}/account")
    page.get_by_label("Name of this device").fill("My laptop")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_test_id("passkey")).to_contain_text("My laptop")


def test_passkey_signs_decision_on_the_page(page: Page, url: str, store: Store) -> None:
    request_id = ask(store, url)
    add_passkey(page, url, store)
    page.goto(f"{url}/inbox/{request_id}")
    page.get_by_role("button", name="Approve", exact=False).first.click()
    expect(page.get_by_text("Approved").first).to_be_visible()
    call = store.call(request_id)
    assert call is not None
    assert call.decision is not None
    assert (call.decision.by, call.decision.assurance) == ("ana", "passkey")
    assert verify(store).ok


def test_passkey_signs_in_and_can_be_removed(page: Page, url: str, store: Store) -> None:
    add_passkey(page, url, store)
    page.get_by_label("Account: ana").click()
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/inbox**")
    page.goto(f"{url}/account")
    page.get_by_role("button", name="Remove passkey My laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove passkey").click()
    # The session that it opened ends, too.
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()


def test_proof_checks_itself_offline(page: Page, url: str, store: Store, tmp_path: Path) -> None:
    request_id = ask(store, url)
    add_passkey(page, url, store)
    page.goto(f"{url}/inbox/{request_id}")
    page.get_by_role("button", name="Approve", exact=False).first.click()
    expect(page.get_by_text("Approved").first).to_be_visible()
    proof = prove(store, request_id)
    for name, text, verdict in (
        ("proof", proof, "Valid"),
        ("other", proof.replace(request_id, "req_000000000000"), "Not valid"),
        ("amount", proof.replace("1200", "1300"), "Not valid"),
    ):
        file = tmp_path / f"{name}.html"
        file.write_text(text)
        page.goto(file.as_uri())
        expect(page.locator("#result")).to_contain_text(f"{verdict}: ")
