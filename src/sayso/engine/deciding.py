"""How requests are closed: by a person's decision, by time, by cancellation, or by a restore.

``decide`` checks in the order in which the errors help most: whether there is anything left to
decide, whether the person saw what is stored, whether the decision is allowed, and whether this
person may make it. An error leaves the request as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from sayso.engine.asking import doubt_digest, revise, signed, signed_bytes
from sayso.engine.budgets import give_back
from sayso.engine.commands import (
    Cancel,
    Decide,
    Expire,
    GiveGrant,
    OpenWindow,
    Recover,
    Review,
    SignAgain,
    VoidVotes,
)
from sayso.engine.effects import free_key, key_of, take_key
from sayso.engine.grants import (
    RUN_TOOL,
    add_plan,
    covers,
    end_trust,
    store_grant,
    window_scope,
)
from sayso.engine.people import own_names, present
from sayso.engine.refusals import (
    add_refusal,
    check_overturn,
    count_rejection,
    known_refusals,
    overturn,
    seen_before_refusals,
    show_to_waiting_calls,
    shown_ids,
)
from sayso.engine.running import doubt_call, refresh_run, wake, wake_or_end
from sayso.engine.undoing import undo_note
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import AlreadyDecided, Cancelled, Conflict, Expired, InvalidDecision, NotAllowed
from sayso.rows import DECIDERS, LIVE, Call, CallStatus, Directory, Person, Proven, Run
from sayso.types import (
    ASSURANCE,
    HIGH_RISKS,
    Decided,
    Grant,
    Micros,
    Verdict,
    Vote,
    look_of,
    may_be_requester,
    moment,
    plain_name,
    requester_name,
)

V = TypeVar("V", Vote, Decided)

_STEP_UP = {
    "os-user": "decide on the command line",
    "token": "decide with a token (`sayso token create`)",
    "chat": "decide in a chat that is linked to you, or with a token",
    "session": "sign in and decide on the page",
    "passkey": "confirm it with a passkey on the page",
}

_DOUBT_ANSWERS = ("approve", "respond", "reject")
_values_of_vote = attrgetter(*Vote.__slots__)
_OF_PEOPLE = ("eligible", "eligible_digest", "people_seq")


def decide(work: UnitOfWork, command: Decide) -> Call:
    """Record one person's decision, or raise why it is refused."""
    call = work.require_call(command.call)
    is_asked = call.status is CallStatus.ASKED and call.decision is None
    in_doubt = call.status is CallStatus.IN_DOUBT
    if not is_asked and not in_doubt:
        return _repeat_or_conflict(work, call, command)
    if call.overdue(work.now):
        raise Expired(f"request {call.id} expired at {_when(call.expires_at)}; nothing will run")
    digest = doubt_digest(call.digest, call.attempt) if in_doubt else call.digest
    if in_doubt or not seen_before_refusals(work, call, command):
        check_seen(call, command.type, command.seen_digest, digest)
    allowed = _DOUBT_ANSWERS if in_doubt else call.terms.decisions
    if command.type not in allowed:
        raise InvalidDecision(
            f"{command.type!r} is not allowed on {call.id}: use {' or '.join(allowed)}", "type"
        )
    by = present(work, command.by)
    work.passkey = None if by.confirmation is None else by.confirmation.evidence
    on_behalf_of = check_reviewer(call, by, work.now)
    if command.type == "approve" and call.doubt is not None and call.attempt_runs(work.now):
        raise InvalidDecision(
            f"{call.id} cannot run again yet, because its attempt still runs: wait until "
            f"{_when(call.doubt.running_until)} (later, if it is renewed), enter its result "
            "(respond), or give up (reject)",
            "type",
        )
    stopped = work.require_run().stop
    if stopped and in_doubt and command.type == "approve":
        raise Cancelled(
            f"{call.id} cannot run again, because its run was cancelled ({stopped}): "
            "enter its result (respond), or give up (reject)"
        )
    if command.undo_for and (in_doubt or by.confirmation is not None):
        raise InvalidDecision(
            "a decision about a call in doubt, or one that a passkey confirms, takes effect at "
            "once: leave undo_seconds out",
            "undo_seconds",
        )
    facts = _eligible_facts(work, call)
    decided = signed(work, _unsigned(work, call, command, digest, by, on_behalf_of, **facts))
    if command.type in ("approve", "edit"):
        call = _approve(work, call, command, decided, by)
    else:
        call = _conclude(work, call, decided)
    if command.grant is not None:
        _add_grant(work, call, command, command.grant, by, on_behalf_of)
    return call


