"""A power cut forgets what was not synced, and nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from fork_server import ForkServer
from power_cuts import cut_power
from record import Tally
from shim import needs_compiler

pytestmark = [
    pytest.mark.long,
    needs_compiler,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]


def test_power_cut_keeps_acknowledged_decisions(
    fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    counts = cut_power(fork_server, tmp_path, SEED, runs=12, cuts=15, ends=1)
    tell(test="power loss", store="sqlite", **counts)
    assert {name: counts[name] for name in Tally.WRONGS if counts[name]} == {}
    assert counts["decisions_checked"] > 0


def test_power_cut_without_syncs_forgets(fork_server: ForkServer, tmp_path: Path) -> None:
    counts = cut_power(fork_server, tmp_path, SEED, runs=6, cuts=10, ends=0, careless=True)
    assert counts["lost"] > 0
    assert counts["unknown"] > 0, "no start was forgotten whose effect had happened"
