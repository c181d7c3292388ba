"""Workers that are killed, that sleep through their leases, and that compete for runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from fork_server import ForkServer
from places import KINDS, drop, make
from rounds import contend_threads, contend_workers, kill_workers, stop_workers

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_killed(kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", kind)
    counts = kill_workers(fork_server, folder, SEED, kills=30, runs=50)
    tell(test="kills", store=kind, **counts)
    assert counts["kills"] >= 30
    assert counts["decisions"] >= 100
    drop(folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_workers_sleep_through_their_leases(
    kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    counts = stop_workers(fork_server, folder, SEED, stops=10, runs=15)
    tell(test="stops", store=kind, **counts)
    assert counts["stops"] >= 10
    drop(folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_many_workers_finish_each_run_once(
    kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    """Four processes, two of which write by what they read up to 20 ms ago: every tool runs once,
    nothing is asked for twice, and nothing moves in a run that has finished."""
    folder = make(tmp_path / "place", kind)
    counts = contend_workers(fork_server, folder, SEED, runs=100)
    tell(test="contention", store=kind, **counts)
    assert counts["runs"] == counts["effects"] / 2 == counts["decisions"] / 2 == 100
    assert counts["in_doubt"] == 0
    drop(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_run_resumed_by_many_threads_finishes_once(
    kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    counts = contend_threads(fork_server, folder, SEED, runs=40)
    tell(test="threads", store=kind, **counts)
    assert counts["runs"] == counts["effects"] / 2 == 40
    drop(folder)
