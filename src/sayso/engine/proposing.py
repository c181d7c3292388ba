"""New calls: each is asked about, allowed, or denied. And asking again.

A call has a key by which the same call, made again, finds its row. An agent that is not ours does
not always have one: a coding agent runs a hook, cannot wait for hours, and tells its model to try
again later; the model then makes the same call under a new id. So such a call names its *caller*
(``Call.caller``) instead, and a call made again joins an earlier one with the same tool, arguments
and bound facts in the same run, if

* the same tool use waits for it: the hook ran twice, or was killed; or
* its caller was told "not yet" (``Defer``) and nobody has joined it since. It may have been decided
  in the meantime, and this is how the answer gets delivered.

Otherwise it is a new request. In particular, a call that was released, or whose refusal was
delivered, is never joined: an approval covers one call, even if a provider repeats its ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from sayso.engine.asking import ask, ask_again, request_digest, revise
from sayso.engine.commands import NewCall, Propose, Reask
from sayso.engine.grants import covers, is_genuine, is_of_this_entry
from sayso.engine.refusals import in_force, known_refusals, shown_ids, too_many_rejections
from sayso.engine.running import (
    begin,
    check_token,
    close_read,
    lease_run,
    reads_under_lease,
    refresh_run,
)
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Cancelled, Conflict, InvalidCall, NotAllowed
from sayso.rows import LIVE, SYSTEM_THREAD, Call, CallStatus, Run, RunStatus
from sayso.types import Decided, Grant, Micros, Verdict, plain_name, requester_name

#: The fields of a new call that its row has too.
_PROPOSED = tuple(field.name for field in fields(NewCall) if field.name in Call._fields)
_proposed = attrgetter(*_PROPOSED)
_NO_ORIGIN: Mapping[str, str] = {}


def propose(work: UnitOfWork, command: Propose) -> tuple[Call, ...]:
    """Open the run, append messages, and add each call once."""
    run = work.run or _open_run(work, command)
    if run.status is RunStatus.CANCELLED or run.stop:
        raise Cancelled(f"run {run.id} was cancelled: {run.stop}. Start another run")
    if run.status not in LIVE:
        # The calls of a finished run are returned if all exist. Nothing is added to such a run.
        stored_calls = [work.by_key(new.key) for new in command.calls]
        if command.messages or not stored_calls or None in stored_calls:
            raise Conflict(f"run {run.id} is {run.status}: reopen it, or start another run")
        return tuple(_add_or_find(work, command, new) for new in command.calls)
    if command.token is not None:
        check_token(run, command.token)
    if command.after is not None and work.thread.messages != command.after:
        raise Conflict(f"thread {command.thread} has new messages: read it again")
    if command.snapshot is not None:
        work.put_run(work.require_run()._replace(snapshot=command.snapshot))
    for message in command.messages:
        work.add_message(message)
    work.tools.extend(command.tools)
    calls: list[Call] = []
    hold = command.hold
    for new in command.calls:
        call = _add_or_find(work, command, new)
        calls.append(call)
        hold = hold or reads_under_lease(work, call)
    refresh_run(work, hold=hold, wake_seen=command.wake_seen)
    return tuple(calls)


def _open_run(work: UnitOfWork, command: Propose) -> Run:
    if command.thread == SYSTEM_THREAD:
        raise InvalidCall("names that begin with @ are reserved: use another name", "thread")
    work.new_run = True
    owner = work.thread.owner
    is_claimed = command.requester != requester_name(command.requester)
    if owner and plain_name(owner) != plain_name(command.requester):
        raise NotAllowed(
            f"the thread {command.thread!r:.80} belongs to {owner}: pass requester={owner!r} if "
            "the run is for them, or use another thread"
        )
    if command.requester and not owner and not is_claimed:
        work.set_owner(command.requester)
    return work.put_run(
        Run(
            id=command.run,
            thread=command.thread,
            agent=command.agent,
            created=work.now,
            requester=command.requester,
            agent_digest=command.agent_digest,
            parent_call=command.parent_call,
            snapshot=command.snapshot,
            scope=command.scope,
        )
    )


def _add_or_find(work: UnitOfWork, command: Propose, new: NewCall) -> Call:
    stored_call = work.by_key(new.key)
    if stored_call is not None:
        if (_first_args(stored_call), stored_call.kind, stored_call.tool) != (
            new.args,
            new.kind,
            new.tool,
        ):
            raise Conflict(
                f"call {new.key!r} of run {command.run} was made before with other content "
                f"(request {stored_call.id}); use another key for another call"
            )
        return stored_call
    joined = _join(work, new) if new.caller else None
    if joined is not None:
        return joined
    call = Call(
        run=command.run,
        thread=command.thread,
        agent=command.agent,
        created=work.now,
        requester=work.require_run().requester,
        **dict(zip(_PROPOSED, _proposed(new), strict=True)),
    )
    return _add(work, command, new, call)


def _add(work: UnitOfWork, command: Propose, new: NewCall, call: Call) -> Call:
    """Add a new call: denied, refused, allowed, or asked about."""
    verdict = new.terms.verdict
    policy = f"policy:{new.terms.rule}"
    origin: dict[str, Any] = {"trace": new.trace} if new.trace else {}
    if verdict is Verdict.DENY:
        why = new.terms.description
        status = CallStatus.REJECTED
        return _decided_by_rule(work, call, "denied", "deny", policy, why, origin, status=status)
    refusals = known_refusals(work, call) if call.kind == "approval" else []
    for refusal in refusals:
        if in_force(work, refusal):
            # Reject a call with the reason that a person gave for an equal one.
            call = call._replace(refusals=(refusal.id,))
            status = CallStatus.REJECTED
            return _decided_by_rule(
                work, call, "refused", "reject", refusal.by, refusal.message, origin, status=status
            )
    if refusals:
        # Only a person overturns a rejection, whatever a rule or a grant allows.
        terms = replace(call.terms, verdict=Verdict.ASK)
        call = call._replace(terms=terms, refusals=shown_ids(refusals))
    elif verdict is Verdict.ALLOW:
        return _allowed(work, command, call, "allow", policy, outcome=new.outcome)
    if new.outcome is not None:
        raise InvalidCall(f"{call.tool} ran before a person was asked", "outcome")
    grant = None if refusals else _granted(work, call)
    if grant is not None:
        return _allowed(work, command, call, "grant", grant.by, grant.id)
    why_not = new.unaskable or too_many_rejections(work, call)
    if why_not:
        call = call._replace(terms=replace(call.terms, description=why_not))
        status = CallStatus.REJECTED
        return _decided_by_rule(
            work, call, "denied", "deny", policy, why_not, origin, status=status
        )
    return ask(work, work.add_call(call._replace(status=CallStatus.ASKED)), "asked", **origin)


def _join(work: UnitOfWork, new: NewCall) -> Call | None:
    """Return the call that this caller made before and still has no answer to, or None.

    Of several, the one of the same tool use comes first, then the oldest.
    """
    what = (new.kind, new.tool, new.args, new.binds)
    matches = [
        call
        for call in work.calls.values()
        if call.can_be_joined_by(new.caller)
        and (call.kind, call.tool, _first_args(call), call.binds) == what
        # What a grant covered may be another file by now.
        and (call.grant is None or call.terms.footprint == new.terms.footprint)
    ]
    if not matches:
        return None
    call = min(matches, key=lambda one: (one.caller != new.caller, one.created, one.id))
    if call.caller != new.caller:
        call = work.put_call(call._replace(caller=new.caller))
        work.emit("joined", actor=f"agent:{call.agent}", call=call, caller=new.caller)
    return call


def _first_args(call: Call) -> str:
    """Return the arguments that the agent sent, before any edit."""
    return call.args if call.original is None else call.original


def _decided_by_rule(
    work: UnitOfWork,
    call: Call,
    event: str,
    decision: str,
    by: str,
    message: str = "",
    origin: Mapping[str, str] = _NO_ORIGIN,
    **changes: Any,
) -> Call:
    """Add a call that a policy or a grant has decided.

    No person did, so the decision is not signed. The row's MAC covers it, and the policy, or the
    grant with its own signature, is checked again before the start.
    """
    call = call._replace(digest=request_digest(call))
    decided = Decided(
        type=decision,
        by=by,
        at=work.now,
        channel="policy",
        assurance="code",
        digest=call.digest,
        signature="",
        message=message,
    )
    call = work.add_call(call._replace(decision=decided, **changes))
    facts = {"digest": call.digest, "tool": call.tool, "args": call.args_hash, **origin}
    work.emit(event, actor=by, call=call, **facts)
    return call


def _allowed(
    work: UnitOfWork,
    command: Propose,
    call: Call,
    decision: str,
    by: str,
    grant: str | None = None,
    outcome: tuple[bool, str | None] | None = None,
) -> Call:
    ends = work.now + round(call.terms.valid_for * 1_000_000)
    more: dict[str, Any] = {"status": CallStatus.READY, "grant": grant, "valid_until": ends}
    call = _decided_by_rule(work, call, "allowed", decision, by, **more)
    if outcome is not None:
        if not call.is_read:
            raise InvalidCall(f"{call.tool} is not a read: propose it before it runs", "outcome")
        return close_read(work, call, 0, *outcome)
    if command.owner is None or not lease_run(work, command.owner, command.lease):
        return call
    return begin(work, call, command.owner)


def _granted(work: UnitOfWork, call: Call) -> Grant | None:
    # A plan first, because it counts its steps; then the oldest: the same one in every store.
    for grant in sorted(work.grants.values(), key=_precedence):
        fits = grant.live(work.now) and covers(grant, call, work.deps.matches)
        if fits and is_genuine(work, grant) and is_of_this_entry(work, grant):
            return grant
    return None


def _precedence(grant: Grant) -> tuple[bool, Micros, str]:
    return not grant.steps, grant.created, grant.id


def reask(work: UnitOfWork, command: Reask) -> Call:
    """Ask about a call again with its current terms; approvals so far are void.

    A pending request becomes a new revision, and keeps its expiry. That is also so if only its
    preview or title changed, because people would be shown something else.
    """
    call = work.require_call(command.call)
    if call.held:
        return call  # it is checked again before it starts
    if call.status is CallStatus.ASKED and not command.reason:
        preview = call.preview if command.preview is None else command.preview
        title = call.title if command.title is None else command.title
        if (preview, title) == (call.preview, call.title):
            return call
        return revise(work, call, f"agent:{call.agent}", preview=preview, title=title)
    if call.status not in (CallStatus.READY, CallStatus.ASKED):
        return call
    if command.tool is not None:
        work.tools.append(command.tool)
        call = call._replace(tool_digest=command.tool.digest)
    names = ("terms", "binds", "title", "preview", "effect_key", "args")
    now = {name: getattr(command, name) for name in names}
    call = call._replace(**{name: value for name, value in now.items() if value is not None})
    if command.args is not None:
        call = call._replace(args_hash=command.args_hash, written=command.written)
    if call.status is CallStatus.READY:
        call = ask_again(work, call, command.reason)
    else:
        again = call._replace(rev=call.rev + 1, votes=(), decision=None)
        call = ask(work, again, "tightened", until=call.expires_at, reason=command.reason)
    refresh_run(work)
    return call
