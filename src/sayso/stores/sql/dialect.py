"""The few words in which SQL databases differ, and the part of a driver that is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Reply(Protocol):
    """The part of a database cursor that is used here."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


Execute = Callable[[str, Sequence[Any]], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one database says in its own way."""

    name: str
    #: The column ``n`` of many rows as one text, with commas.
    numbers: str
    #: A SELECT of the strings of a JSON array, which is its one value.
    strings: str
    #: Appended to a SELECT whose rows are to be locked; where a whole file is locked, nothing.
    lock: str = ""
    #: Likewise, leaving out the rows that somebody else has locked.
    lock_free: str = ""
    #: Before a column whose index must not be used, where the planner does not count the rows.
    no_index: str = ""


SQLITE = Dialect(
    name="sqlite",
    numbers="group_concat(n)",
    strings="SELECT value FROM json_each(?)",
    no_index="+",
)
POSTGRES = Dialect(
    name="postgres",
    numbers="string_agg(n::text, ',')",
    strings="SELECT json_array_elements_text(?::json)",
    lock=" FOR UPDATE",
    lock_free=" FOR UPDATE SKIP LOCKED",
)
