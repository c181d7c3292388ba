"""Wrap inert text to a width, behind a gutter that no agent can write.

Everything in the first column is ours. Text that an agent could have written follows a gutter, and
so does each row it wraps to, behind ``┆``: wrapped text never looks like a line of its own. Nothing
is trimmed or folded; every character of the line is on some row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sayso import text

NARROWEST = 20
WIDEST = 200

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][\w.:/@+\-]*", re.ASCII)
_BLOCK = re.compile(r" *(\[\d+\] )?│ ")
_MANY_LINES = 4
_SMALLEST = 8  # columns for the text even beside the widest gutter


@dataclass(frozen=True, slots=True)
class Line:
    """One line of inert text, and the gutter before it."""

    text: str
    style: str = ""
    gutter: str = ""
    gutter_style: str = "dim"

    @property
    def more(self) -> str:
        """The gutter of the rows that this line wraps to: equally wide, and ending in ``┆``."""
        return "┆ ".rjust(max(len(self.gutter), 4))


class Row(NamedTuple):
    """One row of the screen: a gutter and its style, then text and its style."""

    gutter: str
    gutter_style: str
    text: str
    style: str


def name(value: str) -> str:
    """Format a name inside a line: bare if it is plain, otherwise quoted to show where it ends."""
    if _PLAIN_NAME.fullmatch(value):
        return value
    escaped = text.inline(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def block(words: str, *, gutter: str = "  │ ") -> Iterator[Line]:
    """Yield the lines of a text, each behind a gutter."""
    for row in text.visible(words).text.split("\n"):
        yield Line(_with_tabs(row), gutter=gutter)


def numbered(value: object) -> Iterator[Line]:
    """Yield a JSON value as ``key: value`` lines, numbered if there are many."""
    rows = listed(value)
    wide = len(str(len(rows))) + 2
    for number, row in enumerate(rows, 1):
        count = str(number).rjust(wide) if len(rows) >= _MANY_LINES else " " * wide
        yield Line(row, gutter=f"{count}  ")


def listed(value: object) -> list[str]:
    """Return a JSON value as lines. A tab becomes ``⇥``; a literal ``⇥`` becomes its code point."""
    return [_with_tabs(row) if _BLOCK.match(row) else row for row in text.lines(value)]


def _with_tabs(row: str) -> str:
    return row.replace("⇥", "⟨U+21E5⟩").replace("\t", "⇥")


def rows(lines: Iterable[Line], width: int) -> list[Row]:
    """Wrap lines into rows of at most that width."""
    ready: list[Row] = []
    for line in lines:
        gutter = line.gutter
        for part in wrapped(line.text, width - len(gutter), width - len(line.more)):
            ready.append(Row(gutter, line.gutter_style, part, line.style))
            gutter = line.more
    return ready


def wrapped(line: str, width: int, rest: int | None = None) -> list[str]:
    """Split a line into parts of at most that width, after a space if one is near."""
    width = max(width, _SMALLEST)
    if len(line) <= width and line.isascii():
        return [line]
    parts: list[str] = []
    start = 0
    while start < len(line):
        end = _end(line, start, width)
        parts.append(line[start:end])
        start = end
        width = max(rest or width, _SMALLEST)
    return parts or [""]


def hard_cut(line: str, width: int) -> str:
    """Return as much of a line as fits."""
    return line[: _fit(line, 0, width)]


def _end(line: str, start: int, width: int) -> int:
    end = _fit(line, start, width)
    if end >= len(line):
        return end
    space = line.rfind(" ", start + width // 2, end)
    return space + 1 if space > 0 else end


def _fit(line: str, start: int, width: int) -> int:
    """Return where a row from ``start`` is full. Combining marks stay with their letter."""
    piece = line[start : start + width]
    if piece.isascii():
        end = start + len(piece)
        # A combining mark may follow the last ASCII letter.
        while end < len(line) and _cells(line[end]) == 0:
            end += 1
        return end
    used = 0
    end = start
    while end < len(line):
        cells = _cells(line[end])
        if used + cells > width and end > start:
            break
        used += cells
        end += 1
    return end


def _cells(char: str) -> int:
    """Return how many columns a character takes at most; terminals disagree."""
    if char < "\x7f":
        return 1
    category = unicodedata.category(char)
    if category[0] == "M" and category != "Mc":
        return 0
    width = unicodedata.east_asian_width(char)
    if width in "WF" or (width == "A" and category[0] != "L") or category == "So":
        return 2
    return 1
