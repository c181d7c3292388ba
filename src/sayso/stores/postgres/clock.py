"""The database's clock, followed between two looks at it by this machine's steady one.

What is written gets its time from the database, inside the transaction, and so does what is
compared with rows. Everybody else wants to know the time often, some of them on an event loop, and
a wire is no place to wait for it. What is told here is late by what an answer takes, never early.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sayso.types import Micros

#: How long a look is good for: clocks are set, and standbys have their own.
_SURE = 1_000_000


class Clock:
    """Tells the database's time; ``ask`` is how to look at it."""

    def __init__(self, ask: Callable[[], Micros]) -> None:
        self._ask = ask
        self._ahead = 0
        self._until = 0

    def now(self) -> Micros:
        """The time, asked for once in a while."""
        steady = _steady()
        if steady >= self._until:
            self.learn(self._ask())
            steady = _steady()
        return steady + self._ahead

    def learn(self, at: Micros) -> None:
        """The database has just said what time it is: the answer that came fastest counts."""
        steady = _steady()
        ahead = at - steady
        if ahead > self._ahead or steady >= self._until:
            self._ahead, self._until = ahead, steady + _SURE


def _steady() -> Micros:
    return time.monotonic_ns() // 1000
