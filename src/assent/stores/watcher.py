"""Hearing of other processes: one thread per store looks, while somebody listens."""

from __future__ import annotations

import sqlite3
import threading
import time

from assent.stores.hub import Hub

#: How often to look. ``data_version`` costs some microseconds, and changes with any commit.
POLL_SECONDS = 0.004


class Watcher(threading.Thread):
    """Tells a hub which threads moved, for as long as the hub has listeners."""

    def __init__(self, connection: sqlite3.Connection, hub: Hub, seen: int) -> None:
        super().__init__(name="assent-watch", daemon=True)
        self._connection = connection
        self._hub = hub
        self._seen = seen

    def run(self) -> None:
        version = None
        try:
            while self._hub.wanted():
                current = self._connection.execute("PRAGMA data_version").fetchone()[0]
                if current != version:
                    version = current
                    self._tell()
                time.sleep(POLL_SECONDS)
        except sqlite3.Error:
            self._hub.unwatched()
        finally:
            self._connection.close()

    def _tell(self) -> None:
        statement = "SELECT pos, thread FROM event WHERE pos > ? ORDER BY pos"
        rows = self._connection.execute(statement, (self._seen,)).fetchall()
        if rows:
            self._seen = rows[-1][0]
            self._hub.publish({row[1] for row in rows})
