"""Starting and running the calls of a turn, side by side, through the gate's driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sayso import codec
from sayso.agent.context import Context
from sayso.agent.conversation import Conversation
from sayso.agent.events import Requested, ToolEnded, ToolPaused, ToolStarted
from sayso.agent.intake import hosted_plan, plan_of, preview_of
from sayso.agent.job import Job
from sayso.agent.nested import InnerBroke
from sayso.agent.offloop import called
from sayso.agent.turn import Slot, Turn
from sayso.engine.commands import Reask
from sayso.errors import Paused
from sayso.gate.backend import Cleared
from sayso.gate.driver import Ended
from sayso.gate.lease import RunLease
from sayso.gate.options import title_maker
from sayso.gate.plan import Plan
from sayso.gate.recheck import called_off
from sayso.gate.scope import RunScope
from sayso.rows import Call
from sayso.types import Json
from sayso.views import decision_made


async def cleared(turn: Turn) -> list[Cleared]:
    """Re-check what may start. Return the calls that may; the others were asked again or closed."""
    backend, ready = turn.job.gate.backend, []
    for slot in turn.startable:
        call, tool = slot.call, slot.tool
        assert call is not None
        if slot.hosted is not None:
            # The provider runs it: its approval is all that there is to carry out.
            checked = await backend.clear(
                hosted_plan(turn.job, call.key, slot.hosted, call.args), call
            )
            if isinstance(checked, Cleared):
                checked = await backend.complete(scope_of(call, turn.job), checked)
        elif tool is None or tool.function is None:
            gone = called_off(call, f"the tool {call.tool} is not there any more")
            checked = await backend.send(call, gone)
        else:
            checked = await backend.clear(plan_of(turn.job, call.key, tool, call.args), call)
        if isinstance(checked, Cleared):
            ready.append(checked)
        else:
            slot.call = checked
    return ready


async def show_again(turn: Turn) -> None:
    """Make the previews anew of what somebody edited and others have yet to decide."""
    for slot in turn.unshown:
        assert slot.call is not None
        assert slot.tool is not None
        call = slot.call
        shown = await preview_of(turn.job, slot.tool, call.args, call.rev + 1)
        make = title_maker(slot.tool.title, slot.tool.signature.parameters)
        title = None if make is None else make(call.args)
        command = Reask(
            thread=call.thread, run=call.run, call=call.id, reason="", preview=shown, title=title
        )
        slot.call = await turn.job.gate.backend.send(call, command)


async def ask_other_side(turn: Turn) -> None:
    """Ask the other side about the calls in doubt whose tools can."""

    async def ask(slot: Slot) -> None:
        call, tool = slot.call, slot.tool
        assert call is not None
        assert tool is not None
        plan = plan_of(turn.job, call.key, tool, call.args)
        slot.call = await turn.job.gate.driver.settle(plan, call)

    await asyncio.gather(*map(ask, turn.doubts))


async def _approved(_: Call) -> bool:
    """The provider runs it, and is given its approval with the next request."""
    return True


class Execution:
    """One round of running what this process has just started."""

    def __init__(self, turn: Turn, lease: RunLease, talk: Conversation) -> None:
        self.turn = turn
        self.job: Job = turn.job
        self.lease = lease
        self.talk = talk
        self.slots = [slot for slot in turn.slots if slot.ours]
        self._left = len(self.slots)
        #: What raised inside inner agents, whose calls are put back.
        self._broke: list[BaseException] = []
        #: Whether the turn waits for people, whatever comes of the calls that run now.
        self._waits = any(slot.open and not slot.ours for slot in turn.slots)

    async def run(self) -> None:
        """Run them all to their ends; a pause or a failure of one does not disturb another."""
        if len(self.slots) == 1:
            await self._run(self.slots[0])
        else:
            outcomes = await asyncio.gather(*map(self._run, self.slots), return_exceptions=True)
            self._broke += [o for o in outcomes if isinstance(o, BaseException)]
        for error in self._broke:
            raise error

    async def _run(self, slot: Slot) -> None:
        call = slot.call
        assert call is not None
        slot.ours = False
        scope = scope_of(call, self.job)
        self.job.tell(ToolStarted(call.id, call.tool, call.attempt))
        try:
            plan = self._plan(slot, call, scope)
            ended = await self.job.gate.driver.execute(scope, plan, call, self.lease)
        except BaseException:
            self.job.tell(ToolPaused(call.id, call.tool, "in_doubt"))
            raise
        slot.call = ended.call
        self._tell(slot, ended)

    def _tell(self, slot: Slot, ended: Ended) -> None:
        call = ended.call
        if ended.paused is not None:
            slot.inner = tuple(r for r in ended.paused.requests if r.run != call.run)
            slot.rests = not ended.paused.requests
            for request in ended.paused.requests:
                self.job.tell(Requested(request))
        if slot.open:
            status = "suspended" if ended.paused is not None else "in_doubt"
            self.job.tell(ToolPaused(call.id, call.tool, status))
        else:
            slot.told_ended = True
            self.job.tell(ToolEnded(call.id, call.tool, slot.content, str(call.status)))

    def _plan(self, slot: Slot, call: Call, scope: RunScope) -> Plan:
        """The code's side of a started call: its tool, on the stored bytes and nothing else."""
        tool = slot.tool
        if slot.hosted is not None:
            return replace(hosted_plan(self.job, call.key, slot.hosted, call.args), run=_approved)
        assert tool is not None
        function = tool.function
        assert function is not None

        async def run(row: Call) -> Any:
            args, kwargs = tool.signature.load(row.args.encode())
            if tool.takes_context:
                args = (context_of(row, self.job, self.talk.visible, scope), *args)
            try:
                return await called(function, args, kwargs)
            except Paused:
                self._waits = True
                raise
            except InnerBroke as broke:
                self._waits = True
                self._broke.append(broke.error)
                raise Paused(row.run, ()) from broke
            finally:
                # Keep the lease while others run, and for the next reply if nobody is waited for.
                self._left -= 1
                scope.hold = bool(self._left) or not self._waits

        return replace(plan_of(self.job, call.key, tool, call.args), run=run)


def scope_of(call: Call, job: Job) -> RunScope:
    """The run of one started call, for what it asks on its way."""
    return RunScope(
        job.gate.driver,
        call.run,
        job.requester,
        thread=call.thread,
        prefix=f"{call.key}/",
        owner=job.owner,
        steps=True,
    )


def context_of(
    call: Call, job: Job, said: Sequence[Mapping[str, Json]], scope: RunScope
) -> Context:
    """The context of one started call."""
    return Context(
        run=call.run,
        thread=call.thread,
        requester=job.requester,
        call_id=call.id,
        key=call.id,
        attempt=call.attempt,
        messages=tuple(MappingProxyType(message) for message in said),
        decision=decision_made(call),
        edited_from=None if call.original is None else codec.loads(call.original),
        deps=job.deps,
        _gate=job.gate,
        _scope=scope,
    )
