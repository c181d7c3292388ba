"""How much one principal may ask of the server: a bucket per name, which refills."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sayso.errors import TooMany

_MOST_NAMES = 10_000


@dataclass(slots=True)
class Limits:
    """The limits of one server; ``take`` raises when a bucket is empty."""

    #: Requests that one agent may have open at once.
    open_requests: int = 1000
    #: Writes of one principal per minute, and how many of them at once.
    per_minute: int = 1200
    burst: int = 300
    #: What is left of each principal's bucket, and when that was counted.
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: How many requests each agent may open until its open ones are counted again.
    _room: dict[str, int] = field(default_factory=dict)

    def enter(self, agent: str, count: Callable[[int], int]) -> None:
        """Count one more request of an agent; ``count`` looks how many are open, up to so many.

        It is asked again when the room that it left is used up, and not before: whatever is decided
        meanwhile only makes more of it.
        """
        most = self.open_requests
        room = self._room.get(agent, 0)
        if room < 1:
            room = most - count(most)
        if room < 1:
            raise TooMany(
                f"{agent} has {most:,} requests open, and more would not be read: wait until some "
                "are decided",
                30.0,
            )
        if len(self._room) >= _MOST_NAMES and agent not in self._room:
            self._room.pop(next(iter(self._room)))
        self._room[agent] = room - 1

    def take(self, name: str) -> None:
        """Count one write of this principal."""
        now = time.monotonic()
        left, at = self._buckets.get(name, (float(self.burst), now))
        left = min(left + (now - at) * self.per_minute / 60, self.burst)
        if left < 1:
            wait = (1 - left) * 60 / self.per_minute
            soon = "a second" if wait <= 1 else f"{math.ceil(wait)} seconds"
            raise TooMany(f"{name} writes too often: try again in {soon}", wait)
        if len(self._buckets) >= _MOST_NAMES and name not in self._buckets:
            self._buckets.pop(next(iter(self._buckets)))
        self._buckets[name] = (left - 1, now)
