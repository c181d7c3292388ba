"""A PostgreSQL store whose every transaction is a shared one, as with many tasks on one loop."""

from __future__ import annotations

from typing import Any

from sayso.engine.commands import Command, Finish
from sayso.stores.postgres import PostgresStore

#: Shares the transaction and is always refused, so that it leaves nothing behind.
_REFUSED = Finish(thread="nobody's", run="nobody's", status="done", token=0)


class SharingStore(PostgresStore):
    """Counts how many transactions were shared, and how many had to be apart."""

    shared = apart = 0

    def transact(self, *commands: Command) -> list[Any]:
        outcomes = self.transact_each([[_REFUSED], commands])
        assert outcomes is not None
        outcome = outcomes[1]
        if isinstance(outcome, Exception):
            raise outcome
        if callable(outcome):
            self.apart += 1
            return outcome()
        self.shared += 1
        return outcome
