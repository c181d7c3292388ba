"""Running calls: leases, starts, results and doubts.

``refresh_run`` is at the center: after each command it derives the run's status from the counts of
its open calls, and releases the lease unless it is held.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sayso.engine import commands
from sayso.engine.asking import ask_again
from sayso.engine.budgets import charge, give_back, why_no_room
from sayso.engine.effects import close_duplicate, free_key, is_remote, take_key
from sayso.engine.grants import covers, is_genuine, is_of_this_entry, put_grant
from sayso.engine.refusals import ask_if_refused, begin_scope
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Cancelled, Conflict
from sayso.rows import LATER, LIVE, Call, CallStatus, Doubt, Run, RunStatus
from sayso.types import Failure, Micros


def lease_run(work: UnitOfWork, owner: str, lease: Micros) -> bool:
    """Take or renew the run's lease. Return False if another owner holds it or left a call."""
    run = work.require_run()
    if run.owner != owner and (run.leased(work.now) or run.running):
        return False
    token = run.token if run.owner == owner and run.leased(work.now) else run.token + 1
    work.set_run(RunStatus.RUNNING, owner=owner, token=token, ready_at=work.now + lease)
    return True


def refresh_run(
    work: UnitOfWork, *, hold: bool = False, wake_seen: int | None = None, waits: bool = False
) -> None:
    """Set the run's status from its open calls, and release its lease unless it is held.

    A decision that was made while a process held the lease did not shorten it (it only raised
    ``wake``), so the process that releases it compares ``wake`` and leaves the run due. With
    ``waits``, the ready calls have paused to ask, and do not make the run due.
    """
    run = work.require_run()
    if run.status not in LIVE:
        return
    if run.running or (hold and run.leased(work.now)):
        if run.status is not RunStatus.RUNNING:
            work.set_run(RunStatus.RUNNING)
    elif run.stop:
        work.set_run(RunStatus.CANCELLED, owner=None, ready_at=None)
        work.emit("run_cancelled", actor="engine", reason=run.stop)
    elif (run.ready and not waits) or (wake_seen is not None and run.wake != wake_seen):
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=work.now)
    elif run.asked or run.in_doubt or waits:
        settle_at = _settle_at(work) if run.in_doubt else None
        work.set_run(RunStatus.PAUSED, owner=None, ready_at=settle_at)
    else:
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=None)


def _settle_at(work: UnitOfWork) -> Micros | None:
    """Return when a process that has the tool can call ``settle=`` about a doubt."""
    doubts = (call.unsettled for call in work.calls.values() if call.settles)
    return min((doubt.ask_at for doubt in doubts if doubt is not None), default=None)


def wake(work: UnitOfWork) -> Run:
    """Make the run due after a decision, without shortening a lease. Return the run."""
    run = work.require_run()
    asleep = run.status in LIVE and not run.leased(work.now)
    ready_at = work.now if asleep else run.ready_at
    return work.put_run(run._replace(wake=run.wake + 1, ready_at=ready_at))


def wake_run(work: UnitOfWork, command: commands.Wake) -> None:
    """Make a run due without a decision. A run that has ended stays as it is."""
    if work.require_run().status in LIVE:
        wake(work)
        work.emit("woken", actor="engine")


def read_run(work: UnitOfWork, command: commands.ReadRun) -> Run:
    """Return the run after the commands before this one."""
    return work.require_run()


def wake_or_end(work: UnitOfWork, call: Call) -> None:
    """Make the run due after a decision or a late result, or end it.

    A run that waits for nobody is not paused. It ends if it was cancelled, and also if its last
    call has ended and nobody comes back to end it: a guard outside of runs, a hook and a remote
    agent make one call, and their process may be gone.
    """
    run = wake(work)
    if run.stop:
        refresh_run(work)
    elif call.status is CallStatus.READY:
        return
    elif run.status in LIVE and not (run.is_open or run.leased(work.now)):
        if run.made_for_one:
            succeeded = call.status in (CallStatus.RESPONDED, CallStatus.DONE)
            end_run(work, RunStatus.DONE if succeeded else RunStatus.FAILED)
        elif call.caller or is_remote(call.binds):
            end_run(work, RunStatus.DONE)
        else:
            work.set_run(RunStatus.RUNNING)


