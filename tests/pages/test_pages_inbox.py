"""The inbox, by mouse and by keyboard."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from demo_process import Demo
from playwright.sync_api import Page, Route, expect
from waiting import until
from windows import Open, turn_pages

SCRIPTS = [
    ("Weather in Oslo", "getWeatherInformation"),
    ("Deploy version 2.1.0 to production", "deploy_to_production"),
    ("Roll back production to 1.9", "rollback"),
    ("Send an email to 150 people", "send_email"),
    ("Delete all old records", "execute_sql"),
    ("Book a flight to Rome", "book_flight"),
]


def show(page: Page, tool: str) -> None:
    """Open the request of a tool from the list, and wait until its keys and buttons count."""
    page.get_by_role("list", name="Requests").get_by_role("link", name=tool).first.click()
    expect(page.get_by_role("heading", name=tool, level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()


@pytest.mark.long
def test_title_is_read_first(demo: Demo, open_page: Open) -> None:
    demo.say("Roll back production to 1.9")
    page = open_page(f"{demo.url}/inbox")
    row = page.get_by_role("list", name="Requests").get_by_role("link", name="rollback")
    expect(row).to_contain_text("Roll production back to version 1.9")
    show(page, "rollback")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("Roll production back to version 1.9")
    page.get_by_role("button", name="Reject").click()
    page.get_by_role("button", name="Reject").last.click()
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(0)


@pytest.mark.long
def test_missing_title_is_made_from_call(demo: Demo, open_page: Open) -> None:
    demo.say("Weather in Oslo")
    page = open_page(f"{demo.url}/inbox")
    row = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(row).to_contain_text("Get weather information: Oslo")
    row.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Get weather information: Oslo")
    # What is needed to look it up, and not to decide it, is folded.
    digest = page.get_by_role("button", name="Copy full digest")
    expect(digest).not_to_be_visible()
    page.get_by_text("Details", exact=True).click()
    expect(digest).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize(("words", "tool"), SCRIPTS)
def test_approved_by_mouse(demo: Demo, open_page: Open, words: str, tool: str) -> None:
    chat = demo.say(words)
    page = open_page(f"{demo.url}/inbox")
    show(page, tool)
    turn_pages(page)
    approve = page.get_by_role("button", name="Approve", exact=False)
    expect(approve).to_be_enabled()
    approve.click()
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(0)
    assert demo.final(chat).startswith("Final answer:")
    assert [name for name, _ in demo.ran()] == [tool]


@pytest.mark.long
@pytest.mark.parametrize(("words", "tool"), [s for s in SCRIPTS if s[1] != "send_email"])
def test_approved_by_keyboard(demo: Demo, open_page: Open, words: str, tool: str) -> None:
    chat = demo.say(words)
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    page.keyboard.press("a")
    demo.final(chat)
    assert [name for name, _ in demo.ran()] == [tool]


@pytest.mark.long
def test_enter_key_never_approves(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Weather in Oslo")
    page = open_page(f"{demo.url}/inbox")
    show(page, "getWeatherInformation")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    page.get_by_role("heading", name="getWeatherInformation", level=1).focus()
    for _ in range(3):
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert len(demo.open(chat)) == 1
    assert demo.ran() == []


@pytest.mark.long
def test_rejected_by_keyboard_with_a_reason(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Deploy version 2.1.0 to production")
    page = open_page(f"{demo.url}/inbox")
    show(page, "deploy_to_production")
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Reason").fill("Not on a Friday.")
    page.get_by_role("button", name="Reject request").click()
    assert demo.final(chat).startswith("Final answer:")
    (closed,) = demo.http.get(
        "/api/requests", params={"status": "rejected", "thread": chat}
    ).json()["items"]
    assert closed["decision"]["message"] == "Not on a Friday."
    assert closed["decision"]["channel"] == "web"
    assert demo.ran() == []


def test_cancelled_request_shows_the_reason(demo: Demo, open_page: Open) -> None:
    demo.say("Weather in Oslo")
    (item,) = demo.http.get("/api/requests").json()["items"]
    demo.http.post(f"/api/requests/{item['id']}/cancel", json={"message": "the customer left"})
    page = open_page(f"{demo.url}/inbox/{item['id']}")
    expect(page.get_by_test_id("outcome")).to_contain_text("It was cancelled. Nothing ran.")
    expect(page.get_by_test_id("outcome")).to_contain_text("the customer left")


def test_escape_returns_focus_to_button(demo: Demo, open_page: Open) -> None:
    demo.say("Book a flight to Rome")
    page = open_page(f"{demo.url}/inbox")
    show(page, "book_flight")
    for key, name in (("r", "Reject"), ("m", "Respond"), ("e", "Edit")):
        page.keyboard.press(key)
        expect(page.get_by_role("button", name=re.compile("^Cancel"))).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name=name, exact=True)).to_be_focused()


@pytest.mark.long
def test_edited_with_a_diff(demo: Demo, open_page: Open) -> None:
    chat = demo.say("Book a flight to Rome")
    page = open_page(f"{demo.url}/inbox")
    show(page, "book_flight")
    page.keyboard.press("e")
    field = page.get_by_role("textbox", name="destination")
    expect(field).to_have_value("Rome")
    field.fill("Porto")
    changes = page.get_by_role("main")
    expect(changes.get_by_text("Porto").last).to_be_visible()
    button = page.get_by_role("button", name="Approve with edits")
    expect(button).to_be_enabled()
    button.click()
    demo.final(chat)
    ((_, args),) = demo.ran()
    assert args["destination"] == "Porto"


@pytest.mark.long
def test_questions_follow_until_order_is_complete(demo: Demo, open_page: Open) -> None:
    """The pizza: options, several choices and own words, until the order is whole."""
    chat = demo.say("Order a pizza")
    page = open_page(f"{demo.url}/inbox")
    for _ in range(8):
        waiting = demo.open(chat)
        if not waiting:
            break
        question = waiting[0]["question"]
        page.goto(f"{demo.url}/inbox/{waiting[0]['id']}")
        asked = page.locator(".rail-turn-current")  # as a question, not as a call with its JSON
        expect(asked).to_contain_text(question["text"])
        expect(asked).not_to_contain_text("free_text")
        main = page.get_by_role("main")
        if question["multiple"]:
            boxes = main.get_by_role("checkbox")
            boxes.nth(0).check()
            boxes.nth(1).check()
        elif question["options"]:
            main.get_by_role("radio").first.check()
        else:
            main.get_by_role("textbox").first.fill("extra basil")
        main.get_by_role("button", name=re.compile("Answer|Send", re.I)).last.click()
        demo.until_decided(waiting[0]["id"])
        demo.until_it_waits_or_ends(chat)
    assert demo.final(chat).startswith("Final answer:")


@pytest.mark.long
def test_similar_requests_are_decided_in_bulk(demo: Demo, open_page: Open) -> None:
    chats = [demo.say(f"Weather in {city}") for city in ("Oslo", "Rome", "Bern")]
    page = open_page(f"{demo.url}/inbox")
    page.get_by_role("button", name="Decide together").click()
    dialog = page.get_by_role("dialog")
    approve = dialog.get_by_role("button", name=re.compile("Approve", re.I))
    expect(dialog.get_by_role("columnheader", name="city")).to_be_visible()
    expect(dialog.get_by_role("cell", name="Rome", exact=True)).to_be_visible()
    expect(approve).to_be_disabled()  # nothing is selected at first
    dialog.get_by_role("checkbox", name="Select all").check()
    approve.click()
    expect(approve).to_have_text(re.compile("Confirm: approve 3"))
    approve.click()
    for chat in chats:
        demo.final(chat)
    assert sorted(args["city"] for _, args in demo.ran()) == ["Bern", "Oslo", "Rome"]


@pytest.mark.long
def test_grant_is_created_and_revoked(demo: Demo, open_page: Open) -> None:
    first = demo.say("Weather in Oslo")
    page = open_page(f"{demo.url}/inbox")
    show(page, "getWeatherInformation")
    page.get_by_role("button", name="Always allow").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name=re.compile("any", re.I)).check()
    expect(dialog.get_by_test_id("replay")).to_contain_text("would have run without a person")
    dialog.get_by_role("button", name=re.compile("Approve|Allow", re.I)).last.click()
    demo.final(first)
    second = demo.say("Weather in Rome")
    demo.final(second)  # nobody was asked
    page.set_viewport_size({"width": 390, "height": 844})  # nothing of it is off a phone's screen
    page.goto(f"{demo.url}/grants")
    expect(page.get_by_role("button", name=re.compile("Revoke")).first).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("button", name=re.compile("Revoke")).first.click()
    confirm = page.get_by_role("dialog").get_by_role("button", name=re.compile("Revoke|End"))
    if confirm.count():
        confirm.first.click()
    until(lambda: demo.http.get("/api/grants").json()["items"] == [])
    assert len(demo.open(demo.say("Weather in Bern"))) == 1


def test_quorum_request_offers_no_grant(demo: Demo, open_page: Open) -> None:
    made = demo.http.post("/api/requests", json={"tool": "pay", "quorum": 2}).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    expect(page.get_by_role("button", name="Always allow")).to_have_count(0)


@pytest.mark.long
def test_search_and_filters_are_in_the_address(demo: Demo, open_page: Open) -> None:
    demo.say("Weather in Oslo")
    demo.say("Book a flight to Rome")
    page = open_page(f"{demo.url}/inbox")
    requests = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(requests).to_have_count(2)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("flight")
    requests = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(requests).to_have_count(1)
    expect(page).to_have_url(re.compile("q=flight"))
    again = open_page(page.url)
    expect(again.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(1)
    again.goto(f"{demo.url}/inbox?q=nothing-like-it")
    expect(again.get_by_role("button", name=re.compile("Clear", re.I)).first).to_be_visible()


def test_hidden_characters_are_seen_and_counted(demo: Demo, open_page: Open) -> None:
    hostile = "safe\u202egnp.exe <img src=x onerror=alert(1)> \x1b[2K"
    body = {"tool": "erase", "args": {"path": hostile}, "note": hostile}
    made = demo.http.post("/api/requests", json=body).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    main = page.get_by_role("main")
    expect(main.get_by_role("cell").filter(has_text="⟨U+202E⟩")).to_be_visible()
    expect(main.get_by_text(re.compile("hidden character", re.I)).first).to_be_visible()
    assert "\u202e" not in page.content()
    assert main.locator("img").count() == 0


PRESS_AT_ONCE = """
new MutationObserver((changes, observer) => {
  if (!document.querySelector("[data-mode='edit']:enabled")) return;
  observer.disconnect();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "e", bubbles: true }));
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@pytest.mark.long
def test_shortcut_works_once_button_is_drawn(demo: Demo, open_page: Open) -> None:
    """A person can press it then, and so can a test on a busy machine."""
    made = demo.http.post("/api/requests", json={"tool": "erase", "args": {"path": "a"}}).json()
    page = open_page("about:blank")
    page.add_init_script(PRESS_AT_ONCE)
    page.goto(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("textbox", name="path")).to_have_value("a")


