"""Write docs/benchmarks.md and its pictures from results.json; --check only compares."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.row import Check
from benchmarks.rows import ROWS

_UNITS = {"ms": "ms", "bytes": "B", "percent": "%", "second": "/s"}


def figure(name: str, value: float) -> str:
    """Format a figure with its unit, which its name ends in."""
    unit = _UNITS.get(name.rpartition("_")[2], "")
    if unit == "B":
        return _bytes(value)
    if unit == "ms" and value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{number(value)} {unit}".strip().replace(" /s", "/s")


def heading(name: str) -> str:
    """Return the name of a figure without its unit."""
    stem, _, unit = name.rpartition("_")
    words = stem if unit in ("ms", "bytes", "percent") and stem else name
    return words.replace("_", " ").replace("cpu", "CPU")


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000 or unit == "MB":
            break
        value /= 1000
    return f"{number(value)} {unit}"


def describe_check(check: Check, *, named: bool = True) -> str:
    """Describe a check: its value and its bound."""
    bound = check.most if check.most is not None else check.least
    assert bound is not None
    sign = "≤" if check.most is not None else "≥"
    name = f"{check.what}: " if named else ""
    return f"{name}{_with(check.value, check.unit)} ({sign} {_bare(bound, check.unit)})"


def _with(value: float, unit: str) -> str:
    bare = _bare(value, unit)
    return bare if bare.startswith("1/") else f"{bare} {unit}".rstrip()


def _bare(value: float, unit: str) -> str:
    """Format a bound as a number, or as a fraction such as 1/6."""
    return f"1/{number(1 / value)}" if unit == "times" and 0 < value < 0.95 else number(value)


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
        body.append(_text(WIDTH - RIGHT + 8, y + 13, describe_check(check, named=False)))
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
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img">\n'
    )
    return "".join((head, STYLE, *(f"{line}\n" for line in body), "</svg>\n"))


DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
IMAGES = DOCS / "images"

HEAD = """\
# Benchmarks

<!-- Written by benchmarks/page.py from benchmarks/results.json: run `make bench`, do not edit. -->

Each row does the same work with Sayso and with a peer, in one run on one machine. The sides
alternate, each in new processes, with a model that answers at once and with the stated durability.
A figure is the median of the rounds. Ratios are ours to theirs: 1/6 is a sixth of the peer's time.
CPU time is that of the process or, for servers, of the server.

`make bench` measures everything again, and fails if a goal is missed and not explained here.
[benchmarks/README.md](../benchmarks/README.md) describes the method and each script.

"""


def page(kept: Mapping[str, Any]) -> str:
    """Return the page."""
    return "".join([HEAD, *_summary(kept), *_machine(kept), *_rows(kept)]).rstrip("\n") + "\n"


def _summary(kept: Mapping[str, Any]) -> Iterator[str]:
    found = {row["name"]: row for row in kept["rows"]}
    yield "| row | work | beside | goal | |\n|---|---|---|---|---|\n"
    for name, row in ROWS.items():
        met = _met(found[name]) if name in found else "not measured yet"
        link = f"[{name}](#{name})" if name in found else name
        yield f"| {link} | {row.work} | {row.beside} | {row.goal} | {met} |\n"
    yield "\n"
    if found:
        yield "![How much of its bound each goal uses](images/benchmarks-goals.svg)\n\n"
        yield "![Ours and the peers' figures, side by side](images/benchmarks-peers.svg)\n\n"


def _met(row: Mapping[str, Any]) -> str:
    if not row["checks"]:
        return "measured"
    if row["met"]:
        return "met"
    return "**missed**, explained" if row["explanation"] else "**missed**"


def _machine(kept: Mapping[str, Any]) -> Iterator[str]:
    if not kept["machine"]:
        return
    facts = {name.replace("_", " "): value for name, value in kept["machine"].items()}
    yield "## Test machine\n\n| | |\n|---|---|\n"
    yield from (f"| {name} | {value} |\n" for name, value in facts.items())
    yield "\n| package | version |\n|---|---|\n"
    yield from (f"| {name} | {value} |\n" for name, value in kept["versions"].items())
    yield "\n"


def _rows(kept: Mapping[str, Any]) -> Iterator[str]:
    for row in kept["rows"]:
        yield f"## {row['name']}\n\n{row['work']}. Beside: {row['beside']}.\n\n"
        yield f"Goal: {row['goal']}.\n\nDurability: {row['durability']}.\n\n"
        yield f"Measured on {row['date']}{_elsewhere(row, kept)}; rounds: {row['rounds']}.\n\n"
        yield from _table(row["figures"])
        for fields in row["checks"]:
            check = Check(**fields)
            yield f"- {'met' if check.met else '**missed**'}: {describe_check(check)}\n"
        yield "\n"
        if row["explanation"]:
            yield f"{row['explanation']}\n\n"


def _elsewhere(row: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """Return on which machine a row was measured, if not on that of the page."""
    where = row.get("machine", kept["machine"])
    if where.get("processor") == kept["machine"].get("processor"):
        return ""
    return f" on another machine ({where['processor']}; {where['fsync_ms']} ms for a sync)"


def _table(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for values in figures.values() for name in values))
    yield "| | " + " | ".join(heading(name) for name in names) + " |\n"
    yield "|---" * (len(names) + 1) + "|\n"
    for side, values in figures.items():
        cells = [figure(name, values[name]) if name in values else "" for name in names]
        yield f"| {side} | " + " | ".join(cells) + " |\n"
    yield "\n"


def files() -> dict[Path, str]:
    """Return the path and contents of every file that is generated from the results."""
    kept = results.with_current_texts(results.load(), ROWS)
    return {
        results.FILE: results.text_of(kept),
        PAGE: page(kept),
        IMAGES / "benchmarks-goals.svg": goals(kept["rows"]),
        IMAGES / "benchmarks-peers.svg": peers(kept["rows"]),
    }


def write() -> None:
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if something is not up to date")
    if not parser.parse_args().check:
        write()
        return 0
    stale = [
        file.name
        for file, text in files().items()
        if not file.exists() or file.read_text("utf-8") != text
    ]
    if stale:
        names = ", ".join(stale)
        print(f"not up to date: {names}; run `python -m benchmarks.page`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
