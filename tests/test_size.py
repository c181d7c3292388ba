"""docs/how-big.md counts the lines that have to be trusted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sayso"
PAGE = (ROOT / "docs" / "how-big.md").read_text("utf-8")
ROWS = re.findall(r"^\| ([\w ]+) \| ([\d,]+) \| (`[^|]+`) \|", PAGE, re.M)


def lines_of(names: str) -> int:
    total = 0
    for name in re.findall(r"`([^`]+)`", names):
        for path in SOURCE.glob(name):
            files = [path] if path.is_file() else [*path.glob("*.py"), *path.glob("*.sql")]
            total += sum(len(file.read_text("utf-8").splitlines()) for file in files)
    return total


@pytest.mark.parametrize(("part", "said", "names"), ROWS, ids=[row[0] for row in ROWS])
def test_part_has_about_so_many_lines(part: str, said: str, names: str) -> None:
    assert lines_of(names) == pytest.approx(int(said.replace(",", "")), rel=0.15)


def test_sums_in_readme_fit() -> None:
    counts = {part: lines_of(names) for part, _, names in ROWS}
    store, postgres = counts.pop("store"), counts.pop("PostgreSQL")
    found = re.search(
        r"about ([\d,]+) lines: .*?store below\s+adds about ([\d,]+)",
        (ROOT / "README.md").read_text("utf-8"),
        re.S,
    )
    assert found is not None
    assert sum(counts.values()) == pytest.approx(int(found[1].replace(",", "")), rel=0.1)
    assert store == pytest.approx(int(found[2].replace(",", "")), rel=0.1)
    assert postgres > 0
    whole = sum(len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py"))
    (said,) = re.findall(r"Sayso has about ([\d,]+) lines of Python", PAGE)
    assert whole == pytest.approx(int(said.replace(",", "")), rel=0.1)