@pytest.mark.long
def test_edited_text_keeps_hidden_characters(demo: Demo, open_page: Open) -> None:
    path = "first\nsafe\u202egnp.exe"
    body = {"tool": "erase", "args": {"path": path, "why": "old"}}
    made = demo.http.post("/api/requests", json=body).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    page.keyboard.press("e")
    field = page.get_by_role("textbox", name="path")
    expect(field).to_have_value(path)
    hint = page.get_by_test_id("unseen")
    expect(hint).to_contain_text("line 2: safeU+202Egnp.exe")
    expect(field).to_have_accessible_description(re.compile("1 hidden character.*U\\+202E"))
    page.get_by_role("textbox", name="why").fill("new")
    page.get_by_role("tab", name="JSON").click()
    expect(hint).to_contain_text("U+202E")
    page.get_by_role("tab", name="Form").click()
    page.get_by_role("button", name="Approve with edits").click()
    decided = demo.until_decided(made["id"])
    assert decided["args"] == {"path": path, "why": "new"}


@pytest.mark.long
def test_long_value_must_be_read(demo: Demo, open_page: Open) -> None:
    text = "\n".join(f"line {n}" for n in range(200)) + "\nrm -rf /"
    made = demo.http.post("/api/requests", json={"tool": "shell", "args": {"script": text}}).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()
    turn_pages(page)
    expect(approve).to_be_enabled()


