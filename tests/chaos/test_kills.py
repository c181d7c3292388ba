"""Deaths at random, sleeps through leases, and every pair of deaths, of guarded functions."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from all_stories import STORIES
from faults import SEED, Tell
from fork_server import ForkServer
from places import KINDS, make, open_at
from sweep import LATER, check_acknowledged, check_effects, die, events_of, plot_of, sweep

from sayso.audit import verify

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

WORKERS = 4


def check_all(folder: Path, runs: list[str]) -> dict[str, int]:
    """Nothing lost, nothing twice, the record whole; gives what happened how often."""
    events = events_of(folder)
    check_acknowledged(events, folder)
    check_effects(events, folder)
    store = open_at(str(folder))
    try:
        report = verify(store)
        assert report.ok, report
        assert all(store.run(run) is not None for run in runs)
    finally:
        store.close()
    return {kind: sum(e.type == kind for e in events) for kind in ("started", "in_doubt", "late")}


def test_deaths_at_random_moments(fork_server: ForkServer, tmp_path: Path, tell: Tell) -> None:
    dice = random.Random(SEED)
    kills, least = 0, 1_000
    runs: list[str] = []
    pids: list[int] = []
    while kills < least:
        if not pids:
            runs += [f"run {len(runs) + n}" for n in range(60)]
        while len(pids) < WORKERS:
            seed = dice.randrange(10**9)
            pids.append(
                fork_server.spawn(
                    "actors:work", folder=str(tmp_path), runs=runs, seed=seed, lease=0.4
                )
            )
        time.sleep(dice.random() * 0.06)
        pid = pids.pop(dice.randrange(len(pids)))
        os.kill(pid, signal.SIGKILL)
        ended = fork_server.wait(pid)
        assert not ended.error, ended.error
        kills += ended.killed
        if not ended.killed:  # it was done: give them more to do
            runs += [f"run {len(runs) + n}" for n in range(60)]
    for pid in pids:
        fork_server.wait(pid)
    fork_server.value("actors:work", folder=str(tmp_path), runs=runs, seed=1, lease=0.4)
    tell(
        test="guard kills", store="sqlite", kills=kills, runs=len(runs), **check_all(tmp_path, runs)
    )


def test_sleeping_through_leases(fork_server: ForkServer, tmp_path: Path, tell: Tell) -> None:
    dice = random.Random(SEED)
    runs = [f"run {n}" for n in range(400)]
    pids = [
        fork_server.spawn(
            "actors:work", folder=str(tmp_path), runs=runs, seed=n, lease=0.3, nap=0.1
        )
        for n in range(WORKERS)
    ]
    stops = 0
    while stops < 200:
        pid = dice.choice(pids)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1 + dice.random() * 0.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(dice.random() * 0.05)
        stops += 1
    for pid in pids:
        ended = fork_server.wait(pid)
        assert (ended.signal, ended.error) == (0, ""), ended.error
    tell(test="guard stops", store="sqlite", stops=stops, **check_all(tmp_path, runs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", STORIES)
def test_process_dies_at_every_point_of_story(
    story: str, kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    plot = plot_of(fork_server, story, make(tmp_path / "plot", kind))
    deaths = sweep(fork_server, plot, tmp_path, kind=kind)
    assert deaths >= len(plot.kills()) > 0
    tell(test="sweep", store=kind, story=story, deaths=deaths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", [name for name in STORIES if not STORIES[name].only])
def test_every_second_death_after_every_first(
    story: str, kind: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    deaths = 0
    for number, point in enumerate(
        plot_of(fork_server, story, make(tmp_path / "plot", kind)).kills()
    ):
        whole = make(tmp_path / f"whole {number}", kind)
        die(fork_server, story, whole, point.kill)
        plot = plot_of(fork_server, story, whole, later=LATER)
        place = tmp_path / f"second {number}"
        place.mkdir()
        deaths += sweep(fork_server, plot, place, point.kill, kind)
        assert deaths >= len(plot.kills())
    tell(test="second deaths", store=kind, story=story, deaths=deaths)
