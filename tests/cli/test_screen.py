"""The screen of the prompt: its contents, its confirmations, and no screen at all."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pexpect
import pytest
from cli_world import World

SURE = r"go back: "


@pytest.mark.long
def test_resizing_changes_nothing(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.sees("uit > ")
    person.process.setwinsize(20, 50)
    person.types("v")
    person.at_prompt("a")
    assert "Approved." in person.ends(0)


def test_terminal_state_is_restored(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.at_prompt("q")
    person.process.expect(pexpect.EOF)
    said = person.said + person.process.before
    assert said.count("\x1b[?2004h") == said.count("\x1b[?2004l") >= 1


@pytest.mark.long
def test_help_details_and_view(world: World) -> None:
    request = world.mail(note="please", risk="medium")
    person = world.person("approve", request, rows=50)
    person.at_prompt("?")
    assert "approve: run it exactly as shown" in person.at_prompt("d")
    seen = person.at_prompt("v")
    assert "Schema of the arguments" in seen
    assert "asked  agent:assistant" in seen
    assert "The agent says (not verified)" in person.at_prompt("s")
    person.ends(75)


def test_colours_can_be_switched_off(world: World) -> None:
    request = world.mail(risk="high")
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    person = world.person("approve", request)
    person.at_prompt("q")
    person.ends(75)
    assert not colour.search(person.said)
    assert "\x1b[1m" in person.said
    person = world.person("approve", request, NO_COLOR="")
    person.at_prompt("q")
    person.ends(75)
    assert colour.search(person.said)
    person = world.person("approve", request, "--plain", NO_COLOR="")
    person.at_prompt("q")
    screen = person.ends(75)
    assert re.sub(r"\x1b\[\?2004[hl]", "", person.said) == screen
    assert "----" not in screen


# -- what was not shown


@pytest.mark.long
def test_long_arguments_cannot_be_approved_before_their_end(world: World) -> None:
    request = world.mail(body="\n".join(f"line {n}" for n in range(60)))
    person = world.person("approve", request, rows=24)
    assert "rows 1-20 of" in person.at_prompt("a")
    assert "were not shown" in person.at_prompt("yes", SURE)
    person.at_prompt("v")
    person.at_prompt("q", r"go back: ")
    person.at_prompt("a")
    assert re.search(r"Not yet: rows 41-\d+ were not shown", person.at_prompt("", SURE))
    person.at_prompt("v")
    person.at_prompt("", r"to go back: ")
    person.at_prompt("a")
    screen = person.ends(0)
    assert [f"line {n}" in screen for n in range(60)] == [True] * 60
    assert world.get(request).status == "approved"


@pytest.mark.long
def test_typed_name_approves_unseen_arguments(world: World) -> None:
    request = world.mail(body="x" * 100_000)
    person = world.person("approve", request, rows=24)
    person.at_prompt("a")
    person.at_prompt("\x1b[200~send_email\x1b[201~", SURE)
    person.at_prompt("a")
    person.at_prompt("send_email", SURE)
    assert "Pasted text does not count" in person.ends(0)
    assert world.get(request).status == "approved"


@pytest.mark.long
def test_high_risk_needs_tool_name_typed(world: World) -> None:
    request = world.mail(risk="high")
    person = world.person("approve", request)
    person.at_prompt("a")
    assert "the risk is HIGH" in person.at_prompt("", SURE)
    person.at_prompt("a")
    person.at_prompt("a", SURE)
    person.at_prompt("a")
    person.at_prompt("send_email", SURE)
    assert "Approved." in person.ends(0)


# -- no terminal


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "sayso", *args]


def environment(world: World, **more: str) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("CI", "SAYSO_TOKEN")}
    return {**keep, "SAYSO_STORE": world.url, "TERM": "xterm", **more}


@pytest.mark.long
def test_yes_piped_in_decides_nothing(world: World) -> None:
    request = world.mail()
    line = f"yes a | {' '.join(command('approve', request))}"
    done = subprocess.run(line, shell=True, env=environment(world), capture_output=True, text=True)
    assert done.returncode == 3
    assert "no terminal to ask in" in done.stderr
    assert world.get(request).status == "pending"


def test_closed_stdin_decides_nothing(world: World) -> None:
    request = world.mail()
    line = f"{' '.join(command('approve', request))} <&-"
    done = subprocess.run(line, shell=True, env=environment(world), capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert world.get(request).status == "pending"


def test_half_a_terminal_is_no_terminal(world: World) -> None:
    request = world.mail()
    main, other = pty.openpty()
    done = subprocess.run(
        command("approve", request), stdin=other, env=environment(world), capture_output=True
    )
    os.close(main)
    os.close(other)
    assert done.returncode == 3
    assert world.get(request).status == "pending"


@pytest.mark.parametrize("variable", [{"CI": "true"}, {"TERM": "dumb"}])
def test_ci_and_dumb_terminals_get_no_prompt(world: World, variable: dict[str, str]) -> None:
    request = world.mail()
    for args in (
        ("approve", request),
        ("edit", request),
        ("respond", request),
        ("inbox", "--decide"),
    ):
        assert "no terminal to ask in" in world.person(*args, **variable).ends(3)
    assert world.get(request).status == "pending"
