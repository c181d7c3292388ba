"""A PostgreSQL that is killed during work, and restarts or is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from fork_server import ForkServer
from places import make
from postgres_server import PostgresServer
from rounds import kill_server, lose_primary

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]


def test_no_acknowledged_decision_is_lost(
    fork_server: ForkServer, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", "postgres", server.url)
    counts = kill_server(fork_server, server, folder, SEED, kills=1, runs=10)
    tell(test="server kills", store="postgres", **counts)


def test_takeover_loses_no_acknowledged_decision(
    fork_server: ForkServer, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    counts = lose_primary(fork_server, server, tmp_path / "place", SEED, runs=10)
    tell(test="takeover", store="postgres", **counts)
