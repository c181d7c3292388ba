"""The inbox without a mouse: the palette, a selection, notes, and links that lead into the list."""

from __future__ import annotations

from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from windows import Open, turn_pages

pytestmark = pytest.mark.long


def ask(demo: Demo, key: str, **body: Any) -> str:
    """Open a request as a remote agent would, and return its id."""
    made = demo.http.post("/api/requests", json=body, headers={"Idempotency-Key": key})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def ask_refunds(demo: Demo, count: int, key: str) -> list[str]:
    return [
        ask(demo, f"{key}{n}", tool="refund", args={"order": f"A-{n}", "euros": n + 1})
        for n in range(count)
    ]


def open_request(page: Page) -> None:
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    page.get_by_role("heading", level=1).focus()


def test_linked_request_is_marked_in_its_group(demo: Demo, open_page: Open) -> None:
    made = ask_refunds(demo, 8, "link")  # so many that the group is folded
    page = open_page(f"{demo.url}/inbox/{made[6]}")
    row = page.locator(".row-link[aria-current]")
    expect(row).to_be_in_viewport()
    expect(row).to_have_attribute("data-row", made[6])
    page.keyboard.press("j")
    expect(page).to_have_url(f"{demo.url}/inbox/{made[7]}")
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(page).to_have_url(f"{demo.url}/inbox/{made[5]}")


def test_link_beyond_loaded_rows_is_found(demo: Demo, open_page: Open) -> None:
    made = ask_refunds(demo, 130, "deep")  # a page of rows has 100
    page = open_page(f"{demo.url}/inbox/{made[120]}")
    expect(page.locator(".row-link[aria-current]")).to_be_in_viewport()
    page.keyboard.press("j")
    expect(page).to_have_url(f"{demo.url}/inbox/{made[121]}")


def test_back_returns_to_its_row(demo: Demo, open_page: Open) -> None:
    made = ask_refunds(demo, 3, "back")
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_test_id("row")).to_have_count(3)
    for id in made[:2]:
        page.keyboard.press("j")
        expect(page).to_have_url(f"{demo.url}/inbox/{id}")
    page.go_back()
    expect(page).to_have_url(f"{demo.url}/inbox")
    expect(page.locator(f"[data-row={made[1]}]")).to_be_focused()
    page.keyboard.press("j")
    expect(page).to_have_url(f"{demo.url}/inbox/{made[2]}")


def test_space_scrolls_after_enter(demo: Demo, open_page: Open) -> None:
    lines = {f"line {n}": f"value {n}" for n in range(30)}
    ask(demo, "scroll", tool="send", args=lines)
    page = open_page(f"{demo.url}/inbox", viewport={"width": 1280, "height": 600})
    expect(page.get_by_test_id("row")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    top = "document.querySelector('.request-scroll').scrollTop"
    page.keyboard.press("Space")
    page.wait_for_function(f"{top} > 100")
    before = page.evaluate(top)
    page.keyboard.press("PageDown")
    page.wait_for_function(f"{top} > {before}")
    page.keyboard.press("Shift+Space")
    page.wait_for_function(f"{top} <= {before}")


def test_selection_is_decided_together(demo: Demo, open_page: Open) -> None:
    made = ask_refunds(demo, 4, "select")
    risky = ask(demo, "risky", tool="drop", args={}, risk={"level": "high"})
    page = open_page(f"{demo.url}/inbox/{risky}")
    open_request(page)
    page.keyboard.press("x")
    expect(page.get_by_text("decided one by one")).to_be_visible()
    page.goto(f"{demo.url}/inbox/{made[0]}")
    open_request(page)
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(page.get_by_role("link", name="Selected: ")).to_have_count(2)
    page.get_by_role("button", name="Decide together").last.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("row")).to_have_count(5)  # with the head, the sum and the selected
    dialog.get_by_role("button", name="Approve 2").click()
    dialog.get_by_role("button", name="Confirm: approve 2").click()
    for id in (made[0], made[2]):
        assert demo.until_decided(id)["status"] == "approved"
    expect(page.get_by_text("2 selected")).to_have_count(0)
    assert len(demo.http.get("/api/requests", params={"tool": "refund"}).json()["items"]) == 2


