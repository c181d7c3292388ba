"""PostgreSQL sessions that outlive their stores, for tests that open one store after the other.

A new session reads the catalog and plans every statement again, which takes the server longer than
what a short test does with it. Stores depend on nothing in a session, because a pooler may give
them one that others have used: so the next store gets the sessions of the one before it, as it
would from a pooler. The store itself is new.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from psycopg.pq import TransactionStatus

from sayso.stores.postgres import store
from sayso.stores.postgres.connections import Connection, connect


class KeptSessions:
    """The sessions that no store uses at the moment, by address."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, bool], list[KeptSession]] = defaultdict(list)

    def connect(self, url: str, *, prepare: bool) -> Connection:
        """Return a session that was used before, or a new one."""
        if isinstance(threading.current_thread(), store.Watcher):
            return connect(url, prepare=prepare)  # it listens, which the next store must not
        idle = self._idle[url, prepare]
        while idle:
            session = idle.pop()
            if not (session.connection.closed or session.connection.inherited):
                session.connection.leaving = lambda: False
                return session.connection
        return KeptSession(connect(url, prepare=prepare), idle).connection

    def close(self) -> None:
        """End all sessions that no store uses."""
        for idle in self._idle.values():
            for session in idle:
                session.end()


class KeptSession:
    """One session. Closing its connection gives it back, unless a transaction is open."""

    def __init__(self, connection: Connection, idle: list[KeptSession]) -> None:
        self.connection = connection
        self._idle = idle
        self.end = connection.close
        connection.close = self._give_back  # type: ignore[method-assign]

    def _give_back(self) -> None:
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            self.end()
        elif self not in self._idle:  # closing twice is closing once
            self._idle.append(self)


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Keep the sessions of stores that are closed inside for those that are opened inside."""
    kept = KeptSessions()
    try:
        with mock.patch.object(store, "connect", kept.connect):
            yield
    finally:
        kept.close()
