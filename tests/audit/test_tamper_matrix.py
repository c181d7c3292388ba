"""The table in SECURITY.md is true: its cases are measured again here.

Between them, the four configurations play every case; the committed results name all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kept_sessions import kept_sessions
from postgres_server import why_not
from tamper_matrix import CONFIGURATIONS, RESULTS, Matrix, label, opened

#: Nothing is shown, decided, started or returned from these: the worst that a change of them does
#: is to hide a request from a search, or to show an event in another place of the feed.
AT_WORST_UNUSED = (
    *("cursor", "meta"),
    *("call.n", "event.era", "event.pos", "event.xid"),
    # Rows of a sum, which may change places; and rows that are nothing but their key.
    *("open_count.n", "open_count (any)", "search_word (any)"),
)


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(RESULTS.read_text())
    return found


@pytest.fixture(params=CONFIGURATIONS)
def matrix(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Matrix]:
    if request.param.startswith("postgres") and why_not():
        pytest.skip(why_not())
    with kept_sessions():
        found = opened(request.param, tmp_path)
        with closing(found.database):
            yield found


@pytest.mark.timeout(600)
def test_the_outcome_of_every_change(matrix: Matrix, results: dict[str, dict[str, str]]) -> None:
    cases = list(matrix.cases())
    name = matrix.configuration
    measured = {one for one, outcomes in results.items() if name in outcomes}
    assert {label(case) for case in cases} == measured, (
        "run PYTHONPATH=tests python tests/audit/tamper_matrix.py"
    )
    for case in cases[CONFIGURATIONS.index(name) :: len(CONFIGURATIONS)]:
        assert matrix.outcome(case) == results[label(case)][name], label(case)


#: SECURITY.md says so: what no seal covers yet can be cut off, with all the rows it is about.
UNPROTECTED = "whole thread put back: thread (unsealed)"


def test_nothing_is_unprotected(results: dict[str, dict[str, str]]) -> None:
    for case, outcomes in results.items():
        if case != UNPROTECTED:
            assert set(outcomes.values()) <= {"refused", "reported", "unused"}, case


def test_every_row_that_is_used_is_protected_against_change(
    results: dict[str, dict[str, str]],
) -> None:
    for case, outcomes in results.items():
        changed = case.startswith(("change: ", "swap: ", "put back"))
        what = case.partition(": ")[2]
        if changed and not what.startswith(AT_WORST_UNUSED):
            assert set(outcomes.values()) <= {"refused", "reported"}, case
