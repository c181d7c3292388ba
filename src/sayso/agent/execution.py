"""Start and run the calls of a turn, side by side, through the gate's driver."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from sayso import codec
from sayso.agent.conversation import Conversation
from sayso.agent.events import Requested, ToolEnded, ToolPaused, ToolStarted
from sayso.agent.run_context import RunContext
from sayso.agent.sub_agent import SubAgentError
from sayso.agent.tool import Context
from sayso.agent.turn import CallSlot, Turn, call_function, hosted_plan, plan_of, step_tool
from sayso.engine.commands import Reask
from sayso.errors import Paused
from sayso.gate.backend import Cleared
from sayso.gate.driver import Ended
from sayso.gate.lease import RunLease
from sayso.gate.plan import Plan, cancel_call
from sayso.gate.scope import RunScope
from sayso.rows import Call, Run
from sayso.views import decision_made


async def clear_startable(turn: Turn) -> list[Cleared]:
    """Re-check the calls that may start and return those that passed.

    The others were asked again or closed.
    """
    ctx = turn.ctx
    backend, ready = ctx.gate.backend, []
    for slot in turn.startable:
        call, tool = slot.call, slot.tool
        assert call is not None
        if slot.hosted is not None:
            # The provider runs it: passing on the approval is all there is to do.
            checked = await backend.clear(hosted_plan(ctx, call.key, slot.hosted, call.args), call)
            if isinstance(checked, Cleared):
                checked = await backend.complete(scope_of(call, ctx), checked)
        elif tool is None or tool.function is None:
            gone = cancel_call(call, f"the tool {call.tool} no longer exists")
            checked = await backend.send(call, gone)
        else:
            checked = await backend.clear(plan_of(ctx, call.key, tool, call.args), call)
        if isinstance(checked, Cleared):
            ready.append(checked)
        else:
            slot.call = checked
    return ready


async def renew_previews(turn: Turn) -> None:
    """Preview again the calls that one reviewer edited and others have yet to decide."""
    for slot in turn.needs_preview:
        call, tool = slot.call, slot.tool
        assert call is not None
        assert tool is not None
        plan = plan_of(turn.ctx, call.key, tool, call.args)
        assert plan.preview is not None
        preview = await plan.preview(call.args, call.rev + 1)
        title = None if plan.title is None else plan.title(call.args)
        command = Reask(
            thread=call.thread, run=call.run, call=call.id, reason="", preview=preview, title=title
        )
        slot.call = await turn.ctx.gate.backend.send(call, command)


async def settle_doubts(turn: Turn) -> None:
    async def settle(slot: CallSlot) -> None:
        assert slot.call is not None
        assert slot.tool is not None
        assert slot.tool.settle is not None
        slot.call = await turn.ctx.gate.backend.settle(slot.call, slot.tool.settle)

    await asyncio.gather(*map(settle, turn.in_doubt))


class Execution:
    """One round of running the calls that this process has just started."""

    def __init__(self, turn: Turn, lease: RunLease, conversation: Conversation) -> None:
        self.turn = turn
        self.ctx: RunContext = turn.ctx
        self.lease = lease
        self.conversation = conversation
        self.slots = [slot for slot in turn.slots if slot.started_here]
        self._left = len(self.slots)
        #: Exceptions from sub-agents, whose calls can be resumed.
        self._errors: list[BaseException] = []
        #: The run after our record, if it was the only one.
        self.recorded: Run | None = None
        #: Whether the turn waits for people, whatever the running calls do.
        self._waits = any(slot.open and not slot.started_here for slot in turn.slots)

    async def run(self) -> None:
        """Run all of them. A pause or failure of one does not affect another."""
        if len(self.slots) == 1:
            self.recorded = await self._run(self.slots[0])
        else:
            outcomes = await asyncio.gather(*map(self._run, self.slots), return_exceptions=True)
            self._errors += [o for o in outcomes if isinstance(o, BaseException)]
        for error in self._errors:
            raise error

    async def _run(self, slot: CallSlot) -> Run | None:
        """Run one call. Return the run after its record."""
        call = slot.call
        assert call is not None
        slot.started_here = False
        scope = scope_of(call, self.ctx)
        self.ctx.tell(ToolStarted(call.id, call.tool, call.attempt))
        try:
            plan = self._plan(slot, call, scope)
            result = await self.ctx.gate.driver.execute(scope, plan, call, self.lease)
        except BaseException:
            self.ctx.tell(ToolPaused(call.id, call.tool, "in_doubt"))
            raise
        slot.call = result.call
        self._tell(slot, result)
        return scope.recorded

    def _tell(self, slot: CallSlot, ended: Ended) -> None:
        call = ended.call
        if ended.paused is not None:
            slot.inner_requests = tuple(r for r in ended.paused.requests if r.run != call.run)
            slot.paused_without_request = not ended.paused.requests
            for request in ended.paused.requests:
                self.ctx.tell(Requested(request))
        if slot.open:
            status = "suspended" if ended.paused is not None else "in_doubt"
            self.ctx.tell(ToolPaused(call.id, call.tool, status))
        else:
            slot.reported_end = True
            self.ctx.tell(ToolEnded(call.id, call.tool, slot.content, str(call.status)))

    def _plan(self, slot: CallSlot, call: Call, scope: RunScope) -> Plan:
        """Return the plan that runs the tool on the stored arguments, and only on those."""
        ctx, tool = self.ctx, slot.tool
        if slot.hosted is not None:

            async def approved(_: Call) -> bool:
                return True  # the provider gets the approval with the next request

            return replace(hosted_plan(ctx, call.key, slot.hosted, call.args), run=approved)
        assert tool is not None
        function = tool.function
        assert function is not None

        async def run(row: Call) -> Any:
            args, kwargs = tool.signature.load(row.args.encode())
            if tool.takes_context:
                args = (self._context(row, scope), *args)
            try:
                return await call_function(function, args, kwargs)
            except Paused:
                self._waits = True
                raise
            except SubAgentError as broke:
                self._waits = True
                self._errors.append(broke.error)
                raise Paused(row.run) from broke
            finally:
                # Keep the lease while others run, and for the next reply if nothing waits.
                self._left -= 1
                scope.hold = bool(self._left) or not self._waits

        return plan_of(ctx, call.key, tool, call.args, run=run)

    def _context(self, call: Call, scope: RunScope) -> Context:
        ctx = self.ctx
        return Context(
            run=call.run,
            thread=call.thread,
            requester=ctx.requester,
            call_id=call.id,
            key=call.id,
            attempt=call.attempt,
            messages=tuple(map(MappingProxyType, self.conversation.for_tool())),
            decision=decision_made(call),
            edited_from=None if call.original is None else codec.loads(call.original),
            deps=ctx.deps,
            _gate=ctx.gate,
            _scope=scope,
            _step_tool=partial(step_tool, ctx),
        )


def scope_of(call: Call, ctx: RunContext) -> RunScope:
    """Return the scope of one started call, for the requests it makes while it runs."""
    return RunScope(
        ctx.gate.driver,
        call.run,
        ctx.requester,
        thread=call.thread,
        prefix=f"{call.key}/",
        owner=ctx.owner,
        steps=True,
    )