def _when(at: int | None) -> str:
    return "?" if at is None else f"{moment(at):%Y-%m-%d %H:%M:%S} UTC"


def _repeat_or_conflict(work: UnitOfWork, call: Call, command: Decide) -> Call:
    """Return the call if the same person repeats the same decision; otherwise raise."""
    won = call.decision
    if command.type == "approve" and any(
        (vote.type, vote.by, vote.digest) == ("approve", command.by.name, command.seen_digest)
        for vote in call.votes
    ):
        return call  # one of the votes of a quorum that was reached
    by = present(work, command.by)
    on_behalf_of = "" if won is None else won.on_behalf_of
    repeated = _unsigned(work, call, command, "", by, on_behalf_of)
    if won is not None and won.same_as(repeated):
        # An edit made a new digest, and its repetition still names the one before.
        same_digest = command.type == "edit" or command.seen_digest in (None, won.digest)
        if same_digest and command.args in (None, call.args, call.args_to_run):
            return call
    if won is None:
        raise AlreadyDecided(f"request {call.id} is {call.status}: there is nothing to decide")
    raise AlreadyDecided(
        f"{won.by} decided {won.type!r} on {call.id} at {_when(won.at)} (by {won.channel})"
        + (f": {won.message}" if won.message else "")
    )


def check_seen(call: Call, decision: str, seen: str | None, digest: str) -> None:
    """Raise unless the decision is about what is stored now."""
    if seen is None:
        if decision in ("approve", "edit"):
            raise InvalidDecision(
                "say what you saw: pass seen_digest, or decide with request.approve()",
                "seen_digest",
            )
    elif seen != digest:
        raise Conflict(
            f"request {call.id} is not what you saw (it is at revision {call.rev} now): "
            "read it again and decide on that"
        )


def check_reviewer(call: Call, by: Proven, now: Micros) -> str:
    """Raise ``NotAllowed`` unless this person may decide this request. Checked only here.

    ``by`` is what ``rights_of`` returned. Returns the name of the person for whom they decide,
    because that person is away; "" if they decide for themselves.
    """
    terms = call.terms
    if by.role == "agent":
        raise NotAllowed("an agent cannot decide; ask a person")
    if look_of(by.name) == look_of(plain_name(call.agent)):
        raise NotAllowed(
            f"{by.name} is the agent that requested {call.id}, and an agent cannot decide: use "
            "another name for the person or the agent"
        )
    if by.role == "chat" and by.name != plain_name(call.requester):
        raise NotAllowed(
            f"{by.name} may not decide {call.id}: the role 'chat' may decide only what they asked "
            "for in a chat of this server"
        )
    on_behalf_of = ""
    if terms.reviewers and not is_meant(call, own_names(by)):
        is_requester = may_be_requester(by.name, call.requester)
        absent = () if is_requester or by.role == "chat" else by.stands_for
        absent_names = (person.name for person in absent if _may_be_represented(call, person))
        on_behalf_of = next(absent_names, "")
        if not on_behalf_of:
            raise NotAllowed(
                f"{by.name} may not decide {call.id}: it is for {', '.join(call.reviewers)}"
            )
    if not terms.requester_decides and may_be_requester(by.name, call.requester):
        raise NotAllowed(f"{by.name} asked for {call.id}: another person has to decide it")
    # A quorum counts people who proved who they are: names in code and OS users could be anyone.
    least = terms.assurance
    if terms.quorum > 1:
        least = max(least, "token", key=ASSURANCE.index)
    if ASSURANCE.index(by.assurance) < ASSURANCE.index(least):
        raise NotAllowed(
            f"{call.id} needs a decision with assurance {least!r} or better, and this one has "
            f"{by.assurance!r}: {_STEP_UP[least]}"
        )
    if terms.fresh is not None and now - by.signed_in > terms.fresh * 1_000_000:
        raise NotAllowed(
            f"{call.id} needs a person who signed in within the last {terms.fresh:g} seconds: sign "
            "in again, and decide then"
        )
    return on_behalf_of