def test_long_description_does_not_hide_call(demo: Demo, open_page: Open) -> None:
    body = {"tool": "shell", "args": {"script": "rm -rf /"}, "description": "It is safe.\n" * 60}
    made = demo.http.post("/api/requests", json=body).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("cell", name="rm -rf /")).to_be_in_viewport()
    page.get_by_role("button", name=re.compile("Show all .* of the description")).click()
    expect(page.get_by_role("button", name="Collapse the description")).to_be_visible()


def test_masked_secret_must_be_revealed(demo: Demo, open_page: Open) -> None:
    body = {"tool": "login", "args": {"user": "ana", "password": "hunter2"}}
    made = demo.http.post("/api/requests", json=body).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_role("main")).to_contain_text("••••")
    assert "hunter2" not in page.content()
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    page.get_by_role("button", name=re.compile("Reveal")).first.click()
    expect(page.get_by_role("main")).to_contain_text("hunter2")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()


def test_critical_call_needs_its_name_typed(demo: Demo, open_page: Open) -> None:
    body = {"tool": "erase", "args": {"all": True}, "risk": {"level": "critical"}}
    made = demo.http.post("/api/requests", json=body).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    page.get_by_role("button", name="Approve").click()
    assert demo.http.get(f"/api/requests/{made['id']}").json()["status"] == "pending"
    dialog = page.get_by_role("dialog", name="Confirm critical request")
    expect(dialog.get_by_label("What will run")).to_have_text("all: true")
    page.get_by_role("main").get_by_role("textbox").last.fill("erase")
    page.get_by_role("button", name=re.compile("approve", re.I)).last.click()
    assert demo.until_decided(made["id"])["status"] == "approved"


