"""How a person's answer counts: who may give it, on what, and what it changes.

The order of the checks is the order in which their refusals help: first whether there is anything
left to decide, then whether the person saw what is there, then whether the answer fits, then
whether this person may give it. Every refusal leaves the request as it was.
"""

from __future__ import annotations

from dataclasses import replace

from sayso.engine.asking import doubt_envelope, envelope, signed
from sayso.engine.closing import overdue
from sayso.engine.commands import Decide
from sayso.engine.effects import free_key, is_remote, key_of
from sayso.engine.grants import known_people, store_grant
from sayso.engine.running import resume
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import (
    AlreadyDecided,
    Cancelled,
    Conflict,
    Expired,
    InvalidDecision,
    NotAllowed,
)
from sayso.rows import Call, CallStatus
from sayso.types import ASSURANCE, Decided, Verdict, Vote, moment, plain_name

_STEP_UP = {
    "os-user": "decide on the command line",
    "token": "decide with a token (`sayso token create`)",
    "session": "sign in and decide on the page",
}

_DOUBT_ANSWERS = ("approve", "respond", "reject")


def decide(work: UnitOfWork, command: Decide) -> Call:
    """Record one answer, or say why it does not count."""
    call = work.the_call(command.call)
    if call.status not in (CallStatus.ASKED, CallStatus.IN_DOUBT):
        return _echo(work, call, command)
    if overdue(work, call):
        raise Expired(f"request {call.id} expired at {_when(call.expires_at)}; nothing will run")
    in_doubt = call.status is CallStatus.IN_DOUBT
    digest = work.deps.digest(doubt_envelope(call)) if in_doubt else call.digest
    _check_seen(call, command, digest)
    _check_allowed(call, command, _DOUBT_ANSWERS if in_doubt else call.terms.allowed)
    check_reviewer(work, call, command)
    if in_doubt and command.type == "approve":
        _check_runs(work, call)
    decided = signed(work, _unsigned(work, command, digest))
    if command.type == "reject":
        call = _close(work, call, CallStatus.FAILED if in_doubt else CallStatus.REJECTED, decided)
    elif command.type == "respond":
        call = _close(work, call, CallStatus.DONE if in_doubt else CallStatus.RESPONDED, decided)
    else:
        call = _yes(work, call, command, decided)
    if command.grant is not None:
        _check_grant(call, command)
        store_grant(work, command.grant)
    return call


def _when(at: int | None) -> str:
    return "?" if at is None else f"{moment(at):%Y-%m-%d %H:%M:%S} UTC"


def _echo(work: UnitOfWork, call: Call, command: Decide) -> Call:
    """A second answer: the same one by the same person is an echo, any other has lost."""
    won = call.decision
    if command.type == "approve" and any(
        (vote.type, vote.by, vote.digest) == ("approve", command.by.name, command.seen_digest)
        for vote in call.votes
    ):
        return call  # one of a quorum that came to pass
    if won is not None and won.same_as(_unsigned(work, command, won.digest)):
        # An edit made a new digest, so that its repeat still names the one before.
        seen = command.type == "edit" or command.seen_digest in (None, won.digest)
        if seen and command.args in (None, call.args):
            return call
    if won is None:
        raise AlreadyDecided(f"request {call.id} is {call.status}: there is nothing to decide")
    raise AlreadyDecided(
        f"{won.by} decided {won.type!r} on {call.id} at {_when(won.at)} (by {won.channel})"
        + (f": {won.message}" if won.message else "")
    )


def _check_seen(call: Call, command: Decide, digest: str) -> None:
    seen = command.seen_digest
    if seen is None:
        if command.type in ("approve", "edit"):
            raise InvalidDecision(
                "say what you saw: pass seen_digest, or decide with request.approve()",
                "seen_digest",
            )
    elif seen != digest:
        raise Conflict(
            f"request {call.id} is not what you saw, it is at revision {call.rev}: "
            "read it again and decide on that"
        )


def _check_allowed(call: Call, command: Decide, allowed: tuple[str, ...]) -> None:
    if command.type not in allowed:
        raise InvalidDecision(
            f"{command.type!r} is not allowed on {call.id}: use {' or '.join(allowed)}", "type"
        )


def _check_runs(work: UnitOfWork, call: Call) -> None:
    run = work.the_run()
    if run.stop:
        raise Cancelled(
            f"{call.id} cannot run again, its run was cancelled ({run.stop}): "
            "give its result (respond), or give it up (reject)"
        )


