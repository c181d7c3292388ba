"""The documentation is complete: every name is explained, generated pages are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import sayso
from sayso.engine.commands import COMMANDS
from sayso.gate.options import AskOptions, GuardOptions

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOTES = sorted((DOCS / "decisions").glob("[0-9]*.md"))
#: The others find programs, and write no page.
GENERATORS = sorted(p for p in (ROOT / "scripts").glob("*.py") if "--check" in p.read_text("utf-8"))

CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+)")
EMITTED = re.compile(r'emit(?:_system)?\(\s*"(\w+)"')


def words_in_code(*pages: Path) -> set[str]:
    """Every word that stands in `code` on these pages."""
    text = "\n".join(FENCE.sub("", page.read_text("utf-8")) for page in pages)
    return {word for span in CODE.findall(text) for word in re.findall(r"[\w-]+", span)}


def fences(language: str) -> Iterator[tuple[str, str]]:
    """Every fenced block of a language, with the name of its page."""
    for page in [ROOT / "README.md", *PAGES]:
        for found in FENCE.finditer(page.read_text("utf-8")):
            if found[1] == language:
                yield page.name, found[2]


def commands(group: object, path: str = "") -> Iterator[str]:
    """Every command of the command line, as one types it."""
    for name, command in getattr(group, "commands", {}).items():
        inner = list(commands(command, f"{path}{name} "))
        yield from inner or [f"{path}{name}"]


def test_every_public_name_is_explained() -> None:
    assert set(sayso.__all__) - words_in_code(*PAGES) == set()


def test_every_option_of_a_gate_is_explained() -> None:
    options = {*AskOptions.__annotations__, *GuardOptions.__annotations__}
    assert options - words_in_code(DOCS / "reference" / "options.md") == set()


def test_every_decision_status_and_assurance_is_explained() -> None:
    words = {"pending", "approved", "edited", "rejected", "responded", "expired", "cancelled"}
    words |= {"superseded", "code", "os-user", "token", "session"}
    assert words - words_in_code(DOCS / "concepts.md") == set()


def test_every_event_is_explained() -> None:
    engine = (ROOT / "src" / "sayso" / "engine").glob("*.py")
    emitted = {name for path in engine for name in EMITTED.findall(path.read_text("utf-8"))}
    assert len(emitted) > 10
    assert emitted - words_in_code(DOCS / "audit.md") == set()


def test_commands_named_for_adapters_exist() -> None:
    page = words_in_code(DOCS / "writing-an-adapter.md")
    assert {"Propose", "Start", "Record"} <= page & {command.__name__ for command in COMMANDS}


def test_every_command_is_explained() -> None:
    from sayso.cli.main import app

    page = (DOCS / "cli.md").read_text("utf-8")
    names = list(commands(typer.main.get_command(app)))
    assert "inbox" in names
    assert [name for name in names if f"sayso {name}" not in page] == []


@pytest.mark.parametrize("script", GENERATORS, ids=lambda path: path.name)
def test_generated_pages_are_fresh(script: Path) -> None:
    command = [sys.executable, str(script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_policy_on_a_page_can_be_read() -> None:
    policies = [(page, text) for page, text in fences("toml") if "[[rule]]" in text]
    assert policies
    for page, text in policies:
        assert sayso.Policy.from_toml(text).rules, page


def test_policy_of_examples_can_be_read() -> None:
    text = (ROOT / "examples" / "policy.toml").read_text("utf-8")
    assert len(sayso.Policy.from_toml(text).rules) == 3


def test_every_page_can_be_reached_from_the_readme() -> None:
    found, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in found or page.suffix != ".md" or not page.exists():
            continue
        found.add(page)
        links = LINK.findall(page.read_text("utf-8"))
        waiting += [(page.parent / link).resolve() for link in links]
    assert [page.name for page in PAGES if page not in found] == []


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_decision_has_number_date_and_entry(note: Path) -> None:
    text = note.read_text("utf-8")
    number = int(note.name[:4])
    assert text.startswith(f"# {number}. ")
    assert re.search(r"^\*20\d\d-\d\d-\d\d, \w+\.\*$", text, re.M)
    title = text.splitlines()[0].removeprefix(f"# {number}. ")
    listed = (DOCS / "decisions" / "README.md").read_text("utf-8")
    assert f"{number}. [{title}]({note.name})" in listed


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(note.name[:4]) for note in NOTES] == list(range(1, len(NOTES) + 1))


def test_every_event_type_is_documented() -> None:
    made = r"(?:emit|emit_system|Note|_tell|ask)\((?:[^()\"]|\([^()]*\))*?\"([a-z_]+)\""
    folders = ("engine", "stores", "gate", "inbox", "server")
    files = [path for name in folders for path in (ROOT / "src" / "sayso" / name).rglob("*.py")]
    found = {name for path in files for name in re.findall(made, path.read_text("utf-8"))}
    assert {"reasked", "claimed", "granted", "refused", "revealed", "pruned"} <= found
    page = (DOCS / "audit.md").read_text("utf-8")
    assert [name for name in sorted({*found, "opened"}) if f"`{name}`" not in page] == []
