"""Write docs/state-machine.md from the tables in sayso.engine.moves; --check only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generated_page import update

from sayso.engine.moves import MOVES, RUN_MOVES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "state-machine.md"

HEAD = """\
# The state machine

<!-- Written by scripts/state_chart.py from sayso.engine.moves: run `make docs`, do not edit. -->

A call is one row with one status, and so is a run. Status changes only along the arrows on this
page, which is generated from the tables that the engine uses. Any other change raises an error,
and changes nothing.

What people see is simpler. A request is `pending` while its call is `asked` or `in_doubt`. Later it
shows two things: how it was decided (`approved`, `edited`, `rejected`, `responded`, `expired`,
`cancelled`, `superseded`), and the status of the execution. A decision that can still be
[undone](decisions/0070-hold-decisions.md) is shown like that too, although its call is `asked`, so
that the run waits, until it takes effect. The [glossary](concepts.md) defines
these words. [A design note](decisions/0005-one-row-per-call.md) explains why there is one row.
"""

CALLS = """\
## A call

The table is `MOVES` in `sayso.engine.moves`. New calls have no earlier status.
"""

RUNS = """\
## A run

The table is `RUN_MOVES` in `sayso.engine.moves`. A new run is `running`. A run is `paused` when it
can only continue after a person decides: it then has no process, OS thread or timer.
"""

Moves = Mapping[str | None, Mapping[str, str]]


def chart(moves: Moves, first: str | None = None) -> Iterator[str]:
    """Yield the moves as a Mermaid chart. A status without moves is final."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    if first is not None:
        yield f"    [*] --> {first}"
    for begin, ends in moves.items():
        for end, why in ends.items():
            yield f"    {begin or '[*]'} --> {end}: {label(why)}"
        if begin is not None and not ends:
            yield f"    {begin} --> [*]"
    yield "```"


def label(why: str) -> str:
    """Escape a reason: Mermaid ends a label at a second colon."""
    return why.replace(": ", " says ")


def table(moves: Moves) -> Iterator[str]:
    """Yield the moves as a Markdown table."""
    yield "| from | to | when |"
    yield "|---|---|---|"
    for begin, ends in moves.items():
        shown = f"`{begin}`" if begin is not None else ""
        for end, why in ends.items():
            yield f"| {shown} | `{end}` | {why} |"
        if not ends:
            yield f"| {shown} | | final |"


def plain(moves: Mapping[Any, Mapping[Any, str]]) -> Moves:
    """Return the table with statuses as text."""
    return {
        None if begin is None else str(begin): {str(end): why for end, why in ends.items()}
        for begin, ends in moves.items()
    }


def page() -> str:
    """Return the page."""
    calls, runs = plain(MOVES), plain(RUN_MOVES)
    parts = [HEAD, CALLS, *chart(calls), "", *table(calls), ""]
    parts += [RUNS, *chart(runs, first=next(iter(runs))), "", *table(runs)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(update(PAGE, page(), __doc__))