def is_meant(call: Call, names: Collection[str]) -> bool:
    """Return whether a request is for everyone, or for one of these people and groups."""
    reviewers = call.reviewers if call.escalated else call.terms.reviewers
    return not reviewers or not set(reviewers).isdisjoint(names)


def _may_be_represented(call: Call, person: Person) -> bool:
    """Return whether a person who is away could have decided a request."""
    terms = call.terms
    is_excluded = not terms.requester_decides and may_be_requester(person.name, call.requester)
    return person.role in DECIDERS and is_meant(call, person.names) and not is_excluded


def eligible(call: Call, directory: Directory, at: Micros) -> tuple[tuple[str, ...], str]:
    """Return who could decide a request at that time, or a hash if they are too many to name.

    It says of all people what ``check_reviewer`` says of one, whatever credential they have.
    """
    also: set[str] = set()
    never: set[str] = set()
    for absent in directory.away:
        stand_in = directory.person(absent.stand_in)
        if (
            stand_in is not None
            and stand_in.role in DECIDERS
            and not may_be_requester(stand_in.name, call.requester)
            and absent.has_stand_in(stand_in.name, at)
            and _may_be_represented(call, absent)
        ):
            also.add(stand_in.name)
    asker = directory.person(plain_name(call.requester))
    if asker is not None and asker.role == "chat" and is_meant(call, asker.names):
        also.add(asker.name)
    excluded = [plain_name(call.agent)]
    if not call.terms.requester_decides:
        excluded.append(plain_name(requester_name(call.requester)))
    for name in excluded:
        namesake = directory.by_look.get(look_of(name))
        if namesake is not None:
            never.add(namesake.name)
    return directory.eligible(call.reviewers, also, never)


def _eligible_facts(work: UnitOfWork, call: Call) -> dict[str, Any]:
    """Return what a decision records of the people who could have made it."""
    directory = work.directory
    if not directory.seq:
        return {}  # nobody was ever registered
    names, digest = eligible(call, directory, work.now)
    return {"eligible": names, "eligible_digest": digest, "people_seq": directory.seq}


def counts(work: UnitOfWork, call: Call, vote: Vote | Decided) -> bool:
    """Return whether a vote on a request that is still open counts: its voter may still decide."""
    whose = vote.on_behalf_of or vote.by
    for name in {vote.by, whose}:
        person = work.person(name)
        if person is None or person.name != name:
            if vote.assurance not in ("code", "os-user"):
                return False  # the row of the person who proved who they are is gone
            continue
        asked_here = name == plain_name(call.requester)
        may_decide = person.role in DECIDERS or (asked_here and person.role == "chat")
        current = person.active and vote.at >= person.since and may_decide
        if not current or (name == whose and not is_meant(call, person.names)):
            return False
    return True


def drop_void_votes(work: UnitOfWork, call: Call) -> Call:
    """Remove the votes of people who may no longer decide."""
    votes = tuple(vote for vote in call.votes if counts(work, call, vote))
    if votes == call.votes:
        return call
    void = sorted({vote.by for vote in call.votes} - {vote.by for vote in votes})
    call = work.put_call(call._replace(votes=votes))
    work.emit("votes_voided", actor="engine", call=call, void=void)
    return call


def sign_again(work: UnitOfWork, command: SignAgain) -> Call:
    """Sign the approval of a ready call again, and chain it to an event under the newest key.

    Its start reads the events since the last one that moved it, so older links need no older key.
    """
    call = work.require_call(command.call)
    if call.status is not CallStatus.READY:
        return call
    votes = tuple(_signed_again(work, vote) for vote in call.votes)
    decision = None if call.decision is None else _signed_again(work, call.decision)
    call = work.put_call(call._replace(votes=votes, decision=decision))
    work.emit("signed_again", actor=command.by, call=call)
    return call


