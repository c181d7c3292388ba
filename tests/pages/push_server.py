"""A server with channels, on a socket, and browsers that subscribe to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from fake_push import Browser as PushBrowser
from fake_push import FakePushService
from live_server import LiveServer
from playwright.sync_api import Page

from sayso.channels.kit.service import ChatChannel
from sayso.channels.push import PushChannel
from sayso.inbox import add_person, create_token
from sayso.inbox.directory import new_link
from sayso.inbox.push import subscribe
from sayso.keys import vapid_key
from sayso.policy import Policy, Rule
from sayso.rows import CallStatus
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.types import Reviewer


class PushServer:
    """A server with push messages, Ana who decides, and an agent that asks."""

    def __init__(self, folder: Path, *channels: ChatChannel) -> None:
        path = folder / "sayso.db"
        self.service = FakePushService()
        self.store = open_store(f"sqlite:///{path}")
        key = vapid_key(path)
        assert key is not None
        self.push = PushChannel(self.store, key, allow_private=True)
        policy = Policy([Rule("*", risk="medium", reviewers="ana")])
        self.app = create_app(
            store=self.store, policy=policy, channels=[self.push, *channels], workers=0
        )
        self._server = LiveServer(server_config(self.app, grace=2))
        self._server.start()
        self.url = self._server.url
        add_person(self.store, "ana", by="test")
        self._agent, _ = create_token(self.store, "billing", by="test", role="agent")

    def ask(self, title: str) -> str:
        answer = httpx.post(
            f"{self.url}/api/requests",
            json={"tool": "refund", "args": {"euros": 250}, "title": title},
            headers={"Authorization": f"Bearer {self._agent}", "Idempotency-Key": title},
        )
        return str(answer.json()["id"])

    def waits(self, request_id: str) -> bool:
        call = self.store.call(request_id)
        return call is not None and call.status is CallStatus.ASKED

    def link(self, name: str, role: str = "reviewer") -> str:
        """Return the address at which a person signs in once."""
        return f"{self.url}/login#{new_link(self.store, name, role=role)}"

    def subscribed(self, name: str) -> PushBrowser:
        browser = self.service.browser()
        subscribe(self.store, Reviewer(name), browser.subscription(self.push.public_key))
        return browser

    def close(self) -> None:
        self.app.state.sayso.feed.close()
        self._server.stop()
        self.store.close()
        self.service.close()


#: Subscribes at the fake service instead of the one that is built into the browser.
SUBSCRIBES = """
Object.defineProperty(Notification, "permission", { get: () => "granted" });
Notification.requestPermission = async () => "granted";
const kept = "test.subscription";
const opened = (text) => {
    const { endpoint, keys, key } = JSON.parse(text);
    return {
        endpoint,
        options: { applicationServerKey: Uint8Array.from(key).buffer },
        toJSON: () => ({ endpoint, keys }),
        unsubscribe: async () => localStorage.removeItem(kept) === undefined,
    };
};
PushManager.prototype.getSubscription = async () => {
    const text = localStorage.getItem(kept);
    return text && opened(text);
};
PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
    const raw = atob(applicationServerKey.replaceAll("-", "+").replaceAll("_", "/"));
    const key = [...raw].map((letter) => letter.charCodeAt(0));
    localStorage.setItem(kept, JSON.stringify({ ...(await newSubscription()), key }));
    return opened(localStorage.getItem(kept));
};
"""


def let_subscribe(page: Page, service: FakePushService) -> None:
    """Let the pages of a window subscribe at a fake push service."""

    def new_subscription() -> dict[str, Any]:
        browser = service.browser()
        return {"endpoint": browser.endpoint, "keys": browser.keys}

    page.context.expose_function("newSubscription", new_subscription)
    page.context.add_init_script(f"if (origin !== 'null') {{ {SUBSCRIBES} }}")
