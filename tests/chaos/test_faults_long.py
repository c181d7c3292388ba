"""Workers killed and stopped, a PostgreSQL killed, power cut, a server under load: the long
versions of ``tests/faults``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import SEED, Tell
from fork_server import ForkServer
from load import Load, check_load, run_load
from places import KINDS, drop, make
from postgres_server import PostgresServer, why_not
from power_cuts import cut_power
from power_cuts_postgres import cut_server_power
from record import Tally
from rounds import kill_server, kill_workers, lose_primary, stop_workers
from shim import needs_compiler

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_killed(kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell) -> None:
    folder = make(tmp_path / "place", kind)
    counts = kill_workers(fork_server, folder, SEED, kills=1000, runs=5000)
    tell(test="kills", store=kind, **counts)
    assert counts["kills"] >= 1000
    assert counts["decisions"] >= 10_000
    drop(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_sleep_through_their_leases(
    kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    counts = stop_workers(fork_server, folder, SEED, stops=200, runs=50)
    tell(test="stops", store=kind, **counts)
    assert counts["stops"] >= 200
    drop(folder)


def test_no_acknowledged_decision_is_lost(
    fork_server: ForkServer, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", "postgres", server.url)
    counts = kill_server(fork_server, server, folder, SEED, kills=50, runs=20)
    tell(test="server kills", store="postgres", **counts)
    assert counts["server_kills"] >= 50


@pytest.mark.parametrize("turn", range(10))
def test_takeover_loses_no_acknowledged_decision(
    turn: int, fork_server: ForkServer, server: PostgresServer, tmp_path: Path, tell: Tell
) -> None:
    counts = lose_primary(fork_server, server, tmp_path / "place", SEED + turn, runs=40)
    tell(test="takeover", store="postgres", **counts)


@needs_compiler
def test_power_cut_keeps_acknowledged_decisions(
    fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    counts = cut_power(fork_server, tmp_path, SEED, runs=100, cuts=400, ends=20)
    tell(test="power loss", store="sqlite", **counts)
    assert {name: counts[name] for name in Tally.WRONGS if counts[name]} == {}
    assert counts["decisions_checked"] > 0


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name, because the server's socket is in it."""
    folder = Path(tempfile.mkdtemp(prefix="sayso-pw-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@needs_compiler
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one")
@pytest.mark.parametrize("careless", [False, True], ids=["synced", "without syncs"])
def test_postgres_power_cut_keeps_decisions(
    careless: bool, home: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = cut_server_power(home, SEED, 30, 5 if careless else 40, monkeypatch, careless)
    tell(test="power loss", store="postgres", synced=not careless, **counts)
    wrong = {name for name in Tally.WRONGS if counts[name]}
    assert counts["decisions_checked"] > 0
    assert {"lost"} <= wrong if careless else not wrong


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_under_load(kind: str, tmp_path: Path, tell: Tell) -> None:
    """How fast it was stands in the line of JSON: that is the machine's as much as ours."""
    load = Load(agents=50, people=20, readers=1000, requests=10_000, seconds=60, pace=1)
    folder = make(tmp_path / "place", kind)
    counts = run_load(folder, load)
    tell(test="load", store=kind, **counts)
    check_load(load, counts)
    drop(folder)