def _signed_again(work: UnitOfWork, decided: V) -> V:
    genuine = work.deps.verify(signed_bytes(decided), decided.signature)
    return replace(decided, signature=work.deps.sign(signed_bytes(decided))) if genuine else decided


def void_votes(work: UnitOfWork, command: VoidVotes) -> Call:
    call = work.require_call(command.call)
    is_pending = call.status is CallStatus.ASKED and not call.held
    return drop_void_votes(work, call) if is_pending else call


def _unsigned(
    work: UnitOfWork,
    call: Call,
    command: Decide,
    digest: str,
    by: Proven,
    on_behalf_of: str,
    **facts: Any,
) -> Decided:
    return Decided(
        type=command.type,
        by=by.name,
        on_behalf_of=on_behalf_of,
        at=work.now,
        channel=command.channel,
        assurance=by.assurance,
        digest=digest,
        signature="",
        message=command.message,
        value=command.value if command.type == "respond" else None,
        stop=command.stop,
        not_before=work.now + command.undo_for if command.undo_for else 0,
        undo=undo_note(call, command) if command.undo_for else "",
        claim=command.claim,
        **facts,
    )


def _conclude(work: UnitOfWork, call: Call, decided: Decided) -> Call:
    """Let a decision take effect, or hold it as long as it can be undone."""
    if decided.type == "reject":
        end_trust(work, call, decided.by)  # at once: undoing the rejection does not bring it back
    if decided.not_before > work.now:
        call = work.put_call(call._replace(decision=decided))
        _emit(work, call, decided, event="held")
        return call
    doubted = call.status is CallStatus.IN_DOUBT
    if decided.type == "reject":
        return _reject(work, call, decided)
    if decided.type == "respond":
        call = _close(work, call, CallStatus.DONE if doubted else CallStatus.RESPONDED, decided)
        wake_or_end(work, call)
        return call
    call = work.move(call, CallStatus.READY, decision=decided, grant=None)
    overturned: dict[str, Any] = {}
    if not doubted:
        count_rejection(work, call, rejected=False)
        overturned = overturn(work, call, decided.by)
    _emit(work, call, decided, **overturned)
    wake_or_end(work, call)  # in the same transaction
    return call


def _reject(work: UnitOfWork, call: Call, decided: Decided) -> Call:
    """Close a call by a rejection, which counts for equal calls too; also stop the run if wanted.

    To give up on a call in doubt says nothing about equal calls, nor does a question that the
    person will not answer.
    """
    refusal = None
    if call.status is CallStatus.IN_DOUBT:
        call = _close(work, call, CallStatus.FAILED, decided)
    elif call.kind == "question":
        call = _close(work, call, CallStatus.REJECTED, decided)
    else:
        refusal = add_refusal(work, call, decided)
        count_rejection(work, call, rejected=True)
        facts = {"refusal": refusal.id, "scope": refusal.scope, "ends": refusal.ends}
        call = _close(work, call, CallStatus.REJECTED, decided, **facts)
    if decided.stop and work.require_run().status in LIVE:
        reason = f"{decided.by} rejected {call.id} and stopped the run"
        wake(work)
        stop_run(work, reason, CallStatus.CANCELLED, decided.by)
        return call
    if refusal is not None:
        show_to_waiting_calls(work, refusal)
    wake_or_end(work, call)
    return call


def open_window(work: UnitOfWork, command: OpenWindow) -> Grant:
    """Let a run do what it asks for, up to a risk and for some time, on a person's word."""
    run = work.require_run()
    if run.status not in LIVE or run.stop:
        raise Conflict(f"run {run.id} is {run.stop or run.status}: there is nothing to trust")
    if command.grant in work.grants:
        raise Conflict(f"grant {command.grant} already exists: use another id")
    by = present(work, command.by)
    is_agent = look_of(by.name) == look_of(plain_name(run.agent))
    if is_agent or by.role not in ("reviewer", "admin"):
        raise NotAllowed(f"{by.name} may not trust run {run.id}: only a reviewer may")
    if ASSURANCE.index(by.assurance) < ASSURANCE.index("session"):
        raise NotAllowed(
            f"trust in a run needs assurance 'session' or better, and this one has "
            f"{by.assurance!r}: {_STEP_UP['session']}"
        )
    grant = Grant(
        id=command.grant,
        agent=run.agent,
        tool="",
        tool_digest=RUN_TOOL + run.id,
        scope=window_scope(run.id, command.risk, own_names(by), by.assurance),
        by=by.name,
        created=work.now,
        ends=work.now + command.length,
    )
    return store_grant(work, grant)


