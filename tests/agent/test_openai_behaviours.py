"""The table of behaviours is complete, and every test that it names exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PAGE = HERE / "openai_behaviours.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.M)
MOST_WITHOUT = 8


def rows() -> dict[int, tuple[str, list[str]]]:
    """Return the rows by number: the behaviour, and the tests in the last column."""
    found = ROW.findall(PAGE.read_text("utf-8"))
    return {int(n): (what, re.findall(r"`(test_\w+)`", tests)) for n, what, tests in found}


@functools.cache
def names() -> set[str]:
    """Return the names of all test functions in this folder."""
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
    return found


def test_table_lists_all_forty_behaviours() -> None:
    table = rows()
    assert set(range(1, 41)) <= set(table)
    assert sorted(table) == list(range(1, len(table) + 1))
    without = [number for number in range(1, 41) if not table[number][1]]
    assert len(without) <= MOST_WITHOUT
    for number in without:
        assert f"| {number} |" in PAGE.read_text("utf-8")
        assert re.search(rf"^\| {number} \|.*\| none: \w", PAGE.read_text("utf-8"), re.M)


def test_every_sdk_row_has_a_test() -> None:
    assert [number for number, (_, named) in rows().items() if number > 40 and not named] == []


@pytest.mark.parametrize("number", sorted(rows()))
def test_every_named_test_exists(number: int) -> None:
    assert [name for name in rows()[number][1] if name not in names()] == []