@pytest.mark.parametrize("level", ["low", "high"])
def test_note_is_kept_with_approval(demo: Demo, open_page: Open, level: str) -> None:
    made = ask(demo, f"note-{level}", tool="refund", args={"euros": 5}, risk={"level": level})
    page = open_page(f"{demo.url}/inbox/{made}")
    open_request(page)
    page.keyboard.press("n")
    page.get_by_role("textbox", name="Note").fill("Checked with Ana.")
    page.keyboard.press("Control+Enter")
    if level == "high":  # the confirmation names its key, as without a note
        expect(page.get_by_text("Press Enter to confirm")).to_be_visible()
        page.keyboard.press("Enter")
    decision = demo.until_decided(made)["decision"]
    assert (decision["type"], decision["message"]) == ("approve", "Checked with Ana.")
    page.goto(f"{demo.url}/inbox/{made}")
    expect(page.get_by_test_id("outcome")).to_contain_text("Checked with Ana.")


@pytest.mark.parametrize(("key", "field"), [("r", "Reason"), ("n", "Note"), ("m", "Result")])
def test_draft_survives_looking_elsewhere(
    demo: Demo, open_page: Open, key: str, field: str
) -> None:
    first, second = ask_refunds(demo, 2, f"draft {key}")
    page = open_page(f"{demo.url}/inbox/{first}")
    open_request(page)
    page.keyboard.press(key)
    page.get_by_role("textbox", name=field).fill("Half a sentence")
    page.locator(f"[data-row={second}]").click()
    expect(page).to_have_url(f"{demo.url}/inbox/{second}")
    expect(page.get_by_role("textbox", name=field)).to_have_count(0)
    page.locator(f"[data-row={first}]").click()
    expect(page.get_by_role("textbox", name=field)).to_have_value("Half a sentence")


def test_answer_survives_looking_elsewhere(demo: Demo, open_page: Open) -> None:
    options = [{"label": "north"}, {"label": "south"}]
    question = {"text": "Which warehouse?", "options": options}
    made = ask(demo, "draft question", question=question)
    (other,) = ask_refunds(demo, 1, "draft other")
    page = open_page(f"{demo.url}/inbox/{made}")
    expect(page.get_by_role("radio", name="south")).to_be_enabled()
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("2")
    expect(page.get_by_role("radio", name="south")).to_be_checked()
    page.locator(f"[data-row={other}]").click()
    expect(page).to_have_url(f"{demo.url}/inbox/{other}")
    page.locator(f"[data-row={made}]").click()
    expect(page.get_by_role("radio", name="south")).to_be_checked()


def test_palette_offers_actions_of_the_request(demo: Demo, open_page: Open) -> None:
    made = ask(demo, "palette", tool="refund", args={"euros": 5})
    page = open_page(f"{demo.url}/inbox/{made}")
    open_request(page)
    expect(page.locator(f'[data-row="{made}"]')).to_be_visible()  # only a row can be selected
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Go to")
    for label in ("Approve", "Approve with a note…", "Reject…", "Edit…", "Select this request"):
        expect(palette.get_by_role("option").filter(has_text=label).first).to_be_visible()
    palette.get_by_role("combobox").fill("reject")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Reason").fill("Not owed.")
    page.keyboard.press("Control+Enter")
    assert demo.until_decided(made)["decision"]["message"] == "Not owed."


def test_help_lists_every_key(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/inbox")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog").locator("kbd").all_inner_texts()
    assert {"j", "k", "x", "a", "n", "r", "e", "m", "Space", "/", "?"} <= set(keys)


def test_questions_are_rows_of_their_own(demo: Demo, open_page: Open) -> None:
    questions = [f"What is the name of number {number}?" for number in range(5)]
    for number, text in enumerate(questions):
        ask(demo, f"question {number}", question={"text": text})
    page = open_page(f"{demo.url}/inbox?kind=question")
    group = page.get_by_test_id("group")
    expect(group).to_contain_text("Questions")
    expect(group.locator("code")).to_have_count(0)
    toggle = group.get_by_role("button", expanded=False)
    if toggle.count():
        toggle.click()
    rows = page.locator(".row-title")
    expect(rows).to_have_count(5)
    assert sorted(rows.all_inner_texts()) == questions
    rows.first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(rows.first.inner_text())


def test_decision_stores_what_was_on_the_screen(demo: Demo, open_page: Open) -> None:
    """How long, and whether to the end: the page's claim."""
    for key, answer in (("whole", "Approve"), ("start", "Reject")):
        args = {f"line {number}": f"value {number}" for number in range(30)}
        made = ask(demo, f"seen {key}", tool="pay", args=args)
        page = open_page(f"{demo.url}/inbox/{made}", viewport={"width": 1280, "height": 600})
        expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        if answer == "Approve":
            turn_pages(page)
            page.get_by_role("button", name=answer).click()
        else:
            page.get_by_role("button", name=answer).click()
            page.get_by_role("button", name="Reject request").click()
        shown = demo.until_decided(made)["decision"]["shown"]
        assert shown["complete"] is (answer == "Approve")
        assert 0 < shown["seconds"] < 120
