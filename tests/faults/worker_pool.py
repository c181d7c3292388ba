"""The test's own process: start runs, decide requests, and manage the workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fork_server import Ended, ForkServer
from paying_worker import PAYMENTS, Fault, payer
from places import open_at
from record import check_record
from stories import append
from waiting import until

from sayso import Inbox, SaysoError
from sayso.types import Decision, Request

POOL_SIZE = 4
#: How many people decide at once.
PEOPLE = 4
#: Far more than it takes: machines may be slow and busy.
PATIENCE = 120.0
_LOOK = 100

#: The points at which a worker is killed or stopped: around everything that it commits.
POINTS = [
    (name, nth, when)
    for name in ("claim+start", "effect", "record", "propose", "propose+finish")
    for nth in (1, 2)
    for when in ("before", "after")
]


class WorkerPool:
    """Workers on one store, and the people who decide their requests."""

    def __init__(
        self, folder: Path, fork_server: ForkServer, seed: int, lease: float = 0.5
    ) -> None:
        self.folder = folder
        self.lease = lease
        self.dice = random.Random(seed)
        self.store = open_at(folder)
        self.inbox = Inbox(self.store)
        self.runs: list[str] = []
        self.live: set[str] = set()
        self.listed: set[str] = set()
        self.kills = 0
        self.pids: list[int] = []
        #: Held while a signal is sent, or a process is taken off the list.
        self.lock = threading.Lock()
        self._fork_server = fork_server
        self._agent = payer(self.store)
        self._end = 0.0
        self._people = ThreadPoolExecutor(PEOPLE)

    # -- runs and decisions

    def begin(self, count: int) -> None:
        """Start runs. Each opens a request."""

        async def body() -> list[str]:
            begun = [await self._agent.run(f"Pay {PAYMENTS} shops.") for _ in range(count)]
            return [result.run for result in begun]

        self.track(asyncio.run(body()))

    def track(self, runs: list[str]) -> None:
        """Also track runs that another process started."""
        self.runs += runs
        self.live.update(runs)
        self._end = time.monotonic() + PATIENCE

    def decide(self, most: int = _LOOK) -> int:
        """Decide pending requests, and log acknowledged decisions. Return their number."""
        with contextlib.suppress(SaysoError):
            waiting = self.inbox.pending_sync(limit=most).items
            return sum(self._people.map(self._settle, waiting))
        return 0

    def _settle(self, request: Request) -> bool:
        decision: Decision = request.approve()
        if request.kind == "in_doubt":
            self.listed.add(request.id)
            decision = self.dice.choice(
                [request.approve(), request.respond("paid"), request.reject("let it be")]
            )
        by = f"person {self.dice.randrange(5)}"
        with contextlib.suppress(SaysoError):
            self.inbox.decide_sync(request.id, decision, by=by)
            append(self.folder / "acks", request.id, decision.type, by)
            self._end = time.monotonic() + PATIENCE  # there is progress
            return True
        return False

    @property
    def stuck(self) -> bool:
        """Whether nothing has progressed for a long time. What is left then counts as lost."""
        return bool(self.live) and time.monotonic() > self._end

    def over(self) -> bool:
        """Whether every run has ended. Checks some of them each time."""
        with contextlib.suppress(SaysoError):
            for run in self.dice.sample(sorted(self.live), min(_LOOK, len(self.live))):
                found = self.store.run(run)
                if found is not None and found.status not in ("running", "paused"):
                    self.live.discard(run)
                    self._end = time.monotonic() + PATIENCE
        return not self.live

    # -- the workers

    def start_worker(self, fault: Fault | None = None, **options: Any) -> int:
        """Start one more worker."""
        options |= {"folder": str(self.folder), "lease": self.lease, "fault": fault}
        pid = self._fork_server.spawn("paying_worker:work", **options)
        self.pids.append(pid)
        return pid

    def start_missing(self, sig: signal.Signals | None = None, named: float = 0.5) -> None:
        """Start workers until the pool is full. Some of them will be hit at a named point."""
        while len(self.pids) < POOL_SIZE:
            point = self.dice.choice(POINTS)
            hit = sig is not None and self.dice.random() < named
            self.start_worker((*point, int(sig)) if hit and sig is not None else None)

    def reap(self) -> int:
        """Forget workers that have died. Return how many there were."""
        dead = [pid for pid in self.pids if state(pid) == "Z"]
        for pid in dead:
            self._reap_killed(pid)
        return len(dead)

    def kill(self) -> None:
        """Kill a worker, whatever it is doing."""
        pid = self.dice.choice(self.pids)
        os.kill(pid, signal.SIGKILL)
        self._reap_killed(pid)

    def _reap_killed(self, pid: int) -> None:
        ended = self._wait_for_exit(pid)
        assert ended.killed, ended.error or ended
        self.kills += 1

    def work_until(self, done: Callable[[], object], workers: bool = True) -> None:
        """Decide requests until ``done()`` is true, or nothing progresses any more."""
        while not done() and not self.stuck:
            if workers:
                self.reap()
                self.start_missing()
            if not self.decide():
                time.sleep(0.01)

    def finish(self, workers: bool = True) -> dict[str, int]:
        """Let the workers finish every run, stop them, and check the record."""
        self.work_until(self.over, workers)
        self.stop_all()
        self.decide()  # a doubt of a run that ended some other way is listed, too
        return check_record(self.store, self.folder, self.runs, self.listed, PAYMENTS)

    def stop_all(self) -> None:
        """Stop all workers."""
        for pid in list(self.pids):
            self.stop_worker(pid)

    def stop_worker(self, pid: int) -> None:
        """Stop a worker, which finishes what it is doing."""
        os.kill(pid, signal.SIGTERM)
        ended = self._wait_for_exit(pid)
        assert ended.killed or not ended.error, ended.error

    def _wait_for_exit(self, pid: int) -> Ended:
        """Wait until a worker has exited. Its pid is not reused before it is waited for."""
        until(lambda: state(pid) == "Z", seconds=PATIENCE)
        with self.lock:
            self.pids.remove(pid)
        return self._fork_server.wait(pid)

    def close(self) -> None:
        """Close everything, and kill workers that still run."""
        for pid in list(self.pids):
            os.kill(pid, signal.SIGKILL)
            self._wait_for_exit(pid)
        self._people.shutdown()
        self.store.close()


def state(pid: int) -> str:
    """Return the state of a child process: T is stopped, Z has exited and was not waited for."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]