def check_token(run: Run, token: int) -> None:
    """Raise ``Conflict`` if another process has taken the run since this token was read."""
    if run.token != token:
        raise Conflict(f"run {run.id} was taken over by another process: use its outcome")


def reopen(work: UnitOfWork, command: commands.Reopen) -> Run | None:
    """Reopen a finished run: the only move that may follow ``finished``."""
    run = work.run
    if run is None or run.status in LIVE:
        return run
    if run.status is RunStatus.CANCELLED or run.stop:
        raise Cancelled(f"run {run.id} was cancelled: {run.stop}. Start another run")
    run = work.set_run(RunStatus.RUNNING, output=None, token=run.token + 1)
    if not command.same_scope:
        begin_scope(work)
        run = work.require_run()
    work.emit("reopened", actor=command.by or f"agent:{run.agent}", token=run.token)
    return run


def park(work: UnitOfWork, command: commands.Park) -> Run:
    """Release the lease. The run stays due if a decision was made meanwhile."""
    run = work.require_run()
    check_token(run, command.token)
    refresh_run(work, wake_seen=command.wake_seen, waits=True)
    if work.require_run().status is RunStatus.PAUSED:
        work.put_run(work.require_run()._replace(ready_at=command.due_at))
    return work.require_run()


def claim(work: UnitOfWork, command: commands.Claim) -> Run | None:
    """Take a due run. Return None if another process was faster.

    The process that holds the run gets it again, with the same token. If it were refused, a
    ``Start`` in the same transaction would start calls that no process runs.
    """
    run = work.require_run()
    if run.status in LIVE and run.owner == command.owner and run.leased(work.now):
        ends = max(run.ready_at or 0, work.now + command.lease)
        return work.put_run(run._replace(ready_at=ends))
    if run.status not in LIVE or not (
        run.due(work.now) or (command.force and not run.leased(work.now))
    ):
        if command.exactly:
            raise Conflict(f"another process works on run {run.id}: wait for it")
        return None
    _doubt_running(work, "its process died")
    run = work.set_run(
        RunStatus.RUNNING,
        owner=command.owner,
        token=work.require_run().token + 1,
        ready_at=work.now + command.lease,
    )
    work.emit("claimed", actor=f"worker:{command.owner}", token=run.token)
    return run


def start(work: UnitOfWork, command: commands.Start) -> tuple[Call, ...]:
    """Start the calls that are ready. Those that may no longer run are asked about again."""
    calls = list(map(work.require_call, command.calls))
    _check_not_stopped(work.require_run())
    ready = 0
    only_reads = True
    for call, row_mac in zip(calls, command.seen, strict=True):
        if call.status is CallStatus.READY:
            _check_seen(call, row_mac)
            ready += 1
            only_reads = only_reads and call.is_read
    if command.exactly and ready < len(calls):
        raise Conflict(f"a call of run {command.run} is not ready any more: read it again")
    if not ready or not (only_reads or lease_run(work, command.owner, command.lease)):
        return tuple(calls)
    for place, call in enumerate(calls):
        if call.status is CallStatus.READY:
            calls[place] = begin(work, call, command.owner)
    refresh_run(work, hold=only_reads)
    return tuple(calls)


def _check_not_stopped(run: Run) -> None:
    if run.stop or run.status is RunStatus.CANCELLED:
        raise Cancelled(f"run {run.id} was cancelled: {run.stop}")


def _check_seen(call: Call, seen: str) -> None:
    """Raise ``Conflict`` if a ready row is not the one that was checked."""
    if call.status is CallStatus.READY and call.mac != seen:
        raise Conflict(f"{call.id} changed after it was checked: read it again")


def begin(work: UnitOfWork, call: Call, owner: str) -> Call:
    """Start a ready call, or ask about it again if its approval is no longer valid."""
    not_now = _consume_approval(work, call)
    if not_now is not None:
        return not_now
    return start_read(work, call, owner) if call.is_read else start_call(work, call)


def _consume_approval(work: UnitOfWork, call: Call) -> Call | None:
    """Use the approval, the grant and the effect key of a call that is about to run.

    If one of them is missing, ask about the call again or close it, and return the row after that.
    """
    refused = ask_if_refused(work, call)
    if refused is not None:
        return refused
    why_not = _use_approval(work, call)
    if why_not:
        return ask_again(work, call, why_not)
    effect = take_key(work, call)
    return None if effect is None else close_duplicate(work, call, effect)


