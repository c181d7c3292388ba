"""Workers killed and stopped, and a PostgreSQL killed: the long versions of ``tests/faults``."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from places import KINDS, drop, make
from rounds import kill_server, kill_workers, stop_workers
from zygote import Zygote

from assent.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_killed(kind: str, zygote: Zygote, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", kind)
    counts = kill_workers(zygote, folder, SEED, kills=1000, runs=5000)
    tell(test="kills", store=kind, **counts)
    assert counts["kills"] >= 1000
    assert counts["decisions"] >= 10_000
    drop(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_sleep_through_their_leases(
    kind: str, zygote: Zygote, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    counts = stop_workers(zygote, folder, SEED, stops=200, runs=50)
    tell(test="stops", store=kind, **counts)
    assert counts["stops"] >= 200
    drop(folder)


def test_no_acknowledged_decision_is_lost(
    zygote: Zygote, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", "postgres", server.url)
    counts = kill_server(zygote, server, folder, SEED, kills=50, runs=20)
    tell(test="server kills", store="postgres", **counts)
    assert counts["server_kills"] >= 50
