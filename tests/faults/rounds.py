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

from fork_server import ForkServer
from paying_worker import PAYMENTS
from places import address_of, make
from postgres_server import PostgresServer
from standby import Standby, either
from stories import lines
from worker_pool import POOL_SIZE, WorkerPool
from worker_stopper import WorkerStopper

_BATCH = 200
_CROWD = 20
#: How old what a worker has read may be when it writes, in seconds.
LAG = 0.02


@contextlib.contextmanager
def at_work(
    fork_server: ForkServer, folder: Path, seed: int, lease: float = 0.5
) -> Iterator[WorkerPool]:
    """Yield a worker pool, which is closed even if the test fails."""
    pool = WorkerPool(folder, fork_server, seed, lease)
    try:
        yield pool
    finally:
        pool.close()


def kill_workers(
    fork_server: ForkServer, folder: Path, seed: int, kills: int, runs: int
) -> dict[str, int]:
    """Kill workers (SIGKILL), half of them at named points, while people decide."""
    with at_work(fork_server, folder, seed) as pool:
        pace = runs * PAYMENTS / kills
        told = 0
        while (pool.kills < kills or len(pool.runs) < runs) and not pool.stuck:
            if len(pool.runs) < runs and len(pool.live) < _BATCH:
                pool.begin(min(_BATCH, runs - len(pool.runs)))
            elif not pool.live:
                pool.begin(POOL_SIZE)  # they were quicker than their killer
            pool.reap()
            more = pool.kills < kills
            pool.start_missing(signal.SIGKILL if more else None)
            told += pool.decide(8)
            # The killer keeps step with the people; somebody who was just hired gets a chance.
            if more and told >= pace * pool.kills and pool.dice.random() < 0.5:
                pool.kill()
            pool.over()
        return {"kills": pool.kills, **pool.finish()}


def stop_workers(
    fork_server: ForkServer, folder: Path, seed: int, stops: int, runs: int
) -> dict[str, int]:
    """Stop workers (SIGSTOP) for longer than their lease, at random and at named points."""
    with at_work(fork_server, folder, seed, lease=0.3) as pool:
        pool.begin(runs)
        pool.start_missing(signal.SIGSTOP)
        with WorkerStopper(pool, seed, stops) as stopper:
            while not stopper.done and not pool.stuck:
                if not pool.live:
                    pool.begin(runs)
                for pid in stopper.woken():
                    pool.stop_worker(pid)  # for another one to come, with a point of its own
                pool.start_missing(signal.SIGSTOP)
                pool.decide(8)
                pool.over()
            counts = pool.finish()  # while somebody wakes those whose own point is still to come
            return {"stops": stopper.stops, "named": stopper.named, **counts}


def contend_workers(fork_server: ForkServer, folder: Path, seed: int, runs: int) -> dict[str, int]:
    """Notify all workers of the same runs, some of them with a delay."""
    with at_work(fork_server, folder, seed, lease=30.0) as pool:
        for lag in (0.0, 0.0, LAG, LAG):
            pool.start_worker(lag=lag)
        for _ in range(0, runs, _CROWD):
            pool.begin(_CROWD)
            pool.work_until(lambda: len(pool.live) < _CROWD / 2 or pool.over(), workers=False)
        return pool.finish(workers=False)


def contend_threads(fork_server: ForkServer, folder: Path, seed: int, runs: int) -> dict[str, int]:
    """Resume one run in several OS threads at once, each with a delay."""
    with at_work(fork_server, folder, seed) as pool:
        pool.begin(runs)
        for _ in range(PAYMENTS):
            while pool.decide():
                pass
            begun = {"folder": str(folder), "runs": pool.runs}
            raised = fork_server.value("paying_worker:resume_at_once", **begun, threads=3, lag=LAG)
            assert raised == []
        return pool.finish(workers=False)


def kill_server(
    fork_server: ForkServer, server: PostgresServer, folder: Path, seed: int, kills: int, runs: int
) -> dict[str, int]:
    """Kill PostgreSQL and all its processes while workers work and people decide."""
    with at_work(fork_server, folder, seed, lease=2.0) as pool:
        for _ in range(kills):
            assert not pool.stuck, "nothing goes on any more"
            if len(pool.live) < runs:
                pool.begin(runs)
            pool.start_missing()
            goal = len(lines(folder / "acks")) + 5
            pool.work_until(lambda goal=goal: _at_work(pool, goal) or pool.over())
            with _deciding(pool):
                time.sleep(pool.dice.random() * 0.05)
                server.kill()
                server.start()
        return {"server_kills": kills, **pool.finish()}


def lose_primary(
    fork_server: ForkServer, primary: PostgresServer, folder: Path, seed: int, runs: int
) -> dict[str, int]:
    """kill -9 of a PostgreSQL for good while workers work and people decide: its standby, which had
    every commit before it counted, takes over."""
    with (
        Standby.of(primary) as standby,
        at_work(fork_server, make(folder, "postgres", either(primary, standby)), seed, 2.0) as pool,
    ):
        pool.begin(runs)
        pool.start_missing()
        pool.work_until(lambda: _at_work(pool, runs) or pool.over())
        with _deciding(pool):
            time.sleep(pool.dice.random() * 0.05)
            primary.kill()
            standby.promote()
            time.sleep(1)  # they find it, and that a person has to settle it first
        begun = len(lines(folder / "effects"))
        time.sleep(0.5)
        held = len(lines(folder / "effects")) == begun and pool.store.restored()
        assert held, "something went on before anybody looked"
        command = [sys.executable, "-m", "sayso", "recover", "--yes", "--json"]
        environment = {**os.environ, **address_of(folder)}
        said = subprocess.check_output(command, env=environment, text=True, timeout=60)
        return {**json.loads(said), **pool.finish()}


def _at_work(pool: WorkerPool, acks: int) -> bool:
    """Return whether all have opened the store, and this many decisions were acknowledged."""
    opened = {int(pid) for pid in lines(pool.folder / "opened")}
    return opened.issuperset(pool.pids) and len(lines(pool.folder / "acks")) >= acks


@contextlib.contextmanager
def _deciding(pool: WorkerPool) -> Iterator[None]:
    """Keep deciding, in an OS thread: the server dies with the thread that started it."""
    over = threading.Event()

    def body() -> None:
        while not over.is_set():
            pool.decide(4)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
