"""Write the table of changes to the database into SECURITY.md, from the measured outcomes.

``tests/audit/tamper_matrix.py`` measures them; a test measures a part of them again each time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from generated_page import replace_between, update

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "SECURITY.md"
RESULTS = ROOT / "tests" / "audit" / "tamper_matrix.json"
BEGIN, END = "<!-- changes: made by scripts/tamper_table.py -->\n", "<!-- /changes -->\n"

#: From best to worst.
OUTCOMES = (
    *("impossible", "refused and reported", "reported"),
    *("refused", "unused", "unprotected", "broke"),
)
ACTIONS = {
    "change": "a column changed",
    "delete": "deleted",
    "insert": "forged row",
    "swap": "two swapped",
    "put back": "put back",
    "put back, later events deleted": "… its events deleted",
    "put back, later events relabelled": "… its events relabelled",
}
WHOLE_THREAD = {
    "whole thread put back": "put back to an earlier state",
    "whole thread deleted": "deleted",
}
TABLES = {
    "call": "request, decision and result",
    "run": "run",
    "thread": "thread",
    "message": "message of a conversation",
    "grants": "grant",
    "refusal": "refusal",
    "principal": "token",
    "effect": "effect key",
    "tool": "tool",
    "event": "event of the record",
    "seal": "seal",
    "meta": "identity of the store",
    "search_key": "search index (keys)",
    "search_word": "search index (words)",
    "request_group": "groups of requests",
    "open_count": "counts of open requests",
    "request_change": "statistics: latest changes",
    "request_series": "statistics: what is counted",
    "request_total": "statistics: totals",
    "cursor": "place of a reader in the feed",
}


def worst_outcomes(
    results: Mapping[str, Mapping[str, str]],
) -> dict[tuple[str, str], dict[str, str]]:
    """Return, by table and action, the worst outcome of each column."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for case, outcomes in results.items():
        action, _, rest = case.partition(": ")
        name = rest.rpartition(" (")[0]
        table, _, column = name.partition(".")
        worst = max(outcomes.values(), key=OUTCOMES.index)
        columns = found.setdefault((table, action), {})
        columns[column] = max(worst, columns.get(column, OUTCOMES[0]), key=OUTCOMES.index)
    return found


def cell(columns: Mapping[str, str]) -> str:
    """Return the outcome of most columns, and the columns that differ."""
    if not columns:
        return "n/a"
    by_outcome = {
        outcome: sorted(column for column, found in columns.items() if found == outcome)
        for outcome in OUTCOMES
    }
    by_outcome = {outcome: names for outcome, names in by_outcome.items() if names}
    most = max(by_outcome, key=lambda outcome: len(by_outcome[outcome]))
    others = [
        f"{outcome}: {', '.join(f'`{name}`' for name in names)}"
        for outcome, names in by_outcome.items()
        if outcome != most
    ]
    return "; ".join([most, *others])


def table() -> str:
    """Return the table as Markdown."""
    results = json.loads(RESULTS.read_text())
    found = worst_outcomes(results)
    known = {name for name, _ in found}
    assert known == set(TABLES), f"name these tables here: {known ^ set(TABLES)}"
    lines = [
        f"| row | {' | '.join(ACTIONS.values())} |",
        f"|---|{'---|' * len(ACTIONS)}",
    ]
    for name, title in TABLES.items():
        cells = [cell(found.get((name, action), {})) for action in ACTIONS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", "A whole thread, with its runs, requests, messages and events:", ""]
    for action, title in WHOLE_THREAD.items():
        for state in ("sealed", "unsealed"):
            outcomes = set(results[f"{action}: thread ({state})"].values())
            worst = max(outcomes, key=OUTCOMES.index)
            lines.append(f"- {title}, {state}: {worst}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = replace_between(PAGE.read_text("utf-8"), BEGIN, END, table())
    sys.exit(update(PAGE, page, __doc__))
