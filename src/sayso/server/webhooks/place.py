"""How far one endpoint's outbox has come: a row that servers change by compare-and-set.

A place is an event's cursor and the time from which somebody may go on there. Whoever delivers
moves that time into the future, which is a lease; so does a failure, which is a pause. Nothing has
to be swept: when the time has come, any server may take it.
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from sayso.stores.base import Cursor, Store
from sayso.types import Micros


class Place(NamedTuple):
    """Everything up to ``at`` is delivered; the next one was tried ``tries`` times."""

    at: Cursor
    tries: int = 0
    due: Micros = 0
    #: Random, so that no two writes are the same text and compare-and-set means what it says.
    mark: str = ""

    def written(self) -> str:
        """As it is stored."""
        return json.dumps(self._replace(mark=secrets.token_hex(8)))


def read_place(text: str) -> Place:
    """A stored place."""
    return Place(*json.loads(text))


def begin(store: Store, name: str) -> None:
    """A new endpoint hears of what happens from now on; a known one goes on where it was."""
    if not store.cursor(name):
        store.move_cursor(name, Place(store.tail()).written(), expected="")
