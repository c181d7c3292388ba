"""The benchmarks: every row is measured, the page is up to date, misses fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import load, results
from benchmarks.__main__ import main
from benchmarks.row import Check, Effort, Measured, Row
from benchmarks.rows import ROWS

ROOT = Path(__file__).resolve().parent.parent

#: The promised table, line by line: a word of the work, and the row that measures it.
TABLE = {
    "own agent, SQLite": "agent",
    "own agent, PostgreSQL": "postgres",
    "16 at once": "crowd",
    "ask → approve → run once": "once",
    "bytes per paused thread": "sizes",
    "100 approvals on one thread": "hundred",
    "1,000-turn thread": "thousand",
    "decide 100 open requests": "decide",
    "first page of 100,000 open requests": "page",
    "resumed in another process": "news",
    "ask → message at the platform": "messages",
    "100,000 paused runs": "idle",
    "approval POST": "chat",
    "1,000 SSE readers": "feed",
    "through the MCP proxy": "proxy",
    "import Gate, Inbox, Agent": "imports",
    "takes 3 ms longer for each sync": "slow_disk",
    "one tool call that needs no approval": "guarded",
}


def fake(value: float, explanation: str = "") -> dict[str, Row]:
    """A row that measures nothing and always finds the same; its goal is at most 1."""

    def measure(effort: Effort) -> Measured:
        return Measured({"ours": {"wall_ms": value}}, [Check("wall", value, most=1)])

    told = {"beside": "nobody", "goal": "at most 1", "durability": "none", "shown": "wall_ms"}
    return {"fake": Row("fake", "nothing", **told, measure=measure, explanation=explanation)}


@pytest.mark.parametrize(("work", "name"), TABLE.items(), ids=TABLE.values())
def test_every_line_of_the_table_is_measured(work: str, name: str) -> None:
    assert work in ROWS[name].work


def test_page_matches_the_results() -> None:
    command = [sys.executable, "-m", "benchmarks.page", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("value", "explanation", "code"),
    [(0.5, "", 0), (2.0, "", 1), (2.0, "the disk is slow", 0)],
    ids=["met", "missed", "explained"],
)
def test_unexplained_miss_fails(tmp_path: Path, value: float, explanation: str, code: int) -> None:
    kept = tmp_path / "results.json"
    assert main(["fake"], fake(value, explanation), kept) == code
    (row,) = json.loads(kept.read_text("utf-8"))["rows"]
    assert row["met"] is (value <= 1)
    assert row["explanation"] == explanation


def test_broken_row_leaves_the_others(tmp_path: Path) -> None:
    def broken(effort: Effort) -> Measured:
        raise RuntimeError("no such peer")

    rows = fake(0.5)
    rows = {"broken": Row(**{**vars(rows["fake"]), "name": "broken", "measure": broken}), **rows}
    kept = tmp_path / "results.json"
    assert main([], rows, kept) == 1
    assert [row["name"] for row in results.load(kept)["rows"]] == ["fake"]


def test_unmeasured_rows_keep_their_results(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    old = {"name": "other", "date": "2020-01-01"}
    kept.write_text(json.dumps({"machine": {}, "versions": {"peer": "1"}, "rows": [old]}))
    rows = fake(0.5)
    rows["other"] = Row(**{**vars(rows["fake"]), "name": "other"})
    assert main(["fake"], rows, kept) == 0
    after = results.load(kept)
    assert {row["name"]: row["date"] for row in after["rows"]}["other"] == "2020-01-01"
    assert after["versions"]["peer"] == "1"


def test_quick_run_stores_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    assert main(["--quick", "fake"], fake(0.5), kept) == 0
    assert not kept.exists()


def test_unknown_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["nothing"], fake(0.5), tmp_path / "results.json")
    assert refused.value.code == 2


def test_table_of_loaded_stores_matches_the_record() -> None:
    figures = json.loads(load.RECORD.read_text())
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert load.table(figures) in page
    assert f"--requests {figures['requests']} --record" in page


@pytest.mark.long
def test_loaded_stores_verify_and_are_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.load", "--requests", "40", "--keep"]
    for _ in range(2):  # the second time with the store that was kept
        done = subprocess.run(
            [*command, str(tmp_path / "kept")], cwd=ROOT, capture_output=True, text=True, check=True
        )
        figures = json.loads(done.stdout.splitlines()[-1])
        for database in ("sqlite", "postgres"):
            measured = figures[database]
            assert measured["pruned runs"] == 36 + 600
            assert measured["verify, all"] > 0
            assert measured["search, one order"] > 0
