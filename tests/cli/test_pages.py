"""The commands in the console blocks of the pages: all are understood, those on a store are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_world import World
from typer.testing import CliRunner

from sayso.cli.entry import app_of
from sayso.cli.main import app

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"^( *)```console\n(.*?)^ *```$", re.M | re.S)
ASSIGNMENT = re.compile(r"^(?:export )?\w+=\S* +")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]

#: Commands that need no more than a store, by their first words.
ON_A_STORE = (
    *(
        "audit export",
        "audit verify",
        "doctor --json",
        "history",
        "inbox",
        "keys rotate",
        "people",
        "policy check",
    ),
    *("policy explain", "policy observed", "policy replay", "prune", "recover", "show"),
    *("token create", "token list", "token revoke", "upgrade", "approve", "cancel"),
    *("channels link", "channels quiet"),
)
#: What asks a person at a terminal.
INTERACTIVE = re.compile(r"inbox --decide|approve (?!.*--digest)|edit ")


def lines() -> list[tuple[str, str]]:
    """Every command of every console block, with its page."""
    found = []
    for page in PAGES:
        for block in CONSOLE.finditer(page.read_text("utf-8")):
            text = block[2].replace("\\\n", " ")
            commands = [line.strip()[2:] for line in text.splitlines() if line.lstrip()[:2] == "$ "]
            found += [(page.name, command) for command in commands]
    return found


def words_of(line: str) -> list[str] | None:
    """The words after ``sayso``, without comments, redirections and variables; else ``None``."""
    while match := ASSIGNMENT.match(line):
        line = line[match.end() :]
    if not line.startswith(("sayso ", "uvx sayso ")):
        return None
    shell = shlex.shlex(line, posix=True, punctuation_chars=True)
    shell.whitespace_split = True
    words = list(takewhile(lambda word: word not in (">", "|", "&", "&&"), shell))
    return words[words.index("sayso") + 1 :]


COMMANDS = {(page, shlex.join(words)): words for page, line in lines() if (words := words_of(line))}


@pytest.mark.parametrize("place", COMMANDS, ids=": ".join)
def test_command_on_page_is_understood(place: tuple[str, str]) -> None:
    command: Any = typer.main.get_command(app)
    words = list(COMMANDS[place])
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert getattr(command, "invoke_without_command", True), f"which command of {command.name}?"
    if "--help" not in words:
        command.make_context("sayso", words)


def test_installed_extras_exist() -> None:
    named = {
        extra
        for _, line in lines()
        for extras in re.findall(r"sayso\[([\w,-]+)\]", line)
        for extra in extras.split(",")
    }
    assert "server" in named
    assert named <= EXTRAS.keys()


def test_named_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = {line.split()[1] for _, line in lines() if line.startswith("make ")}
    assert "demo" in targets
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.M)} == set()


RUN = {
    command: words
    for (_, command), words in COMMANDS.items()
    if command.startswith(ON_A_STORE) and not INTERACTIVE.match(command)
}


@pytest.mark.parametrize("command", RUN)
def test_command_on_page_works(command: str, world: World) -> None:
    request = world.mail()
    for name in ("ana", "ben", "boss"):
        if not re.match(rf"(people add|token create) {name}\b", command):
            world.cli("people", "add", name)
    token = world.json("token", "create", "cleo")["id"]
    if command == "people away ana --back":
        world.cli("people", "away", "ana", "--stand-in", "ben", "--until", "2099-01-11")
    shutil.copy(ROOT / "examples" / "policy.toml", world.folder)
    here = {"$digest": world.get(request).digest, "/mnt/evidence": str(world.folder)}
    here |= {"~/.local/share/sayso": str(world.folder), "sqlite:///sayso.db": world.url}
    here |= {"tok_…": token}
    words = list(RUN[command])
    for there, place in here.items():
        words = [word.replace(there, place) for word in words]
    words = [request if re.fullmatch(r"req_\w+", word) else word for word in words]
    env = {"SAYSO_STORE": world.url, "COLUMNS": "100", "HOME": os.environ["HOME"]}
    result = CliRunner().invoke(app_of(words[0]), words, env=env)
    assert result.exit_code == 0, (words, result.output)