def _use_approval(work: UnitOfWork, call: Call) -> str:
    """Use up one use of the grant, if any. Return why the approval is not valid, or ""."""
    # A call that no person decided, and that began in time, may start again later: people may have
    # taken long to answer what it asks in its body.
    by_rule = call.decision is not None and call.decision.type in ("allow", "grant", "model")
    begun = by_rule and call.attempt > 0
    if call.valid_until is not None and call.valid_until <= work.now and not begun:
        return "the approval was too old to start"
    if call.grant is None:
        counts = by_rule and not begun and call.terms.limits
        return why_no_room(work, call) if counts else ""
    grant = work.grants.get(call.grant)
    if grant is None:
        return "the grant ended before the start"
    if not is_genuine(work, grant):
        return "the grant was tampered with"
    if not covers(grant, call, work.deps.matches):
        return "the grant does not cover it any more"
    # One call takes one use or step, however often it pauses and starts again.
    left = grant.uses_left if call.attempt == 0 else None
    steps = grant.steps if call.attempt == 0 else ()
    is_live = replace(grant, uses_left=left, steps=steps).live(work.now)
    if not is_live or not is_of_this_entry(work, grant):
        return "the grant ended before the start"
    no_room = why_no_room(work, call) if call.attempt == 0 else ""
    if not no_room and left is not None:
        put_grant(work, replace(grant, uses_left=left - 1))
    return no_room


def start_call(work: UnitOfWork, call: Call) -> Call:
    """Mark one call as started under the run's token."""
    run = work.require_run()
    spent = charge(work, call) if call.terms.limits or call.grant else {}
    call = work.move(call, CallStatus.RUNNING, attempt=call.attempt + 1, token=run.token)
    actor = f"worker:{run.owner}"
    _emit_start(work, call, "started", actor, token=call.token, **spent)
    return call


def _emit_start(work: UnitOfWork, call: Call, event: str, actor: str, **more: Any) -> None:
    about: dict[str, Any] = {"attempt": call.attempt, "digest": call.digest, "grant": call.grant}
    if call.effect_key:
        about["effect_key"] = call.effect_key
    work.emit(event, actor=actor, call=call, **about, **more)


# -- reads: they change nothing, so they take no lease, and stay ready until recorded


def start_read(work: UnitOfWork, call: Call, owner: str) -> Call:
    """Count an attempt of a read. It stays ready, and several may run at once.

    Its token is that of the run's lease if its process holds it, and otherwise 0.
    """
    run = work.require_run()
    token = run.token if run.owner == owner and run.leased(work.now) else 0
    spent = charge(work, call)
    call = work.put_call(call._replace(attempt=call.attempt + 1, token=token))
    _emit_start(work, call, "read_started", f"worker:{owner}", token=token, **spent)
    return call


def reads_under_lease(work: UnitOfWork, call: Call) -> bool:
    """Return whether the process that holds the run started this read."""
    if not call.is_read or call.status is not CallStatus.READY:
        return False
    run = work.require_run()
    return call.token != 0 and call.token == run.token and run.leased(work.now)


def record_read(work: UnitOfWork, call: Call, command: commands.Record) -> Call:
    """Record the outcome of a read. The first result counts; a failure may leave it ready."""
    if call.status is not CallStatus.READY:
        return call
    if command.retry and not command.ok:
        return _stop_read(work, call, command.attempt, command.result)
    ours = reads_under_lease(work, call) and call.token == command.token
    call = close_read(work, call, command.attempt, command.ok, command.result)
    for message in command.messages:
        work.add_message(message)
    refresh_run(work, hold=command.hold or not ours)  # never ends the lease of another process
    return call


def close_read(work: UnitOfWork, call: Call, attempt: int, ok: bool, result: str | None) -> Call:
    """Record the result of a read, or its final failure."""
    call = work.move(call, CallStatus.DONE if ok else CallStatus.FAILED, result=result)
    work.emit("read_recorded", actor=f"attempt:{attempt}", call=call, ok=ok, result=result)
    return call


