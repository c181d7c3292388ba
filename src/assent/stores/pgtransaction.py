"""The rows of one transaction on PostgreSQL: as everywhere, on the database's clock."""

from __future__ import annotations

from collections.abc import Callable

from assent.engine import Means, Work
from assent.engine.command import Needs
from assent.rows import SYSTEM_THREAD
from assent.stores.dialect import POSTGRES, Execute, Reply
from assent.stores.pgattempt import Session
from assent.stores.sql import SqlTransaction
from assent.stores.sqlfaces import Known
from assent.types import Micros

#: Facts at the rate of machines. NOTIFY is for people: all commits with one wait for each other.
_QUIET = frozenset({"allowed", "claimed", "started", "recorded"})


class PgTransaction(SqlTransaction):
    """Reads the time together with the rows, after the lock."""

    def __init__(
        self,
        session: Session,
        known: Known,
        means: Means,
        clock: Callable[[], Micros] | None,
    ) -> None:
        super().__init__(session.execute, known, POSTGRES, means, clock or (lambda: 0))
        self._session = session
        self._has_clock = clock is None

    def load(self, thread: str, needs: Needs) -> Work:
        """Lock the thread, and load the rows that the commands need."""
        self._session.lock(thread, *([SYSTEM_THREAD] if needs.system else []))
        return super().load(thread, needs)

    def _ask_time(self) -> Reply | None:
        return self._session.ask_facts()

    def _read_time(self, reply: Reply | None) -> Micros:
        now = self._session.facts(reply)
        return now if self._has_clock else super()._read_time(reply)


def news(execute: Execute, work: Work, channel: str) -> None:
    """Tell the other processes, when the transaction is committed."""
    if any(event.type not in _QUIET for event in work.events):
        execute("SELECT pg_notify(?, '')", (channel,))
