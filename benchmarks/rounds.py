"""How a row is measured: both halves in fresh processes, in turn, and the median of the rounds."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = HERE.parent / ".bench-peers"
ROUNDS = 5


@dataclass
class Row:
    """One line of the table: what was done, what it cost, and what it must not cost."""

    name: str
    goal: str
    met: bool
    figures: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def python_of(package: str, *requirements: str) -> str:
    """A Python with one peer in it, in an environment that is made once."""
    home = PEERS / package
    python = home / "bin" / "python"
    stamp = home / ".ready"
    if not stamp.exists():
        print(f"installing {package} into {home.relative_to(HERE.parent)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        subprocess.run(install, check=True)
        stamp.touch()
    return str(python)


def npm_of(name: str, script: str, *packages: str) -> Path:
    """A folder with a peer's npm packages and our script for it, made once."""
    home = PEERS / name
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / script, home / script)
    if not (home / "node_modules").exists():
        print(f"installing {name} into {home.relative_to(HERE.parent)} ...", flush=True)
        (home / "package.json").write_text('{"private": true, "type": "module"}')
        subprocess.run(["npm", "install", "--silent", *packages], cwd=home, check=True)
    return home


def measured(python: str, script: str, *args: str) -> dict[str, float]:
    """What a script prints as its last line, which is JSON."""
    command = [python, str(HERE / script), *args]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def alternating(
    ours: Sequence[str], theirs: Sequence[str], rounds: int = ROUNDS
) -> tuple[dict[str, float], dict[str, float]]:
    """Run both halves in turn; the median of each figure, ours and theirs."""
    mine, peers = [], []
    for _ in range(rounds):
        peers.append(measured(*theirs))
        mine.append(measured(*ours))
    return _median(mine), _median(peers)


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
