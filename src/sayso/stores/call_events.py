"""What happened to one call, without reading the whole of a long thread."""

from __future__ import annotations

from sayso.rows import Call, Event
from sayso.stores.base import Store

_PAGE, _PAGES = 500, 4


def events_about(store: Store, call: Call) -> list[Event]:
    """What happened to one call, without reading the whole of a long thread.

    Looked through are some pages from where the call was made on, and the end of the thread: only
    what lies thousands of events after the one and before the other is left out.
    """
    thread = store.thread(call.thread)
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
