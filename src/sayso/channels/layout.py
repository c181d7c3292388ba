"""Lines of inert text, fitted to a width: what wraps stays behind a gutter that no agent can write.

Everything that stands in the first column is ours. Text that an agent could have written follows a
gutter, and so does each row that it wraps to, behind ``┆``: wrapped text never looks like a line of
its own. Nothing is trimmed or folded away; every character of the line is on some row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sayso import text

NARROWEST, WIDEST = 20, 200

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][\w.:/@+\-]*", re.ASCII)
_BLOCK = re.compile(r" *(\[\d+\] )?│ ")
_MANY_LINES = 4
_SMALLEST = 8  # columns that are used even beside the widest gutter


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is inert already, and the gutter before it."""

    text: str
    style: str = ""
    gutter: str = ""
    gutter_style: str = "dim"

    @property
    def more(self) -> str:
        """The gutter of the rows that this line wraps to: as wide, and ending in ``┆``."""
        return "┆ ".rjust(max(len(self.gutter), 4))


class Row(NamedTuple):
    """One row of the screen: a gutter and its style, then text and its style."""

    gutter: str
    gutter_style: str
    text: str
    style: str

    @property
    def plain(self) -> str:
        """The row without its styles."""
        return self.gutter + self.text


def name(value: str) -> str:
    """A name inside a line: bare if it is plain, else in quotes, so that all see where it ends."""
    if _PLAIN_NAME.fullmatch(value):
        return value
    escaped = text.inline(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def block(words: str, *, gutter: str = "  │ ", style: str = "") -> Iterator[Line]:
    """A text of several lines, each behind its gutter."""
    for row in text.visible(words).text.split("\n"):
        yield Line(_with_tabs(row), style, gutter)


def numbered(value: object) -> Iterator[Line]:
    """A JSON value as ``key: value`` lines, counted where there are many."""
    rows = listed(value)
    wide = len(str(len(rows))) + 2
    for number, row in enumerate(rows, 1):
        count = str(number).rjust(wide) if len(rows) >= _MANY_LINES else " " * wide
        yield Line(row, gutter=f"{count}  ")


def listed(value: object) -> list[str]:
    """A JSON value as bare lines; a tab becomes ``⇥``, the agent's own arrow its number."""
    return [_with_tabs(row) if _BLOCK.match(row) else row for row in text.lines(value)]


def _with_tabs(row: str) -> str:
    return row.replace("⇥", "⟨U+21E5⟩").replace("\t", "⇥")


def rows(lines: Iterable[Line], width: int) -> list[Row]:
    """The lines as rows of at most that width."""
    return [row for line in lines for row in _rows(line, width)]


def _rows(line: Line, width: int) -> Iterator[Row]:
    gutter = line.gutter
    for part in wrapped(line.text, width - len(gutter), width - len(line.more)):
        yield Row(gutter, line.gutter_style, part, line.style)
        gutter = line.more


def wrapped(line: str, width: int, rest: int | None = None) -> list[str]:
    """Cut a line into parts of at most that width, after a space where one is near."""
    width = max(width, _SMALLEST)
    if len(line) <= width and line.isascii():
        return [line]
    parts, start = [], 0
    while start < len(line):
        end = _end(line, start, width)
        parts.append(line[start:end])
        start, width = end, max(rest or width, _SMALLEST)
    return parts or [""]


def hard_cut(line: str, width: int) -> str:
    """As much of a line as fits."""
    return line[: _fit(line, 0, width)]


def _end(line: str, start: int, width: int) -> int:
    end = _fit(line, start, width)
    if end >= len(line):
        return end
    space = line.rfind(" ", start + width // 2, end)
    return space + 1 if space > 0 else end


def _fit(line: str, start: int, width: int) -> int:
    """Where a row from ``start`` is full; a mark is never cut from the letter that it stands on."""
    piece = line[start : start + width]
    if piece.isascii():
        end = start + len(piece)
        # A combining mark may follow the last ASCII letter.
        while end < len(line) and _cells(line[end]) == 0:
            end += 1
        return end
    used, end = 0, start
    while end < len(line):
        cells = _cells(line[end])
        if used + cells > width and end > start:
            break
        used += cells
        end += 1
    return end


def _cells(char: str) -> int:
    """How many columns a character may take at most; terminals disagree."""
    if char < "\x7f":
        return 1
    category = unicodedata.category(char)
    if category[0] == "M" and category != "Mc":
        return 0
    width = unicodedata.east_asian_width(char)
    if width in "WF" or (width == "A" and category[0] != "L") or category == "So":
        return 2
    return 1
