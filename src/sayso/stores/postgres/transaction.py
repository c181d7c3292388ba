"""The rows of one transaction on PostgreSQL: as everywhere, on the database's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sayso.engine import EngineDeps, UnitOfWork
from sayso.engine.command import Needs
from sayso.rows import SYSTEM_THREAD
from sayso.stores.postgres.attempt import Session
from sayso.stores.postgres.pipe import Answer
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import POSTGRES, Execute, Reply
from sayso.stores.sql.tool_cache import ToolCache
from sayso.stores.sql.transaction import SqlTransaction
from sayso.types import Micros

#: Facts at the rate of machines. NOTIFY is for people: all commits with one wait for each other.
_QUIET = frozenset(
    {
        *("allowed", "claimed", "started", "recorded"),
        *("read_started", "read_stopped", "read_recorded"),
    }
)


#: What may be written together, because none of it looks at what another one writes.
_TOGETHER = frozenset(
    {
        *(sql.ADD_THREAD, sql.SAVE_THREAD, sql.OWN_THREAD, sql.ADD_RUN, sql.SAVE_RUN),
        *(sql.MOVE_RUN, sql.ADD_CALL, sql.SAVE_CALL, sql.MOVE_CALL, sql.ADD_MESSAGE),
        *(sql.ADD_EVENT, sql.SAVE_GRANT, sql.SAVE_PRINCIPAL),
    }
)
#: Added with a number of their own, in the order in which they are given.
_NUMBERED = frozenset({sql.ADD_CALL, sql.ADD_EVENT})
_MOST = 40


class _Nothing:
    """The reply to what has not been sent yet, which nobody may read."""

    rowcount = -1

    def fetchone(self) -> Any:
        raise AssertionError("a write gives no rows")

    fetchall = fetchone


_NOTHING = _Nothing()


class PgTransaction(SqlTransaction):
    """Reads the time together with the rows, after the lock."""

    def __init__(
        self,
        session: Session,
        tool_cache: ToolCache,
        deps: EngineDeps,
        decode: RowDecoder,
        clock: Callable[[], Micros] | None,
    ) -> None:
        super().__init__(session.execute, tool_cache, POSTGRES, deps, decode, clock or (lambda: 0))
        self._session = session
        self._has_clock = clock is None
        self._added: Reply | None = None

    def load(self, thread: str, needs: Needs) -> UnitOfWork:
        """Lock the thread, and load the rows that the commands need."""
        self._session.lock(thread, *([SYSTEM_THREAD] if needs.system else []))
        return super().load(thread, needs)

    def save(self, work: UnitOfWork) -> None:
        """Write what changed, in one statement: each one sent costs more than what it writes."""
        pending: list[tuple[str, Sequence[Any]]] = []
        send = self._execute

        def flush() -> None:
            if pending:
                reply = send(*_together(pending))
                if any(text == sql.ADD_EVENT for text, _ in pending):
                    self._added = reply
                pending.clear()

        def gather(text: str, values: Sequence[Any]) -> Reply:
            if text not in _TOGETHER:
                return send(text, values)
            if text == sql.OWN_THREAD or len(pending) == _MOST:
                flush()  # one statement changes a row once
            pending.append((text, values))
            return _NOTHING

        self._execute = gather
        try:
            super().save(work)
        finally:
            self._execute = send
        flush()

    def last_pos(self) -> int:
        """Return the position of the last event that was added; 0 if none, or if it is unknown.

        It is unknown if the connection broke in the commit, which was then found to have succeeded.
        """
        added = self._added
        if added is None or (isinstance(added, Answer) and added.result is None):
            return 0
        return int(added.fetchone()[0])

    def _ask_time(self) -> Reply | None:
        return self._session.ask_facts()

    def _read_time(self, reply: Reply | None) -> Micros:
        now = self._session.facts(reply)
        return now if self._has_clock else super()._read_time(reply)


def _together(writes: Sequence[tuple[str, Sequence[Any]]]) -> tuple[str, list[Any]]:
    """One statement that makes them all.

    Parts of a statement are carried out in no order of ours, but the rows of one INSERT are; so
    what is numbered as it is added (events, calls) is added by one. Its one row is the position of
    the last event among them, if there are any.
    """
    parts: list[str] = []
    values: list[Any] = []
    gives = "SELECT 1"
    rest = list(writes)
    while rest:
        text = rest[0][0]
        rows = [row for other, row in rest if other == text] if text in _NUMBERED else [rest[0][1]]
        rest = [write for write in rest if write[0] != text] if text in _NUMBERED else rest[1:]
        row = f"({', '.join('?' * len(rows[0]))})"
        part = text + f", {row}" * (len(rows) - 1)
        if text == sql.ADD_EVENT:
            part += " RETURNING pos"
            gives = f"SELECT max(pos) FROM w{len(parts)}"
        parts.append(part)
        values += [value for row_ in rows for value in row_]
    named = ", ".join(f"w{n} AS ({part})" for n, part in enumerate(parts))
    return f"WITH {named} {gives}", values


def news(execute: Execute, work: UnitOfWork, channel: str) -> None:
    """Tell the other processes, when the transaction is committed."""
    if any(event.type not in _QUIET for event in work.events):
        execute("SELECT pg_notify(?, '')", (channel,))
