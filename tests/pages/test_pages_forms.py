"""Forms from JSON Schema: nested, in the order sent, with errors at the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from pydantic import BaseModel
from windows import Open, turn_pages

import sayso

MEETING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "when": {"type": "string", "format": "date", "title": "Day of the meeting"},
        "begins": {"type": "string", "format": "date-time", "title": "Begins at"},
        "seats": {"type": "integer", "minimum": 1, "title": "Number of seats"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Note"},
        "guests": {
            "type": "array",
            "title": "Guests",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        },
    },
    "required": ["when", "seats"],
}


class Payee(BaseModel):
    name: str
    euros: int
    city: str


def ask(url: str) -> dict[str, str]:
    """Ask a question with a schema, and for a call with nested arguments; give the ids by run."""
    gate = sayso.Gate(url, wait=0)

    @gate.guard(needs_approval=True)
    def invite(
        zone: str,
        guests: list[dict[str, str]],
        options: dict[str, int],
        tags: list[str] | None = None,
    ) -> str:
        """Invite people."""
        return "invited"

    @gate.guard(needs_approval=True)
    def ship(zone: str, details: dict, recipients: list, parts: list) -> str:  # type: ignore[type-arg]
        """Ship something."""
        return "shipped"

    @gate.guard(needs_approval=True)
    def bill(zone: str, due: date, payees: list[Payee], amount: int, copy_to: list[str]) -> str:
        """Bill people."""
        return "billed"

    people = [f"customer{n}@hooli.example" for n in range(250)]
    payees = [Payee(name=f"customer {n}", euros=n, city="Bern") for n in range(60)]
    with gate.run("bill"), pytest.raises(sayso.Paused):
        bill("north", date(2026, 11, 30), payees, 5, [])
    with gate.run("ship"), pytest.raises(sayso.Paused):
        ship("north", {"city": "Bern", "floors": {"up": 3}}, people, [1, "two", {"three": 3}])
    with gate.run("invite"), pytest.raises(sayso.Paused):
        invite("north", [{"name": "Ana"}, {"name": "Ben"}], {"chairs": 2}, ["vip"])
    with gate.run("question"), pytest.raises(sayso.Paused):
        gate.ask_sync(sayso.Question("When do we meet?", schema=MEETING))
    ids = {request.run: request.id for request in sayso.Inbox(url).pending_sync().items}
    gate.close()
    return ids


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Demo, dict[str, str]]]:
    """A demo on a store with a question that has a schema, and a call with nested arguments."""
    (tmp_path / "data").mkdir()
    # Playwright keeps a loop running here, and the sync face refuses to block one.
    with ThreadPoolExecutor(1) as thread:
        ids = thread.submit(ask, f"sqlite:///{tmp_path / 'data' / 'sayso.db'}").result()
    running = Demo(tmp_path, "--no-auth", "--data", str(tmp_path / "data"))
    yield running, ids
    running.stop()


@pytest.mark.long
def test_schema_question_is_a_form(asked: tuple[Demo, dict[str, str]], open_page: Open) -> None:
    demo, ids = asked
    page = open_page(f"{demo.url}/inbox/{ids['question']}")
    main = page.get_by_role("main")
    seats = main.get_by_label("Number of seats")
    expect(page.get_by_role("heading", level=1)).to_have_text("When do we meet?")
    expect(seats).not_to_have_accessible_description(re.compile("Required"))
    expect(main).not_to_contain_text("None is not of type")
    send = page.get_by_role("button", name="Send answer")
    expect(send).to_be_disabled()
    expect(page.get_by_test_id("reason")).to_have_text("Fill in the required fields.")
    main.get_by_label("Day of the meeting").fill("2026-01-31")
    seats.fill("many")
    expect(seats).to_have_accessible_description(re.compile("Enter a whole number"))
    seats.fill("")
    expect(seats).to_have_accessible_description(re.compile("Required"))
    seats.fill("0")
    expect(seats).to_have_accessible_description(re.compile("Enter 1 or more"))
    seats.fill("4")
    main.get_by_label("Begins at").fill("2026-01-31T09:30:00")
    page.get_by_role("link", name="Runs").click()
    page.go_back()
    expect(seats).to_have_value("4")
    main.get_by_role("button", name="Add to Guests").click()
    name = main.get_by_label("Name")
    expect(name).to_have_accessible_description(re.compile("Required"))
    name.fill("Ana")
    expect(send).to_be_enabled()
    page.keyboard.press("Control+Enter")
    decided = demo.until_decided(ids["question"])
    assert decided["decision"]["value"].pop("begins")[:10] in ("2026-01-30", "2026-01-31")
    assert decided["decision"]["value"] == {
        "when": "2026-01-31",
        "seats": 4,
        "guests": [{"name": "Ana"}],
    }


def test_nested_arguments_are_edited_as_fields(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    page = open_page(f"{demo.url}/inbox/{ids['invite']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    expect(form.get_by_role("textbox", name="zone")).to_be_visible()
    labels = form.locator(".field-label, legend").all_inner_texts()
    assert labels[0].startswith("zone")
    assert form.get_by_role("textbox").count() >= 4  # no box of JSON
    form.get_by_role("textbox", name="zone").fill("south")
    form.get_by_role("button", name="Remove item 2").click()
    approve = page.get_by_role("button", name="Approve with edits")
    expect(approve).to_be_enabled()
    approve.click()
    decided = demo.until_decided(ids["invite"])
    assert decided["args"]["zone"] == "south"
    assert decided["args"]["guests"] == [{"name": "Ana"}]
    assert decided["args"]["options"] == {"chairs": 2}


def test_optional_argument_is_removed_in_form(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    page = open_page(f"{demo.url}/inbox/{ids['invite']}")
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    expect(form.get_by_role("button", name="Remove zone")).to_have_count(0)  # it is required
    form.get_by_role("button", name="Remove tags").click()
    form.get_by_role("textbox", name="zone").fill("south")
    approve = page.get_by_role("button", name="Approve with edits")
    expect(approve).to_be_enabled()
    approve.click()
    decided = demo.until_decided(ids["invite"])
    assert decided["args"]["tags"] is None
    assert (decided["args"]["zone"], decided["args"]["options"]) == ("south", {"chairs": 2})
    (body,) = [request.post_data_json for request in sent if request.url.endswith("/decision")]
    assert (body["args"], body["unset"]) == ({"zone": "south"}, ["tags"])


@pytest.mark.long
def test_map_entries_are_added_and_removed(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    page = open_page(f"{demo.url}/inbox/{ids['invite']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    form.get_by_role("button", name="Add to options").click()
    name = form.get_by_role("textbox", name="Name of the new entry")
    expect(name).to_be_focused()
    approve = page.get_by_role("button", name="Approve with edits")
    expect(approve).to_be_disabled()
    expect(form).to_contain_text("Give this entry a name.")
    name.fill("tables")
    name.press("Tab")
    form.get_by_role("textbox", name="tables", exact=True).fill("3")
    rename = form.get_by_role("textbox", name="Name of chairs")
    rename.fill("stools")
    rename.press("Enter")
    expect(form.get_by_role("textbox", name="stools", exact=True)).to_have_value("2")
    form.get_by_role("button", name="Add to options").click()
    form.get_by_role("button", name="Remove the new entry").click()
    expect(approve).to_be_enabled()
    approve.click()
    decided = demo.until_decided(ids["invite"])
    assert decided["args"]["options"] == {"stools": 2, "tables": 3}


@pytest.mark.long
def test_untyped_arguments_lose_nothing(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    before = demo.http.get(f"/api/requests/{ids['ship']}").json()["args"]
    page = open_page(f"{demo.url}/inbox/{ids['ship']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    turn_pages(page)
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    expect(form).not_to_contain_text("Unsupported field schema")
    form.get_by_role("textbox", name="city", exact=True).fill("Ulm")
    people = form.get_by_role("group", name="recipients (250)")
    expect(people.get_by_role("row")).to_have_count(50)
    people.get_by_role("searchbox").fill("customer249@")
    people.get_by_role("textbox", name="recipients 250").fill("ana@hooli.example")
    people.get_by_role("textbox", name="Paste into recipients").fill("ben@hooli.example")
    form.get_by_role("textbox", name="parts").fill('[1, "two", {"three": 4}]')
    approve = page.get_by_role("button", name="Approve with edits")
    expect(approve).to_be_enabled()
    approve.click()
    recipients = [*before["recipients"][:-1], "ana@hooli.example", "ben@hooli.example"]
    assert demo.until_decided(ids["ship"])["args"] == {
        **before,
        "details": {"city": "Ulm", "floors": {"up": 3}},
        "recipients": recipients,
        "parts": [1, "two", {"three": 4}],
    }


def paste(page: Page, text: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    page.keyboard.press("Control+v")


@pytest.mark.long
def test_long_list_is_searched_and_pasted_into(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    before = demo.http.get(f"/api/requests/{ids['bill']}").json()["args"]["payees"]
    page = open_page(f"{demo.url}/inbox/{ids['bill']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    turn_pages(page)
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    table = form.get_by_role("group", name="payees (60)")
    columns = table.get_by_role("columnheader")
    expect(columns).to_have_text(["#", "name", "euros", "city", ""])  # as declared, not sorted
    expect(table.get_by_role("row")).to_have_count(51)
    table.get_by_role("button", name="Show all 60").click()
    expect(table.get_by_role("row")).to_have_count(61)
    table.get_by_role("searchbox").fill("customer 59")
    name = table.get_by_role("textbox", name="payees 60, name")
    expect(table.get_by_role("row")).to_have_count(2)
    name.press("End")
    name.press("Backspace")  # it is no match any more, and stays while it is edited
    name.press_sequentially("9 and sons")
    expect(name).to_be_focused()
    add = form.get_by_role("textbox", name="Paste into payees")
    add.focus()
    paste(page, "Doe, Jane\t7\tUlm\r\nSchmidt; Ben\t8\tKöln\r\n")
    expect(form.get_by_role("group", name="payees (62)")).to_be_visible()
    add.press_sequentially("Ana, 9, Oslo")
    expect(form.get_by_role("group", name="payees (62)")).to_be_visible()  # only typed so far
    form.get_by_role("button", name="Add to payees").click()
    expect(add).to_have_value("")
    table = form.get_by_role("group", name="payees (63)")
    table.get_by_role("searchbox").fill("customer 3")
    expect(table.get_by_role("row")).to_have_count(12)
    table.get_by_role("button", name="Remove payees 4", exact=True).click()
    expect(form.get_by_role("group", name="payees (62)")).to_be_visible()
    approve = page.get_by_role("button", name="Approve with edits")
    expect(approve).to_be_enabled()
    approve.click()
    kept = [*before[:3], *before[4:59]]
    assert demo.until_decided(ids["bill"])["args"]["payees"] == [
        *kept,
        {"name": "customer 59 and sons", "euros": 59, "city": "Bern"},
        {"name": "Doe, Jane", "euros": 7, "city": "Ulm"},
        {"name": "Schmidt; Ben", "euros": 8, "city": "Köln"},
        {"name": "Ana", "euros": 9, "city": "Oslo"},
    ]


@pytest.mark.long
def test_arguments_are_in_declared_order(
    asked: tuple[Demo, dict[str, str]], open_page: Open
) -> None:
    demo, ids = asked
    declared = ["zone", "due", "payees", "amount", "copy_to"]
    page = open_page(f"{demo.url}/inbox/{ids['bill']}")
    rows = page.locator(".args-table > tbody > tr > th")
    expect(rows).to_have_text([re.compile(f"^{name}") for name in declared])
    page.get_by_role("tab", name="Raw").click()
    lines = page.locator(".args-pre").inner_text().splitlines()
    starts = [line.partition(":")[0] for line in lines if line[:1].isalpha()]
    assert starts == declared
    turn_pages(page)
    page.keyboard.press("e")
    form = page.get_by_test_id("edit-form")
    expect(form.get_by_label("due")).to_have_attribute("type", "date")
    expect(form.get_by_label("zone")).to_be_visible()
    labels = form.locator(".schema-form .field-label, .schema-form legend").all_inner_texts()
    assert [re.split(r"[ (]", label)[0] for label in labels][:5] == declared
