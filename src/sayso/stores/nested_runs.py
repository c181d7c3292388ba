"""Nested runs: an agent that is used as a tool runs in a thread of its own, under the call.

These functions cancel, expire and release runs together with the runs nested in them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from sayso.engine.asking import due_step
from sayso.engine.commands import Cancel, Expire, Finish, ReleaseLapsed, Wake
from sayso.engine.effects import is_remote
from sayso.errors import KeyMissing, Tampered
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run
from sayso.stores.base import Due, Store, StoreReads

log = logging.getLogger("sayso.stores")


def cancel_with_nested(
    store: Store, run: Run, by: str, reason: str, *, superseded: bool = False
) -> None:
    """Cancel a run after the runs nested in it, and wake the run that it is nested in."""
    _stop(store, run, by, reason, superseded)
    if run.parent_call is not None:
        wake_outer(store, run.parent_call)


def _stop(store: Store, run: Run, by: str, reason: str, superseded: bool = False) -> None:
    for inner in inner_runs(store, run):
        _stop(store, inner, by, reason, superseded)
    if run.status in LIVE:
        store.transact(
            Cancel(thread=run.thread, run=run.id, by=by, reason=reason, superseded=superseded)
        )


def cancel_under(
    store: Store, call: Call, by: str, reason: str, *, superseded: bool = False
) -> None:
    """Cancel the run nested under a call that was cancelled, and the runs in it."""
    inner = _inner_run(store, call)
    if inner is not None:
        _stop(store, inner, by, reason, superseded)


def stop_around(store: Store, call: Call, run_id: str) -> None:
    """Stop the outermost run around a run, and every run in it, if a call's rejection says so.

    The run of the call itself was stopped in the commit of the decision.
    """
    decided = call.decision
    outermost = store.run(run_id)
    if decided is None or not decided.stop or outermost is None:
        return
    reason = f"{decided.by} rejected {call.id} and stopped the run"
    for inner in inner_runs(store, outermost):
        _stop(store, inner, decided.by, reason)
    while (outer := outer_run(store, outermost)) is not None:
        outermost = outer
    _stop(store, outermost, decided.by, reason)


def outer_run(store: StoreReads, run: Run) -> Run | None:
    """Return the run that a run is nested in, if it is nested and the outer one is in the store."""
    call = None if run.parent_call is None else store.call(run.parent_call)
    return None if call is None else store.run(call.run)


def close_due(store: Store, due: Due) -> tuple[Call, ...]:
    """Do what is due: expire or escalate a request, remind people of it, or release a lapsed run.

    Returns the calls that changed.
    """
    if due.call is None:
        return release_lapsed(store, due.thread, due.run)
    call = store.call(due.call)
    step = None if call is None else due_step(call, store.now())
    if call is None or step is None:
        return () if call is None else (expire(store, call),)
    changed: tuple[Call, ...] = tuple(store.transact(step))
    return changed


def release_lapsed(store: Store, thread: str, run: str) -> tuple[Call, ...]:
    """Release a run whose lease has lapsed; return the calls that are in doubt now."""
    doubted: tuple[Call, ...]
    (doubted,) = store.transact(ReleaseLapsed(thread=thread, run=run))
    return doubted


def close_overdue(store: Store, limit: int, most: int) -> Iterator[tuple[Call, ...]]:
    """Close up to ``most`` batches of overdue requests and runs. Skips rows that fail their check.

    Yields the calls that changed.
    """
    refused: set[Due] = set()
    for _ in range(most):
        overdue_rows = store.overdue(limit + len(refused))
        for due in [due for due in overdue_rows if due not in refused]:
            try:
                yield close_due(store, due)
            except (Tampered, KeyMissing) as error:
                refused.add(due)
                log.warning("overdue, but left unchanged: %s", error)
        if len(overdue_rows) - len(refused) < limit:
            return


def expire(store: Store, call: Call) -> Call:
    """Expire an overdue request; if that cancels its run, cancel the runs nested in it first."""
    cancels = call.overdue(store.now()) and call.terms.on_expiry == "cancel" and not call.held
    run = store.run(call.run) if cancels else None
    if run is not None:
        for inner in inner_runs(store, run):
            _stop(store, inner, "clock", f"{call.id} expired")
        if run.parent_call is not None:  # first: an outer run that wakes early expires it itself
            wake_outer(store, run.parent_call)
    (closed,) = store.transact(Expire(thread=call.thread, run=call.run, call=call.id))
    expired: Call = closed
    if call.held:
        finish_decision(store, expired)
    return expired


def finish_decision(store: Store, call: Call) -> None:
    """Stop the runs around a call whose decision has taken effect, or finish its own, if due."""
    if call.status is CallStatus.REJECTED:
        stop_around(store, call, call.run)
    if call.status in (CallStatus.REJECTED, CallStatus.RESPONDED):
        finish_after(store, call)


def wake_outer(store: Store, call: str) -> None:
    """Make the run of a call due, because the run nested under it is over."""
    row = store.call(call)
    outer = store.run(row.run) if row is not None else None
    if outer is not None and outer.status in LIVE:
        store.transact(Wake(thread=outer.thread, run=outer.id))


#: The calls under which a run may be live. A call is closed with its run, before the inner run.
_MAY_NEST = OPEN | {CallStatus.CANCELLED, CallStatus.SUPERSEDED}


def inner_runs(store: StoreReads, run: Run) -> list[Run]:
    """Return the live runs that are nested directly in a run."""
    calls = store.calls_of(run.id)
    inner = [_inner_run(store, call) for call in calls if call.attempt and call.status in _MAY_NEST]
    return [inner_run for inner_run in inner if inner_run is not None]


def _inner_run(store: StoreReads, call: Call) -> Run | None:
    """Return the live run of a call, even if others used a thread of that name."""
    inner = store.live_run(inner_thread(call.thread, call.id))
    return inner if inner is not None and inner.parent_call == call.id else None


def inner_thread(thread: str, call: str) -> str:
    """Return the thread of a run nested under a call; a retry of the call finds it again."""
    return f"{thread}/{call}"


def finish_after(store: Store, call: Call) -> None:
    """Finish a remote call's run if nothing is left to do in it: its agent may never come back."""
    run = store.run(call.run) if is_remote(call.binds) else None
    if run is not None and run.status in LIVE:
        finish_remote_run(store, run)


def finish_remote_run(store: Store, run: Run) -> bool:
    """Finish a remote agent's run if all its calls have ended. Return whether it was finished."""
    if run.is_open:
        return False
    calls = store.calls_of(run.id)
    over = bool(calls) and all(is_remote(call.binds) for call in calls)
    if over:
        store.transact(Finish(thread=run.thread, run=run.id, status="done", token=run.token))
    return over