def review(work: UnitOfWork, command: Review) -> Call:
    """Apply what a model says of a request, unless a person was faster.

    Its rejection closes the request and counts for equal calls, as a person's does. It allows a
    call only where the rule says so. Otherwise people decide, and see what it says.
    """
    call = work.require_call(command.call)
    is_open = call.status is CallStatus.ASKED and not (call.decision or call.votes)
    saw = (command.reviewer, command.seen_digest) == (call.terms.reviewer, call.digest)
    is_first = bool(call.terms.reviewer) and not call.terms.opinion
    if not (is_open and saw and is_first) or call.overdue(work.now):
        return call
    if known_refusals(work, call) or work.require_run().stop:
        return call
    decided = Decided(
        type="reject" if command.answer == "reject" else "model",
        by=command.reviewer,
        at=work.now,
        channel="model",
        assurance="code",
        digest=call.digest,
        signature="",
        message=command.reason,
    )
    if command.answer == "reject":
        return _conclude(work, call, signed(work, decided))
    if command.answer == "allow" and model_may_allow(call):
        decided = signed(work, decided)
        valid_until = work.now + round(call.terms.valid_for * 1_000_000)
        call = work.move(call, CallStatus.READY, decision=decided, valid_until=valid_until)
        _emit(work, call, decided)
        wake_or_end(work, call)
        return call
    opinion = (command.answer, command.reason, call.digest)
    call = work.put_call(call._replace(terms=replace(call.terms, opinion=opinion)))
    about = {"answer": command.answer, "reason": command.reason, "digest": call.digest}
    work.emit("reviewed", actor=command.reviewer, call=call, **about)
    return call


def model_may_allow(call: Call) -> bool:
    """Return whether the model that reviews a call may allow it: never what only people decide."""
    terms = call.terms
    return (
        bool(terms.reviewer)
        and terms.reviewer_allows
        and call.kind == "approval"
        and bool(call.tool)
        and not terms.plan
        and terms.quorum == 1
        and terms.risk_declared
        and terms.risk.level not in HIGH_RISKS
        and "approve" in terms.decisions
        and not call.refusals
    )


def _close(work: UnitOfWork, call: Call, to: CallStatus, decided: Decided, **facts: Any) -> Call:
    """Close a call by a rejection or an answer: one is enough, whatever the quorum."""
    result = decided.value if decided.type == "respond" else call.result
    if to is CallStatus.FAILED:
        result = decided.message or "given up"
        if call.doubt is not None and call.doubt.answer == "did_not_run":
            free_key(work, call)
            facts |= give_back(work, call)
    call = work.move(call, to, decision=decided, result=result)
    _emit(work, call, decided, **facts)
    return call


def _approve(work: UnitOfWork, call: Call, command: Decide, decided: Decided, by: Proven) -> Call:
    """Count an approval or an edit, and make the call ready if the quorum is reached."""
    doubted = call.status is CallStatus.IN_DOUBT
    if command.type == "edit":
        shown_refusals = set(call.refusals)
        call, decided = _revise(work, call, command, decided)
        # The editor sees first that the new arguments were rejected before.
        if not shown_refusals.issuperset(call.refusals) or not _may_vote(work, call, by):
            return call
    elif not doubted:
        check_overturn(work, call, by, decided.on_behalf_of)
    call = drop_void_votes(work, call)
    voters = {decided.by, decided.on_behalf_of} - {""}
    for vote in call.votes:
        if not voters.isdisjoint((vote.by, vote.on_behalf_of)):
            if vote.by != decided.by:
                raise NotAllowed(f"{vote.by} voted for {vote.on_behalf_of or vote.by} already")
            return call
    vote = Vote(**dict(zip(Vote.__slots__, _values_of_vote(decided), strict=True)))
    call = work.put_call(call._replace(votes=(*call.votes, vote)))
    if len(call.votes) < call.terms.quorum:
        _emit(work, call, decided, event="voted", votes=len(call.votes))
        return call
    if call.terms.quorum > 1:
        # Nothing starts as long as one of the voters can undo their vote.
        not_before = max(vote.not_before for vote in call.votes)
        if not_before > max(work.now, decided.not_before):
            decided = signed(work, replace(decided, not_before=not_before))
    valid_until = work.now + round(call.terms.valid_for * 1_000_000)
    return _conclude(work, call._replace(valid_until=valid_until), decided)


