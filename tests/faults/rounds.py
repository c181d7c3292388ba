"""The fault tests themselves. Their arguments make them short or long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crew import PAYMENTS
from desk import CREW, Desk
from fork_server import ForkServer
from places import address_of, make
from postgres_server import PostgresServer
from sandman import Sandman
from standby import Standby, either
from stories import lines

_BATCH = 200
_CROWD = 20
#: How old what a worker has read may be when it writes, in seconds.
LAG = 0.02


@contextlib.contextmanager
def at_work(fork_server: ForkServer, folder: Path, seed: int, lease: float = 0.5) -> Iterator[Desk]:
    """Yield a worker pool, which is closed even if the test fails."""
    desk = Desk(folder, fork_server, seed, lease)
    try:
        yield desk
    finally:
        desk.close()


def kill_workers(
    fork_server: ForkServer, folder: Path, seed: int, kills: int, runs: int
) -> dict[str, int]:
    """Kill workers (SIGKILL), half of them at named points, while people decide."""
    with at_work(fork_server, folder, seed) as desk:
        pace = runs * PAYMENTS / kills
        told = 0
        while (desk.kills < kills or len(desk.runs) < runs) and not desk.stuck:
            if len(desk.runs) < runs and len(desk.live) < _BATCH:
                desk.begin(min(_BATCH, runs - len(desk.runs)))
            elif not desk.live:
                desk.begin(CREW)  # they were quicker than their killer
            desk.bury()
            more = desk.kills < kills
            desk.fill(signal.SIGKILL if more else None)
            told += desk.decide(8)
            # The killer keeps step with the people; somebody who was just hired gets a chance.
            if more and told >= pace * desk.kills and desk.dice.random() < 0.5:
                desk.kill()
            desk.over()
        return {"kills": desk.kills, **desk.finish()}


def stop_workers(
    fork_server: ForkServer, folder: Path, seed: int, stops: int, runs: int
) -> dict[str, int]:
    """Stop workers (SIGSTOP) for longer than their lease, at random and at named points."""
    with at_work(fork_server, folder, seed, lease=0.3) as desk:
        desk.begin(runs)
        desk.fill(signal.SIGSTOP)
        with Sandman(desk, seed, stops) as sandman:
            while not sandman.done and not desk.stuck:
                if not desk.live:
                    desk.begin(runs)
                for pid in sandman.woken():
                    desk.send_home(pid)  # for another one to come, with a point of its own
                desk.fill(signal.SIGSTOP)
                desk.decide(8)
                desk.over()
            counts = desk.finish()  # while somebody wakes those whose own point is still to come
            return {"stops": sandman.stops, "named": sandman.named, **counts}


def crowd_workers(fork_server: ForkServer, folder: Path, seed: int, runs: int) -> dict[str, int]:
    """Notify all workers of the same runs, some of them with a delay."""
    with at_work(fork_server, folder, seed, lease=30.0) as desk:
        for lag in (0.0, 0.0, LAG, LAG):
            desk.hire(lag=lag)
        for _ in range(0, runs, _CROWD):
            desk.begin(_CROWD)
            desk.work_until(lambda: len(desk.live) < _CROWD / 2 or desk.over(), crew=False)
        return desk.finish(crew=False)


def crowd_threads(fork_server: ForkServer, folder: Path, seed: int, runs: int) -> dict[str, int]:
    """Resume one run in several OS threads at once, each with a delay."""
    with at_work(fork_server, folder, seed) as desk:
        desk.begin(runs)
        for _ in range(PAYMENTS):
            while desk.decide():
                pass
            begun = {"folder": str(folder), "runs": desk.runs}
            raised = fork_server.value("crew:resume_at_once", **begun, threads=3, lag=LAG)
            assert raised == []
        return desk.finish(crew=False)


def kill_server(
    fork_server: ForkServer, server: PostgresServer, folder: Path, seed: int, kills: int, runs: int
) -> dict[str, int]:
    """Kill PostgreSQL and all its processes while workers work and people decide."""
    with at_work(fork_server, folder, seed, lease=2.0) as desk:
        for _ in range(kills):
            assert not desk.stuck, "nothing goes on any more"
            if len(desk.live) < runs:
                desk.begin(runs)
            desk.fill()
            goal = len(lines(folder / "acks")) + 5
            desk.work_until(lambda goal=goal: _at_work(desk, goal) or desk.over())
            with _deciding(desk):
                time.sleep(desk.dice.random() * 0.05)
                server.kill()
                server.start()
        return {"server_kills": kills, **desk.finish()}


def lose_primary(
    fork_server: ForkServer, primary: PostgresServer, folder: Path, seed: int, runs: int
) -> dict[str, int]:
    """kill -9 of a PostgreSQL for good while workers work and people decide: its standby, which had
    every commit before it counted, takes over."""
    with (
        Standby.of(primary) as standby,
        at_work(fork_server, make(folder, "postgres", either(primary, standby)), seed, 2.0) as desk,
    ):
        desk.begin(runs)
        desk.fill()
        desk.work_until(lambda: _at_work(desk, runs) or desk.over())
        with _deciding(desk):
            time.sleep(desk.dice.random() * 0.05)
            primary.kill()
            standby.promote()
            time.sleep(1)  # they find it, and that a person has to settle it first
        begun = len(lines(folder / "effects"))
        time.sleep(0.5)
        held = len(lines(folder / "effects")) == begun and desk.store.restored()
        assert held, "something went on before anybody looked"
        command = [sys.executable, "-m", "sayso", "recover", "--yes", "--json"]
        environment = {**os.environ, **address_of(folder)}
        said = subprocess.check_output(command, env=environment, text=True, timeout=60)
        return {**json.loads(said), **desk.finish()}


def _at_work(desk: Desk, acks: int) -> bool:
    """Return whether all have opened the store, and this many decisions were acknowledged."""
    opened = {int(pid) for pid in lines(desk.folder / "opened")}
    return opened.issuperset(desk.pids) and len(lines(desk.folder / "acks")) >= acks


@contextlib.contextmanager
def _deciding(desk: Desk) -> Iterator[None]:
    """Keep deciding, in an OS thread: the server dies with the thread that started it."""
    over = threading.Event()

    def body() -> None:
        while not over.is_set():
            desk.decide(4)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
