"""Reading rows that somebody may have damaged: page by page, and up to the first unreadable one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from sayso.errors import SaysoError
from sayso.rows import Event, Thread
from sayso.stores.base import StoreReads

PAGE = 1000

#: What reading a damaged row may raise: the database, JSON, an enumeration, an unpacking.
DAMAGE = (SaysoError, ValueError, TypeError, KeyError, AttributeError)

Row = TypeVar("Row")
Key = TypeVar("Key")


class Unreadable(Exception):
    """The row after this key cannot be read, and so nothing behind it."""

    def __init__(self, after: object, why: BaseException) -> None:
        super().__init__(str(why))
        self.after = after


def pages(
    read: Callable[[Key, int], list[Row]], key_of: Callable[[Row], Key], after: Key, limit: int
) -> Iterator[Row]:
    """All rows, by their store's own pages; ``Unreadable`` at the first that cannot be read."""
    while True:
        try:
            rows = read(after, limit)
        except DAMAGE as error:
            # Smaller and smaller pages lead to the very row.
            if limit == 1:
                raise Unreadable(after, error) from error
            limit = (limit + 1) // 2
            continue
        if not rows:
            return
        yield from rows
        after = key_of(rows[-1])


def chain_of(store: StoreReads, thread: str, after: int = 0) -> Iterator[Event]:
    """The events of one thread, in order."""
    return pages(lambda k, n: store.chain(thread, k, n), lambda e: e.seq, after, PAGE)


def threads_of(store: StoreReads, after: str = "") -> Iterator[Thread]:
    """Every thread, in its store's order."""
    return pages(store.threads, lambda t: t.id, after, PAGE)
