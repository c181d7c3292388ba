"""Hearing of other processes: one thread per store looks, while somebody listens."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque

from sayso.errors import StoreError
from sayso.forking import no_fork
from sayso.stores.hub import Hub
from sayso.stores.sqlite.opening import Connection, OpenFiles

#: How often to look. ``data_version`` costs some microseconds, and changes with any commit.
POLL_SECONDS = 0.004
#: The same when nothing has happened for a while.
IDLE_SECONDS = 0.008
_A_WHILE = 500


class OwnCommits:
    """Which events this process wrote, and tells of by itself; between writer and watcher."""

    def __init__(self) -> None:
        #: What is forgotten because nobody watches would only be told twice.
        self._spans: deque[tuple[int, int]] = deque(maxlen=1000)

    def add(self, first: int, last: int) -> None:
        """Before the commit, which the watcher may see at once."""
        self._spans.append((first, last))

    def undo(self) -> None:
        """That commit failed: its numbers will be given to others."""
        self._spans.pop()

    def others(self, rows: list[tuple[int, str]]) -> set[str]:
        """The threads of these rows, in their order, that somebody else moved."""
        moved = set()
        for pos, thread in rows:
            while self._spans and self._spans[0][1] < pos:
                self._spans.popleft()
            if not self._spans or pos < self._spans[0][0]:
                moved.add(thread)
        return moved


class Watcher(threading.Thread):
    """Tells a hub which threads moved, for as long as the hub has listeners."""

    def __init__(
        self, connection: Connection, files: OpenFiles, hub: Hub, own: OwnCommits, seen: int
    ) -> None:
        super().__init__(name="sayso-watch", daemon=True)
        self._connection = connection
        self._files = files
        self._hub = hub
        self._own = own
        self._seen = seen

    def run(self) -> None:
        version, quiet = None, 0
        try:
            while self._hub.wanted():
                self._files.check()
                with no_fork():
                    current = self._connection.execute("PRAGMA data_version").fetchone()[0]
                quiet += 1
                if current != version:
                    version, quiet = current, 0
                    self._tell()
                time.sleep(POLL_SECONDS if quiet < _A_WHILE else IDLE_SECONDS)
        except (sqlite3.Error, StoreError):
            self._hub.unwatched()
            self._hub.publish_to_all()  # each finds out what is wrong when it looks
        finally:
            self._connection.close()

    def _tell(self) -> None:
        statement = "SELECT pos, thread FROM event WHERE pos > ? ORDER BY pos"
        with no_fork():
            rows = self._connection.execute(statement, (self._seen,)).fetchall()
        if rows:
            self._seen = rows[-1][0]
            others = self._own.others(rows)
            if others:
                self._hub.publish(others)
