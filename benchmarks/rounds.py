"""Measure a row: run every side in new processes, alternating, and take the median."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.row import Effort

HERE = Path(__file__).parent
OURS = HERE / "ours"
THEIRS = HERE / "theirs"
DRIVERS = HERE / "drivers"

#: Seconds for one script: some peers need minutes for a thousand turns.
SCRIPT_SECONDS = 900

Command = Sequence[str | Path]


def ours(script: str, *args: str | Path) -> Command:
    """Return the command that runs one of our scripts in this environment."""
    return (sys.executable, OURS / script, *args)


def run_alternately(
    effort: Effort, *sides: Command, more: Mapping[str, str] | None = None
) -> list[dict[str, float]]:
    """Run all sides alternately, with more environment variables.

    Return the median of each figure, by side.
    """
    rounds: list[list[dict[str, float]]] = [[] for _ in sides]
    for _ in range(effort.rounds):
        for side, command in zip(rounds, sides, strict=True):
            side.append(measured(command, more))
    return [_medians(side) for side in rounds]


def measured(command: Command, more: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a script and return its last line, parsed as JSON."""
    words = [str(word) for word in command]
    env = {**environment(), **(more or {})}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=env, timeout=SCRIPT_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


@cache
def environment() -> dict[str, str]:
    """Return the environment of the scripts: one key, no user settings, no telemetry."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    made = subprocess.run(
        [sys.executable, "-m", "sayso.keys"], capture_output=True, text=True, check=True
    )
    quiet = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    return {**kept, **quiet, "OPENAI_API_KEY": "none", "SAYSO_KEY": made.stdout.strip()}