COUNTS = re.compile(r"/api/requests/groups\?status=pending")
ROWS = re.compile(r"/api/requests\?status=pending")


@pytest.mark.parametrize("older", [COUNTS, ROWS], ids=["counts", "rows"])
def test_request_between_two_reads_appears_once(
    demo: Demo, open_page: Open, older: re.Pattern[str]
) -> None:
    """Counts and rows are two reads, so one of them may be older than the request."""
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_role("heading", level=1)).to_have_text("No pending requests")
    address = f"{demo.url}/api/requests{'/groups' if older is COUNTS else ''}?status=pending"
    before = page.request.get(address).json()
    answered: list[str] = []

    def answer(route: Route) -> None:
        found = route.fetch()
        if answered or not found.json()["items"]:
            return route.fulfill(response=found)
        answered.append(route.request.url)
        return route.fulfill(json=before)

    page.route(older, answer)
    demo.say("Weather in Oslo")
    rows = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Oslo")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 request needs your review")
    expect(page.locator(".new-pill")).to_have_count(0)
    assert answered
    page.unroute_all(behavior="wait")


@pytest.mark.long
def test_old_read_never_replaces_a_newer_one(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_role("heading", level=1)).to_have_text("No pending requests")
    before = page.request.get(f"{demo.url}/api/requests?status=pending").json()
    held: list[Route] = []
    page.route(ROWS, lambda route: held.append(route), times=1)
    page.reload()
    expect(page.get_by_test_id("live")).to_have_text("live")
    until(lambda: page.wait_for_timeout(20) or held)
    demo.say("Weather in Oslo")
    rows = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(rows).to_have_count(1)
    page.wait_for_timeout(500)  # no other read is under way
    held[0].fulfill(json=before)
    page.wait_for_timeout(500)
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Oslo")


