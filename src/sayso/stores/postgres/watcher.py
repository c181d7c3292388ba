"""Hearing of other processes: one thread per store listens and looks, while somebody wants to know.

NOTIFY says that something happened; what happened is read from the events. Where no NOTIFY gets
through, as behind a pooler, looking now and then is enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from sayso.errors import StoreError
from sayso.stores.hub import Hub
from sayso.stores.postgres.stream import HORIZON, Horizon, horizon_of
from sayso.stores.postgres.wire import Connection, Translate

#: How often to look without having been told.
POLL_SECONDS = 0.5
_NAP = 0.25

# All that was committed by transactions that were still open at the last look, or came later.
_SINCE = "SELECT pos, thread, era, xid::text FROM event WHERE (era, xid, pos) >= (?, ?::xid8, 0)"


class Watcher(threading.Thread):
    """Tells a hub which threads moved, for as long as the hub has listeners."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        translate: Translate,
        hub: Hub,
        channel: str,
        horizon: Horizon,
        is_ours: Callable[[int], bool],
    ) -> None:
        super().__init__(name="sayso-listen", daemon=True)
        self._connect = connect
        self._translate = translate
        self._hub = hub
        self._channel = channel
        self._horizon = horizon
        self._told: set[int] = set()
        self._is_ours = is_ours

    def run(self) -> None:
        while self._hub.wanted():
            try:
                with self._connect() as connection:
                    self._watch(connection)
            except (psycopg.Error, StoreError, OSError):
                time.sleep(_NAP)  # the server is away: nothing can have been committed meanwhile

    def _watch(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        while self._hub.wanted():
            self._tell(connection)
            end = time.monotonic() + POLL_SECONDS
            while time.monotonic() < end and self._hub.wanted():
                notes = list(connection.notifies(timeout=_NAP, stop_after=1))
                # Of its own commits a store tells by itself, and at once.
                if not all(self._is_ours(note.pid) for note in notes):
                    break

    def _tell(self, connection: Connection) -> None:
        horizon = horizon_of(connection.execute(self._translate(HORIZON)).fetchone())
        era, xid = self._horizon
        since = connection.execute(self._translate(_SINCE), (era, str(xid))).fetchall()
        moved = {thread for pos, thread, _, _ in since if pos not in self._told}
        # A transaction that is still open may be older than what was told already.
        self._told = {pos for pos, _, era, xid in since if (era, int(xid)) >= horizon}
        self._horizon = horizon
        if moved:
            self._hub.publish(moved)
