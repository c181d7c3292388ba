"""A start that nothing came of: the call is put back, for its effect has not begun."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sayso.engine.commands import Cancel, Suspend
from sayso.rows import Call, CallStatus


def put_back(call: Call) -> Suspend:
    """The command that makes a started call ready again."""
    return Suspend(
        thread=call.thread, run=call.run, call=call.id, token=call.token, attempt=call.attempt
    )


def take_back(ours: Collection[str], results: Sequence[Any], *, alone: bool = False) -> list[Any]:
    """The commands that take back what the first command of a commit has started of our calls.

    A run that was made for one call ``alone`` ends with it: nobody can come back to it.
    """
    begun = [c for c in results[0] if c.id in ours and c.status is CallStatus.RUNNING]
    back: list[Any] = [put_back(call) for call in begun]
    if alone:
        why = "stopped before it began"
        back += [Cancel(thread=c.thread, run=c.run, by="code", reason=why) for c in begun]
    return back
