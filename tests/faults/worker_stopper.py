"""Stop workers (SIGSTOP) for longer than their leases, and continue them.

In an OS thread of its own: a worker that is stopped during a commit blocks all others, people too.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time

from worker_pool import WorkerPool, state

_MOST = 2
#: How likely somebody falls asleep within a hundredth of a second.
_OFTEN = 0.1


class WorkerStopper:
    """Stops workers at random, and continues those and the ones that stopped at a named point."""

    def __init__(self, pool: WorkerPool, seed: int, least: int) -> None:
        self.stops = 0
        self.named = 0
        self._pool = pool
        self._dice = random.Random(seed)
        self._least = least
        self._asleep: dict[int, float] = {}
        self._woken: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="worker-stopper")

    @property
    def done(self) -> bool:
        """Whether enough workers were stopped. From now on, others are only continued."""
        return self.stops >= self._least

    def woken(self) -> list[int]:
        """Return half of the workers that were continued since the last call."""
        woken, self._woken = self._woken, []
        return [pid for pid in set(woken) & set(self._pool.pids) if self._dice.random() < 0.5]

    def __enter__(self) -> WorkerStopper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.01) or self._asleep:
            with self._pool.lock:
                self._wake()
                self._put_to_sleep()

    def _wake(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, end in self._asleep.items() if end < now]:
            del self._asleep[pid]
            if pid in self._pool.pids:
                os.kill(pid, signal.SIGCONT)
                self._woken.append(pid)

    def _put_to_sleep(self) -> None:
        awake = [pid for pid in self._pool.pids if pid not in self._asleep]
        stopped = [pid for pid in awake if state(pid) == "T"]
        self.named += len(stopped)
        room = len(self._asleep) + len(stopped) < _MOST and not (self.done or self._over.is_set())
        if awake and room and self._dice.random() < _OFTEN:
            pid = self._dice.choice(awake)
            if state(pid) not in "TZ":
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        for pid in stopped:
            lease = self._pool.lease
            self._asleep[pid] = time.monotonic() + lease * (1.2 + self._dice.random())
        self.stops += len(stopped)
