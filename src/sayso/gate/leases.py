"""Heartbeats: one thread per process keeps the leases of everything that runs in it."""

from __future__ import annotations

import logging
import threading
import time

from sayso.engine.commands import Renew
from sayso.errors import SaysoError
from sayso.gate.inside import took
from sayso.stores.base import Store

log = logging.getLogger("sayso.gate")

_IDLE = 5.0


class Lease:
    """The right to work on one run for a while; its end is watched on the monotonic clock."""

    __slots__ = ("ends", "length", "run", "store", "thread", "token")

    def __init__(
        self, store: Store, thread: str, run: str, token: int, length: float, began: float
    ) -> None:
        self.store = store
        self.thread = thread
        self.run = run
        self.token = token
        self.length = length
        self.ends = began + length

    @property
    def lapsed(self) -> bool:
        """Whether it is over by this machine's own measure, however the clocks jumped."""
        return time.monotonic() >= self.ends

    def renew(self) -> None:
        """Push the end out, if the store agrees that it is still ours."""
        began = time.monotonic()
        command = Renew(
            thread=self.thread,
            run=self.run,
            token=self.token,
            lease=round(self.length * 1_000_000),
        )
        try:
            (ours,) = self.store.transact(command)
        except SaysoError as error:
            log.warning("run %s: lease could not be renewed: %s", self.run, error)
            return
        if ours:
            self.ends = began + self.length


class Keeper:
    """Renews leases at a third of their length for as long as they are kept.

    The thread wakes by itself often enough for a lease of usual length, so that a call that ends at
    once costs no hand-over between threads.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._leases: dict[Lease, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def keep(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        took(lease.run)
        due = time.monotonic() + lease.length / 3
        with self._condition:
            self._leases[lease] = due
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sayso-lease", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._condition.notify()

    def drop(self, lease: Lease) -> None:
        """Stop renewing it."""
        with self._condition:
            self._leases.pop(lease, None)

    def _run(self) -> None:
        while True:
            with self._condition:
                now = time.monotonic()
                due = [lease for lease, at in self._leases.items() if at <= now]
                if not due:
                    self._wakes_at = min([now + _IDLE, *self._leases.values()])
                    self._condition.wait(self._wakes_at - now)
                    continue
                for lease in due:
                    self._leases[lease] = now + lease.length / 3
            for lease in due:
                lease.renew()


KEEPER = Keeper()
