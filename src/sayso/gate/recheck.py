"""The re-check directly before a start: is this still what was approved, and may it run now?

Every path to a start comes through ``recheck``: guarded functions, the agent's turns, frameworks,
workers, and claims over HTTP. Nothing is cached. A process that waited in memory gets the same
check as one that came back a week later.
"""

from __future__ import annotations

from typing import Any

from sayso import codec
from sayso.engine.asking import doubt_envelope, envelope, signed_bytes
from sayso.engine.commands import Cancel, Reask
from sayso.engine.effects import shown_key
from sayso.errors import InvalidCall, NotAllowed, Tampered
from sayso.gate.plan import Plan, effect_key_of
from sayso.policy import is_stricter, tighten
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Decided, Terms, Verdict, Vote

_BY_PERSON = frozenset({"approve", "edit"})
#: Nobody signs what a policy or a grant lets run: the row's MAC covers it, and both are asked again
#: before the start.
_BY_RULE = frozenset({"allow", "grant"})


def verify(store: Store, call: Call) -> None:
    """Raise ``Tampered`` unless digest, decision and signatures of a ready call all agree.

    The MAC of its row was checked when the row was read. What is checked here holds against
    somebody who has the row key as well, but not the key that signs decisions.
    """
    if codec.sha256(call.args.encode()) != call.args_hash:
        raise _tampered(call, "its arguments were changed")
    if codec.digest(envelope(call)) != call.digest:
        raise _tampered(call, "it is not what its digest says")
    decision = call.decision
    if decision is None or decision.type not in _BY_PERSON | _BY_RULE:
        raise _tampered(call, "nobody approved it")
    if decision.digest != call.digest and not _of_a_doubt(call, decision.digest):
        raise _tampered(call, "the approval is of something else")
    if decision.type in _BY_PERSON:
        _check(store, call, decision)
    elif (decision.type == "grant") != (call.grant is not None):
        raise _tampered(call, "it says that a grant covers it, and names none")
    elif decision.type == "allow" and call.terms.verdict is not Verdict.ALLOW:
        raise _tampered(call, "people were to be asked about it, and nobody approved it")
    if call.valid_until != decision.at + round(call.terms.valid_for * 1_000_000):
        raise _tampered(call, "the end of its approval was changed")
    if call.terms.quorum > 1 and decision.type in _BY_PERSON:
        _check_votes(store, call, decision.digest)


def _of_a_doubt(call: Call, digest: str) -> bool:
    """Whether it is "run it again": of this attempt, or of one before a pause or a retry."""
    attempts = range(call.attempt, max(call.attempt - 1000, 0) - 1, -1)
    doubts = (doubt_envelope(call._replace(attempt=attempt)) for attempt in attempts)
    return any(digest == codec.digest(doubt) for doubt in doubts)


def _check_votes(store: Store, call: Call, digest: str) -> None:
    people = set()
    for vote in call.votes:
        if vote.digest == digest:
            _check(store, call, vote)
            people.add(vote.by)
    if len(people) < call.terms.quorum:
        raise _tampered(call, f"{len(people)} of {call.terms.quorum} people approved it")


def _check(store: Store, call: Call, decided: Decided | Vote) -> None:
    if not store.keys.verify(signed_bytes(decided), decided.signature):
        raise _tampered(call, f"the signature of {decided.by} does not hold")


def _tampered(call: Call, what: str) -> Tampered:
    return Tampered(
        f"{call.id} was not run: {what}. Look at `sayso audit verify`, then cancel it "
        f"(`sayso cancel {call.id}`) and ask again"
    )


async def recheck(plan: Plan, call: Call) -> Reask | Cancel | None:
    """Compare an approved call with the code, the policy and the surroundings as they are now.

    Returns the command that asks people again or calls the call off, or nothing if the approval
    still covers it. Raises ``NotAllowed`` if another agent asked for the call.
    """
    if plan.agent != call.agent:
        raise NotAllowed(
            f"{call.id} was asked for by agent {call.agent!r}, and this is {plan.agent!r}: run it "
            "as the agent that asked, or make the call in another run"
        )
    reason, changes = "", dict[str, Any]()
    changed = plan.tool is not None and plan.tool.digest != call.tool_digest
    if changed:
        reason, changes["tool"] = "the tool changed since the approval", plan.tool
    binds = plan.binds()
    if binds != call.binds:
        reason, changes["binds"] = "its surroundings changed since the approval", binds
    args = call.args
    edited = call.original is not None
    if plan.reads is not None and (changed or edited):
        try:
            args = plan.reads(call.args)
        except InvalidCall as error:
            return called_off(call, _unfit(call, changed, error))
        if args != call.args:
            whose = "edited arguments" if edited else "arguments"
            reason = f"the tool adds to the {whose}, or reads them in another way"
            changes |= {"args": args, "args_hash": codec.sha256(args.encode())}
    now = await plan.terms(codec.loads(args))
    if now.verdict is Verdict.DENY:
        what = "the edited arguments" if edited else "it by now"
        forbids = f"the policy ({now.rule}) forbids {what}"
        return called_off(call, forbids, by=f"policy:{now.rule}")
    key = effect_key_of(plan, binds, now, args)
    if key != call.effect_key:
        reason = f"the key of its effect is another one now: {shown_key(key) or 'none'}"
        changes |= {"terms": tighten(call.terms, now), "effect_key": key}
    if (both := raised_terms(call, now)) is not None:
        what = "the edited arguments meet" if edited else "there is"
        reason, changes["terms"] = f"{what} a stricter rule: {now.rule}", both
    whole = {"thread": call.thread, "run": call.run, "call": call.id, "reason": reason, **changes}
    return Reask(**whole) if reason else None


def raised_terms(call: Call, now: Terms) -> Terms | None:
    """The terms of a call and today's at once, if today's demand more; else nothing."""
    if now == call.terms:
        return None
    both = tighten(call.terms, now)
    return both if is_stricter(call.terms, both) else None


def called_off(call: Call, reason: str, *, by: str = "agent") -> Cancel:
    """The command that ends a call which cannot run any more."""
    return Cancel(thread=call.thread, run=call.run, call=call.id, by=by, reason=reason)


def _unfit(call: Call, changed: bool, error: InvalidCall) -> str:
    if changed:
        return f"the tool {call.tool} changed, and takes other arguments now: {error}"
    return f"the tool does not take the edited arguments: {error}"
