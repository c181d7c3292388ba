"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass

#: How many problems a report names; the rest is counted.
MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that is not what it was.

    ``seq`` is its place in the thread's chain and ``pos`` its place in the store; of a missing row,
    ``pos`` is that of the row before it (0 if there is none). What concerns no thread has an empty
    ``thread``; of a seal, ``seq`` is its number.
    """

    thread: str
    seq: int
    pos: int
    what: str

    def __str__(self) -> str:
        where = f"thread {self.thread!r}, row {self.seq}: " if self.thread else ""
        return where + self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How much was read, and what is wrong with it: first the record, the oldest row first, then
    the tables that should agree with it."""

    threads: int
    events: int
    seals: int
    #: Events after the last seal of their thread.
    unsealed: int
    #: At most ``MOST_PROBLEMS`` of those that were found.
    problems: list[Problem]
    found: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.found == 0


class Problems:
    """Collects problems in a bounded list: the first ones by their place in the store."""

    def __init__(self) -> None:
        self._kept: list[tuple[bool, Problem]] = []
        self.found = 0

    def add(self, problem: Problem, *, table: bool = False) -> None:
        """Count one problem, and keep it while it is among the first.

        Where the record itself is broken, the tables differ as a consequence: they come after it.
        """
        self.found += 1
        self._kept.append((table, problem))
        if len(self._kept) >= 2 * MOST_PROBLEMS:
            self._cut()

    def merge(self, others: Problems) -> None:
        """Take over what another collection found."""
        self._kept += others._kept
        self.found += others.found
        self._cut()

    def _cut(self) -> None:
        self._kept.sort(key=lambda pair: (pair[0], pair[1].pos, pair[1].thread, pair[1].seq))
        del self._kept[MOST_PROBLEMS:]

    def first(self) -> list[Problem]:
        """The first problems, in order."""
        self._cut()
        return [problem for _, problem in self._kept]
