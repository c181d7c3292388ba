"""Connections to one PostgreSQL database, shared by the threads of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg.pq import TransactionStatus

from sayso.errors import StoreError
from sayso.forking import renew_in_child
from sayso.stores.postgres.wire import Connection, is_hopeless

FIRST_NAP = 0.01
LONGEST_NAP = 0.5
#: How long a connection may rest while others are used: the server has only so many for everybody.
_REST = 30.0


class Pool:
    """Some connections, made when needed; a broken one is replaced when it is next asked for."""

    def __init__(self, connect: Callable[[], Connection], size: int, url: str) -> None:
        self._connect = connect
        self._size = size
        self._url = url
        self.closed = False
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without connections: those of a parent are not a forked child's."""
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[Connection] = []
        self._rests_since: dict[Connection, float] = {}
        self._age = 0
        #: What the server calls each of our connections.
        self._pids: dict[Connection, int] = {}

    @contextmanager
    def connection(self, end: float) -> Iterator[Connection]:
        """A connection for a moment; until ``end``, a server that is away is waited for."""
        self._check_open()
        if not self._free.acquire(timeout=max(end - time.monotonic(), 0.0)):
            raise StoreError(
                f"all {self._size} connections to {self._url} are busy: open the store with a "
                "larger size=, or do less at once"
            )
        try:
            age = self._age
            connection = self._take(end)
            try:
                yield connection
            finally:
                self._give_back(connection, age)
        finally:
            self._free.release()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreError(f"{self._url} is closed: open it again")

    def _take(self, end: float) -> Connection:
        nap = FIRST_NAP
        while True:
            self._check_open()  # who waits for a server that is away does not hold up the end
            while self._idle:
                with suppress(IndexError):  # another thread was faster
                    return self._idle.pop()
            try:
                made = self._connect()
                self._pids[made] = made.info.backend_pid
                return made
            except psycopg.Error as error:
                if is_hopeless(error) or time.monotonic() + nap > end:
                    raise StoreError(f"cannot connect to {self._url}: {error}") from error
                time.sleep(nap)
                nap = min(2 * nap, LONGEST_NAP)

    def _give_back(self, connection: Connection, age: int) -> None:
        """Keep a connection that is at rest; whatever it was in the middle of is undone."""
        try:
            if connection.info.transaction_status in (
                TransactionStatus.INTRANS,
                TransactionStatus.INERROR,
            ):
                connection.rollback()
            rests = connection.info.transaction_status == TransactionStatus.IDLE
        except psycopg.Error:
            rests = False
        if rests and not self.closed and age == self._age:
            self._rests_since[connection] = time.monotonic()
            self._idle.append(connection)
            self._close_rested()
        else:
            self._close(connection)

    def _close_rested(self) -> None:
        """The last one given back is the next one taken, so the first has rested longest."""
        with suppress(IndexError, KeyError):  # another thread was faster
            if time.monotonic() - self._rests_since[self._idle[0]] > _REST:
                self._close(self._idle.pop(0))

    def _close(self, connection: Connection) -> None:
        self._pids.pop(connection, None)
        self._rests_since.pop(connection, None)
        connection.close()

    def is_ours(self, pid: int) -> bool:
        """Whether the server knows one of our connections by this number."""
        return pid in tuple(self._pids.values())

    def renew(self) -> None:
        """Make new connections from now on: the server behind the old ones is another one."""
        self._age += 1
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._close(self._idle.pop())

    def close(self) -> None:
        """Close what is at rest now, and the others when they are given back."""
        self.closed = True
        self._drop_idle()
