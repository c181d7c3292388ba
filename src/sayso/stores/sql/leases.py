"""Renew leases in one pass over the rows of runs and calls, whichever SQL database they are in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sayso.engine.renewing import Renewal, renewed
from sayso.rows import Call, Run, call_from, doubt_text, run_from
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import SQLITE, Dialect, Execute, ResultSet
from sayso.stores.sql.transaction import StoreParts
from sayso.types import Micros

_LOAD_RUNS = f"SELECT {sql.RUN} FROM run WHERE id IN ({{}})"
_LOAD_CALLS = f"SELECT {sql.CALL} FROM call WHERE status = 'in_doubt' AND id IN ({{}})"
#: The lease, the MAC and the id, for each row to save.
_SAVE_RUN = "UPDATE run SET ready_at = ?, mac = ? WHERE id = ?"
_SAVE_CALL = "UPDATE call SET doubt = ?, mac = ? WHERE id = ?"


class Leases(NamedTuple):
    """Loaded rows with their longer leases; None for a lease that is lost."""

    runs: dict[str, Run | None]
    calls: dict[str, Call | None]

    def changed_runs(self) -> list[tuple[Micros | None, str, str]]:
        return [(run.ready_at, run.mac, run.id) for run in self.runs.values() if run is not None]

    def changed_calls(self) -> list[tuple[str | None, str, str]]:
        calls = (call for call in self.calls.values() if call is not None)
        return [(doubt_text(call.doubt), call.mac, call.id) for call in calls]

    def extended(self) -> dict[str, bool]:
        """Return for each loaded row whether its lease was extended."""
        rows: dict[str, Run | Call | None] = {**self.runs, **self.calls}
        return {name: row is not None for name, row in rows.items()}


def load_leases(
    execute: Execute, dialect: Dialect, renewals: Sequence[Renewal]
) -> tuple[ResultSet, ResultSet]:
    """Lock the runs and the calls in doubt that no other transaction has locked."""
    replies = []
    for statement, of_calls in ((_LOAD_RUNS, False), (_LOAD_CALLS, True)):
        ids = [renewal.row for renewal in renewals if bool(renewal.call) is of_calls]
        load = statement.format(dialect.strings) + dialect.lock_free
        replies.append(execute(load, (json.dumps(ids),)))
    return replies[0], replies[1]


def renew_leases(
    replies: tuple[ResultSet, ResultSet],
    parts: StoreParts,
    renewals: Sequence[Renewal],
    now: Micros,
) -> Leases:
    """Return the loaded rows with their longer leases."""
    by_row = {renewal.row: renewal for renewal in renewals}
    runs = parts.decode.listed(run_from, replies[0].fetchall())
    calls = parts.decode.listed(call_from, replies[1].fetchall())
    mac = parts.deps.mac
    return Leases(
        {run.id: renewed(run, by_row[run.id], now, mac) for run in runs},
        {call.id: renewed(call, by_row[call.id], now, mac) for call in calls},
    )


def renew_saved(
    execute: Execute, parts: StoreParts, renewals: Sequence[Renewal], now: Micros
) -> Leases:
    """Load, extend and save leases in a SQLite database."""
    leases = renew_leases(load_leases(execute, SQLITE, renewals), parts, renewals, now)
    for run in leases.changed_runs():
        execute(_SAVE_RUN, run)
    for call in leases.changed_calls():
        execute(_SAVE_CALL, call)
    return leases
