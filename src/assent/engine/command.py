"""What every command has: a thread, a name for its boundary, and the rows that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assent.rows import CallStatus


@dataclass(frozen=True, slots=True)
class Needs:
    """The rows that a store must load before the engine looks at a command."""

    run: str | None = None
    calls: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    statuses: frozenset[CallStatus] = frozenset()
    grants_for: tuple[tuple[str, str], ...] = ()
    grants: tuple[str, ...] = ()
    spends: bool = False
    system: bool = False
    person: str | None = None
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One change to one thread."""

    name: ClassVar[str] = ""
    thread: str

    @property
    def needs(self) -> Needs:
        return Needs()
