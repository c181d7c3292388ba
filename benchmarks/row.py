"""What a row of the table is: the work, the peer beside it, what was measured, what must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Figures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Effort:
    """How much is measured: in earnest, or once and little, to see that everything runs."""

    quick: bool = False

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 5

    def of(self, earnest: int, quick: int) -> str:
        """A number for a script's command line."""
        return str(quick if self.quick else earnest)


@dataclass(frozen=True)
class Check:
    """One thing that must hold: a figure, or a ratio of two, and its bound."""

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
        """How much of what is allowed is used up: 1 is just met, 2 is twice too much."""
        if self.most is not None:
            return self.value / self.most
        assert self.least is not None
        return self.least / self.value


@dataclass(frozen=True)
class Measured:
    """The figures of every side (medians of the rounds), and what they were held against."""

    figures: Figures
    checks: list[Check]


@dataclass(frozen=True)
class Row:
    """A line of the table.

    ``shown`` is the figure that is drawn. ``explanation`` says, with the figures of a profile, why
    a goal is missed.
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
        """The row as ``results.json`` keeps it."""
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


REGISTERED: dict[str, Row] = {}


def row(
    work: str, *, beside: str, goal: str, durability: str, shown: str, explanation: str = ""
) -> Callable[[Callable[[Effort], Measured]], Callable[[Effort], Measured]]:
    """Make a function that measures a row of the table, under the function's name."""

    def keep(measure: Callable[[Effort], Measured]) -> Callable[[Effort], Measured]:
        name = measure.__name__
        REGISTERED[name] = Row(name, work, beside, goal, durability, shown, measure, explanation)
        return measure

    return keep


def ratio(ours: Mapping[str, float], theirs: Mapping[str, float], figure: str) -> float:
    """Ours to theirs."""
    return ours[figure] / theirs[figure]
