"""Every legal move of a call and of a run, in two tables.

The theory in short. A call is one row with one status, and the row moves only along the arrows
below; a look-up that fails is an illegal move, raises, and leaves the row as it was. Who may cause
a move, and when, is decided by the functions around these tables; whether it exists at all, only
here. The chart in ``docs/state-machine.md`` is drawn from them.

Undoing a decision is no move: a call is ``asked`` until its decision takes effect
(``sayso.engine.undoing``).

Notes on five moves:

* ``running → ready``: the call itself asked a person and paused. It has not failed and is not in
  doubt; it starts from the top when the answer is there.
* ``in_doubt → ready``: a person said "run it again". It is not ``running`` yet: a process that dies
  before the new start must not leave a second doubt behind.
* ``ready → in_doubt``: after a restore from a backup, it is unknown whether it ran since.
* ``ready → released``: an agent that is not ours got the approval and runs the call itself, as a
  coding agent does after its hook allowed a command. The call was gated, and that is all we know:
  nothing of ours runs it, so no lease can lapse and no doubt is left behind. It is final. If the
  agent reports a result later, it is stored beside the status.
* ``ready → done`` and ``ready → failed``: a read. It changes nothing, so it is never ``running``
  and never in doubt: it stays ``ready``, through as many attempts as it takes, until its result is
  recorded. A process that dies in the middle leaves it as it was. The same moves close a call
  whose effect key belongs to another call (``sayso.engine.effects``): it never starts.
"""

from __future__ import annotations

from typing import Any

from sayso.errors import SaysoError
from sayso.rows import Call, CallStatus, Run, RunStatus

_S = CallStatus

MOVES: dict[CallStatus | None, dict[CallStatus, str]] = {
    None: {
        _S.ASKED: "policy: ask",
        _S.READY: "policy: allow, or a grant",
        _S.REJECTED: "policy: deny",
    },
    _S.ASKED: {
        _S.READY: "approve, or edit",
        _S.REJECTED: "reject",
        _S.RESPONDED: "respond",
        _S.EXPIRED: "nobody decided in time",
        _S.CANCELLED: "cancel",
        _S.SUPERSEDED: "new input",
    },
    _S.READY: {
        _S.RUNNING: "start",
        _S.RELEASED: "released to an agent that runs it itself",
        _S.ASKED: "approval expired, grant used up, tool or policy changed",
        _S.CANCELLED: "cancel",
        _S.SUPERSEDED: "new input",
        _S.IN_DOUBT: "recover after a restore",
        _S.DONE: "a read gave its result, or another call had its effect",
        _S.FAILED: "a read failed for good, or another call has its effect",
    },
    _S.RUNNING: {
        _S.DONE: "result recorded",
        _S.FAILED: "it raised, and its effect is known",
        _S.IN_DOUBT: "lease expired, interrupted, or an exception leaves its effect unknown",
        _S.READY: "the call itself asked and paused",
    },
    _S.IN_DOUBT: {
        _S.DONE: "it did run (respond, or settle=), or its late result",
        _S.READY: "run it again (approve), or idempotent",
        _S.FAILED: "give up (reject), or its late failure",
    },
    _S.RELEASED: {},
    _S.DONE: {},
    _S.FAILED: {},
    _S.REJECTED: {},
    _S.RESPONDED: {},
    _S.EXPIRED: {},
    _S.CANCELLED: {},
    _S.SUPERSEDED: {},
}

_R = RunStatus

RUN_MOVES: dict[RunStatus, dict[RunStatus, str]] = {
    _R.RUNNING: {
        _R.PAUSED: "waiting for a decision",
        _R.DONE: "finished",
        _R.FAILED: "raised",
        _R.CANCELLED: "cancel",
    },
    _R.PAUSED: {
        _R.RUNNING: "resume",
        _R.DONE: "finished",
        _R.FAILED: "raised",
        _R.CANCELLED: "cancel",
    },
    _R.DONE: {_R.RUNNING: "reopen"},
    _R.FAILED: {_R.RUNNING: "reopen"},
    _R.CANCELLED: {},
}


class IllegalMove(SaysoError):
    """A move that is not in the table: a defect in Sayso, never in its caller."""


def moved(call: Call, to: CallStatus, **changes: Any) -> Call:
    """Return the call in its new status, if the table has the move, with other changes."""
    if to not in MOVES[call.status]:
        raise IllegalMove(f"call {call.id}: {call.status} → {to} is not a legal move; report it")
    return call._replace(status=to, **changes)


def run_moved(run: Run, to: RunStatus, **changes: Any) -> Run:
    """Return the run in its new status, if the table has the move, with other changes.

    Staying put is always legal.
    """
    if to != run.status and to not in RUN_MOVES[run.status]:
        raise IllegalMove(f"run {run.id}: {run.status} → {to} is not a legal move; report it")
    return run._replace(status=to, **changes)
