"""Wrong clocks, and lost notifications."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import SEED, Tell
from fork_server import ForkServer
from paying_worker import silence
from places import KINDS, drop, make
from rounds import at_work

from sayso.stores.postgres import store as postgres

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]

TEN_MINUTES = 600.0


@pytest.mark.parametrize("kind", KINDS)
def test_workers_survive_skewed_clocks(
    kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    folder = make(tmp_path / "place", kind)
    with at_work(fork_server, folder, SEED, lease=5.0) as pool:
        pool.begin(10)
        for skew in (0.0, TEN_MINUTES, -TEN_MINUTES):
            pool.start_worker(skew=skew)
        tell(test="clock skew", store=kind, **pool.finish(workers=False))
    drop(folder)


def test_lost_notifications_delay_and_lose_nothing(
    fork_server: ForkServer, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "notify", postgres.notify)  # put back in the end
    silence()
    folder = make(tmp_path / "place", "postgres")
    with at_work(fork_server, folder, SEED) as pool:
        pool.begin(5)
        for _ in range(2):
            pool.start_worker(deaf=True)
        tell(test="no notifications", store="postgres", **pool.finish(workers=False))
    drop(folder)
