"""The rows that this process wrote last, so that the next command need not read them again.

They are what the file holds as long as nobody else has written to it, and SQLite knows whether
somebody has (``data_version``). Asked inside the write transaction, the answer cannot change any
more. Whoever undoes a transaction forgets everything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from sayso.engine import EngineDeps, UnitOfWork
from sayso.engine.command import Needs
from sayso.engine.unit_of_work import COUNTERS
from sayso.rows import Call, Run, Thread
from sayso.stores.row_checks import MOST_TEXT, RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import SQLITE, Execute, Reply
from sayso.stores.sql.rowcodec import principal_from
from sayso.stores.sql.tool_cache import ToolCache
from sayso.stores.sql.transaction import SqlTransaction
from sayso.types import Micros

_MOST_ROWS = 1000


class RowCache:
    """Threads, runs and calls by their ids."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.runs: dict[str, Run] = {}
        self.calls: dict[str, Call] = {}
        self._version: int | None = None

    def check(self, writer: sqlite3.Connection) -> bool:
        """Forget everything if another process has written since the last look, and return whether
        it has. Call it inside the transaction."""
        (version,) = writer.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return False
        self.forget()
        self._version = version
        return True

    def keep(self, work: UnitOfWork) -> None:
        """Remember what a command has just written."""
        if len(self.threads) + len(self.runs) + len(self.calls) > _MOST_ROWS:
            self.forget()
        if work.moves_thread:
            self.threads[work.thread.id] = work.thread
        if work.system is not None:
            self.threads.pop(work.system.id, None)
        if work.run is not None and work.run_touched:
            self.runs[work.run.id] = work.run
        for call in work.touched_calls.values():
            if call.size < MOST_TEXT:
                self.calls[call.id] = call
            else:
                self.calls.pop(call.id, None)

    def forget(self) -> None:
        """Read everything again, and look at the store as if another process had written."""
        self.threads, self.runs, self.calls = {}, {}, {}
        self._version = None


class _Fetched:
    """A reply that was read to its end.

    A statement that was not read to its end keeps the snapshot that it reads, as long as anything
    refers to it, a traceback too. The connection could not write once another process has.
    """

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self.rowcount = -1

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows


def fetching(writer: sqlite3.Connection) -> Execute:
    """Execute statements on a connection, and leave none of them open."""

    def execute(text: str, values: Sequence[Any] = ()) -> Reply:
        cursor = writer.execute(text, values)
        return cursor if cursor.description is None else _Fetched(cursor.fetchall())

    return execute


class SqliteTransaction(SqlTransaction):
    """A transaction that reads only what it does not remember."""

    def __init__(
        self,
        writer: sqlite3.Connection,
        tool_cache: ToolCache,
        deps: EngineDeps,
        decode: RowDecoder,
        clock: Callable[[], Micros],
        row_cache: RowCache,
    ) -> None:
        super().__init__(fetching(writer), tool_cache, SQLITE, deps, decode, clock)
        self._row_cache = row_cache

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """The rows that the commands need, remembered or read."""
        return self._remembered(thread, needs) or super().load(thread, needs)

    def save(self, work: UnitOfWork) -> None:
        """Write what changed, and remember it."""
        super().save(work)
        self._row_cache.keep(work)

    def _remembered(self, thread: str, needs: Needs) -> UnitOfWork | None:
        cache = self._row_cache
        its, run = cache.threads.get(thread), cache.runs.get(needs.run or "")
        if its is None or run is None or _wants_more(needs):
            return None
        if any(getattr(run, COUNTERS[status]) for status in needs.statuses):
            return None
        calls = {name: cache.calls.get(name) for name in needs.calls}
        found = {name: call for name, call in calls.items() if call is not None}
        if len(found) < len(calls) or (needs.spends and any(c.grant for c in found.values())):
            return None
        work = UnitOfWork(now=self._clock(), deps=self._deps, thread=its, run=run, calls=found)
        if needs.person is not None:
            rows = self._execute(sql.LOAD_PEOPLE, (needs.person,)).fetchall()
            work.people = tuple(self._decode.genuine(principal_from, rows))
        self._load_effects(work, needs)
        self._threads[thread], self._run, self._calls = its, run, dict(found)
        return work


def _wants_more(needs: Needs) -> bool:
    """Whether rows are wanted that are not remembered by name."""
    return bool(needs.keys or needs.grants_for or needs.grants or needs.system or needs.principal)
