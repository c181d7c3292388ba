"""What every command has: a thread, a name for its boundary, and the rows that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from sayso.rows import CallStatus

T = TypeVar("T")


class Needs(NamedTuple):
    """The rows that a store must load before the engine looks at a command."""

    run: str | None = None
    calls: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    statuses: frozenset[CallStatus] = frozenset()
    grants_for: tuple[tuple[str, str], ...] = ()
    grants: tuple[str, ...] = ()
    #: Also the grants of these calls, and the effects that their keys name: they may start.
    spends: bool = False
    #: The keys of effects that calls which are made here want.
    effects: tuple[str, ...] = ()
    system: bool = False
    person: str | None = None
    principal: str | None = None

    def joined(self, more: Needs) -> Needs:
        """What both need; of the same run, or of one at most."""
        if more == Needs(run=self.run):
            return self
        return Needs(
            run=more.run if self.run is None else self.run,
            calls=_each(self.calls, more.calls),
            keys=_each(self.keys, more.keys),
            statuses=self.statuses | more.statuses,
            grants_for=_each(self.grants_for, more.grants_for),
            grants=_each(self.grants, more.grants),
            spends=self.spends or more.spends,
            effects=_each(self.effects, more.effects),
            system=self.system or more.system,
            person=more.person if self.person is None else self.person,
            principal=more.principal if self.principal is None else self.principal,
        )


def _each(some: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*some, *others))) if some and others else some or others


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One change to one thread."""

    name: ClassVar[str] = ""
    thread: str

    @property
    def needs(self) -> Needs:
        return Needs()
