"""What an approval no longer covers is asked again: a changed tool, context or policy."""

from __future__ import annotations

from dataclasses import replace

from assent import codec
from assent.engine.commands import Cancel, Reask
from assent.gate.plan import Plan
from assent.policy import stricter, tightened
from assent.rows import Call
from assent.types import Terms, Verdict


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
        # An edit is put to the policy again, here at the latest: the inbox may not know the policy.
        now = await plan.terms(codec.loads(call.args))
        if now.verdict is Verdict.DENY:
            return _forbidden(call, now)
        both = tightened(call.terms, replace(now, verdict=call.terms.verdict))
        if stricter(call.terms, both):
            reason = f"the edited arguments meet a stricter rule: {now.rule}"
            reask = replace(reask, reason=reason, terms=both)
    return reask if reask.reason else None


def _forbidden(call: Call, terms: Terms) -> Cancel:
    return Cancel(
        thread=call.thread,
        run=call.run,
        call=call.id,
        by=f"policy:{terms.rule}",
        reason=f"the policy ({terms.rule}) forbids the edited arguments",
    )
