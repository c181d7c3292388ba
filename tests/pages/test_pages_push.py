"""The installed web app: its manifest, its service worker, and the page that a notification opens.

The server, its messages and their encryption are real. Chromium gets each message as its developer
tools deliver one, because a push service of Google would be between them. Debian's headless shell
shows no notifications: there, a map in the service worker takes their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from push_server import PushServer
from waiting import until
from windows import Open

from sayso.inbox import create_token, remove_person

#: Counts notifications, and stands in for them where the browser shows none.
NOTIFICATIONS = """() => {
    const { registration } = self;
    let show = registration.showNotification.bind(registration);
    if (Notification.permission !== "granted") {
        const shown = new Map();
        show = async (title, options) => {
            const close = () => shown.delete(options.tag);
            close();
            shown.set(options.tag, { title, ...options, close });
        };
        registration.getNotifications = async () => [...shown.values()];
    }
    self.count = 0;
    registration.showNotification = async (...what) => {
        await show(...what);
        self.count += 1;
    };
}"""
SHOWN = """async () => (await self.registration.getNotifications()).map(
    ({ title, body, tag, silent, data }) => ({ title, body, tag, silent, url: data.url }))"""
#: A script may open a window only after a real click, so what it would do is noted.
CLICK = """async () => {
    const [notification] = await self.registration.getNotifications();
    const done = [];
    const work = [];
    self.clients.openWindow = async (url) => done.push(["open", url]);
    WindowClient.prototype.focus = async function () {
        done.push(["focus", new URL(this.url).pathname]);
    };
    const event = Object.assign(new ExtendableEvent("notificationclick"), { notification });
    Object.defineProperty(event, "waitUntil", { value: (promise) => work.push(promise) });
    self.dispatchEvent(event);
    await Promise.all(work);
    return done;
}"""


class ServiceWorker:
    """The service worker of a window, and the messages that it gets."""

    def __init__(self, page: Page, origin: str) -> None:
        self._tools = page.context.new_cdp_session(page)
        self._origin = origin
        registrations: list[dict[str, Any]] = []
        self._tools.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: registrations.extend(event["registrations"]),
        )
        self._tools.send("ServiceWorker.enable")
        page.evaluate("navigator.serviceWorker.ready.then(() => null)")
        while not registrations:
            page.wait_for_timeout(20)
        self._id = registrations[-1]["registrationId"]
        (self.worker,) = page.context.service_workers
        self.worker.evaluate(NOTIFICATIONS)

    def deliver(self, text: str) -> list[dict[str, Any]]:
        """Deliver a message, and return the notifications that are then shown."""
        count = self.worker.evaluate("self.count")
        message = {"origin": self._origin, "registrationId": self._id, "data": text}
        self._tools.send("ServiceWorker.deliverPushMessage", message)
        until(lambda: self.worker.evaluate("self.count") > count)
        return self.shown()

    def shown(self) -> list[dict[str, Any]]:
        return list(self.worker.evaluate(SHOWN))

    def click(self) -> list[list[str]]:
        """Click the oldest notification, and return what the service worker does."""
        return list(self.worker.evaluate(CLICK))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PushServer]:
    running = PushServer(tmp_path)
    yield running
    running.close()


@pytest.fixture
def page(server: PushServer, open_page: Open) -> Page:
    """A window in which Ana is signed in and may get notifications."""
    page: Page = open_page(server.link("ana"), quiet=True, permissions=["notifications"])
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    return page


def test_web_app_can_be_installed(server: PushServer, page: Page) -> None:
    tools = page.context.new_cdp_session(page)
    manifest = tools.send("Page.getAppManifest")
    assert manifest["url"] == f"{server.url}/assets/manifest.webmanifest"
    assert manifest["errors"] == []
    for icon in json.loads(manifest["data"])["icons"]:
        answer = httpx.get(f"{server.url}{icon['src']}")
        assert answer.headers["content-type"] == icon["type"]
    faults = tools.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert {fault["errorId"] for fault in faults} <= {"in-incognito"}


def test_service_worker_is_registered_for_all_pages(server: PushServer, page: Page) -> None:
    ready = "navigator.serviceWorker.ready.then(({ scope, active }) => [scope, active.scriptURL])"
    assert page.evaluate(ready) == [f"{server.url}/", f"{server.url}/service-worker.js"]
    answer = httpx.get(f"{server.url}/service-worker.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert not re.search(r"\bfetch\b|\bcaches\b|XMLHttpRequest", answer.text)


def test_page_of_notification_decides_and_outcome_replaces_it(
    server: PushServer, page: Page
) -> None:
    worker = ServiceWorker(page, server.url)
    device = server.subscribed("ana")
    request_id = server.ask("Refund 250 euros")
    until(lambda: device.received)
    assert worker.deliver(json.dumps(device.received[0])) == [
        {
            "title": "Refund 250 euros",
            "body": "Risk: medium",
            "tag": request_id,
            "silent": False,
            "url": f"/inbox/{request_id}",
        }
    ]
    assert server.waits(request_id)
    ((verb, path),) = worker.click()
    assert verb == "open"
    assert worker.shown() == []
    assert server.waits(request_id)
    page.goto(f"{server.url}{path}")
    expect(page.get_by_role("heading", name="Refund 250 euros", level=1)).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    until(lambda: len(device.received) == 2)
    worker.deliver(json.dumps(device.received[0]))  # as if nobody had touched it
    (shown,) = worker.deliver(json.dumps(device.received[1]))
    assert shown["tag"] == request_id
    assert shown["body"].startswith("Approved by ana, ")
    assert shown["silent"]


@pytest.mark.long
def test_rejection_on_page_is_told_without_its_reason(server: PushServer, page: Page) -> None:
    worker = ServiceWorker(page, server.url)
    device = server.subscribed("ana")
    server.ask("Refund 250 euros")
    until(lambda: device.received)
    worker.deliver(json.dumps(device.received[0]))
    ((_, path),) = worker.click()
    page.goto(f"{server.url}{path}")
    page.get_by_role("button", name="Reject", exact=False).first.click()
    page.get_by_role("textbox", name=re.compile("reason", re.I)).fill("The invoice is wrong")
    page.get_by_role("button", name=re.compile("^Reject")).last.click()
    until(lambda: len(device.received) == 2)
    (shown,) = worker.deliver(json.dumps(device.received[1]))
    assert shown["body"].startswith("Rejected by ana, ")
    assert "invoice" not in str(shown)


@pytest.mark.long
def test_late_notification_opens_the_outcome(server: PushServer, page: Page) -> None:
    worker = ServiceWorker(page, server.url)
    device = server.subscribed("ana")
    request_id = server.ask("Refund 250 euros")
    until(lambda: device.received)
    worker.deliver(json.dumps(device.received[0]))
    token, _ = create_token(server.store, "ana", by="test")
    headers = {"Authorization": f"Bearer {token}"}
    at = f"{server.url}/api/requests/{request_id}"
    digest = httpx.get(at, headers=headers).json()["digest"]
    rejection = {"type": "reject", "message": "not owed", "seen_digest": digest}
    assert httpx.post(f"{at}/decision", json=rejection, headers=headers).status_code == 200
    ((_, path),) = worker.click()
    page.goto(f"{server.url}{path}")
    expect(page.get_by_role("main")).to_contain_text("not owed")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


@pytest.mark.long
def test_notification_of_removed_person_opens_sign_in(server: PushServer, page: Page) -> None:
    worker = ServiceWorker(page, server.url)
    device = server.subscribed("ana")
    server.ask("Refund 250 euros")
    until(lambda: device.received)
    worker.deliver(json.dumps(device.received[0]))
    remove_person(server.store, "ana", by="test")
    ((_, path),) = worker.click()
    page.goto(f"{server.url}{path}")
    expect(page).to_have_url(re.compile("/login"))
    expect(page.get_by_text("Refund 250 euros")).to_have_count(0)


@pytest.mark.long
def test_newer_notice_replaces_only_its_own(server: PushServer, page: Page) -> None:
    worker = ServiceWorker(page, server.url)
    device = server.subscribed("ana")
    first = server.ask("Refund 1 euro")
    until(lambda: len(device.received) == 1)
    second = server.ask("Refund 2 euros")
    until(lambda: len(device.received) == 2)
    for message in device.received:
        worker.deliver(json.dumps(message))
    shown = worker.deliver(json.dumps({**device.received[0], "title": "Refund 9 euros"}))
    titles = {each["tag"]: each["title"] for each in shown}
    assert titles == {first: "Refund 9 euros", second: "Refund 2 euros"}


@pytest.mark.long
def test_click_shows_window_that_has_the_request(server: PushServer, page: Page) -> None:
    worker = ServiceWorker(page, server.url)
    request_id = server.ask("Refund 250 euros")
    notice = {"title": "Refund", "url": f"/inbox/{request_id}", "tag": request_id}
    worker.deliver(json.dumps(notice))
    page.goto(f"{server.url}/inbox/{request_id}")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    assert worker.click() == [["focus", f"/inbox/{request_id}"]]


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "null", "{}", '{"title": "Look", "tag": "x", "url": "https://evil.example/a"}'],
)
def test_strange_message_leads_to_inbox(server: PushServer, page: Page, text: str) -> None:
    worker = ServiceWorker(page, server.url)
    (shown,) = worker.deliver(text)
    assert shown["url"] == "/inbox"
    page.goto(f"{server.url}/history")
    assert worker.click() == [["open", "/inbox"]]


def test_notification_leads_through_sign_in(server: PushServer, open_page: Open) -> None:
    request_id = server.ask("Refund 250 euros")
    token, _ = create_token(server.store, "ana", by="test")
    page = open_page(f"{server.url}/inbox/{request_id}", quiet=True)
    page.get_by_role("textbox", name=re.compile("token", re.I)).fill(token)
    page.get_by_role("button", name=re.compile("Sign in", re.I)).click()
    expect(page.get_by_role("heading", name="Refund 250 euros", level=1)).to_be_visible()
