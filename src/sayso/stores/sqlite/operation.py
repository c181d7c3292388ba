"""What SQLite's writer commits in batches: one operation each, refused or done by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from sayso.errors import Conflict, StoreError
from sayso.stores.row_checks import event_taken
from sayso.stores.sql.transaction import SqlTransaction

#: What SQLite says against the values of one operation; all else concerns the whole batch.
ITS_OWN = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)


class Operation:
    """Something queued for the next commit, and what came of it."""

    __slots__ = ("body", "done", "error", "names", "result")

    def __init__(self, names: Sequence[str], body: Callable[[SqlTransaction], Any]) -> None:
        self.names = names
        self.body = body
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, execute: Callable[..., Any], transaction: SqlTransaction, *, alone: bool) -> None:
        """Do it inside an open transaction, which it leaves as it was if it is refused."""
        self.error = None
        if not alone:
            execute("SAVEPOINT operation")
        try:
            self.result = self.body(transaction)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not isinstance(error, ITS_OWN):
                raise  # it is the disk
            execute("ROLLBACK" if alone else "ROLLBACK TO operation")
            self.error = _explained(error)
        if not alone:
            execute("RELEASE operation")


def _explained(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError) and "event.thread, event.seq" in str(error):
        return event_taken()
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"another live run or call is in the way: {error}")
    return StoreError(f"that cannot be kept: {error}") if isinstance(error, ITS_OWN) else error
