"""How a call runs: who may work on the run, what has started, what it gave, what is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sayso.engine.asking import ask_again
from sayso.engine.commands import (
    Claim,
    Complete,
    Doubt,
    Finish,
    Look,
    Record,
    Renew,
    Start,
    Suspend,
    Wake,
)
from sayso.engine.grants import genuine, keep_grant
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Cancelled, Conflict
from sayso.rows import LIVE, Call, CallStatus, Run, RunStatus
from sayso.types import Micros


def leased(run: Run, now: Micros) -> bool:
    """Whether somebody holds the run right now."""
    return run.owner is not None and run.ready_at is not None and run.ready_at > now


def lease_run(work: UnitOfWork, owner: str, lease: Micros) -> bool:
    """Take or renew the run's lease; no if another owner holds it or left something running."""
    run = work.the_run()
    if run.owner != owner and (leased(run, work.now) or run.running):
        return False
    token = run.token if run.owner == owner and leased(run, work.now) else run.token + 1
    work.set_run(RunStatus.RUNNING, owner=owner, token=token, ready_at=work.now + lease)
    return True


def settle(
    work: UnitOfWork, *, hold: bool = False, wake_seen: int | None = None, waits: bool = False
) -> None:
    """Let the run's status follow from its open calls; release its lease unless it is held.

    A decision made while somebody held the lease did not shorten it (it only raised ``wake``), so
    whoever lets go looks at ``wake`` and leaves the run due. With ``waits``, what is ready has
    paused by itself, and does not make the run due.
    """
    run = work.the_run()
    if run.status not in LIVE:
        return
    if run.running or (hold and leased(run, work.now)):
        work.set_run(RunStatus.RUNNING)
    elif run.stop:
        work.set_run(RunStatus.CANCELLED, owner=None, ready_at=None)
        work.emit("run_cancelled", actor="engine", reason=run.stop)
    elif (run.ready and not waits) or (wake_seen is not None and run.wake != wake_seen):
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=work.now)
    elif run.asked or run.in_doubt or waits:
        work.set_run(RunStatus.PAUSED, owner=None, ready_at=None)
    else:
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=None)


def wake(work: UnitOfWork) -> None:
    """A person has settled something: make the run due, without shortening anybody's lease."""
    run = work.the_run()
    asleep = run.status in LIVE and not leased(run, work.now)
    work.put_run(run._replace(wake=run.wake + 1, ready_at=work.now if asleep else run.ready_at))


def woken(work: UnitOfWork, command: Wake) -> None:
    """Wake a run up for somebody who is no person; one that has ended stays as it is."""
    if work.the_run().status in LIVE:
        wake(work)
        work.emit("woken", actor="engine")


def seen(work: UnitOfWork, command: Look) -> Run:
    """The run after the commands before this one."""
    return work.the_run()


def resume(work: UnitOfWork) -> None:
    """A person, the clock or a late result has settled a call: its run goes on, or ends."""
    wake(work)
    if work.the_run().stop:
        settle(work)


def claim(work: UnitOfWork, command: Claim) -> Run | None:
    """Take a due run; nothing if somebody else was faster."""
    run = work.the_run()
    due = run.ready_at is not None and run.ready_at <= work.now
    if run.status not in LIVE or not (due or (command.force and not leased(run, work.now))):
        return None
    _doubt_running(work, "its process went away", lambda call: True)
    run = work.set_run(
        RunStatus.RUNNING,
        owner=command.owner,
        token=work.the_run().token + 1,
        ready_at=work.now + command.lease,
    )
    work.emit("claimed", actor=f"worker:{command.owner}", token=run.token)
    return run


def start(work: UnitOfWork, command: Start) -> tuple[Call, ...]:
    """Begin the calls that are ready; what may no longer run is asked about again."""
    run = work.the_run()
    if run.stop or run.status is RunStatus.CANCELLED:
        raise Cancelled(f"run {run.id} was cancelled: {run.stop}")
    calls = [work.the_call(call_id) for call_id in command.calls]
    if command.exactly and any(call.status is not CallStatus.READY for call in calls):
        raise Conflict(f"a call of run {run.id} is not ready any more: look at it again")
    ready = [call for call in calls if call.status is CallStatus.READY]
    if not ready:
        return tuple(calls)
    only_reads = all(map(is_read, ready))
    if not only_reads and not lease_run(work, command.owner, command.lease):
        return tuple(calls)
    started = []
    for call in calls:
        started.append(
            begin(work, call, command.owner) if call.status is CallStatus.READY else call
        )
    settle(work, hold=only_reads)
    return tuple(started)


def begin(work: UnitOfWork, call: Call, owner: str) -> Call:
    """Start a ready call, or ask about it again if its yes has ended."""
    stale = _stale(work, call)
    if stale:
        return ask_again(work, call, stale)
    return start_read(work, call, owner) if is_read(call) else start_call(work, call)


