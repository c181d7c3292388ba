"""The re-check directly before a start: is this still what was approved, and may it run now?

Every path to a start comes through ``recheck``: guarded functions, the agent's turns, frameworks,
workers, and claims over HTTP. Nothing is cached. A process that waited in memory gets the same
check as one that came back a week later.
"""

from __future__ import annotations

from typing import Any

from sayso import codec
from sayso.engine.commands import Cancel, Reask
from sayso.engine.effects import shown_key
from sayso.errors import InvalidCall, NotAllowed
from sayso.gate.plan import Plan, effect_key_of
from sayso.policy import stricter, tightened
from sayso.rows import Call
from sayso.types import Terms, Verdict


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
        changes |= {"terms": tightened(call.terms, now), "effect_key": key}
    if (both := raised_terms(call, now)) is not None:
        what = "the edited arguments meet" if edited else "there is"
        reason, changes["terms"] = f"{what} a stricter rule: {now.rule}", both
    whole = {"thread": call.thread, "run": call.run, "call": call.id, "reason": reason, **changes}
    return Reask(**whole) if reason else None


def raised_terms(call: Call, now: Terms) -> Terms | None:
    """The terms of a call and today's at once, if today's demand more; else nothing."""
    if now == call.terms:
        return None
    both = tightened(call.terms, now)
    return both if stricter(call.terms, both) else None


def called_off(call: Call, reason: str, *, by: str = "agent") -> Cancel:
    """The command that ends a call which cannot run any more."""
    return Cancel(thread=call.thread, run=call.run, call=call.id, by=by, reason=reason)


def _unfit(call: Call, changed: bool, error: InvalidCall) -> str:
    if changed:
        return f"the tool {call.tool} changed, and takes other arguments now: {error}"
    return f"the tool does not take the edited arguments: {error}"
