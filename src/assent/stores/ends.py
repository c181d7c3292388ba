"""Reading from the end, or from the middle: one thread's row, one call's events, the newest ones.

A store reads forward, because chains and cursors do. Pages want the end of things, and must not
read everything before it. What is here is made of what every store offers, and of one
statement for each database where that would mean to read it all.
"""

from __future__ import annotations

from collections import deque

from assent.errors import InvalidCall
from assent.rows import Call, Event, Thread
from assent.stores import pgstream, sql
from assent.stores.base import Cursor, Store, place_of
from assent.stores.dialect import SQLITE
from assent.stores.rowcodec import event_from
from assent.stores.sqlreads import SqlReads

_BEFORE = f"SELECT {sql.EVENT} FROM event WHERE pos < ? ORDER BY pos DESC LIMIT ?"
# As in the stream: what may still get something older before it is not given out yet.
_PG_BEFORE = (
    f"SELECT {sql.EVENT}, {pgstream.PLACE} FROM event "
    f"WHERE (era, xid, pos) < (?, ?::xid8, ?) AND {pgstream.SAFE} "
    "ORDER BY event.era DESC, event.xid DESC, event.pos DESC LIMIT ?"
)
_END = f"{10**18 - 1}.{(1 << 64) - 1}.{10**18 - 1}"
_PAGE, _PAGES = 500, 4
_LAST = "\U0010ffff"


def thread_of(store: Store, thread: str) -> Thread | None:
    """The row of a thread: how many messages it has, and how long its chain is."""
    after = _just_before(thread)
    while rows := store.threads(after, 1):
        if rows[0].id >= thread:
            return rows[0] if rows[0].id == thread else None
        after = rows[0].id
    return None


def _just_before(name: str) -> str:
    """Something that sorts before a name, with next to nothing in between."""
    if not name or name[-1] <= "\x01":
        return name[:-1]
    code = ord(name[-1]) - 1
    return name[:-1] + chr(0xD7FF if 0xD800 <= code <= 0xDFFF else code) + _LAST


def events_about(store: Store, call: Call) -> list[Event]:
    """What happened to one call, without reading the whole of a long thread.

    Looked through are some pages from where the call was made on, and the end of the thread: only
    what lies thousands of events after the one and before the other is left out.
    """
    thread = thread_of(store, call.thread)
    last = 0 if thread is None else thread.seq
    start = 0 if last <= _PAGE else _made_after(store, call, last)
    found = _events_of(store, call, start, _PAGES)
    if not found and start:  # the clock was set back in this thread: look for it everywhere
        return _events_of(store, call, 0, last // _PAGE + 1)
    reached = start + _PAGES * _PAGE
    if last > reached:
        found += _events_of(store, call, max(last - _PAGE, reached), 1)
    return found


def _made_after(store: Store, call: Call, last: int) -> int:
    """The last event of the thread that is older than the call, by halving."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        (event,) = store.chain(call.thread, middle, 1)
        low, high = (middle + 1, high) if event.at < call.created else (low, middle)
    return low


def _events_of(store: Store, call: Call, after: int, pages: int) -> list[Event]:
    found: list[Event] = []
    for _ in range(pages):
        chain = store.chain(call.thread, after, _PAGE)
        found += [event for event in chain if event.call == call.id]
        if len(chain) < _PAGE:
            break
        after = chain[-1].seq
    return found


def newest(store: Store, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
    """Events before a place, the newest first; from the end if no place is given."""
    if not isinstance(store, SqlReads):
        return _by_reading(store, before, limit)
    if store._dialect is SQLITE:
        rows = store._rows(_BEFORE, (place_of(before) if before else 1 << 62, limit))
        return [(str(row[0]), event_from(row)) for row in rows]
    rows = store._rows(_PG_BEFORE, (*pgstream.parsed(before or _END), limit))
    return [(".".join(map(str, row[-5:-2])), event_from(row)) for row in rows]


def _by_reading(store: Store, before: Cursor, limit: int) -> list[tuple[Cursor, Event]]:
    """Right for any store, and slow: from the beginning."""
    kept: deque[tuple[Cursor, Event]] = deque(maxlen=limit)
    after = ""
    while page := store.events(after, _PAGE):
        for cursor, event in page:
            if cursor == before:
                return list(kept)[::-1]
            kept.append((cursor, event))
        after = page[-1][0]
    if before:
        raise InvalidCall(f"{before!r:.60} is no place among the events: use one you were given")
    return list(kept)[::-1]