def _stop_read(work: UnitOfWork, call: Call, attempt: int, error: str | None) -> Call:
    """Note that an attempt of a read ended without a result."""
    call = work.put_call(call._replace(result=error))
    work.emit("read_stopped", actor=f"attempt:{attempt}", call=call, result=error)
    return call


def record(work: UnitOfWork, command: commands.Record) -> Call:
    """Record an outcome under the attempt's own token. A late one closes a doubt that is open."""
    call = work.require_call(command.call)
    if call.is_read:
        return record_read(work, call, command)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    if not ours or call.status not in (CallStatus.RUNNING, CallStatus.IN_DOUBT):
        work.emit(
            "late",
            actor=f"attempt:{command.attempt}",
            call=call,
            ok=command.ok,
            result=command.result,
        )
        return call
    if not command.ok and leaves_doubt(call, command.failure):
        # The exception leaves the outcome unknown: the call is in doubt, or stays so.
        reason = command.result or ""
        late = call.status is CallStatus.IN_DOUBT
        if late:  # what was found out while it ran is obsolete
            doubt = Doubt(work.now, ended=True, reason=reason)
            call = work.put_call(call._replace(doubt=doubt))
            actor = f"attempt:{call.attempt}"
            work.emit("attempt_ended", actor=actor, call=call, attempt=call.attempt, reason=reason)
        else:
            # Not tried again: it might raise the same exception each time.
            call = doubt_call(work, call, reason, ended=True, retry=False)
        if command.failure == "not_executed":
            call = _add_answer(work, call, f"agent:{call.agent}", "did_not_run", reason)
        # A late one belongs to a process that lost the run: another may hold it now, and keeps it.
        refresh_run(work, hold=late or command.hold)
        return call
    for message in command.messages:
        work.add_message(message)
    nothing_happened = not command.ok and command.failure == "not_executed"
    returned: dict[str, Any] = {}
    if nothing_happened and not is_remote(call.binds):
        returned = give_back(work, call)
    outcome = (command.ok, command.result)
    return _record(work, call, *outcome, why=command.why, hold=command.hold, **returned)


def leaves_doubt(call: Call, failure: Failure) -> bool:
    """Return whether the effect of a call that ended with such an exception may have happened.

    What is at stake decides how sure we want to be. A key promises that its effect is unique, and
    ``settle=`` can find out, so only "nothing happened" is sure enough. For an effect that a person
    approved, or that was declared, a lost reply is like a crash. Other calls fail.
    """
    if call.is_read:
        return False
    if failure == "not_executed":
        # An agent on another machine cannot free a key.
        return bool(call.effect_key) and is_remote(call.binds)
    if failure == "in_doubt" or call.effect_key:
        return True
    if call.terms.effect != "once":
        return False
    approved = call.decision is not None and call.decision.type in ("approve", "edit", "grant")
    return call.settles or (failure == "lost" and (approved or call.terms.declared))


def _record(
    work: UnitOfWork,
    call: Call,
    ok: bool,
    result: str | None,
    *,
    why: str = "",
    hold: bool = False,
    actor: str = "",
    **more: Any,
) -> Call:
    late = call.status is CallStatus.IN_DOUBT
    to = CallStatus.DONE if ok else CallStatus.FAILED
    if not ok:
        free_key(work, call)  # nothing happened; see ``leaves_doubt``
    call = work.move(call, to, result=result, votes=() if late else call.votes)
    more |= {"not_kept": why} if why else {}
    actor = actor or f"attempt:{call.attempt}"
    work.emit("recorded", actor=actor, call=call, ok=ok, result=result, late=late, **more)
    if late:
        wake_or_end(work, call)  # another process may hold the run by now, and keeps it
    else:
        refresh_run(work, hold=hold)
    return call


def complete(work: UnitOfWork, command: commands.Complete) -> Call:
    """Start a ready call and record its outcome in one step."""
    call = work.require_call(command.call)
    _check_not_stopped(work.require_run())
    _check_seen(call, command.seen)
    if call.status is not CallStatus.READY or not lease_run(work, command.owner, command.lease):
        return call
    call = begin(work, call, command.owner)
    if call.status is CallStatus.RUNNING:
        return _record(work, call, True, command.result)
    if call.is_read and call.status is CallStatus.READY:
        call = close_read(work, call, call.attempt, True, command.result)
    refresh_run(work)
    return call


