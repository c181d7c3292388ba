"""What an approval no longer covers is asked again: a changed tool, context or policy."""

from __future__ import annotations

from dataclasses import replace

from assent import codec
from assent.engine.commands import Cancel, Reask
from assent.errors import InvalidCall
from assent.gate.plan import Plan
from assent.policy import stricter, tightened
from assent.rows import Call
from assent.types import Verdict


async def recheck(plan: Plan, call: Call) -> Reask | Cancel | None:
    """The command that takes an approved call back, or nothing if the approval still covers it."""
    reask = Reask(thread=call.thread, run=call.run, call=call.id, reason="")
    if plan.tool is not None and plan.tool.digest != call.tool_digest:
        reask = replace(reask, reason="the tool changed since the approval", tool=plan.tool)
    if plan.binds != call.binds:
        reask = replace(
            reask, reason="its surroundings changed since the approval", binds=plan.binds
        )
    if call.original is not None:
        # An edit is read and put to the policy here at the latest: the inbox may know neither.
        try:
            args = call.args if plan.reads is None else plan.reads(call.args)
        except InvalidCall as error:
            return called_off(call, f"the tool does not take the edited arguments: {error}")
        if args != call.args:
            reason = "the tool adds to the edited arguments, or reads them in another way"
            reask = replace(reask, reason=reason, args=args, args_hash=codec.sha256(args.encode()))
        now = await plan.terms(codec.loads(args))
        if now.verdict is Verdict.DENY:
            reason = f"the policy ({now.rule}) forbids the edited arguments"
            return called_off(call, reason, by=f"policy:{now.rule}")
        both = tightened(call.terms, replace(now, verdict=call.terms.verdict))
        if stricter(call.terms, both):
            reason = f"the edited arguments meet a stricter rule: {now.rule}"
            reask = replace(reask, reason=reason, terms=both)
    return reask if reask.reason else None


def called_off(call: Call, reason: str, *, by: str = "agent") -> Cancel:
    """The command that ends a call which cannot run any more."""
    return Cancel(thread=call.thread, run=call.run, call=call.id, by=by, reason=reason)
