"""Web Push: what a browser decrypts, and the ends of subscriptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_push import Browser, FakePushService
from kit_world import KitWorld
from waiting import until_async

import sayso
from sayso.audit import verify
from sayso.channels.push import PushChannel
from sayso.errors import Conflict, InvalidCall, KeyMissing, NotAllowed
from sayso.inbox import add_person, create_token, remove_person, revoke_token
from sayso.inbox.push import MOST_DEVICES, subscribe, subscriptions_of
from sayso.keys import vapid_key
from sayso.types import Reviewer
from sayso.views import credential_json


@pytest.fixture
def service() -> Iterator[FakePushService]:
    fake = FakePushService()
    yield fake
    fake.close()


class PushWorld(KitWorld):
    """People with subscribed browsers, and the page that a notification opens."""

    def __init__(self, world: KitWorld, service: FakePushService, folder: Path) -> None:
        super().__init__(world.store)
        key = vapid_key(folder / "sayso.db")
        assert key is not None
        self.service = service
        self.push = PushChannel(self.store, key, allow_private=True)

    def subscribed(self, name: str) -> Browser:
        browser = self.service.browser()
        subscription = browser.subscription(self.push.public_key)
        self.row = subscribe(self.store, Reviewer(name), subscription)
        return browser

    async def shown(self, browser: Browser, tag: str, words: str = "") -> dict[str, Any]:
        """Wait for a notification with these words, and return it."""

        def look() -> bool:
            return tag in browser.notifications and words in str(browser.notifications[tag])

        await until_async(look, otherwise=lambda: browser.received)
        return browser.notifications[tag]

    async def open_and_decide(self, name: str, notice: dict[str, Any], verb: str) -> None:
        """Decide as the page does that a notification opens."""
        request = await self.inbox.get(notice["url"].removeprefix("/inbox/"))
        decision = request.approve() if verb == "approve" else request.reject("secret words")
        token, _ = create_token(self.store, name, by="admin")
        await self.inbox.decide(request, decision, token=token, seen_digest=request.digest)


@pytest.fixture
def push(world: KitWorld, service: FakePushService, tmp_path: Path) -> PushWorld:
    made = PushWorld(world, service, tmp_path)
    made.people("ana", "bo")
    return made


async def test_page_of_notification_decides_and_every_copy_is_replaced(push: PushWorld) -> None:
    first, second = push.subscribed("ana"), push.subscribed("bo")
    async with push.running(push.push):
        request_id = await push.ask()
        notice = await push.shown(first, request_id)
        assert notice == {
            "title": "Refund: A-17, 250",
            "body": "Risk: low",
            "url": f"/inbox/{request_id}",
            "tag": request_id,
            "over": False,
        }
        await push.shown(second, request_id)
        await push.open_and_decide("ana", notice, "approve")
        for browser in (first, second):
            outcome = await push.shown(browser, request_id, "Approved by ana, ")
            assert outcome["over"]
            assert len(browser.received) == 2
    topics = {headers["topic"] for headers in push.service.headers}
    assert len(topics) == 1
    assert [headers["urgency"] for headers in push.service.headers].count("high") == 2
    assert ("push", "sent") in push.counts.outcomes


async def test_rejection_replaces_notification_without_its_reason(push: PushWorld) -> None:
    browser = push.subscribed("ana")
    async with push.running(push.push):
        request_id = await push.ask()
        notice = await push.shown(browser, request_id)
        await push.open_and_decide("ana", notice, "reject")
        outcome = await push.shown(browser, request_id, "Rejected by ana, ")
    assert "secret words" not in str(outcome)


@pytest.mark.parametrize("risk", ["low", "high"])
async def test_notification_has_no_arguments_and_no_secrets(push: PushWorld, risk: str) -> None:
    push.rule = sayso.Rule("*", risk=risk, reviewers=("ana", "bo"), quorum=2)
    browser = push.subscribed("ana")
    async with push.running(push.push):
        request_id = await push.ask(order="password=hunter2hunter2", euros=7)
        notice = await push.shown(browser, request_id)
    assert notice["body"] == f"Risk: {risk}"
    assert set(notice) == {"title", "body", "url", "tag", "over"}
    assert "hunter2" not in str(notice)


async def test_newer_notice_replaces_the_older(push: PushWorld) -> None:
    push.rule = sayso.Rule("*", risk="low", quorum=2, reviewers=("ana", "bo"))
    browser = push.subscribed("bo")
    async with push.running(push.push):
        request_id = await push.ask()
        await push.shown(browser, request_id, "250")
        request = await push.inbox.get(request_id)
        token, _ = create_token(push.store, "ana", by="admin")
        await push.inbox.decide(request, request.edit({"euros": 9}), token=token)
        notice = await push.shown(browser, request_id, "Refund: A-17, 9")
        assert list(browser.notifications) == [request_id]
        assert not notice["over"]
        await until_async(lambda: ("push", "closed") in push.store.count_deliveries())
        assert browser.received[-1] == notice


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_end_of_request_replaces_notification(push: PushWorld, how: str) -> None:
    push.rule = sayso.Rule("*", risk="low", reviewers="ana", expires_in=1.0)
    browser = push.subscribed("ana")
    async with push.running(push.push):
        request_id = await push.ask()
        await push.shown(browser, request_id)
        if how == "cancelled":
            await push.inbox.cancel(request_id, by="ana")
        await until_async(lambda: push.sweep() or browser.notifications[request_id]["over"])
    assert browser.notifications[request_id]["body"].startswith(how.capitalize())


@pytest.mark.parametrize("status", [404, 410])
async def test_subscription_that_is_gone_ends(push: PushWorld, status: int) -> None:
    push.subscribed("ana")
    push.service.refuse = lambda _: (status, {})
    async with push.running(push.push):
        await push.ask()
        await until_async(lambda: push.store.count_deliveries() == {("push", "dead"): 1})
        await push.ask("r2")
        await until_async(lambda: push.store.cursor("channel:push"))
    assert subscriptions_of(push.store, "ana") == []
    assert push.store.count_deliveries() == {("push", "dead"): 1}
    assert verify(push.store).ok


@pytest.mark.parametrize(
    ("status", "headers", "least"),
    [(429, {"retry-after": "2"}, 1.9), (503, {}, 0.35), (500, {}, 0.35)],
)
async def test_busy_service_gets_the_message_later(
    push: PushWorld, status: int, headers: dict[str, str], least: float
) -> None:
    busy, other = push.subscribed("ana"), push.subscribed("bo")
    times: list[float] = []

    def refuse(browser: Browser) -> tuple[int, dict[str, str]] | None:
        if browser is busy:
            times.append(time.monotonic())
        return (status, headers) if browser is busy and len(times) == 1 else None

    push.service.refuse = refuse
    async with push.running(push.push):
        request_id = await push.ask()
        await push.shown(other, request_id)
        assert busy.notifications == {}  # it delays nobody else
        await push.shown(busy, request_id)
    assert times[1] - times[0] >= least
    assert len(busy.received) == 1


async def test_dead_service_delays_no_other_channel(push: PushWorld) -> None:
    browser = push.subscribed("ana")
    push.link("ana", "77")
    push.service.close()
    async with push.running(push.push, push.channel):
        await push.ask()
        await until_async(lambda: push.channel.sent)
    assert browser.received == []


@pytest.mark.parametrize("how", ["person", "subscription"])
async def test_subscription_ends_with_its_person(push: PushWorld, how: str) -> None:
    ended, other = push.subscribed("ana"), push.subscribed("bo")
    (row,) = subscriptions_of(push.store, "ana")
    if how == "person":
        remove_person(push.store, "ana", by="admin")
    else:
        revoke_token(push.store, row.id, by="admin")
    async with push.running(push.push):
        request_id = await push.ask()
        await push.shown(other, request_id)
    assert ended.received == []
    assert subscriptions_of(push.store, "ana") == []
    assert verify(push.store).ok


async def test_subscription_for_another_key_ends(push: PushWorld, tmp_path: Path) -> None:
    push.subscribed("ana")
    key = vapid_key(tmp_path / "another.db")
    assert key is not None
    rotated = PushChannel(push.store, key, allow_private=True)
    async with push.running(rotated):
        await push.ask()
        await until_async(lambda: push.store.count_deliveries() == {("push", "dead"): 1})
    assert subscriptions_of(push.store, "ana") == []


async def test_killed_sender_repeats_one_notification(push: PushWorld) -> None:
    """What was sent and not recorded is sent again, and replaces itself."""
    browser = push.subscribed("ana")
    send = push.push.send

    async def die(delivery: Any, card: Any) -> str:
        push.push.send = send  # type: ignore[method-assign]
        await send(delivery, card)
        raise OSError("the process is gone")

    push.push.send = die  # type: ignore[method-assign]
    async with push.running(push.push):
        request_id = await push.ask()
        await until_async(lambda: len(browser.received) == 2)
    assert list(browser.notifications) == [request_id]


async def test_many_requests_are_one_notification(push: PushWorld) -> None:
    browser = push.subscribed("ana")
    for number in range(12):
        await push.ask(f"r{number}")
    async with push.running(push.push):
        await push.ask("last")
        notice = await push.shown(browser, "digest")
    assert notice["title"] == "13 requests wait for you"
    assert list(browser.notifications) == ["digest"]


async def test_rule_names_people_to_push_to(push: PushWorld) -> None:
    first, second = push.subscribed("ana"), push.subscribed("bo")
    push.link("ana", "77")
    push.rule = sayso.Rule("*", risk="low", notify=["push:group:finance"])
    async with push.running(push.push, push.channel):
        request_id = await push.ask()
        await push.shown(second, request_id)
        await asyncio.sleep(0.2)
    assert first.received == []
    assert push.channel.sent == []


async def test_delivery_holds_no_url_of_the_browser(push: PushWorld) -> None:
    browser = push.subscribed("ana")
    push.service.refuse = lambda _: (400, {})
    async with push.running(push.push):
        request_id = await push.ask()
        await until_async(lambda: push.store.count_deliveries() == {("push", "dead"): 1})
    (delivery,) = push.store.deliveries_of(request_id)
    assert delivery.target == push.row.id
    assert browser.endpoint not in str(delivery)
    assert browser.keys["auth"] not in str(delivery)
    shown = credential_json(push.row)
    assert shown["device"] == "Ana's phone"
    assert browser.endpoint not in str(shown)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example/x",
        "https://127.0.0.1/x",
        "https://10.0.0.1/x",
        "https://169.254.169.254/latest",
        "https://[::1]/x",
        "https://user@8.8.8.8/x",
        "https://8.8.8.8/x#y",
        "file:///etc/passwd",
        "https://does-not-exist.invalid/x",
        "nonsense",
    ],
)
async def test_endpoint_in_private_network_is_refused(
    push: PushWorld, tmp_path: Path, endpoint: str
) -> None:
    key = vapid_key(tmp_path / "sayso.db")
    assert key is not None
    channel = PushChannel(push.store, key)
    subscription = push.service.browser().subscription("")
    with pytest.raises(InvalidCall) as caught:
        await channel.accept(subscription._replace(endpoint=endpoint))
    assert caught.value.path == "endpoint"
    await channel.accept(subscription._replace(endpoint="https://8.8.8.8/x"))


@pytest.mark.parametrize(
    "keys", [("", ""), ("AA", "AA"), ("no base64!", "x"), ("B" * 87, "A" * 22)]
)
async def test_keys_that_encrypt_nothing_are_refused(
    push: PushWorld, keys: tuple[str, str]
) -> None:
    subscription = push.service.browser().subscription("")
    with pytest.raises(InvalidCall) as caught:
        await push.push.accept(subscription._replace(p256dh=keys[0], auth=keys[1]))
    assert caught.value.path == "keys"


def test_browser_is_of_one_person(push: PushWorld) -> None:
    add_person(push.store, "bot", by="admin", role="agent")
    browser = push.subscribed("ana")
    subscription = browser.subscription(push.push.public_key)
    assert subscribe(push.store, Reviewer("ana"), subscription).id == push.row.id
    with pytest.raises(Conflict):
        subscribe(push.store, Reviewer("bo"), subscription)
    with pytest.raises(NotAllowed):
        subscribe(push.store, Reviewer("bot"), push.service.browser().subscription("k"))
    for _ in range(MOST_DEVICES - 1):
        push.subscribed("ana")
    with pytest.raises(Conflict, match="20 devices"):
        push.subscribed("ana")
    revoke_token(push.store, push.row.id, by="admin")
    push.subscribed("ana")
    assert verify(push.store).ok


def test_key_is_made_once_and_for_this_user(tmp_path: Path) -> None:
    path = tmp_path / "sayso.db"
    made = vapid_key(path, {})
    file = tmp_path / "sayso.db.vapid"
    assert file.stat().st_mode & 0o777 == 0o600
    assert vapid_key(path, {}) == made
    named = tmp_path / "named"
    assert vapid_key(None, {}) is None
    elsewhere = vapid_key(None, {"SAYSO_VAPID_KEY_FILE": str(named)})
    assert elsewhere not in (None, made)
    assert named.stat().st_mode & 0o777 == 0o600
    assert made is not None
    assert vapid_key(path, {"SAYSO_VAPID_KEY": made}) == made
    for text in ("", "hmac:x", "A" * 44):
        with pytest.raises(KeyMissing):
            vapid_key(path, {"SAYSO_VAPID_KEY": text})
    file.chmod(0o644)
    with pytest.raises(KeyMissing, match="chmod 600"):
        vapid_key(path, {})