def _revise(
    work: UnitOfWork, call: Call, command: Decide, decided: Decided
) -> tuple[Call, Decided]:
    """Make an edit a new revision, and sign the decision about that one."""
    if command.args is None:
        raise InvalidDecision("an edit needs the new arguments", "args")
    terms = command.terms or call.terms
    if terms.verdict is Verdict.DENY:
        raise NotAllowed(f"the policy ({terms.rule}) denies these arguments")
    ends = [call.expires_at] if call.expires_at is not None else []
    if terms.expires_in is not None:
        ends.append(work.now + round(terms.expires_in * 1_000_000))
    call = revise(
        work,
        call,
        decided.by,
        args=command.args,
        args_hash=command.args_hash,
        written=command.written,
        original=call.args if call.original is None else call.original,
        terms=terms,
        title=command.title,
        preview="",  # it was of the old arguments
        # If a function makes the key, it is called before the start, and people see the new key.
        effect_key=key_of(call.agent, call.binds, terms, command.args),
        expires_at=min(ends, default=None),
        escalates_at=call.escalates_at if terms.escalate_to else None,
        refusals=shown_ids(known_refusals(work, call, command.args_hash)),
    )
    decided = replace(decided, digest=call.digest, **_eligible_facts(work, call))
    return call, signed(work, decided)


def _may_vote(work: UnitOfWork, call: Call, by: Proven) -> bool:
    """Return whether the editor may also approve: the new arguments may need other reviewers."""
    try:
        check_overturn(work, call, by, check_reviewer(call, by, work.now))
    except NotAllowed:
        return False
    return "approve" in call.terms.allowed or "edit" in call.terms.allowed


def _emit(
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
        **({"on_behalf_of": decided.on_behalf_of} if decided.on_behalf_of else {}),
        **({name: getattr(decided, name) for name in _OF_PEOPLE} if decided.people_seq else {}),
        **({} if work.passkey is None else {"passkey": work.passkey}),
        **({"stop": True} if decided.stop else {}),
        **({"claim": decided.claim} if decided.claim else {}),
        **({"at": decided.at, "not_before": decided.not_before} if decided.not_before else {}),
        **more,
    )


def _add_grant(
    work: UnitOfWork, call: Call, command: Decide, grant: Grant, by: Proven, on_behalf_of: str
) -> None:
    """Store the grant, or the plan, that comes with an approval."""
    starts = work.now + command.undo_for
    if not command.is_plan:
        _check_grant(call, command.type, by, on_behalf_of)
        store_grant(work, replace(grant, created=starts))
    elif call.decision is not None:  # with a quorum, only the last approval makes it
        add_plan(work, call, grant, by, own_names(by), max(starts, call.decision.not_before))


def _check_grant(call: Call, decision: str, by: Proven, on_behalf_of: str) -> None:
    if on_behalf_of:
        raise NotAllowed(
            f"a grant would outlast the time for which you decide for {on_behalf_of}: approve "
            "this one call"
        )
    if call.terms.reviewers and own_names(by).isdisjoint(call.terms.reviewers):
        raise NotAllowed(
            "a grant would also apply to calls before they escalate to you: approve this one call"
        )
    if by.role == "chat":
        raise NotAllowed(
            "a grant would also apply to the chats of others: approve this one call, or ask a "
            "reviewer for a grant"
        )
    if decision != "approve" or call.terms.quorum > 1 or not call.tool:
        raise InvalidDecision(
            "a grant needs the approval of a tool call that one person may decide",
            "grant",
        )


