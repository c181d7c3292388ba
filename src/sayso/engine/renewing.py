"""Renewing leases: the one change of a run, or of a call in doubt, that is no command.

A lease says "this process still works on it". It is renewed every few seconds and is no news to
people, so it has no event, and it must never wait: a lease that is renewed too late is over, and
its calls are in doubt. So a renewal takes no lock of the thread. It locks the rows themselves,
leaves out those that another transaction has locked, and tries these again soon
(``docs/decisions/0050``).

A process that has lost its run may still be in the body of a call, which is then in doubt. It
renews that attempt, so that nobody has the call run again meanwhile.

The rows keep their ``seq``, because nothing happened to them since the event that it names. A call
in doubt that a command changes at the same moment is written whole by that command, which may
undo the renewal: the next one follows soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from sayso.engine.row_macs import row_mac
from sayso.rows import Call, CallStatus, Run
from sayso.types import Micros

R = TypeVar("R", Run, Call)


class Renewal(NamedTuple):
    """A lease to extend: that of the process that got this token for the run.

    With ``call``, it is the lease of an attempt in doubt.
    """

    run: str
    token: int
    #: How long the lease lasts from now on.
    lease: Micros
    call: str = ""

    @property
    def row(self) -> str:
        """The id of the row that is renewed."""
        return self.call or self.run


def renewed(row: R, renewal: Renewal, now: Micros, mac: Callable[[bytes], str]) -> R | None:
    """Return the row with the longer lease; None if the lease is not the process's any more."""
    if row.token != renewal.token:
        return None
    until = now + renewal.lease
    if isinstance(row, Call):
        doubt = row.doubt
        if row.status is not CallStatus.IN_DOUBT or doubt is None or doubt.ended:
            return None
        ask_at = max(doubt.ask_at, until)
        row = row._replace(doubt=doubt._replace(ask_at=ask_at, running_until=until))
    elif row.owner is None:
        return None
    else:
        row = row._replace(ready_at=until)
    extended: R = row._replace(mac=row_mac(row, mac))
    return extended
