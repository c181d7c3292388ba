"""The page of people, and the sessions on the account page, as an admin and as others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer
from playwright.sync_api import Locator, Page, expect
from windows import DESK, PHONE, VIEWS, Open, check_page

from sayso.inbox.directory import add_person, create_token, new_link, set_stand_in
from sayso.policy import Policy, Rule
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.types import SECOND

POLICY = Policy([Rule("pay", quorum=2, name="large payments")])
SignIn = Callable[[str], httpx.Client]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a small company in it."""
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    add_person(store, "ana", by="test", groups=["finance", "legal"], mail="ana@example.com")
    add_person(store, "ben", by="test", groups=["finance"])
    add_person(store, "cleo", by="test", role="chat")
    create_token(store, "billing", by="test", role="agent", groups=["robots"])
    create_token(store, "ben", by="test", ends=store.now() + 90 * 86_400 * SECOND)
    set_stand_in(store, "ben", "ana", store.now() + 3 * 86_400 * SECOND, by="test")
    yield store
    store.close()


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    app = create_app(store=store, policy=POLICY)
    server = LiveServer(server_config(app, grace=2))
    server.start()
    yield server.url
    app.state.sayso.feed.close()
    server.stop()


def enter(
    open_page: Open, url: str, store: Store, name: str, role: str = "admin", **options: Any
) -> Page:
    """Open a window in which a person is signed in."""
    page: Page = open_page(
        f"{url}/login#{new_link(store, name, role=role)}",
        quiet=True,
        reduced_motion="reduce",
        **options,
    )
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    return page


