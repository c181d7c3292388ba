"""What an approval no longer covers is asked again: a changed tool, context or policy."""

from __future__ import annotations

from dataclasses import replace

from sayso import codec
from sayso.engine.commands import Cancel, Reask
from sayso.errors import InvalidCall
from sayso.gate.plan import Plan
from sayso.policy import stricter, tightened
from sayso.rows import Call
from sayso.types import Verdict


async def recheck(plan: Plan, call: Call) -> Reask | Cancel | None:
    """The command that takes an approved call back, or nothing if the approval still covers it."""
    reask = Reask(thread=call.thread, run=call.run, call=call.id, reason="")
    changed = plan.tool is not None and plan.tool.digest != call.tool_digest
    if changed:
        reask = replace(reask, reason="the tool changed since the approval", tool=plan.tool)
    if plan.binds != call.binds:
        reask = replace(
            reask, reason="its surroundings changed since the approval", binds=plan.binds
        )
    args = call.args
    if plan.reads is not None and (changed or call.original is not None):
        try:
            args = plan.reads(call.args)
        except InvalidCall as error:
            return called_off(call, _unfit(call, changed, error))
        if args != call.args:
            whose = "edited arguments" if call.original is not None else "arguments"
            reason = f"the tool adds to the {whose}, or reads them in another way"
            reask = replace(reask, reason=reason, args=args, args_hash=codec.sha256(args.encode()))
    if call.original is not None or plan.policy not in (None, call.terms.policy):
        return await _judged(plan, call, args, reask)
    return reask if reask.reason else None


def _unfit(call: Call, changed: bool, error: InvalidCall) -> str:
    if changed:
        return f"the tool {call.tool} changed, and takes other arguments now: {error}"
    return f"the tool does not take the edited arguments: {error}"


async def _judged(plan: Plan, call: Call, args: str, reask: Reask) -> Reask | Cancel | None:
    """An edit is put to the policy here at the latest, for the inbox may not know it; and so is
    everything whose policy is another one by now."""
    whose = "the edited arguments" if call.original is not None else "it by now"
    now = await plan.terms(codec.loads(args))
    if now.verdict is Verdict.DENY:
        reason = f"the policy ({now.rule}) forbids {whose}"
        return called_off(call, reason, by=f"policy:{now.rule}")
    both = tightened(call.terms, now)
    if stricter(call.terms, both):
        what = "the edited arguments meet" if call.original is not None else "the policy has"
        reask = replace(reask, reason=f"{what} a stricter rule: {now.rule}", terms=both)
    return reask if reask.reason else None


def called_off(call: Call, reason: str, *, by: str = "agent") -> Cancel:
    """The command that ends a call which cannot run any more."""
    return Cancel(thread=call.thread, run=call.run, call=call.id, by=by, reason=reason)
