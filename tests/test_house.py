"""House rules that no linter checks: links, code fences, and names that must not appear."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MOST_SNIPPETS_NOT_RUN = 5
LANGUAGES = {"console", "html", "json", "jsonl", "make", "mermaid", "python", "sql", "text", "toml"}

FENCE = re.compile(
    r"^[ \t>]*(?P<fence>```+|~~~+)(?P<info>[^\n`]*)\n.*?^[ \t>]*(?P=fence)[ \t]*$", re.M | re.S
)
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*(\S+)", re.M)
MAKE = re.compile(r"(?:^|`|\$ )make ([a-z]+)", re.M)

# Written in pieces, so that this file does not hold what it looks for.
MACHINE = re.compile(r"(?<![\w.~-])/(?:" + "work|root|home/[a-z]+|Users/[A-Za-z]+" + r")/")
REGISTRY = re.compile(
    r"\b(?:" + "pypi|pythonhosted|npmjs|debian" + r")\." + r"(?:org|com|net)\b", re.I
)


def repository_files() -> list[Path]:
    """Return all files that are tracked, or would be by the next `git add`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


FILES = repository_files()
PAGES = [path for path in FILES if path.suffix == ".md"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """Return the text of a page without its code, where brackets are not links."""
    return INLINE_CODE.sub("", FENCE.sub("", page.read_text("utf-8")))


def commands(page: Path) -> set[str]:
    """Return the make targets that a page names."""
    text = page.read_text("utf-8")
    shown = [match[0] for match in FENCE.finditer(text) if match["info"] in {"console", "text"}]
    shown += [match[0] for match in INLINE_CODE.finditer(FENCE.sub("", text))]
    return {target for code in shown for target in MAKE.findall(code)}


def anchors(page: Path) -> set[str]:
    """Return the anchors that code hosts give to the headings of a page."""
    headings = re.findall(r"^#+[ \t]+(.+?)[ \t#]*$", FENCE.sub("", page.read_text("utf-8")), re.M)
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(prose(page)):
        target = match[1] or match[2]
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        found = there.is_relative_to(ROOT) and there.exists()
        if found and fragment and there.suffix == ".md":
            found = fragment in anchors(there)
        if not found:
            yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_has_a_hidden_block(page: Path) -> None:
    """A reader who pastes the blocks of a page runs exactly what the snippet test runs."""
    assert re.findall(r"<!--\s*(?:invisible-)?code\b[^\n]*", page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_names_a_known_language(page: Path) -> None:
    infos = [match["info"].strip() for match in FENCE.finditer(page.read_text("utf-8"))]
    assert [info for info in infos if info not in LANGUAGES] == []


def test_few_snippets_are_not_run() -> None:
    found = [
        name_of(page) for page in PAGES for _ in re.findall("<!-- not run", page.read_text("utf-8"))
    ]
    assert len(found) <= MOST_SNIPPETS_NOT_RUN, found


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["machine paths", "registry hosts"])
def test_no_file_names(pattern: re.Pattern[str]) -> None:
    found = {}
    for path in FILES:
        match = pattern.search(path.read_text("utf-8", errors="replace"))
        if match:
            found[name_of(path)] = match[0]
    assert found == {}


def test_make_targets_in_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    named = {name_of(page): commands(page) for page in PAGES}
    assert {name: wanted - targets for name, wanted in named.items() if wanted - targets} == {}
    assert {"demo", "test"} <= named["README.md"]


def test_test_modules_have_unique_names() -> None:
    """They are imported by their bare names, so that the second one would not be collected."""
    paths = [p for p in (ROOT / "tests").rglob("*.py") if "node_modules" not in p.parts]
    names = Counter(path.stem for path in paths if path.stem not in ("conftest", "__init__"))
    assert [name for name, times in names.items() if times > 1] == []


def test_no_test_leaves_a_connection_open() -> None:
    """``with`` on a connection of SQLite commits and does not close it. From Python 3.13 on, that
    fails the test during which it is collected, which may be any other."""
    committed = re.compile(r"^ *with sqlite3\.connect\(", re.M)
    tests = [path for path in FILES if path.suffix == ".py" and name_of(path).startswith("test")]
    assert len(tests) > 100
    sources = tests + PAGES  # their snippets are tests, too
    assert [name_of(path) for path in sources if committed.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("page", "head"),
    [
        ("SECURITY.md", "| control | test |"),
        ("docs/security-review.md", "| question | covered by |"),
    ],
)
def test_every_control_has_its_test(page: str, head: str) -> None:
    """Each row of these tables names tests that exist."""
    tables = (ROOT / page).read_text("utf-8").split(head)[1:]
    lines = [line for table in tables for line in table.split("\n\n")[0].splitlines()]
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) >= 15
    modules = (ROOT / "testkit/sayso_testing/suite").glob("*.py")
    suite = "".join(module.read_text("utf-8") for module in modules)
    for row in rows:
        named = re.findall(r"`([\w/]+\.py|…|StoreSuite)::(\w+)`", row)
        assert len(named) == row.count("::") > 0, row
        source = ""
        for place, test in named:
            if place != "…":
                path = ROOT / "tests" / place
                source = suite if place == "StoreSuite" else path.read_text("utf-8")
            assert re.search(rf"^ *(async )?def {test}\b", source, re.M), (place, test)