def give_grant(work: UnitOfWork, command: GiveGrant) -> Grant:
    """Give a grant for calls like one that people approved, if this person could have done so."""
    call = work.require_call(command.call)
    grant = command.grant
    decision = "" if call.decision is None or call.held else call.decision.type
    by = present(work, command.by)
    _check_grant(call, decision, by, check_reviewer(call, by, work.now))
    if grant.id in work.grants:
        raise Conflict(f"grant {grant.id} already exists: use another id")
    if not call.terms.risk_declared or call.terms.risk.level in HIGH_RISKS:
        raise InvalidDecision(
            f"{call.id} has a risk that is high or that nobody declared: give a grant together "
            "with an approval",
            "grant",
        )
    if grant.by != by.name or not covers(grant, call, work.deps.matches):
        raise InvalidDecision(f"the grant does not cover {call.id}, or is not {by.name}'s", "grant")
    return store_grant(work, replace(grant, created=work.now))


# --- closing without a decision ---

_CLOSABLE = (CallStatus.ASKED, CallStatus.READY)


def expire(work: UnitOfWork, command: Expire) -> Call:
    """Close an expired request. Its rule says whether the run continues or is cancelled.

    A request that was decided in time is closed by its decision, once that cannot be undone.
    """
    call = work.require_call(command.call)
    if not call.overdue(work.now):
        return call
    if call.held:
        return _end_hold(work, call, replace(call.held, undo=""))
    call = work.move(call, CallStatus.EXPIRED)
    work.emit("expired", actor="clock", call=call, outcome=call.terms.on_expiry)
    if call.terms.on_expiry == "cancel":
        stop_run(work, f"{call.id} expired", CallStatus.CANCELLED, "clock")
    else:
        wake_or_end(work, call)
    return call


def _end_hold(work: UnitOfWork, call: Call, decided: Decided) -> Call:
    """Let a held decision take effect, unless someone who made it may not decide any more."""
    made: tuple[Vote | Decided, ...] = call.votes
    if decided.type not in ("approve", "edit"):
        made = (decided,)
    if decided.type != "reject" and not all(counts(work, call, vote) for vote in made):
        return revise(work, call, "engine")
    return _conclude(work, call, decided)


def cancel(work: UnitOfWork, command: Cancel) -> Run:
    to = CallStatus.SUPERSEDED if command.superseded else CallStatus.CANCELLED
    if command.call is not None:
        call = work.require_call(command.call)
        if call.status in _CLOSABLE:
            wake_or_end(work, _close_unstarted(work, call, to, command.by, command.reason))
        return work.require_run()
    if work.require_run().status in LIVE:
        stop_run(work, command.reason or str(to), to, command.by)
    return work.require_run()


def stop_run(work: UnitOfWork, reason: str, to: CallStatus, by: str) -> None:
    """Close the calls that have not started, and stop the run. Others finish and are recorded."""
    work.put_run(work.require_run()._replace(stop=reason))
    for call in list(work.calls.values()):
        if call.status in _CLOSABLE:
            _close_unstarted(work, call, to, by, reason)
    refresh_run(work)
    if work.require_run().status in LIVE:
        work.emit("stopping", actor=by, reason=reason)


def _close_unstarted(work: UnitOfWork, call: Call, to: CallStatus, by: str, reason: str) -> Call:
    # A cancelled call has the reason in place of a result.
    result = reason if to is CallStatus.CANCELLED and reason else None
    call = work.move(call, to, result=result)
    work.emit(str(to), actor=by, call=call, reason=reason)
    return call


def recover(work: UnitOfWork, command: Recover) -> tuple[Call, ...]:
    """Mark every call that may have run since the backup as in doubt, idempotent or not.

    A read that ran changed nothing, so it stays ready.
    """
    doubted = []
    for call in list(work.calls.values()):
        if call.status in (CallStatus.READY, CallStatus.RUNNING) and not call.is_read:
            reason = "the store was restored from a backup"
            take_key(work, call)  # its effect may have happened since
            doubted.append(doubt_call(work, call, reason, retry=False))
    work.put_run(work.require_run()._replace(owner=None, ready_at=None))
    refresh_run(work)
    return tuple(doubted)
