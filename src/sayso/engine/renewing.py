"""Renewing leases: the one change of a run that is no command.

A lease says "this process still works on the run". It is renewed every few seconds and means
nothing to people, so it has no event, and it must never wait: a lease that is renewed too late is
over, and its calls are in doubt. So a renewal takes no lock of the thread. It locks the run's own
row, which every command that changes the run locks too, and leaves out rows that another
transaction has locked; those are tried again soon (``docs/decisions/0050``).

The row keeps its ``seq``, because nothing happened to the run since the event that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sayso.engine.row_macs import row_mac
from sayso.rows import Run
from sayso.types import Micros


class Renewal(NamedTuple):
    """A lease to extend: that of the process that got this token."""

    run: str
    token: int
    #: How long the lease lasts from now on.
    lease: Micros


def renewed(run: Run, renewal: Renewal, now: Micros, mac: Callable[[bytes], str]) -> Run | None:
    """Return the run with the longer lease; None if another process has taken the run."""
    if run.token != renewal.token or run.owner is None:
        return None
    run = run._replace(ready_at=now + renewal.lease)
    return run.written(run.seq, row_mac(run, mac, run.seq))