def check_reviewer(work: UnitOfWork, call: Call, command: Decide) -> None:
    """Whether this person may decide this request; the one place that says so."""
    by, terms = command.by, call.terms
    known = known_people(work)
    if by.role == "agent" or any(person.role == "agent" for person in known):
        raise NotAllowed("an agent cannot decide; ask a person")
    if by.name == plain_name(call.agent):
        raise NotAllowed(
            f"{by.name} is the agent that asks for {call.id}, and an agent cannot decide: give the "
            "person or the agent another name"
        )
    asked_here = not is_remote(call.binds) and by.name == plain_name(call.requester)
    if by.role == "chat" and not asked_here:
        raise NotAllowed(
            f"{by.name} may not decide {call.id}: with the role 'chat' they decide only what they "
            "asked for in a chat of this server"
        )
    # What somebody says of themselves in code counts only where the store knows nothing of them.
    said = by.groups if not known or by.assurance not in ("code", "os-user") else ()
    stored = (name for person in known for name in person.groups)
    groups = {f"group:{name}" for name in (*said, *stored)}
    if terms.reviewers and by.name not in terms.reviewers and not groups & set(terms.reviewers):
        raise NotAllowed(
            f"{by.name} may not decide {call.id}: it is for {', '.join(terms.reviewers)}"
        )
    if not terms.requester_decides and by.name == plain_name(call.requester):
        raise NotAllowed(f"{by.name} asked for {call.id}; somebody else has to decide it")
    # A quorum is of people who proved who they are: a name in code, or a login, could be anybody's.
    least = terms.assurance
    if terms.quorum > 1:
        least = max(least, "token", key=ASSURANCE.index)
    if ASSURANCE.index(by.assurance) < ASSURANCE.index(least):
        raise NotAllowed(
            f"{call.id} needs a decision with assurance {least!r} or better, this one has "
            f"{by.assurance!r}: {_STEP_UP[least]}"
        )


def _unsigned(work: UnitOfWork, command: Decide, digest: str) -> Decided:
    return Decided(
        type=command.type,
        by=command.by.name,
        at=work.now,
        channel=command.channel,
        assurance=command.by.assurance,
        digest=digest,
        signature="",
        message=command.message,
        value=command.value if command.type == "respond" else None,
    )


def _close(work: UnitOfWork, call: Call, to: CallStatus, decided: Decided) -> Call:
    """A no, or an answer in place of the run: one is enough, whatever the quorum."""
    result = decided.value if decided.type == "respond" else call.result
    if to is CallStatus.FAILED:
        result = decided.message or "given up"
        if call.doubt is not None and call.doubt.answer == "did_not_run":
            free_key(work, call)
    call = work.move(call, to, decision=decided, result=result)
    _tell(work, call, decided)
    resume(work)  # in the same transaction
    return call


def _yes(work: UnitOfWork, call: Call, command: Decide, decided: Decided) -> Call:
    if command.type == "edit":
        call, decided = _revise(work, call, command, decided)
        if not _may_vote(work, call, command):
            return call
    elif any(vote.by == decided.by for vote in call.votes):
        return call
    vote = Vote(
        type=decided.type,
        by=decided.by,
        at=decided.at,
        channel=decided.channel,
        assurance=decided.assurance,
        digest=decided.digest,
        signature=decided.signature,
        message=decided.message,
    )
    call = work.put_call(call._replace(votes=(*call.votes, vote)))
    if len(call.votes) < call.terms.quorum:
        _tell(work, call, decided, event="voted", votes=len(call.votes))
        return call
    call = work.move(
        call,
        CallStatus.READY,
        decision=decided,
        valid_until=work.now + round(call.terms.valid_for * 1_000_000),
        grant=None,
    )
    _tell(work, call, decided)
    resume(work)  # in the same transaction
    return call


def _revise(
    work: UnitOfWork, call: Call, command: Decide, decided: Decided
) -> tuple[Call, Decided]:
    """An edit is a new revision: new digest, earlier votes void, the editor's vote its first."""
    if command.args is None:
        raise InvalidDecision("an edit needs the new arguments", "args")
    terms = command.terms or call.terms
    if terms.verdict is Verdict.DENY:
        raise NotAllowed(f"the policy ({terms.rule}) forbids these arguments")
    ends = [call.expires_at] if call.expires_at is not None else []
    if terms.expires_in is not None:
        ends.append(work.now + round(terms.expires_in * 1_000_000))
    call = call._replace(
        args=command.args,
        args_hash=command.args_hash,
        original=call.args if call.original is None else call.original,
        rev=call.rev + 1,
        votes=(),
        terms=terms,
        title=command.title,
        preview="",  # of the arguments before
        # Where code makes the key, it does so again before the start, and people see the new one.
        effect_key=key_of(call.agent, call.binds, terms, command.args),
        expires_at=min(ends, default=None),
    )
    call = work.put_call(call._replace(digest=work.deps.digest(envelope(call))))
    work.emit(
        "revised",
        actor=decided.by,
        call=call,
        revision=call.rev,
        digest=call.digest,
        args=call.args_hash,
    )
    return call, signed(work, replace(decided, digest=call.digest))


def _may_vote(work: UnitOfWork, call: Call, command: Decide) -> bool:
    """Whether the editor may also approve: the new arguments may belong to other people."""
    try:
        check_reviewer(work, call, command)
    except NotAllowed:
        return False
    return "approve" in call.terms.allowed or "edit" in call.terms.allowed


def _tell(
    work: UnitOfWork, call: Call, decided: Decided, event: str = "decided", **more: object
) -> None:
    work.emit(
        event,
        actor=decided.by,
        call=call,
        decision=decided.type,
        digest=decided.digest,
        channel=decided.channel,
        assurance=decided.assurance,
        message=decided.message,
        value=decided.value,
        signature=decided.signature,
        **more,
    )


def _check_grant(call: Call, command: Decide) -> None:
    if command.by.role == "chat":
        raise NotAllowed(
            "a standing yes would count in the chats of others, too: approve this one call, or ask "
            "a reviewer for it"
        )
    if command.type != "approve" or call.terms.quorum > 1 or not call.tool:
        raise InvalidDecision(
            "a standing yes goes with the approval of a tool call that one person may decide",
            "grant",
        )
