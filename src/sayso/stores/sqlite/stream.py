"""The stream of events in SQLite: one writer at a time, so that their numbers are their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sayso.rows import Event
from sayso.stores.base import Cursor, place_of
from sayso.stores.sql import statements as sql
from sayso.stores.sql.rowcodec import event_from

_AFTER = f"SELECT {sql.EVENT} FROM event WHERE pos > ? ORDER BY pos LIMIT ?"
_BEFORE = f"SELECT {sql.EVENT} FROM event WHERE pos < ? ORDER BY pos DESC LIMIT ?"
_LAST = "SELECT max(pos) FROM event"
_END = 1 << 62


class Stream:
    """The events of one store, read through ``rows``."""

    def __init__(self, rows: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._rows = rows

    def events(self, after: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The next events."""
        return self._read(_AFTER, place_of(after), limit)

    def newest(self, before: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The events before a place, the newest first."""
        return self._read(_BEFORE, place_of(before) if before else _END, limit)

    def tail(self) -> Cursor:
        """The place of the last event."""
        return str(self._rows(_LAST, ())[0][0] or 0)

    def _read(self, statement: str, place: int, limit: int) -> list[tuple[Cursor, Event]]:
        rows = self._rows(statement, (place, limit))
        return [(str(row[0]), event_from(row)) for row in rows]
