"""Measure every row and store it in ``results.json``. Fails if a goal is missed unexplained.

python -m benchmarks               all rows
python -m benchmarks once news     some rows; the others keep their last results
python -m benchmarks --quick       once and little, to see that everything runs; stores nothing
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import page, results
from benchmarks.machine import server
from benchmarks.row import Effort, Row
from benchmarks.rows import ROWS


def main(
    argv: Sequence[str],
    rows: Mapping[str, Row] = ROWS,
    kept: Path = results.FILE,
) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once and little; stores nothing")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(rows))
    given = parser.parse_args(argv)
    unknown = set(given.rows) - set(rows)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; the rows are {', '.join(rows)}")
    effort = Effort(quick=given.quick)
    bad = []
    with server():
        for name in given.rows or rows:
            result = _measured(rows[name], effort)
            if result is None or not (result["met"] or result["explanation"]):
                bad.append(name)
            if result is not None and not effort.quick:
                results.save_row(result, rows, kept)
    if not effort.quick:
        results.save_environment(kept, whole=not given.rows)
        if kept == results.FILE:
            page.write()
    if bad:
        print(f"missed and not explained: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


def _measured(row: Row, effort: Effort) -> dict[str, Any] | None:
    """Measure and print a row. Return None if it fails, so that the others still run."""
    print(f"{row.name}: {row.work}", flush=True)
    began = time.monotonic()
    try:
        measured = row.measure(effort)
    except Exception as error:
        print(f"  BROKE  {error}", flush=True)
        return None
    result = row.result(measured, results.today(), effort.rounds)
    for side, figures in result["figures"].items():
        print(f"    {side}: " + ", ".join(f"{k} {v:.4g}" for k, v in figures.items()))
    for check in measured.checks:
        print(f"  {'met   ' if check.met else 'MISSED'} {page.describe_check(check)}")
    print(f"    ({time.monotonic() - began:.0f} s)", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
