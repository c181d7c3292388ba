"""Workflows wait for weeks: histories recorded by an earlier release still replay."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HISTORIES = sorted((HERE / "histories").glob("*.json"))


def replayed(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "replay.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_recorded_histories_replay() -> None:
    done = replayed(*HISTORIES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"replayed {path.stem}" for path in HISTORIES]
    assert len(HISTORIES) >= 4


@pytest.mark.long
def test_changed_order_is_noticed(tmp_path: Path) -> None:
    history = json.loads((HERE / "histories" / "in_doubt.json").read_text())
    for event in history["events"]:
        scheduled = event.get("activityTaskScheduledEventAttributes")
        if scheduled and scheduled["activityType"]["name"] == "sayso.settle":
            scheduled["activityType"]["name"] = "sayso.ask"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(history))
    done = replayed(other)
    assert done.returncode == 1
    assert "ondeterminis" in done.stderr
