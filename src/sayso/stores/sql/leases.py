"""Renew leases in one pass over the rows of runs, whichever SQL database they are in."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sayso.engine.renewing import Renewal, renewed
from sayso.rows import Run, run_from
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Dialect, Execute, Reply
from sayso.stores.sql.transaction import StoreParts
from sayso.types import Micros

_LOAD_RUNS = f"SELECT {sql.RUN} FROM run WHERE id IN ({{}})"
RENEW_RUN = "UPDATE run SET ready_at = ?, mac = ? WHERE id = ?"


def load_runs(execute: Execute, dialect: Dialect, renewals: Sequence[Renewal]) -> Reply:
    """Lock the runs of these renewals, without those that another transaction has locked."""
    statement = _LOAD_RUNS.format(dialect.strings) + dialect.lock_free
    return execute(statement, (json.dumps([renewal.run for renewal in renewals]),))


def renew_runs(
    rows: Reply, parts: StoreParts, renewals: Sequence[Renewal], now: Micros
) -> dict[str, Run | None]:
    """Return the loaded runs with their longer leases; None if another process has taken one."""
    runs = {run.id: run for run in parts.decode.listed(run_from, rows.fetchall())}
    return {
        renewal.run: renewed(runs[renewal.run], renewal, now, parts.deps.mac)
        for renewal in renewals
        if renewal.run in runs
    }
