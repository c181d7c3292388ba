"""A row of the table: the work, the peers, the figures, and the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Figures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Effort:
    """How much to measure: in full, or once and little, to see that everything runs."""

    quick: bool = False

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 5

    def of(self, full: int, quick: int) -> str:
        """Return a number for a script's command line."""
        return str(quick if self.quick else full)


@dataclass(frozen=True)
class Check:
    """A goal: a figure, or a ratio of two, and its bound."""

    what: str
    value: float
    most: float | None = None
    least: float | None = None
    unit: str = "times"

    @property
    def met(self) -> bool:
        over = self.most is not None and self.value > self.most
        under = self.least is not None and self.value < self.least
        return not over and not under

    @property
    def used(self) -> float:
        """Return how much of the bound is used: 1 just meets it, 2 is twice too much."""
        if self.most is not None:
            return self.value / self.most
        assert self.least is not None
        return self.least / self.value


@dataclass(frozen=True)
class Measured:
    """The figures of every side (medians of the rounds), and the checks."""

    figures: Figures
    checks: list[Check]


@dataclass(frozen=True)
class Row:
    """A line of the table.

    ``shown`` is the figure in the plot. ``explanation`` says why a goal is missed, with the figures
    of a profile.
    """

    name: str
    work: str
    beside: str
    goal: str
    durability: str
    shown: str
    measure: Callable[[Effort], Measured] = field(repr=False)
    explanation: str = ""

    def result(self, measured: Measured, date: str, rounds: int) -> dict[str, Any]:
        """Return the row as stored in ``results.json``."""
        return {
            "name": self.name,
            "work": self.work,
            "beside": self.beside,
            "goal": self.goal,
            "durability": self.durability,
            "shown": self.shown,
            "date": date,
            "rounds": rounds,
            "met": all(check.met for check in measured.checks),
            "explanation": self.explanation,
            "checks": [asdict(check) for check in measured.checks],
            "figures": {side: dict(figures) for side, figures in measured.figures.items()},
        }


def ratio(ours: Mapping[str, float], theirs: Mapping[str, float], figure: str) -> float:
    """Return the ratio of our figure to theirs."""
    return ours[figure] / theirs[figure]
