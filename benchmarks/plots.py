"""Two plots of the results, as SVG for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.figures import figure, heading, held
from benchmarks.row import Check

WIDTH, LEFT, RIGHT = 860, 330, 160
LINE, TOP = 20, 46

STYLE = """\
<style>
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .head { font-weight: 600; font-size: 13px }
  .ours { fill: #2f81f7 } .theirs { fill: #8c959f } .bad { fill: #d1642b }
  .axis { stroke: #8c959f; stroke-width: 1 } .goal { stroke: #8c959f; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) { text { fill: #adbac7 } }
</style>
"""


def goals(rows: Sequence[Mapping[str, Any]]) -> str:
    """Plot how much of its bound each goal uses, on a logarithmic scale."""
    bars = [(row["name"], Check(**fields)) for row in rows for fields in row["checks"]]
    least, most = -3.0, 1.0
    wide = WIDTH - LEFT - RIGHT

    def x(used: float) -> float:
        place = math.log10(max(used, 1e-9))
        return LEFT + (min(max(place, least), most) - least) / (most - least) * wide

    height = TOP + LINE * len(bars) + 10
    body = [_text(10, 18, "How much of its bound each goal uses (left of the line: met)", "head")]
    for mark in (0.001, 0.01, 0.1, 1, 10):
        body.append(_text(x(mark), 38, f"{mark:g}", anchor="middle"))
        kind = "axis" if mark == 1 else "goal"
        body.append(
            f'<line class="{kind}" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{TOP - 4}" '
            f'y2="{height - 6}"/>'
        )
    for i, (name, check) in enumerate(bars):
        y = TOP + i * LINE
        kind = "ours" if check.met else "bad"
        body.append(_text(LEFT - 8, y + 13, f"{name}: {check.what}", anchor="end"))
        body.append(_bar(LEFT, y + 3, x(check.used) - LEFT, kind))
        body.append(_text(WIDTH - RIGHT + 8, y + 13, held(check, named=False)))
    return _svg(height, body)


def peers(rows: Sequence[Mapping[str, Any]]) -> str:
    """Plot one figure of each row, ours and the peers', each row on its own scale."""
    body = [_text(10, 18, "Beside the peers, in the same run (each row has its own scale)", "head")]
    y = TOP - 10
    for row in rows:
        sides = {
            side: values[row["shown"]]
            for side, values in row["figures"].items()
            if row["shown"] in values
        }
        if len(sides) < 2:
            continue
        work = row["work"].replace("`", "")
        better = "more is better" if row["shown"] == "per_second" else "less is better"
        body.append(_text(10, y + 14, f"{work}: {heading(row['shown'])} ({better})", "head"))
        y += LINE
        alone = not any(side.startswith("sayso") for side in sides)
        most = max(*sides.values(), 1e-9)
        for side, value in sides.items():
            wide = value / most * (WIDTH - LEFT - RIGHT)
            kind = "ours" if alone or side.startswith("sayso") else "theirs"
            body.append(_text(LEFT - 8, y + 13, side, anchor="end"))
            body.append(_bar(LEFT, y + 3, wide, kind))
            body.append(_text(LEFT + max(wide, 1.5) + 6, y + 13, figure(row["shown"], value)))
            y += LINE
        y += 10
    return _svg(y, body)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _bar(x: float, y: float, wide: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(wide, 1.5):.1f}" '
        f'height="{LINE - 7}" rx="2"/>'
    )


def _svg(height: float, body: Sequence[str]) -> str:
    return "".join(_lines(height, body))


def _lines(height: float, body: Sequence[str]) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img">\n'
    )
    yield STYLE
    yield from (f"{line}\n" for line in body)
    yield "</svg>\n"