# -- calls that another agent runs itself


def release(work: UnitOfWork, command: commands.Release) -> Call:
    """Release a ready call to its agent. Leases of the run stay as they are."""
    call = work.require_call(command.call)
    _check_not_stopped(work.require_run())
    _check_seen(call, command.seen)
    if call.status is not CallStatus.READY:
        return call
    not_now = _consume_approval(work, call)
    if not_now is None:
        spent = charge(work, call)
        attempt = call.attempt + 1
        call = work.move(call, CallStatus.RELEASED, attempt=attempt, caller=command.caller)
        _emit_start(work, call, "released", f"agent:{call.agent}", **spent)
    refresh_run(work, hold=True)
    return call if not_now is None else not_now


def defer(work: UnitOfWork, command: commands.Defer) -> Call:
    """Let the same call, made again, find this request. A call that was decided stays as it is."""
    call = work.require_call(command.call)
    waits = call.status in (CallStatus.ASKED, CallStatus.IN_DOUBT)
    if waits and call.caller and call.caller == command.caller:
        call = work.put_call(call._replace(caller=LATER))
        work.emit("deferred", actor=f"agent:{call.agent}", call=call)
    return call


def report(work: UnitOfWork, command: commands.ReportResult) -> Call:
    """Store the result of a released call, once. It moves neither the call nor its run."""
    call = work.require_call(command.call)
    if call.status is CallStatus.RELEASED and call.result is None:
        call = work.put_call(call._replace(result=command.result))
        actor = f"agent:{call.agent}"
        work.emit("reported", actor=actor, call=call, ok=command.ok, result=command.result)
    return call


def suspend(work: UnitOfWork, command: commands.Suspend) -> Call:
    """Make a started call ready again: it paused to ask, so nothing is in doubt."""
    call = work.require_call(command.call)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    reads = call.is_read and call.status is CallStatus.READY
    if ours and (reads or call.status is CallStatus.RUNNING):
        if reads:
            held = work.require_run().leased(work.now) and not reads_under_lease(work, call)
            call = _stop_read(work, call, command.attempt, call.result)
            if held:
                return call  # another process works on the run, and will release it
        else:
            free_key(work, call)
            call = work.move(call, CallStatus.READY)
            work.emit("suspended", actor=f"attempt:{command.attempt}", call=call)
        run = work.require_run()
        if run.stop:
            call = work.move(call, CallStatus.CANCELLED)
            work.emit("cancelled", actor="engine", call=call, reason=run.stop)
            refresh_run(work)
        elif run.running == 0:
            # It waits for the answer to its own request, so it is not due before that.
            waits = run.asked or run.in_doubt or command.elsewhere
            idle = RunStatus.PAUSED if waits else RunStatus.RUNNING
            work.set_run(idle, owner=None, ready_at=None if idle is RunStatus.PAUSED else work.now)
    return call


def mark_in_doubt(work: UnitOfWork, command: commands.MarkInDoubt) -> Call:
    """Mark a running attempt as in doubt. An attempt that has ended stays as it is."""
    call = work.require_call(command.call)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    if call.status is CallStatus.RUNNING and ours:
        call = doubt_call(work, call, command.reason, running=command.running)
        refresh_run(work)
    return call


def settle_doubt(work: UnitOfWork, command: commands.Settle) -> Call:
    """Record the answer of ``settle=`` about a doubt, unless a person has closed it.

    "It ran" closes the doubt with the result. Any other answer is evidence for the person who
    decides, and starts nothing. If two processes asked at the same time, the first answer counts,
    unless it was "unknown".
    """
    call = work.require_call(command.call)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    doubt = call.doubt
    if call.status is not CallStatus.IN_DOUBT or not ours or doubt is None:
        return call
    is_stored = doubt.answer not in ("", "unknown") or doubt.answer == command.answer
    if is_stored or doubt.ask_at > work.now:
        return call
    actor = f"tool:{call.tool}"
    call = _add_answer(work, call, actor, command.answer, command.said)
    if command.answer == "ran":
        return _record(work, call, True, command.result, actor=actor)
    return call


