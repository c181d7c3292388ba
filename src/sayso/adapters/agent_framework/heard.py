"""A no in the framework's own form, where ``Gated`` stands alone: it is written down as one.

The framework answers a refused call by itself and never makes it.
"""

from __future__ import annotations

from sayso.errors import SaysoError
from sayso.gate.foreign import ForeignThread
from sayso.gate.recheck import called_off
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.twin import look, write

CHANNEL = "agent-framework"


async def refused(calls: ForeignThread, key: str, by: str) -> None:
    """Close a call, and what it asked in its body."""
    for request in await calls.waiting([key]):
        if request.kind == "in_doubt":
            continue  # it may have run, and that is not settled by a no
        try:
            await Inbox(calls.store).decide(request.id, request.reject(), by=by, channel=CHANNEL)
        except SaysoError:  # not theirs to decide; the framework goes on without it all the same
            await _call_off(calls, await look(calls.store, calls.store.call, request.id), by)
    await _call_off(calls, await look(calls.store, calls.row, key), by)


async def _call_off(calls: ForeignThread, row: Call | None, by: str) -> None:
    if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
        await write(calls.store, called_off(row, f"{by} refused it in the framework"))
