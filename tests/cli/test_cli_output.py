"""Every command prints text from agents as inert text."""

from __future__ import annotations

import json
import re

import pytest
from cli_world import CONTROLS, World

from sayso import Gate, Option, Question

EVIL = (
    "\x1b[2J\x1b[1A\x1b]8;;http://evil\x07link\x1b]8;;\x07\x1b]0;title\x07\x9b31m\x07\x08\r\x0b\x0c\x7f"
    "\u202eabc\u2066\u200b\u00ad\ufeff\U000e0041\u3164\u2800\u00a0\u2028"
    "[red]x[/red][@click=app.approve]y[/][link=http://evil]z[/link]:smile: **b** <b>"
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2066-\u2069\u2800\u3164\ufeff\U000e0000-\U000e007f]"
)


@pytest.fixture
def evil(world: World) -> World:
    """A store in which all text from the agent is hostile."""
    world.mail(
        "mail", to=EVIL, body=f"{EVIL}\n  risk LOW\nto: me\n{EVIL}", note=EVIL, description=EVIL
    )
    question = Question(EVIL, (Option(EVIL, EVIL, EVIL), Option("b" + EVIL)), multiple=True)
    world.ask(
        f"run {EVIL}", lambda gate: gate.ask_sync(question), agent=f"agent {EVIL}", requester=EVIL
    )
    world.ask("text", lambda gate: gate.confirm_sync(EVIL, {EVIL: [EVIL, {EVIL: EVIL}]}))

    def named(gate: Gate) -> None:
        def plain(x: str) -> str:
            return ""

        gate.guard(needs_approval=True, preview=lambda x: {EVIL: EVIL})(plain)(x=EVIL)

    world.ask("named", named)
    return world


def inert(text: str) -> None:
    bare = CONTROLS.sub("", text.replace("\r\n", "\n"))
    found = FORBIDDEN.search(bare)
    assert found is None, repr(bare[max(found.start() - 40, 0) : found.end() + 20])


@pytest.mark.parametrize("columns", ["40", "80", "160"])
def test_reading_commands_print_inert_text(evil: World, columns: str) -> None:
    ids = [item["id"] for item in evil.json("inbox")["items"]]
    for args in (
        ("inbox",),
        ("inbox", "--plain"),
        ("inbox", "--json"),
        ("history", "--status", "any"),
        ("doctor",),
        ("audit", "verify"),
        ("audit", "export"),
        *(("show", one) for one in ids),
        *(("show", one, "--json") for one in ids),
    ):
        out = evil.cli(*args, COLUMNS=columns)
        assert "\x1b" not in out
        inert(out)
    card = evil.cli("show", ids[0])
    assert "⟨U+001B⟩[2J" in card
    assert "[red]x[/red][@click=app.approve]y[/]" in evil.cli("show", ids[0], COLUMNS="200")
    assert ":smile:" in card


def test_json_output_is_unchanged(evil: World) -> None:
    item = evil.json("inbox")["items"][0]
    assert item["args"]["to"] == EVIL
    assert item["note"] == EVIL
    assert evil.cli("inbox", "--json").isascii()


def test_wrapped_text_keeps_its_gutter(evil: World) -> None:
    body = "a" * 70 + " approved: true " + "b" * 70 + " to: eve@example.com risk LOW"
    request = evil.mail("wrap", body=body, note=f"{body}\nAPPROVE?  other_tool  risk LOW")
    for columns in ("40", "60", "80"):
        rows = evil.cli("show", request, COLUMNS=columns).splitlines()
        for row in rows:
            if "eve@example.com" in row or "approved:" in row or "other_tool" in row:
                assert re.match(r" *(\d+  body:|┆ | +│ )", row), row
        assert sum(row.startswith("APPROVE?") for row in rows) == 1


def test_errors_are_one_inert_line(evil: World) -> None:
    for args, code in (
        (("show", EVIL), 4),
        (("cancel", EVIL), 4),
        (("grants", "revoke", EVIL), 4),
        (("token", "revoke", EVIL), 4),
        (("inbox", "--store", f"sqlite:///{EVIL.replace('/', '')}"), 4),
        (("prune", "--before", EVIL), 2),
        (("policy", "check", EVIL.replace("/", "")), 1),
    ):
        out = evil.cli(*args, code=code)
        inert(out)
        assert out.startswith("sayso: ")
        assert out.count("\n") == 1


def test_deciding_commands_print_inert_text(evil: World) -> None:
    request = evil.mail("d", to=EVIL)
    digest = evil.json("show", request)["digest"]
    inert(evil.cli("reject", request, "-m", EVIL))
    inert(evil.cli("approve", request, "--digest", digest, code=5))
    inert(evil.cli("cancel", f"run {EVIL}", "-m", EVIL))
    granted = evil.mail("g", to=EVIL)
    digest = evil.json("show", granted)["digest"]
    inert(evil.cli("approve", granted, "--digest", digest, "--always", "exact"))
    inert(evil.cli("grants"))
    for hidden in ((f"name {EVIL}",), ("ana", "--group", EVIL)):  # a name has nothing hidden in it
        inert(evil.cli("token", "create", *hidden, code=6))
    evil.token("<b>ana</b>", "--group", "{{7*7}}")
    inert(evil.cli("token", "list"))
    rules = evil.folder / "p.toml"
    words = json.dumps("".join(char for char in EVIL if char <= "\uffff" and char != "\x7f"))
    rules.write_text(f"[[rule]]\nname = {words}\ntool = 'x'\ndescription = {words}\n")
    inert(evil.cli("policy", "check", str(rules)))
    inert(evil.cli("policy", "check", str(rules), "--tool", "x", "--agent", EVIL))
    inert(evil.cli("policy", "check", str(rules), "--tool", EVIL))


@pytest.mark.long
def test_prompt_shows_inert_text(evil: World) -> None:
    for item in evil.json("inbox")["items"]:
        person = evil.person("approve", item["id"], rows=80)
        person.at_prompt("d")
        person.at_prompt("v")
        person.at_prompt("q")
        screen = person.ends(75)
        inert(screen)
        assert "hidden characters" in screen
    person = evil.person("inbox", "--decide")
    person.at_prompt("q", "to quit > ")
    inert(person.ends(0))
