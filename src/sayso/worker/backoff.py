"""Runs that could not be taken further just now: each waits longer after each failure."""

from __future__ import annotations

import time

_FIRST, _LONGEST = 1.0, 300.0


class Backoff:
    """When each run that broke may be tried again; kept in memory, since it is only manners."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, int]] = {}

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._until)

    def failed(self, run: str) -> tuple[float, int]:
        """Note a failure; return the seconds until the next try, and how many have failed."""
        _, times = self._until.get(run, (0.0, 0))
        wait: float = min(_FIRST * 2**times, _LONGEST)
        self._until[run] = (time.monotonic() + wait, times + 1)
        return wait, times + 1

    def forget(self, run: str) -> None:
        """It went well."""
        self._until.pop(run, None)

    def holds(self, run: str) -> bool:
        """Whether it is too early to try this run again."""
        return self.left(run) > 0

    def left(self, run: str) -> float:
        """Seconds until this run may be tried again."""
        until, _ = self._until.get(run, (0.0, 0))
        return max(until - time.monotonic(), 0.0)

    def patience(self) -> float:
        """Seconds until the first of them may be tried again."""
        now = time.monotonic()
        later = [until - now for until, _ in self._until.values() if until > now]
        return min(later, default=_LONGEST)