@pytest.mark.long
def test_search_finds_arguments_and_filters(demo: Demo, open_page: Open) -> None:
    for words in ("Weather in Oslo", "Weather in Bern", "Roll back production to 1.9"):
        demo.say(words)
    page = open_page(f"{demo.url}/inbox")
    rows = page.get_by_role("list", name="Requests").get_by_role("link")
    expect(rows).to_have_count(3)
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search requests")
    search.fill("oslo")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Oslo")
    search.fill("tool:weather newer:1h")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Save view").click()
    page.get_by_role("textbox", name="Name").fill("Weather")
    page.keyboard.press("Enter")
    views = page.get_by_role("navigation", name="Saved views")
    expect(views.get_by_role("button", name="Weather 2")).to_be_visible()
    search.fill("")
    expect(rows).to_have_count(3)
    phone = open_page(f"{demo.url}/inbox", viewport={"width": 390, "height": 844})
    views = phone.get_by_role("navigation", name="Saved views")
    views.get_by_role("button", name="Weather 2").click()
    expect(phone.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(2)
    views.get_by_role("button", name="Remove the view Weather").click()
    expect(views.get_by_role("button", name="Weather 2")).to_have_count(0)


@pytest.mark.long
def test_palette_opens_requests_and_pages(demo: Demo, open_page: Open) -> None:
    demo.say("Weather in Oslo")
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(1)
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Go to")
    palette.get_by_role("combobox").fill("oslo")
    expect(palette.get_by_role("option").first).to_contain_text("Oslo")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Oslo")
    page.keyboard.press("Control+k")
    palette.get_by_role("combobox").fill("insi")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{demo.url}/insights")


@pytest.mark.long
def test_jump_to_the_end_reads_nothing(demo: Demo, open_page: Open) -> None:
    demo.say("Delete all old records")
    page = open_page(f"{demo.url}/inbox", viewport={"width": 1280, "height": 500})
    show(page, "execute_sql")
    approve = page.get_by_role("button", name="Approve", exact=False)
    expect(approve).to_be_disabled()
    expect(page.get_by_test_id("reason")).to_contain_text("more screen")
    body = page.locator(".request-scroll")
    body.evaluate("each => each.scrollTo(0, each.scrollHeight)")
    page.wait_for_timeout(200)
    expect(approve).to_be_disabled()
    body.evaluate("each => each.scrollTo(0, 0)")
    turn_pages(page)
    expect(approve).to_be_enabled()


def test_question_is_answered_by_keyboard(demo: Demo, open_page: Open) -> None:
    chat = demo.say("question")
    page = open_page(f"{demo.url}/inbox")
    page.get_by_role("list", name="Requests").get_by_role("link").first.click()
    (request,) = demo.open(chat)
    expect(page.get_by_role("heading", level=1)).to_contain_text(request["question"]["text"])
    send = page.get_by_role("button", name="Send answer")
    expect(send).to_be_disabled()
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("2")
    expect(page.get_by_role("radio").nth(1)).to_be_checked()
    expect(send).to_be_enabled()
    page.keyboard.press("Control+Enter")
    decided = demo.until_decided(request["id"])
    assert decided["decision"]["value"] == request["question"]["options"][1]["value"]


@pytest.mark.long
def test_confirmation_waits_and_names_its_key(demo: Demo, open_page: Open) -> None:
    body = {"tool": "refund", "args": {"euros": 5}, "risk": {"level": "high"}}
    made = demo.http.post("/api/requests", json=body, headers={"Idempotency-Key": "high"}).json()
    page = open_page(f"{demo.url}/inbox/{made['id']}")
    approve = page.get_by_role("button", name="Approve", exact=False)
    expect(approve).to_be_enabled()
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("a")
    expect(page.get_by_text("Press Enter to confirm, Esc to go back")).to_be_visible()
    page.keyboard.press("Escape")
    expect(approve).to_be_enabled()
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("a")
    page.wait_for_timeout(4_500)
    page.keyboard.press("Enter")
    assert demo.until_decided(made["id"])["status"] == "approved"


def test_table_of_calls_shows_sum_and_outlier(demo: Demo, open_page: Open) -> None:
    for number, euros in enumerate((10, 20, 30, 400)):
        body = {"tool": "refund", "args": {"to": f"customer {number}", "euros": euros}}
        key = {"Idempotency-Key": f"table{number}"}
        assert demo.http.post("/api/requests", json=body, headers=key).status_code == 201
    page = open_page(f"{demo.url}/inbox?tool=refund")
    page.get_by_role("button", name="Decide together").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("row", name="customer 3")).to_contain_text("400 far above the others")
    expect(dialog.get_by_role("row", name="Sum")).to_contain_text("460")
    dialog.get_by_role("checkbox", name="customer 0").check()
    dialog.get_by_role("button", name="Reject 1").click()
    dialog.get_by_role("textbox", name="Reason for all").fill("Not owed.")
    dialog.get_by_role("button", name="Send 1 rejection").click()
    expect(page.get_by_role("list", name="Requests").get_by_role("link")).to_have_count(3)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_inbox_is_accessible(demo: Demo, open_page: Open, scheme: str) -> None:
    for city in ("Oslo", "Bern"):
        demo.say(f"Weather in {city}")
    chat = demo.say("question")
    page = open_page(f"{demo.url}/inbox?q=weather", color_scheme=scheme)
    expect(page.get_by_role("button", name="Decide together")).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("button", name="Decide together").click()
    expect(page.get_by_role("columnheader", name="city")).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    page.goto(f"{demo.url}/inbox/{demo.open(chat)[0]['id']}")
    expect(page.get_by_role("radio").first).to_be_visible()
    assert Axe().run(page).response["violations"] == []
