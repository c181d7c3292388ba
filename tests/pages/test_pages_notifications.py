"""The page of notifications, with fakes of the platforms, and the page of channels for admins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_mail import Mailbox, running_mailbox
from fake_telegram import TOKEN, FakeTelegram
from live_server import LiveServer
from playwright.sync_api import Locator, Page, expect
from push_server import PushServer, let_subscribe
from waiting import until
from windows import PHONE, VIEWS, Open, check_page

from sayso.channels.telegram import TelegramChannel
from sayso.inbox import add_person, change_person
from sayso.inbox.accounts import accounts_of
from sayso.inbox.directory import new_link
from sayso.inbox.notices import Notices
from sayso.inbox.push import subscriptions_of
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store


class World(PushServer):
    """A server with push messages, Telegram and mail."""

    def __init__(self, folder: Path, telegram: FakeTelegram, mail: Any) -> None:
        bot = TelegramChannel(TOKEN, api=telegram.url)
        super().__init__(folder, bot, mail)
        self.telegram = telegram
        change_person(self.store, "ana", by="test", mail="ana@example.com")

    def enter(
        self, open_page: Open, name: str = "ana", role: str = "reviewer", **options: Any
    ) -> Page:
        """Open a window in which a person is signed in and can subscribe to push messages."""
        page: Page = open_page("about:blank", quiet=True, reduced_motion="reduce", **options)
        let_subscribe(page, self.service)
        self.sign_in(page, name, role)
        return page

    def sign_in(self, page: Page, name: str, role: str = "reviewer") -> None:
        page.goto(self.link(name, role))
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()

    def open_notifications(self, page: Page) -> None:
        page.get_by_role("button", name="Account:").click()
        page.get_by_role("link", name="Notifications").click()
        expect(page.get_by_role("heading", name="Notifications", level=1)).to_be_visible()

    def subscribed_names(self) -> list[str]:
        return [row.person for name in ("ana", "ben") for row in subscriptions_of(self.store, name)]


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[tuple[Mailbox, Any]]:
    with running_mailbox("https://sayso.example") as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, mailbox: tuple[Mailbox, Any]) -> Iterator[World]:
    telegram = FakeTelegram()
    running = World(tmp_path, telegram, mailbox[1])
    yield running
    running.close()
    telegram.close()


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name)


def turn_on(page: Page) -> Locator:
    push = card(page, "Push messages")
    push.get_by_role("button", name="Turn on in this browser").click()
    expect(push.get_by_test_id("account")).to_contain_text("this browser")
    return push


def test_browser_gets_messages_until_it_is_removed(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    world.open_notifications(page)
    push = turn_on(page)
    push.get_by_role("button", name="Send a test message").click()
    expect(push.get_by_role("status")).to_have_text("Sent to 1 account.")
    (device,) = world.service.browsers
    assert [message["title"] for message in device.received] == ["Test message"]
    world.ask("Refund 250 euros")
    until(lambda: len(device.received) == 2)
    page.reload()
    expect(push.get_by_test_id("account")).to_contain_text("Chrome on Linux this browser")
    assert len(world.service.browsers) == 1
    push.get_by_role("button", name=re.compile("^Remove")).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop messages").click()
    expect(push.get_by_role("button", name="Turn on in this browser")).to_be_enabled()
    assert world.subscribed_names() == []
    assert page.evaluate("localStorage.getItem('test.subscription')") is None


def test_sign_out_ends_subscription(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    world.open_notifications(page)
    turn_on(page)
    page.get_by_role("button", name="Account:").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login"))
    assert world.subscribed_names() == []
    assert page.evaluate("localStorage.getItem('test.subscription')") is None


@pytest.mark.long
def test_changed_subscription_is_renewed(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    world.open_notifications(page)
    turn_on(page)
    page.evaluate("localStorage.removeItem('test.subscription')")
    page.goto(f"{world.url}/inbox")
    until(lambda: page.evaluate("localStorage.getItem('test.subscription')"))
    until(lambda: world.subscribed_names() == ["ana"])
    world.ask("Refund 250 euros")
    until(lambda: world.service.browsers[1].received)


@pytest.mark.long
@pytest.mark.parametrize("how", ["removed elsewhere", "other person"])
def test_subscription_of_another_time_ends(world: World, open_page: Open, how: str) -> None:
    page = world.enter(open_page)
    world.open_notifications(page)
    turn_on(page)
    add_person(world.store, "ben", by="test")
    if how == "removed elsewhere":
        (row,) = subscriptions_of(world.store, "ana")
        page.evaluate(
            "(id) => fetch(`/api/me/channels/push/accounts/${id}`, { method: 'DELETE' })", row.id
        )
        page.goto(f"{world.url}/inbox")
    else:
        page.context.clear_cookies()  # the session has ended, nobody has signed out
        world.sign_in(page, "ben")
    until(lambda: page.evaluate("localStorage.getItem('test.subscription')") is None)
    world.open_notifications(page)
    push = card(page, "Push messages")
    expect(push.get_by_role("button", name="Turn on in this browser")).to_be_enabled()
    expect(push.get_by_test_id("account")).to_have_count(0)
    assert len(world.service.browsers) == 1


def test_page_says_why_there_are_no_push_messages(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    page.add_init_script("Object.defineProperty(Notification, 'permission', {get: () => 'denied'})")
    page.goto(f"{world.url}/notifications")
    push = card(page, "Push messages")
    expect(push).to_contain_text("Notifications of this page are blocked")
    expect(push.get_by_role("button", name="Turn on in this browser")).to_be_disabled()


def test_account_is_linked_tested_and_unlinked(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    world.open_notifications(page)
    telegram = card(page, "Telegram")
    telegram.get_by_role("button", name="Link an account…").click()
    dialog = page.get_by_role("dialog")
    words = dialog.get_by_test_id("code").inner_text()
    code = words.removeprefix("/start ")
    opens = dialog.get_by_role("link", name="Open the bot in Telegram")
    expect(opens).to_have_attribute("href", f"https://t.me/sayso_bot?start={code}")
    world.telegram.write(77, words)
    expect(dialog).to_have_count(0)
    expect(telegram.get_by_test_id("account")).to_contain_text("77")
    telegram.get_by_role("button", name="Send a test message").click()
    expect(telegram.get_by_role("status")).to_have_text("Sent to 1 account.")
    until(lambda: "Test message" in world.telegram.shown(77)[-1]["text"])
    world.telegram.refuse = lambda *_: (403, {"ok": False, "error_code": 403, "description": "No"})
    telegram.get_by_role("button", name="Send a test message").click()
    expect(telegram.get_by_role("status")).to_contain_text("Not sent: ")
    world.telegram.refuse = lambda *_: None
    telegram.get_by_role("button", name="Remove 77").click()
    dialog.get_by_role("button", name="Unlink account").click()
    expect(telegram).to_contain_text("You have linked no account.")
    assert accounts_of(world.store, "ana", "telegram") == []


def test_address_is_confirmed_with_code_of_mail(
    world: World, mailbox: tuple[Mailbox, Any], open_page: Open
) -> None:
    page = world.enter(open_page)
    page.goto(f"{world.url}/notifications")
    mail = card(page, "Mail")
    mail.get_by_role("button", name="Confirm your address…").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_role("textbox", name="Code")
    field.fill("wrong")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog.get_by_role("alert")).to_contain_text("unknown, used or expired")
    until(lambda: mailbox[0].mails)
    code = re.search(r"[\w-]{22}", mailbox[0].text())
    assert code is not None, mailbox[0].text()
    field.fill(code[0])
    dialog.get_by_role("button", name="Confirm").click()
    expect(mail.get_by_test_id("account")).to_contain_text("ana@example.com")


def test_quiet_hours_are_kept(world: World, open_page: Open) -> None:
    page = world.enter(open_page, timezone_id="Europe/Berlin")
    world.open_notifications(page)
    form = card(page, "When messages reach you")
    form.get_by_role("checkbox", name="Quiet hours").check()
    expect(form.get_by_role("combobox", name="Time zone")).to_have_value("Europe/Berlin")
    form.get_by_label("From", exact=True).fill("00:00")
    form.get_by_label("Until", exact=True).fill("00:00")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("would never end")
    form.get_by_label("Until", exact=True).fill("23:59")
    form.get_by_role("checkbox", name="Only while I am away").check()
    form.get_by_role("button", name="Save").click()
    expect(form).to_contain_text("These are quiet hours, until ")
    page.reload()
    expect(form.get_by_label("Until", exact=True)).to_have_value("23:59")
    ana = world.store.person("ana")
    assert ana is not None
    hours = {"quiet_from": "00:00", "quiet_until": "23:59", "zone": "Europe/Berlin"}
    assert Notices.of(ana) == Notices(**hours, only_away=True)
    form.get_by_role("checkbox", name="Quiet hours").uncheck()
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved").last).to_be_visible()
    until(lambda: Notices.of(world.store.person("ana") or ana).quiet_from == "")


def test_admin_sees_which_bot_fails(world: World, open_page: Open) -> None:
    page = world.enter(open_page, "ops", "admin")
    page.goto(f"{world.url}/notifications")
    page.get_by_role("link", name="Channels of this server").click()
    rows = page.get_by_test_id("channel")
    expect(rows).to_have_count(3)
    telegram = rows.filter(has_text="Telegram")
    expect(telegram).to_contain_text("@sayso_bot")
    expect(telegram).to_contain_text("Working")
    world.telegram.refuse = lambda *_: (401, {"ok": False, "error_code": 401, "description": "No"})
    page.get_by_role("button", name="Check again").click()
    expect(telegram).to_contain_text("No answer")
    assert TOKEN not in page.content()


def test_reviewer_gets_no_page_of_channels(world: World, open_page: Open) -> None:
    page = world.enter(open_page)
    page.goto(f"{world.url}/notifications/channels")
    expect(page.get_by_role("heading", name="Notifications", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="Channels of this server")).to_have_count(0)


def test_chat_user_sets_own_notifications(world: World, open_page: Open) -> None:
    page = world.enter(open_page, "cleo", "chat")
    world.open_notifications(page)
    form = card(page, "When messages reach you")
    form.get_by_role("checkbox", name="Only while I am away").check()
    form.get_by_role("button", name="Save").click()
    until(lambda: '"only_away": true' in getattr(world.store.person("cleo"), "notices", ""))


@pytest.mark.long
@pytest.mark.parametrize(
    ("auth", "words"),
    [(True, "This server has no channels yet"), (False, "Nobody signs in at this server")],
)
def test_page_says_why_nothing_reaches_anyone(
    tmp_path: Path, open_page: Open, auth: bool, words: str
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    app = create_app(store=store, auth=auth, workers=0)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    page = open_page(f"{server.url}/login#{new_link(store, 'ana', role='reviewer')}", quiet=True)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.goto(f"{server.url}/notifications")
    expect(page.get_by_role("main")).to_contain_text(words)
    expect(page.get_by_role("button", name="Save")).to_have_count(int(auth))
    app.state.sayso.feed.close()
    server.stop()
    store.close()


@pytest.mark.long
@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_pages_fit_and_are_accessible(
    world: World, open_page: Open, tmp_path: Path, size: dict[str, Any], scheme: str
) -> None:
    page = world.enter(open_page, "ops", "admin", color_scheme=scheme, **size)
    folder = Path(os.environ.get("SAYSO_SCREENS", tmp_path))
    found: list[Any] = []

    def check(name: str) -> None:
        found.extend((name, problem) for problem in check_page(page, phone=size is PHONE))
        width = size["viewport"]["width"]
        page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)

    world.open_notifications(page)
    turn_on(page)
    page.get_by_role("checkbox", name="Quiet hours").check()
    check("notifications")
    card(page, "Telegram").get_by_role("button", name="Link an account…").click()
    expect(page.get_by_test_id("code")).to_be_visible()
    check("link")
    page.keyboard.press("Escape")
    world.telegram.refuse = lambda *_: (401, {"ok": False, "error_code": 401, "description": "No"})
    page.goto(f"{world.url}/notifications/channels")
    expect(page.get_by_test_id("channel")).to_have_count(3)
    check("channels")
    assert found == []
