"""A clock that moves only when a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from sayso.types import SECOND, Micros, micros_of


class FakeClock:
    """The clock of a store under test: ``open_store("memory://", clock=FakeClock())``."""

    def __init__(self, start: Micros | datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = _micros(start)

    def __call__(self) -> Micros:
        """Return the time, in microseconds since the epoch."""
        return self._now

    def advance(self, seconds: float) -> Micros:
        """Move the clock forward. Raises ``ValueError`` for a negative number: use ``set``."""
        if seconds < 0:
            raise ValueError("advance() only moves forward: use set() to move the clock back")
        with self._lock:
            self._now += round(seconds * SECOND)
            return self._now

    def set(self, at: Micros | datetime) -> Micros:
        """Set the clock, forward or back."""
        with self._lock:
            self._now = _micros(at)
            return self._now


def _micros(at: Micros | datetime) -> Micros:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError("pass a datetime with a time zone: datetime(2026, 1, 1, tzinfo=UTC)")
        return micros_of(at)
    return at
