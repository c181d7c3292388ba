"""The stream of events: in the order of (era, transaction, position), and nothing skipped.

Positions are handed out before the commit, and transactions do not end in the order in which they
began. An event may be given out when no older transaction is open any more: then nothing can come
to stand before it. A reader that finds only events that are not yet safe waits for a moment.
Somebody who keeps a transaction open for long delays the stream, but not the work: that reads rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from sayso.errors import InvalidCall
from sayso.rows import Event
from sayso.stores.base import Cursor
from sayso.stores.sql import statements as sql
from sayso.stores.sql.rowcodec import event_from

#: The era and the oldest transaction that is still open.
Horizon = tuple[int, int]

_ERA = "coalesce((SELECT value FROM meta WHERE key = 'era'), '1')::bigint"
_OPEN = "pg_snapshot_xmin(pg_current_snapshot())"
HORIZON = f"SELECT {_ERA}, {_OPEN}::text"
_SAFE = f"(era < {_ERA} OR xid < {_OPEN})"
_PLACE = f"era, xid::text, pos, {_SAFE}, {_OPEN}::text"
_AFTER = (
    f"SELECT {sql.EVENT}, {_PLACE} FROM event WHERE (era, xid, pos) > (?, ?::xid8, ?) "
    "ORDER BY event.era, event.xid, event.pos LIMIT ?"
)
# As forward: what may still get something older before it is not given out yet.
_BEFORE = (
    f"SELECT {sql.EVENT}, {_PLACE} FROM event WHERE (era, xid, pos) < (?, ?::xid8, ?) AND {_SAFE} "
    "ORDER BY event.era DESC, event.xid DESC, event.pos DESC LIMIT ?"
)
_END = f"{10**18 - 1}.{(1 << 64) - 1}.{10**18 - 1}"
_LAST = f"SELECT {_PLACE} FROM event {{}} ORDER BY era DESC, event.xid DESC, pos DESC LIMIT 1"

#: How long to wait for a transaction of somebody else's, once for each.
PATIENCE = 1.0
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,20})\.([0-9]{1,18})")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PLACE_OF = "SELECT era, xid::text, pos FROM event WHERE pos = ?"
_NAP = 0.002


def horizon_of(row: Any) -> Horizon:
    """What ``HORIZON`` gave."""
    return int(row[0]), int(row[1])


class Stream:
    """The events of one store, read through ``rows``."""

    def __init__(self, rows: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._rows = rows
        self._stuck = ""

    def events(self, after: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The next events that are safe to give out."""
        era, xid, pos = self._parsed(after)
        rows = self._when_safe(_AFTER, (era, xid, pos, limit))
        return [_placed(row) for row in rows if row[-2]]

    def newest(self, before: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
        """The events before a place, the newest first."""
        rows = self._rows(_BEFORE, (*self._parsed(before or _END), limit))
        return [_placed(row) for row in rows]

    def tail(self) -> Cursor:
        """The place of the last event."""
        rows = self._when_safe(_LAST.format(""), ())
        if rows and not rows[0][-2]:
            rows = self._rows(_LAST.format(f"WHERE {_SAFE}"), ())
        return ".".join(map(str, rows[0][:3])) if rows else ""

    def _parsed(self, cursor: Cursor) -> tuple[int, str, int]:
        """The era, the transaction and the number that a place is made of.

        The number of an event alone, which is all that the event tells, is looked up.
        """
        if cursor in ("", "0"):
            return 0, "0", 0
        found = _CURSOR.fullmatch(cursor)
        if found is not None and int(found[2]) < 1 << 64:
            return int(found[1]), found[2], int(found[3])
        if _NUMBER.fullmatch(cursor) and (rows := self._rows(_PLACE_OF, (int(cursor),))):
            era, xid, pos = rows[0]
            return era, xid, pos
        raise InvalidCall(f"{cursor!r:.60} is no place among the events: use one you were given")

    def _when_safe(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Read, and again for a moment if the first event that is there is not yet safe."""
        end = time.monotonic() + PATIENCE
        while True:
            rows = self._rows(statement, values)
            if not rows or rows[0][-2] or rows[0][-1] == self._stuck:
                return rows
            if time.monotonic() > end:
                self._stuck = rows[0][-1]  # no use waiting for this one again
                return rows
            time.sleep(_NAP)


def _placed(row: Any) -> tuple[Cursor, Event]:
    return ".".join(map(str, row[-5:-2])), event_from(row)
