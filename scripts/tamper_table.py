"""Write the table of changes to the database into SECURITY.md, from the measured outcomes.

``tests/audit/tamper_matrix.py`` measures them; a test measures a part of them again each time.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

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
    "person": "person or agent",
    "credential": "token or session",
    "effect": "effect key",
    "budget": "count of a limit",
    "tool": "tool",
    "event": "event of the record",
    "seal": "seal",
    "meta": "identity of the store",
    "search_key": "search index (keys)",
    "search_word": "search index (words)",
    "call_word": "search index (words of one request)",
    "request_group": "groups of requests",
    "open_count": "counts of open requests",
    "cursor": "place of a reader in the feed",
    "delivery": "message to a person",
}


class Exempt(NamedTuple):
    """Changes that are not both refused and reported."""

    title: str
    #: Matches the labels of the cases.
    pattern: str
    #: What becomes of them at worst.
    worst: str
    reason: str

    def covers(self, case: str, outcome: str) -> bool:
        """Return whether this case may have this outcome."""
        accepted = OUTCOMES[: OUTCOMES.index(self.worst) + 1]
        return outcome in accepted and re.fullmatch(self.pattern, case) is not None


#: A test fails for a case that none of these covers.
EXCEPTIONS = (
    Exempt(
        "Counts of limits",
        r"change: budget\.key .*|(delete|insert): budget .*",
        "reported",
        "A count that is gone looks like one that was never begun, so more calls may run than the "
        "limit allows; `sayso audit verify` compares each count with the events of the calls.",
    ),
    Exempt(
        "Events and seals",
        r".*: (event|seal)\b.*",
        "reported",
        "Nothing is shown, decided or started from the record: `sayso audit verify` reads it.",
    ),
    Exempt(
        "Lists, searches, counts and statistics",
        r".*: (open_count|request_\w+|search_\w+|call_word)\b.*|"
        r"change: call\.(list_status|search_key|request_group|words|"
        r"decided_at|decided_by|opened_at|held_until) .*",
        "unused",
        "Lists, searches and counts are made from these. A change can hide a request from a list "
        "or count it wrongly, and never changes what it says. A forged row names no request, and "
        "two rows that are nothing but their keys can be exchanged.",
    ),
    Exempt(
        "A rejected request",
        r"(change|delete): call\S* \(rejected\)",
        "reported",
        "A rejected request is final. Only an equal request reads it, to show that it was rejected "
        "before, and shows that without the details.",
    ),
    Exempt(
        "A forged row",
        r"insert: .*",
        "unused",
        "Nothing asks for a row under a new name; lists leave it out.",
    ),
    Exempt(
        "An old row of a request, a run or a thread",
        r"put back.*: (call|run|thread) .*",
        "reported",
        "It is shown as it was then, and refused where it would be decided, started or finished.",
    ),
    Exempt(
        "An old row of a grant, a person, a token or a refusal",
        r"put back: (grants|person|credential|refusal) .*",
        "reported",
        "It counts again until the record is verified, which names the event after it.",
    ),
    Exempt(
        "An effect key or a refusal that is gone",
        r"(change|delete): (effect|refusal)(\.key|\.id)? .*",
        "reported",
        "What has no row is not found: a second call with its effect key may start, and "
        "an equal call is asked about again.",
    ),
    Exempt(
        "A thread, and what is noted about its seals",
        r"\w+: thread\S* \(unsealed\)|change: thread\.(moved|sealed) .*",
        "reported",
        "Only the next run in the thread, and the next seal, read it.",
    ),
    Exempt(
        "A whole thread that a seal covers",
        r"whole thread (deleted|put back): thread \(sealed\)",
        "reported",
        "In one piece, it is consistent: the seal shows what is missing.",
    ),
    Exempt(
        "A whole thread that no seal covers yet",
        r"whole thread (deleted|put back): thread \(unsealed\)",
        "unprotected",
        "This is the limit that is named above: what no seal covers yet, restored in one piece.",
    ),
    Exempt(
        "Messages to people",
        r".*: delivery\b.*",
        "unused",
        "A message carries no right. A change can lose one, send it again, or make its buttons "
        "answer that the message is not known: the request stays in the inbox. A message goes "
        "only to an account that its person has linked, or to a channel of the configuration, and "
        "a click counts as the person whose account made it.",
    ),
    Exempt(
        "Places of readers, saved views, and the order of the feed",
        r".*: (cursor|meta)\b.*|change: (call\.n|event\.(era|pos|xid)) .*|swap: event .*",
        "unused",
        "They say where a reader of the feed is, in which order it gets events and requests, and "
        "by which words a person filters the inbox. "
        "The next event may not get a position that was given to another.",
    ),
)


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
    lines += ["", "Why some changes are not both refused and reported:", ""]
    lines += [f"- {each.title} (at worst {each.worst}): {each.reason}" for each in EXCEPTIONS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = replace_between(PAGE.read_text("utf-8"), BEGIN, END, table())
    sys.exit(update(PAGE, page, __doc__))