def _stale(work: UnitOfWork, call: Call) -> str:
    # What a rule let begin in time goes on, however long people take for what it asks in its body.
    by_rule = call.decision is not None and call.decision.type in ("allow", "grant")
    begun = by_rule and call.attempt > 0
    if call.valid_until is not None and call.valid_until <= work.now and not begun:
        return "the approval was too old to start"
    if call.grant is None:
        return ""
    grant = work.grants.get(call.grant)
    if grant is not None and not genuine(work, grant):
        return "the grant was changed behind our back"
    # One call spends one use, however often it pauses and starts again.
    spends = grant is not None and grant.uses_left is not None and call.attempt == 0
    if grant is None or not (grant if spends else replace(grant, uses_left=None)).live(work.now):
        return "the grant ended before the start"
    if spends and grant.uses_left is not None:
        keep_grant(work, replace(grant, uses_left=grant.uses_left - 1))
    return ""


def start_call(work: UnitOfWork, call: Call) -> Call:
    """Mark one call as begun under the run's token."""
    run = work.the_run()
    call = work.move(call, CallStatus.RUNNING, attempt=call.attempt + 1, token=run.token)
    work.emit(
        "started",
        actor=f"worker:{run.owner}",
        call=call,
        attempt=call.attempt,
        token=call.token,
        digest=call.digest,
        grant=call.grant,
    )
    return call


# -- reads: they change nothing, so they take no lease, and stay ready until they are recorded


def is_read(call: Call) -> bool:
    """Whether running the call changes nothing, so that it may run as often as it takes."""
    return call.terms.effect == "read"


def start_read(work: UnitOfWork, call: Call, owner: str) -> Call:
    """Count an attempt of a read. It stays ready, and several may run at once.

    Its token is that of the lease that its process holds anyway, for the run as a whole; none if
    it holds none.
    """
    run = work.the_run()
    token = run.token if run.owner == owner and leased(run, work.now) else 0
    call = work.put_call(call._replace(attempt=call.attempt + 1, token=token))
    work.emit(
        "read_started",
        actor=f"worker:{owner}",
        call=call,
        attempt=call.attempt,
        token=token,
        digest=call.digest,
        grant=call.grant,
    )
    return call


def reads_under_lease(work: UnitOfWork, call: Call) -> bool:
    """Whether a read was started by the process that holds the run."""
    run = work.the_run()
    ours = call.token != 0 and call.token == run.token and leased(run, work.now)
    return is_read(call) and call.status is CallStatus.READY and ours


def record_read(work: UnitOfWork, call: Call, command: Record) -> Call:
    """Store what a read gave; the first result counts. A failure may leave it ready."""
    if call.status is not CallStatus.READY:
        return call
    if command.retry and not command.ok:
        return _stop_read(work, call, command.attempt, command.result)
    ours = reads_under_lease(work, call) and call.token == command.token
    call = close_read(work, call, command.attempt, command.ok, command.result)
    for message in command.messages:
        work.say(message)
    settle(work, hold=command.hold or not ours)  # never ends the lease of another process
    return call


def close_read(work: UnitOfWork, call: Call, attempt: int, ok: bool, result: str | None) -> Call:
    """Record what a read gave, or that it failed for good."""
    call = work.move(call, CallStatus.DONE if ok else CallStatus.FAILED, result=result)
    work.emit("read_recorded", actor=f"attempt:{attempt}", call=call, ok=ok, result=result)
    return call


def _stop_read(work: UnitOfWork, call: Call, attempt: int, error: str | None) -> Call:
    """Note that an attempt of a read ended without a result."""
    call = work.put_call(call._replace(result=error))
    work.emit("read_stopped", actor=f"attempt:{attempt}", call=call, result=error)
    return call


def record(work: UnitOfWork, command: Record) -> Call:
    """Store an outcome by the attempt's own token; a late one closes a doubt nobody settled."""
    call = work.the_call(command.call)
    if is_read(call):
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
    to = CallStatus.DONE if command.ok else CallStatus.FAILED
    late = call.status is CallStatus.IN_DOUBT
    call = work.move(call, to, result=command.result, votes=() if late else call.votes)
    for message in command.messages:
        work.say(message)
    work.emit(
        "recorded",
        actor=f"attempt:{command.attempt}",
        call=call,
        ok=command.ok,
        result=command.result,
        late=late,
    )
    if late:
        resume(work)  # somebody else may hold the run by now, and keeps it
    else:
        settle(work, hold=command.hold)
    return call


def complete(work: UnitOfWork, command: Complete) -> Call:
    """Start a ready call and record its outcome in the same breath."""
    ready = work.the_call(command.call).status is CallStatus.READY
    begin = Start(
        thread=command.thread,
        run=command.run,
        calls=(command.call,),
        owner=command.owner,
        lease=command.lease,
    )
    (call,) = start(work, begin)
    began = CallStatus.READY if is_read(call) else CallStatus.RUNNING
    if not ready or call.status is not began:
        return call  # whoever started it before records it
    return record(
        work,
        Record(
            thread=command.thread,
            run=command.run,
            call=call.id,
            token=call.token,
            attempt=call.attempt,
            ok=True,
            result=command.result,
        ),
    )


