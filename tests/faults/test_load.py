"""Agents ask, readers watch and people decide at the same time: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import Tell
from load import Load, check_load, run_load
from places import KINDS, drop, make

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_under_load(kind: str, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", kind)
    load = Load(agents=6, people=3, readers=30, requests=300, seconds=1)
    counts = run_load(folder, load)
    tell(test="load", store=kind, **counts)
    check_load(load, counts)
    drop(folder)
