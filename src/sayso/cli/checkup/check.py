"""One thing that was looked at, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

State = Literal["ok", "note", "wrong"]

#: Reads rows by a statement of the common dialect, and changes nothing.
Rows = Callable[[str, Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    text: str


#: Checks, and in the end whether the store can be opened without being changed.
Looking = Generator[Check, None, bool]


class Ground(Protocol):
    """Where a store is kept: looked at before anybody opens it."""

    def look(self) -> Looking: ...
    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]: ...
    def close(self) -> None: ...


def span(seconds: float) -> str:
    """A length of time, in the largest unit that says enough."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def schema_check(version: int, newest: int) -> Check:
    """How the version of the tables compares with what this program knows."""
    words = f"version {version}; this sayso knows {newest}"
    if version > newest:
        return Check("schema", "wrong", f"{words}: written by a newer version of Sayso, upgrade")
    if version < newest:
        later = "the next process that opens it brings it up to date: make a backup before"
        return Check("schema", "note", f"{words}; {later}")
    return Check("schema", "ok", words)