def suspend(work: UnitOfWork, command: Suspend) -> Call:
    """Put a started call back: it paused by itself, so nothing is in doubt."""
    call = work.the_call(command.call)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    reads = is_read(call) and call.status is CallStatus.READY
    if ours and (reads or call.status is CallStatus.RUNNING):
        if reads:
            held = leased(work.the_run(), work.now) and not reads_under_lease(work, call)
            call = _stop_read(work, call, command.attempt, call.result)
            if held:
                return call  # another process works on the run, and lets go of it itself
        else:
            call = work.move(call, CallStatus.READY)
            work.emit("suspended", actor=f"attempt:{command.attempt}", call=call)
        run = work.the_run()
        if run.stop:
            call = work.move(call, CallStatus.CANCELLED)
            work.emit("cancelled", actor="engine", call=call, reason=run.stop)
            settle(work)
        elif run.running == 0:
            # It waits for the answer to its own question, so it is not due before that.
            waits = run.asked or run.in_doubt or command.elsewhere
            idle = RunStatus.PAUSED if waits else RunStatus.RUNNING
            work.set_run(idle, owner=None, ready_at=None if idle is RunStatus.PAUSED else work.now)
    return call


def doubt(work: UnitOfWork, command: Doubt) -> tuple[Call, ...]:
    """Mark started calls as in doubt: one attempt that was cut short, or all of a lapsed lease."""
    if command.call is None:
        return _doubt_lapsed(work)
    this = (command.call, command.token, command.attempt)
    doubted = _doubt_running(
        work, command.reason, lambda call: (call.id, call.token, call.attempt) == this
    )
    if doubted:
        settle(work)
    return doubted


def _doubt_lapsed(work: UnitOfWork) -> tuple[Call, ...]:
    run = work.the_run()
    if run.status not in LIVE or run.owner is None or leased(run, work.now):
        return ()
    doubted = _doubt_running(work, "its process went away", lambda call: True)
    work.put_run(work.the_run()._replace(owner=None, ready_at=None))
    settle(work)
    if work.the_run().status is RunStatus.RUNNING:
        # It waits for nobody, so it goes on wherever somebody takes it.
        work.put_run(work.the_run()._replace(ready_at=work.now))
    return doubted


def _doubt_running(
    work: UnitOfWork, reason: str, which: Callable[[Call], bool]
) -> tuple[Call, ...]:
    running = [c for c in work.calls.values() if c.status is CallStatus.RUNNING]
    return tuple(doubt_call(work, c, reason) for c in running if which(c))


def doubt_call(work: UnitOfWork, call: Call, reason: str, *, retry: bool = True) -> Call:
    """One call whose end is unknown; an idempotent one simply gets ready to run again."""
    retry = retry and call.terms.effect == "idempotent" and not work.the_run().stop
    shown = call.asked or not retry
    # Its end is not looked at any more, but stays: the digest of the approval covers it.
    votes = call.votes if retry else ()
    call = work.move(call, CallStatus.IN_DOUBT, votes=votes, asked=shown)
    work.emit("in_doubt", actor="engine", call=call, attempt=call.attempt, reason=reason)
    if retry:
        call = work.move(call, CallStatus.READY)
        work.emit("retried", actor="engine", call=call, attempt=call.attempt)
    return call


def renew(work: UnitOfWork, command: Renew) -> bool:
    """Push the end of a lease out, or let go of it; no if it is not ours any more."""
    run = work.the_run()
    if run.token != command.token or run.owner is None:
        return False
    work.put_run(run._replace(ready_at=work.now + command.lease))
    if command.lease <= 0:  # somebody may be waiting for it, and hears of events only
        work.emit("released", actor=f"worker:{run.owner}", token=run.token)
    return True


def finish(work: UnitOfWork, command: Finish) -> Run:
    """End the run, unless calls of it are still open."""
    run = work.the_run()
    if command.token is not None and run.token != command.token:
        raise Conflict(f"run {run.id} was taken over by another process; its outcome counts")
    if run.status not in LIVE:
        return run
    for message in command.messages:
        work.say(message)
    if command.status == "done":
        _close_reads(work)
        run = work.the_run()
    if run.asked or run.ready or run.running or run.in_doubt:
        settle(work, wake_seen=command.wake_seen)
        return work.the_run()
    run = work.set_run(RunStatus(command.status), owner=None, ready_at=None, output=command.output)
    work.emit("finished", actor=f"agent:{run.agent}", status=command.status)
    return run


def _close_reads(work: UnitOfWork) -> None:
    """Give up the reads that were tried and gave nothing: no caller will try them again."""
    for call in list(work.calls.values()):
        if call.status is CallStatus.READY and is_read(call) and call.attempt:
            close_read(work, call, call.attempt, False, call.result or "it gave no result")
