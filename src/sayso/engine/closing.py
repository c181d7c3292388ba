"""How asking ends without a decision: time, cancellation, newer input, a restore."""

from __future__ import annotations

from sayso.engine.commands import Cancel, Expire, Recover
from sayso.engine.effects import take_key
from sayso.engine.running import doubt_call, settle, wake
from sayso.engine.unit_of_work import UnitOfWork
from sayso.rows import LIVE, Call, CallStatus, Run

_CLOSABLE = (CallStatus.ASKED, CallStatus.READY)


def overdue(work: UnitOfWork, call: Call) -> bool:
    """Whether a request has reached its end, on the store's clock."""
    return (
        call.status is CallStatus.ASKED
        and call.expires_at is not None
        and call.expires_at <= work.now
    )


def expire(work: UnitOfWork, command: Expire) -> Call:
    """Close an overdue request; its rule says whether the run goes on or is called off."""
    call = work.the_call(command.call)
    if not overdue(work, call):
        return call
    call = work.move(call, CallStatus.EXPIRED)
    work.emit("expired", actor="clock", call=call, outcome=call.terms.on_expiry)
    if call.terms.on_expiry == "cancel":
        stop_run(work, f"{call.id} expired", CallStatus.CANCELLED, "clock")
    else:
        wake(work)
    return call


def cancel(work: UnitOfWork, command: Cancel) -> Run:
    """Call off one request, or the whole run with all of them."""
    to = CallStatus.SUPERSEDED if command.superseded else CallStatus.CANCELLED
    if command.call is not None:
        call = work.the_call(command.call)
        if call.status in _CLOSABLE:
            _close(work, call, to, command.by, command.reason)
            wake(work)
        return work.the_run()
    if work.the_run().status in LIVE:
        stop_run(work, command.reason or str(to), to, command.by)
    return work.the_run()


def stop_run(work: UnitOfWork, reason: str, to: CallStatus, by: str) -> None:
    """Close what has not started and stop the run; what is running finishes and is recorded."""
    work.put_run(work.the_run()._replace(stop=reason))
    for call in list(work.calls.values()):
        if call.status in _CLOSABLE:
            _close(work, call, to, by, reason)
    settle(work)
    if work.the_run().status in LIVE:
        work.emit("stopping", actor=by, reason=reason)


def _close(work: UnitOfWork, call: Call, to: CallStatus, by: str, reason: str) -> None:
    # Of what was called off, the reason is what there is instead of a result.
    said = reason if to is CallStatus.CANCELLED and reason else None
    call = work.move(call, to, result=said)
    work.emit(str(to), actor=by, call=call, reason=reason)


def recover(work: UnitOfWork, command: Recover) -> tuple[Call, ...]:
    """Put everything that may have run since the backup in doubt, idempotent or not.

    A read that ran changed nothing, so it stays ready.
    """
    doubted = []
    for call in list(work.calls.values()):
        if call.status in (CallStatus.READY, CallStatus.RUNNING) and not call.is_read:
            reason = "the store was restored from a backup"
            take_key(work, call)  # it may have happened since
            doubted.append(doubt_call(work, call, reason, retry=False))
    work.put_run(work.the_run()._replace(owner=None, ready_at=None))
    settle(work)
    return tuple(doubted)