def _add_answer(work: UnitOfWork, call: Call, actor: str, answer: str, said: str) -> Call:
    """Add to a doubt what another side says about it."""
    assert call.doubt is not None
    doubt = call.doubt._replace(answer=answer, said=said, at=work.now)
    call = work.put_call(call._replace(doubt=doubt))
    work.emit("settled", actor=actor, call=call, attempt=call.attempt, answer=answer, said=said)
    return call


def release_lapsed(work: UnitOfWork, command: commands.ReleaseLapsed) -> tuple[Call, ...]:
    """Release a run whose lease has expired, and mark its running calls as in doubt."""
    run = work.require_run()
    if run.status not in LIVE or not run.lapsed(work.now):
        return ()
    doubted = _doubt_running(work, "its process died")
    work.put_run(work.require_run()._replace(owner=None, ready_at=None))
    refresh_run(work)
    if work.require_run().status is RunStatus.RUNNING:
        # It does not wait for people, so any process may resume it.
        work.put_run(work.require_run()._replace(ready_at=work.now))
    return doubted


def _doubt_running(work: UnitOfWork, reason: str) -> tuple[Call, ...]:
    running = [c for c in work.calls.values() if c.status is CallStatus.RUNNING]
    return tuple(doubt_call(work, call, reason) for call in running)


def doubt_call(
    work: UnitOfWork,
    call: Call,
    reason: str,
    *,
    ended: bool = False,
    running: bool = False,
    retry: bool = True,
) -> Call:
    """Mark a call whose outcome is unknown as in doubt. With ``retry``, an idempotent one becomes
    ready again."""
    run = work.require_run()
    retry = retry and call.terms.effect == "idempotent" and not run.stop
    needs_person = call.asked or not retry
    # Its expiry no longer applies, but stays: the digest of the approval covers it.
    votes = call.votes if retry else ()
    more: dict[str, object] = {}
    call = work.move(call, CallStatus.IN_DOUBT, votes=votes, asked=needs_person)
    if not retry:
        ask_at = work.now
        if not ended and run.leased(work.now):
            # Until its lease ends, the interrupted process may still be running it.
            ask_at = run.ready_at or work.now
        doubt = Doubt(ask_at, ended=ended, reason=reason, running_until=ask_at if running else 0)
        call = work.put_call(call._replace(doubt=doubt))
        more = {"ask_at": ask_at, "ended": ended}
    work.emit("in_doubt", actor="engine", call=call, attempt=call.attempt, reason=reason, **more)
    if retry:
        call = work.move(call, CallStatus.READY)
        work.emit("retried", actor="engine", call=call, attempt=call.attempt)
    return call


def end_lease(work: UnitOfWork, command: commands.EndLease) -> None:
    """End a lease, unless another process has taken the run."""
    run = work.require_run()
    if run.token == command.token and run.owner is not None:
        work.put_run(run._replace(ready_at=work.now))
        # A waiting process is woken by events only.
        work.emit("lease_released", actor=f"worker:{run.owner}", token=run.token)


def finish(work: UnitOfWork, command: commands.Finish) -> Run:
    """End the run, unless some of its calls are still open."""
    run = work.require_run()
    if command.token is not None:
        check_token(run, command.token)
    elif not work.touched_calls:
        return run  # the record before it came too late, or there was none
    if run.status not in LIVE:
        return run
    for message in command.messages:
        work.add_message(message)
    if command.status == "done":
        # Close the reads that ran without a result: no caller will retry them.
        for call in list(work.calls.values()):
            if call.status is CallStatus.READY and call.is_read and call.attempt:
                close_read(work, call, call.attempt, False, call.result or "it has no result")
                run = work.require_run()
    if command.exactly and (run.is_open or run.stop):
        raise Conflict(f"run {run.id} has open calls or was stopped: close them first")
    if run.is_open:
        refresh_run(work, wake_seen=command.wake_seen)
        return work.require_run()
    return end_run(work, RunStatus(command.status), command.output)


def end_run(work: UnitOfWork, status: RunStatus, output: str | None = None) -> Run:
    run = work.set_run(status, owner=None, ready_at=None, output=output)
    work.emit("finished", actor=f"agent:{run.agent}", status=str(status))
    return run
