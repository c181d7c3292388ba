"""How a call runs: who may work on the run, what has started, what it gave, what is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from assent.engine.asking import ask_again
from assent.engine.commands import Claim, Complete, Doubt, Finish, Record, Renew, Start, Suspend
from assent.engine.work import Work
from assent.errors import Cancelled, Conflict
from assent.rows import LIVE, Call, CallStatus, Run, RunStatus
from assent.types import Micros


def leased(run: Run, now: Micros) -> bool:
    """Whether somebody holds the run right now."""
    return run.owner is not None and run.ready_at is not None and run.ready_at > now


def lease_run(work: Work, owner: str, lease: Micros) -> bool:
    """Take or renew the run's lease; no if another owner holds it or left something running."""
    run = work.the_run()
    if run.owner != owner and (leased(run, work.now) or run.active):
        return False
    token = run.token if run.owner == owner and leased(run, work.now) else run.token + 1
    work.set_run(RunStatus.RUNNING, owner=owner, token=token, ready_at=work.now + lease)
    return True


def settle(work: Work, *, hold: bool = False, wake_seen: int | None = None) -> None:
    """Let the run's status follow from its open calls; release its lease unless it is held.

    A decision made while somebody held the lease did not shorten it (it only raised ``wake``), so
    whoever lets go looks at ``wake`` and leaves the run due.
    """
    run = work.the_run()
    if run.status not in LIVE:
        return
    if run.active or (hold and leased(run, work.now)):
        work.set_run(RunStatus.RUNNING)
    elif run.stop:
        work.set_run(RunStatus.CANCELLED, owner=None, ready_at=None)
        work.emit("run_cancelled", actor="engine", reason=run.stop)
    elif run.ready or (wake_seen is not None and run.wake != wake_seen):
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=work.now)
    elif run.asked or run.doubted:
        work.set_run(RunStatus.PAUSED, owner=None, ready_at=None)
    else:
        work.set_run(RunStatus.RUNNING, owner=None, ready_at=None)


def wake(work: Work) -> None:
    """A person has settled something: make the run due, without shortening anybody's lease."""
    run = work.the_run()
    due = run.ready_at if leased(run, work.now) else work.now
    work.put_run(run._replace(wake=run.wake + 1, ready_at=due))


def claim(work: Work, command: Claim) -> Run | None:
    """Take a due run; nothing if somebody else was faster."""
    run = work.the_run()
    if run.status not in LIVE or run.ready_at is None or run.ready_at > work.now:
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


def start(work: Work, command: Start) -> tuple[Call, ...]:
    """Begin the calls that are ready; what may no longer run is asked about again."""
    run = work.the_run()
    if run.stop or run.status is RunStatus.CANCELLED:
        raise Cancelled(f"run {run.id} was cancelled: {run.stop}")
    calls = [work.the_call(call_id) for call_id in command.calls]
    if not any(call.status is CallStatus.READY for call in calls):
        return tuple(calls)
    if not lease_run(work, command.owner, command.lease):
        return tuple(calls)
    started = []
    for call in calls:
        if call.status is CallStatus.READY:
            stale = _stale(work, call)
            call = ask_again(work, call, stale) if stale else start_call(work, call)
        started.append(call)
    settle(work)
    return tuple(started)


def _stale(work: Work, call: Call) -> str:
    if call.valid_until is not None and call.valid_until <= work.now:
        return "the approval was too old to start"
    if call.grant is None:
        return ""
    grant = work.grants.get(call.grant)
    if grant is None or not grant.live(work.now):
        return "the grant ended before the start"
    if grant.uses_left is not None:
        work.touched_grants[grant.id] = replace(grant, uses_left=grant.uses_left - 1)
        work.grants[grant.id] = work.touched_grants[grant.id]
    return ""


def start_call(work: Work, call: Call) -> Call:
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


def record(work: Work, command: Record) -> Call:
    """Store an outcome by the attempt's own token; a late one closes a doubt nobody settled."""
    call = work.the_call(command.call)
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
        wake(work)
    settle(work, hold=command.hold)
    return call


def complete(work: Work, command: Complete) -> Call:
    """Start a ready call and record its outcome in the same breath."""
    begin = Start(
        thread=command.thread,
        run=command.run,
        calls=(command.call,),
        owner=command.owner,
        lease=command.lease,
    )
    (call,) = start(work, begin)
    if call.status is not CallStatus.RUNNING:
        return call
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


def suspend(work: Work, command: Suspend) -> Call:
    """Put a started call back: it paused by itself, so nothing is in doubt."""
    call = work.the_call(command.call)
    ours = (call.token, call.attempt) == (command.token, command.attempt)
    if call.status is CallStatus.RUNNING and ours:
        call = work.move(call, CallStatus.READY)
        work.emit("suspended", actor=f"attempt:{command.attempt}", call=call)
        run = work.the_run()
        if run.active == 0:
            # It waits for the answer to its own question, so it is not due before that.
            idle = RunStatus.PAUSED if run.asked or run.doubted else RunStatus.RUNNING
            work.set_run(idle, owner=None, ready_at=None if idle is RunStatus.PAUSED else work.now)
    return call


def doubt(work: Work, command: Doubt) -> tuple[Call, ...]:
    """Mark started calls as in doubt: one attempt that was cut short, or all of a lapsed lease."""
    if command.call is None:
        return _doubt_lapsed(work)
    this = (command.call, command.token, command.attempt)
    doubted = _doubt_running(
        work, command.reason, lambda call: (call.id, call.token, call.attempt) == this
    )
    settle(work)
    return doubted


def _doubt_lapsed(work: Work) -> tuple[Call, ...]:
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


def _doubt_running(work: Work, reason: str, which: Callable[[Call], bool]) -> tuple[Call, ...]:
    running = [c for c in work.calls.values() if c.status is CallStatus.RUNNING]
    return tuple(doubt_call(work, c, reason) for c in running if which(c))


def doubt_call(work: Work, call: Call, reason: str) -> Call:
    """One call whose end is unknown; an idempotent one simply gets ready to run again."""
    shown = call.asked or not call.terms.idempotent
    call = work.move(call, CallStatus.IN_DOUBT, votes=(), expires_at=None, asked=shown)
    work.emit("in_doubt", actor="engine", call=call, attempt=call.attempt, reason=reason)
    if call.terms.idempotent:
        call = work.move(call, CallStatus.READY)
        work.emit("retried", actor="engine", call=call, attempt=call.attempt)
    return call


def renew(work: Work, command: Renew) -> bool:
    """Push the end of a lease out; no if it is not ours any more."""
    run = work.the_run()
    if run.token != command.token or run.owner is None:
        return False
    work.put_run(run._replace(ready_at=work.now + command.lease))
    return True


def finish(work: Work, command: Finish) -> Run:
    """End the run, unless calls of it are still open."""
    run = work.the_run()
    if command.token is not None and run.token != command.token:
        raise Conflict(f"run {run.id} was taken over by another process; its outcome counts")
    if run.status not in LIVE:
        return run
    for message in command.messages:
        work.say(message)
    if run.asked or run.ready or run.active or run.doubted:
        settle(work, wake_seen=command.wake_seen)
        return work.the_run()
    run = work.set_run(RunStatus(command.status), owner=None, ready_at=None, output=command.output)
    work.emit("finished", actor=f"agent:{run.agent}", status=command.status)
    return run