def open_person(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/people/{name}")
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def dialog_of(page: Page) -> Locator:
    return page.get_by_role("dialog")


def press(page: Page, name: str) -> None:
    dialog_of(page).get_by_role("button", name=name, exact=True).click()


@pytest.fixture
def sign_in(url: str, store: Store) -> Iterator[SignIn]:
    """Return a client that is signed in as a person, with a session."""
    clients: list[httpx.Client] = []

    def sign_in(name: str) -> httpx.Client:
        headers = {"Origin": url, "User-Agent": "Firefox/140 (Linux)"}
        client = httpx.Client(base_url=url, headers=headers)
        clients.append(client)
        answer = client.post("/api/login", json={"token": new_link(store, name, role="reviewer")})
        assert answer.status_code == 204, answer.text
        return client

    yield sign_in
    for client in clients:
        client.close()


def ask(url: str, store: Store, tool: str, key: str) -> dict[str, Any]:
    """Open a request as the agent, and return it."""
    token, _ = create_token(store, "billing", by="test")
    asked = httpx.post(
        f"{url}/api/requests",
        json={"tool": tool, "args": {"euros": 1200}, "title": f"{tool.title()} Hooli 1200 euros"},
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": key},
    )
    request: dict[str, Any] = asked.json()
    return request


def approve(client: httpx.Client, request: dict[str, Any], **more: Any) -> None:
    body = {"type": "approve", "seen_digest": request["digest"], **more}
    answer = client.post(f"/api/requests/{request['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.long
@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_admin_pages_fit_and_are_accessible(
    url: str,
    store: Store,
    open_page: Open,
    sign_in: SignIn,
    tmp_path: Path,
    size: dict[str, Any],
    scheme: str,
) -> None:
    sign_in("ben")
    page = enter(open_page, url, store, "ops", color_scheme=scheme, **size)
    folder = Path(os.environ.get("SAYSO_SCREENS", tmp_path))
    found: list[Any] = []

    def check(name: str) -> None:
        found.extend((name, problem) for problem in check_page(page, phone=size is PHONE))
        width = size["viewport"]["width"]
        page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")

    for tab in ("people", "agents", "groups", "tokens", "sessions"):
        page.goto(f"{url}/people?tab={tab}")
        expect(page.get_by_role("row").nth(1)).to_be_visible()
        check(f"people-{tab}")
    open_person(page, url, "ben")
    check("person")
    for name in ("Change role", "Add groups", "Create a token…", "Sign out everywhere…", "Remove…"):
        page.get_by_role("button", name=name).click()
        expect(dialog_of(page)).to_be_visible()
        check(f"dialog-{name.strip('…').replace(' ', '-').lower()}")
        page.keyboard.press("Escape")
        expect(dialog_of(page)).to_have_count(0)
        expect(page.get_by_role("button", name=name)).to_be_focused()
    page.goto(f"{url}/account")
    expect(page.get_by_role("table", name="Sessions")).to_be_visible()
    check("account")
    assert found == []


@pytest.mark.long
def test_admin_finds_person_among_thousands(store: Store, url: str, open_page: Open) -> None:
    for number in range(1_500):
        add_person(store, f"person-{number:04}", by="test", groups=[f"team-{number % 7}"])
    page = enter(open_page, url, store, "ops", **DESK)
    page.get_by_role("link", name="People").click()
    rows = page.get_by_test_id("person")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(100)
    page.get_by_role("searchbox", name="Search name").fill("person-1234")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("q=person-1234"))
    rows.get_by_role("link", name="team-2").click()
    expect(page.get_by_role("button", name="Group team-2")).to_be_visible()
    expect(rows).to_have_count(50)
    page.get_by_role("searchbox", name="Search name").fill("nobody at all")
    expect(page.get_by_text("No people match this search")).to_be_visible()
    page.get_by_role("button", name="Clear the search").click()
    expect(rows).to_have_count(50)


def test_admin_adds_person_and_reads_refusal(store: Store, url: str, open_page: Open) -> None:
    page = enter(open_page, url, store, "ops", **DESK)
    page.goto(f"{url}/people")
    page.get_by_role("button", name="Add a person").click()
    name = dialog_of(page).get_by_role("textbox", name="Name")
    expect(name).to_be_focused()
    name.fill("ANA")
    page.keyboard.press("Enter")
    expect(dialog_of(page).get_by_role("alert")).to_contain_text("ana")
    name.fill("dora")
    dialog_of(page).get_by_role("textbox", name="Groups").fill("finance, ops")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/people/dora")
    person = store.person("dora")
    assert person is not None
    assert (person.role, person.groups) == ("reviewer", ("finance", "ops"))


@pytest.mark.long
def test_removal_lists_ended_rights(
    store: Store, url: str, open_page: Open, sign_in: SignIn
) -> None:
    ana = sign_in("ana")
    approve(ana, ask(url, store, "pay", "k-1"))
    approve(ana, ask(url, store, "mail", "k-2"), grant={"scope": "any", "uses": 5})
    page = enter(open_page, url, store, "ops", **DESK)
    open_person(page, url, "ana")
    page.get_by_role("button", name="Remove…").click()
    expect(dialog_of(page)).to_contain_text("1 session will end.")
    expect(dialog_of(page)).to_contain_text("1 grant that they gave will be revoked.")
    page.get_by_role("checkbox", name="Ask again").check()
    press(page, "Remove ana")
    ended = page.get_by_role("dialog", name="ana was removed")
    expect(ended).to_contain_text("Session: Firefox on Linux, 127.0.0.1")
    expect(ended).to_contain_text("mail by billing")
    expect(ended.get_by_role("link", name="Pay Hooli 1200 euros")).to_be_visible()
    expect(ended.get_by_role("link", name="Mail Hooli 1200 euros")).to_be_visible()
    expect(ended).to_contain_text("People are asked about them again.")
    press(page, "Done")
    expect(page.get_by_text("Removed", exact=True)).to_be_visible()
    page.get_by_role("button", name="Bring back…").click()
    press(page, "Bring back")
    expect(page.get_by_text("Active", exact=True)).to_be_visible()
    assert ana.get("/api/me").status_code == 401


@pytest.mark.long
def test_admin_changes_groups_and_role(store: Store, url: str, open_page: Open) -> None:
    page = enter(open_page, url, store, "ops", **DESK)
    open_person(page, url, "ana")
    page.get_by_role("button", name="Remove from legal").click()
    press(page, "Remove from legal")
    expect(dialog_of(page)).to_contain_text("Nothing else ended with it.")
    press(page, "Done")
    expect(page.get_by_role("button", name="Remove from legal")).to_have_count(0)
    page.get_by_role("button", name="Add groups").click()
    page.keyboard.type("audit")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove from audit")).to_be_visible()
    page.get_by_role("button", name="Change role").click()
    dialog_of(page).get_by_role("radio", name="Admin").check()
    press(page, "Change role")
    press(page, "Done")
    page.get_by_role("button", name="Set stand-in").click()
    dialog_of(page).get_by_role("combobox", name="Stand-in").fill("ben")
    press(page, "Set stand-in")
    expect(page.get_by_role("main")).to_contain_text(re.compile("ben decides until"))
    ana = store.person("ana")
    assert ana is not None
    assert (ana.role, ana.groups, ana.stand_in) == ("admin", ("finance", "audit"), "ben")
    page.get_by_role("button", name="End now").click()
    press(page, "End stand-in")
    press(page, "Done")
    expect(page.get_by_role("button", name="Set stand-in")).to_be_visible()
    page.get_by_role("button", name="Link account").click()
    page.keyboard.type("https://login.example.com")
    dialog_of(page).get_by_role("textbox", name="Subject").fill("u1")
    press(page, "Link account")
    expect(page.get_by_text("https://login.example.com")).to_be_visible()
    page.goto(f"{url}/history?tab=events")
    events = page.get_by_test_id("events")
    expect(events).to_contain_text("changed ana: admin in finance, audit; ben decides meanwhile")
    expect(events).not_to_contain_text(re.compile("person changed|token created"))


@pytest.mark.long
def test_token_is_shown_once_and_revoked(store: Store, url: str, open_page: Open) -> None:
    page = enter(open_page, url, store, "ops", **DESK)
    open_person(page, url, "billing")
    expect(page.get_by_role("button", name="Change role")).to_have_count(0)
    page.get_by_role("button", name="Create a token…").click()
    press(page, "Create token")
    secret = page.get_by_test_id("secret").inner_text()
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{url}/api/me", headers=headers).json()["name"] == "billing"
    press(page, "I have copied it")
    expect(page.get_by_test_id("token")).to_have_count(2)
    expect(page.get_by_text(secret)).to_have_count(0)
    page.get_by_role("button", name="Revoke token").last.click()
    press(page, "Revoke token")
    expect(dialog_of(page)).to_contain_text("1 token ended")
    press(page, "Done")
    expect(page.get_by_test_id("token")).to_have_count(1)
    assert httpx.get(f"{url}/api/me", headers=headers).status_code == 401


@pytest.mark.long
def test_person_signs_out_other_browsers(
    store: Store, url: str, open_page: Open, sign_in: SignIn
) -> None:
    other = sign_in("cleo")
    page = enter(open_page, url, store, "cleo", "chat", **DESK)
    page.goto(f"{url}/account")
    expect(page.get_by_test_id("session")).to_have_count(2)
    expect(page.get_by_test_id("session").filter(has_text="this browser")).to_have_count(1)
    page.get_by_role("button", name="Sign out session Firefox on Linux").click()
    press(page, "Sign out")
    press(page, "Done")
    expect(page.get_by_test_id("session")).to_have_count(1)
    assert other.get("/api/me").status_code == 401
    page.get_by_role("button", name="Sign out everywhere…").click()
    press(page, "Sign out everywhere")
    press(page, "Sign in again")
    expect(page).to_have_url(re.compile("/login"))


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_reviewer_finds_no_page_of_people(
    url: str, store: Store, open_page: Open, size: dict[str, Any], scheme: str
) -> None:
    page = enter(open_page, url, store, "ana", "reviewer", color_scheme=scheme, **size)
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="History")).to_be_visible()
    expect(pages.get_by_role("link", name="People")).to_have_count(0)
    for path in ("people", "people/ben"):
        page.goto(f"{url}/{path}")
        expect(page.get_by_role("heading", name="This page is for admins")).to_be_visible()
        assert check_page(page, phone=False) == []
    assert page.request.get(f"{url}/api/people").status == 403


def test_pictures_of_people_for_the_documentation(
    url: str, store: Store, open_page: Open, sign_in: SignIn, tmp_path: Path
) -> None:
    """``make pictures`` keeps it."""
    sign_in("ana")
    page = enter(open_page, url, store, "ops", device_scale_factor=1.5)
    open_person(page, url, "ana")
    expect(page.get_by_test_id("session")).to_be_visible()
    picture = Path(os.environ.get("SAYSO_PICTURES", tmp_path)) / "person.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size > 20_000
