"""The table in SECURITY.md is true: its cases are measured again here.

Between them, the four configurations play every case; the committed results name all of them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kept_sessions import kept_sessions
from postgres_server import why_not
from tamper_matrix import CONFIGURATIONS, RESULTS, Matrix, label, opened


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
def test_every_change_has_its_stored_outcome(
    matrix: Matrix, results: dict[str, dict[str, str]], full_strength: bool
) -> None:
    cases = list(matrix.cases())
    name = matrix.configuration
    measured = {one for one, outcomes in results.items() if name in outcomes}
    assert {label(case) for case in cases} == measured, (
        "run PYTHONPATH=tests python tests/audit/tamper_matrix.py"
    )
    step = len(CONFIGURATIONS) * (1 if full_strength else 20)
    for case in cases[CONFIGURATIONS.index(name) :: step]:
        assert matrix.outcome(case) == results[label(case)][name], label(case)


def test_changes_are_refused_and_reported(
    results: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SECURITY.md names every exception with its reason, and each of them is needed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    table: Any = importlib.import_module("tamper_table")
    needed = set()
    for case, outcomes in results.items():
        for outcome in {*outcomes.values()} - {"impossible", "refused and reported"}:
            covering = [each.title for each in table.EXCEPTIONS if each.covers(case, outcome)]
            assert covering, f"{case}: {outcome}"
            needed.add(covering[0])
    assert needed == {each.title for each in table.EXCEPTIONS}


def test_verify_reports_every_refused_change(results: dict[str, dict[str, str]]) -> None:
    unreported = {case for case, outcomes in results.items() if "refused" in outcomes.values()}
    assert unreported == {
        "change: event.pos (finished, unsealed)",  # collides with the next event
        "whole thread deleted: thread (unsealed)",  # on PostgreSQL, nothing is left that knows it
    }
