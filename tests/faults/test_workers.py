"""Workers that are killed, and workers that sleep through their leases."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from places import KINDS, drop, make
from rounds import kill_workers, stop_workers
from zygote import Zygote

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_killed(kind: str, zygote: Zygote, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", kind)
    counts = kill_workers(zygote, folder, SEED, kills=30, runs=50)
    tell(test="kills", store=kind, **counts)
    assert counts["kills"] >= 30
    assert counts["decisions"] >= 100
    drop(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_sleep_through_their_leases(
    kind: str, zygote: Zygote, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    counts = stop_workers(zygote, folder, SEED, stops=10, runs=15)
    tell(test="stops", store=kind, **counts)
    assert counts["stops"] >= 10
    drop(folder)
