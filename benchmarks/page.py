"""Write docs/benchmarks.md and its pictures from results.json; --check only compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import plots, results
from benchmarks.figures import figure, heading, held
from benchmarks.row import Check
from benchmarks.rows import ROWS

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
    if row["met"]:
        return "met"
    return "**missed**, explained" if row["explanation"] else "**missed**"


def _machine(kept: Mapping[str, Any]) -> Iterator[str]:
    if not kept["machine"]:
        return
    facts = {name.replace("_", " "): value for name, value in kept["machine"].items()}
    yield "## Where\n\n| | |\n|---|---|\n"
    yield from (f"| {name} | {value} |\n" for name, value in facts.items())
    yield "\n| package | version |\n|---|---|\n"
    yield from (f"| {name} | {value} |\n" for name, value in kept["versions"].items())
    yield "\n"


def _rows(kept: Mapping[str, Any]) -> Iterator[str]:
    for row in kept["rows"]:
        yield f"## {row['name']}\n\n{row['work']}. Beside: {row['beside']}.\n\n"
        yield f"Goal: {row['goal']}.\n\nDurability: {row['durability']}.\n\n"
        yield f"Measured on {row['date']}; rounds: {row['rounds']}.\n\n"
        yield from _table(row["figures"])
        for fields in row["checks"]:
            check = Check(**fields)
            yield f"- {'met' if check.met else '**missed**'}: {held(check)}\n"
        yield "\n"
        if row["explanation"]:
            yield f"{row['explanation']}\n\n"


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
    kept = results.explained(results.load(), ROWS)
    return {
        results.FILE: results.text_of(kept),
        PAGE: page(kept),
        IMAGES / "benchmarks-goals.svg": plots.goals(kept["rows"]),
        IMAGES / "benchmarks-peers.svg": plots.peers(kept["rows"]),
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
        told = ", ".join(stale)
        print(f"not up to date: {told}; run `python -m benchmarks.page`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
